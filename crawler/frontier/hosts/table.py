"""The host table: the state of every host, as columns of numbers.

A crawl knows a million hosts, but sends requests to only a few hundred at a time. A Python object per host
would take several hundred bytes. A host is therefore a *slot*, that is, an index into columns of numbers (a
struct of arrays). An open-addressing index with 4 bytes per position finds the slot of a 64-bit host key.
Names are not kept in the table: all names are in the store (`h/`), and the host objects of the front have
their own names.

    key -> index (4 bytes at a load of at most 2/3) -> slot -> columns (64 bytes)

A column is an `array.array` that exists as long as the table and grows in place. A caller may keep a column,
and then also sees rows that are added later. Reading one number costs 25 ns and returns a plain int or float.
To read a whole column, use `array` or `gather`, which return copies; to write it, use `put`. The table never
returns a view of a column's memory, because a view would become stale or prevent growth.

`place` names the structure that holds the host, so that a host is in exactly one structure
(`workbench.py`). `flags` are mainly the reasons why the host may not be requested at all. `link`
chains hosts in the back queue and in the calendar.

In the store, a host is `h/` + 8-byte key -> checksummed fixed part + name. The fixed part is
RECORD, 68 bytes, which begins with the key. A host without any request so far (most hosts of a
large crawl) has SHORT instead of RECORD: 28 bytes, which begin with the inverted low half of the key.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from crawler.errors import DamageError
from crawler.storage.keys import HOST
from crawler.storage.kv import KeyValue, scan_prefix, seal, unseal

NOWHERE = -1  # end of a chain of slots; also the result for an unknown host
NO_ORDER = (1 << 64) - 1  # greater than the order of any queue entry


def _dtype(layout: struct.Struct, names: str) -> np.dtype:
    """Return the type of rows with this layout and these names of fields."""
    return np.dtype([(name, f"<{code}") for name, code in zip(names.split(), layout.format[1:], strict=True)])


RECORD = struct.Struct("<QdffdQIIIQHBBHH")
_RECORD_TYPE = _dtype(
    RECORD,
    "key ready gap slowdown silent_since cursor todo parked known domain_key flags failures refusals cause maps",
)
SHORT = struct.Struct("<IQIIQ")
_SHORT_TYPE = _dtype(SHORT, "mark cursor todo known domain_key")
_SHORT_COLUMNS = ("cursor", "todo", "known")
# A short record begins with the low half of the host key, with all bits inverted. A full record begins with the
# host key itself, so it never looks like a short one.
_MARK = 0xFFFF_FFFF
_KEY_TYPE = np.dtype([("prefix", "S2"), ("key", ">u8")])
_STORED = [name for name in _RECORD_TYPE.names or () if name != "domain_key"]
_LEFT_OUT = [name for name in _STORED if name != "key" and name not in _SHORT_COLUMNS]
_TYPECODES = {"u8": "Q", "f8": "d", "f4": "f", "u4": "I", "i4": "i", "u2": "H", "u1": "B"}
# number of slots that each insert moves to a larger index, so that the move ends long before the next doubling
_MOVED_AN_INSERT = 16
_OPEN_CHUNK = 65_536  # hosts decoded at once on opening: 5 MB of records in memory


class HostState:
    """The state of a host, that is, which structure holds the host.

    States are plain integers, because an operation on an enum member takes 0.5 us.
    """

    IDLE = 0  # the host has nothing to do, or must not be requested
    BACK = 1  # in the back queue: it is ready and waits to enter the front
    CALENDAR = 2  # in the calendar: it waits for its ready time
    FRONT = 3  # in the front: it has an object in the workbench
    ASIDE = 4  # its new entries are not committed yet


class HostFlag:
    """Flags of a host, mostly reasons not to request it. All except GIVEN_UP persist across runs."""

    BLOCKED = 1  # blocked by the user
    REFUSED = 2  # held after too many refusals in a row
    GIVEN_UP = 4  # given up, for this run only: no answer for days, or no address
    EXCLUDED = 8  # its domain has more hosts than allowed, so the host's URLs are parked
    # this flag does not prevent requests; the host's last page arrived quickly, so the host may use the fetch
    # slots reserved for prompt hosts
    PROMPT = 16
    # this flag does not prevent requests; the host has answered a request, in this run or before
    REACHED = 32
    # this flag does not prevent requests; the host's last page was slow, but the host answers, so it may hold
    # a fetch slot longer than a host that does not answer
    LATE = 64


GAVE_UP = int(HostFlag.REFUSED | HostFlag.GIVEN_UP)  # set by the crawl itself, because the host failed
SILENCED = GAVE_UP | int(HostFlag.BLOCKED)


class KeyedTable:
    """Columns of numbers whose rows (slots) are found by a 64-bit key.

    Slots are assigned in order of insertion and never freed. The low 48 bits of a key are already a keyed
    hash (`urls/fingerprint.py`). So the low bits select the home position in the index. If this position is
    taken, the slot goes to the next free one.
    """

    columns: ClassVar[dict[str, str]] = {}

    key: "array[int]"

    def __init__(self, capacity: int = 1024) -> None:
        self.count = 0
        self._capacity = 0
        self._former: Any = None  # the index before it doubled; kept while its slots are being moved
        self._former_mask = 0
        self._index: Any = None
        self._mask = -1
        self._to_move = range(0)  # slots that are in the old index and not yet in the new one
        self._kinds = {"key": "u8", **self.columns}
        self._columns = {name: array(_TYPECODES[kind]) for name, kind in self._kinds.items()}
        for name, column in self._columns.items():
            setattr(self, name, column)
        self._grow(max(1, capacity))

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.count} rows, {self.bytes_held / max(1, self.count):.0f} bytes each)"
        )

    @property
    def bytes_held(self) -> int:
        """The size of all columns and the index, in bytes."""
        former = 0 if self._former is None else self._former.nbytes
        return sum(map(sys.getsizeof, self._columns.values())) + self._index_array.nbytes + former

    def array(self, name: str) -> np.ndarray:
        """Return a copy of the column `name`, shape (count,)."""
        return self._view(name).copy()

    def gather(self, name: str, slots: np.ndarray | slice) -> np.ndarray:
        """Return the numbers of the column `name` at `slots`, shape (n,)."""
        return self._view(name)[slots].copy()

    def put(self, name: str, where: np.ndarray | slice, values: np.ndarray | float) -> None:
        """Write `values` into rows of the column `name`; the rows are slots, a mask of shape (count,), or a slice."""
        self._view(name)[where] = values

    def _view(self, name: str) -> np.ndarray:
        """Return a view of the column's own memory. Never keep it: while it exists, the column cannot grow."""
        return np.frombuffer(self._columns[name], self._kinds[name])[: self.count]

    def find(self, key: int) -> int:
        """Return the slot of `key`, or NOWHERE."""
        index, keys, mask = self._index, self.key, self._mask
        position = key & mask
        while (slot := index[position]) != NOWHERE:
            if keys[slot] == key:
                return slot
            position = (position + 1) & mask
        return NOWHERE if self._former is None else self._find_former(key)

    def _find_former(self, key: int) -> int:
        """Like `find`, but search the former index."""
        index, keys, mask = self._former, self.key, self._former_mask
        position = key & mask
        while (slot := index[position]) != NOWHERE:
            if keys[slot] == key:
                return int(slot)
            position = (position + 1) & mask
        return NOWHERE

    def insert(self, key: int) -> int:
        """Return a new slot for `key`, which must be new. All columns of the slot are 0."""
        if self.count == self._capacity:
            self._grow(self.count + max(256, self.count >> 3))
        slot = self.count
        self.key[slot] = key
        self.count += 1
        self._put(slot)
        if self._former is not None:
            self._move(_MOVED_AN_INSERT)
        return slot

    def _put(self, slot: int) -> None:
        """Put a slot into the index: at its home position, or the first free position after it."""
        index, mask = self._index, self._mask
        position = self.key[slot] & mask
        while index[position] != NOWHERE:
            position = (position + 1) & mask
        index[position] = slot

    def _move(self, slots_max: int) -> None:
        """Move up to `slots_max` slots from the former index. Drop the former index after its last slot."""
        for slot in self._to_move[:slots_max]:
            self._put(slot)
        self._to_move = self._to_move[slots_max:]
        if not self._to_move:
            self._former = None

    def extend(self, records: np.ndarray) -> int:
        """Append rows from a structured array with fields for some columns, and return the first slot."""
        first = self.count
        if first + len(records) > self._capacity:
            self._grow(first + max(len(records), first >> 3))
        self.count += len(records)
        for name in set(records.dtype.names or ()) & set(self._columns):
            self.put(name, slice(first, None), records[name])
        self._enter(self._to_move.start if self._former is not None else first)
        self._former, self._to_move = None, range(0)
        return first

    def _grow(self, capacity: int) -> None:
        """Make room for `capacity` rows. The column objects stay the same."""
        for column in self._columns.values():
            column.frombytes(bytes(column.itemsize * (capacity - len(column))))
        self._capacity = capacity
        size = 1 << (capacity * 3 // 2).bit_length()
        if size != self._mask + 1:
            self._move(len(self._to_move))
            # the next inserts move the slots step by step, because moving a million at once took 0.1 s
            if self.count:
                self._former, self._former_mask = self._index, self._mask
                self._to_move = range(self.count)
            self._index_array = np.full(size, NOWHERE, dtype=np.int32)
            self._index = memoryview(self._index_array)  # type: ignore[arg-type]
            self._mask = size - 1

    def _enter(self, first: int) -> None:
        """Put all slots whose number is at least `first` into the index, in rounds.

        In each round, some slots find a free position.
        """
        index = self._index_array
        slots = np.arange(first, self.count, dtype=np.int32)
        positions = self.gather("key", slots) & np.uint64(self._mask)
        while len(slots):
            free = index[positions] == NOWHERE
            index[positions[free]] = slots[free]
            lost = index[positions] != slots
            slots, positions = slots[lost], (positions[lost] + np.uint64(1)) & np.uint64(self._mask)

    def _check(self) -> None:
        """Assert that each key is found at its slot and that the index holds nothing else."""
        indexed = int((self._index_array != NOWHERE).sum()) + len(self._to_move)
        assert indexed == self.count <= self._capacity
        assert (self._former is None) == (not self._to_move)
        for slot in range(self.count):
            assert self.find(self.key[slot]) == slot


class HostTable(KeyedTable):
    """All hosts of this process.

    `ready` is the instant from which the host may be requested. `gap` is the wait in seconds after its last
    request, and `slowdown` is the factor on the gap after 429 and 503 (0 means 1). `silent_since` is the
    instant of the first failure since the last answer (0 if there is none). `cursor` is a lower bound of the
    orders in the host's queue. `todo` is the number of entries in the queue, including the entry in flight,
    and `parked` is the number of parked entries. The budgets use `known`, the number of pages ever accepted,
    and `maps`, the number of sitemaps. `domain` is the slot in the table of domains. `cause` is the reason
    why the host was given up or held.
    """

    columns: ClassVar[dict[str, str]] = {
        "ready": "f8",
        "gap": "f4",
        "slowdown": "f4",
        "silent_since": "f8",
        "cursor": "u8",
        "todo": "u4",
        "parked": "u4",
        "known": "u4",
        "domain": "i4",
        "link": "i4",
        "flags": "u2",
        "failures": "u1",
        "refusals": "u1",
        "cause": "u1",
        "maps": "u2",
        "place": "u1",
    }

    # Ready times up to this instant are not stored: opening the store gives this ready time to all hosts that
    # were never requested.
    opened_at = 0.0

    ready: "array[float]"
    gap: "array[float]"
    slowdown: "array[float]"
    silent_since: "array[float]"
    cursor: "array[int]"
    todo: "array[int]"
    parked: "array[int]"
    known: "array[int]"
    domain: "array[int]"
    link: "array[int]"
    flags: "array[int]"
    failures: "array[int]"
    refusals: "array[int]"
    cause: "array[int]"
    maps: "array[int]"
    place: "array[int]"

    def pack(self, slot: int, name: str, domain_key: int) -> bytes:
        """Return the stored value of a host."""
        if self._was_never_asked(slot):
            mark = self.key[slot] & _MARK ^ _MARK
            fixed = SHORT.pack(mark, self.cursor[slot], self.todo[slot], self.known[slot], domain_key)
            return seal(fixed + name.encode("ascii"))
        fixed = RECORD.pack(
            self.key[slot],
            self.ready[slot],
            self.gap[slot],
            self.slowdown[slot],
            self.silent_since[slot],
            self.cursor[slot],
            self.todo[slot],
            self.parked[slot],
            self.known[slot],
            domain_key,
            self.flags[slot],
            self.failures[slot],
            self.refusals[slot],
            self.cause[slot],
            self.maps[slot],
        )
        return seal(fixed + name.encode("ascii"))

    def _was_never_asked(self, slot: int) -> bool:
        """Return whether a short record suffices: opening the store restores the columns that it omits."""
        return not (
            self.flags[slot]
            or self.ready[slot] > self.opened_at
            or self.gap[slot]
            or self.parked[slot]
            or self.maps[slot]
            or self.slowdown[slot]
            or self.silent_since[slot]
            or self.failures[slot]
            or self.refusals[slot]
            or self.cause[slot]
        )

    def pack_many(self, slots: Sequence[int], names: Iterable[str], domain_keys: np.ndarray) -> list[bytes]:
        """Return the stored values of many hosts in a third of the time of `pack`; `domain_keys` is uint64 (n,)."""
        index = np.array(slots, np.intp)
        full, asked = np.zeros(len(index), _RECORD_TYPE), np.zeros(len(index), np.bool_)
        for column in _STORED:
            full[column] = self.gather(column, index)
        for column in _LEFT_OUT:
            asked |= full[column] > (self.opened_at if column == "ready" else 0)
        full["domain_key"] = domain_keys
        short = np.empty(len(index), _SHORT_TYPE)
        short["mark"] = ~full["key"] & np.uint64(_MARK)
        for column in (*_SHORT_COLUMNS, "domain_key"):
            short[column] = full[column]
        parts = {True: (full.tobytes(), RECORD.size), False: (short.tobytes(), SHORT.size)}
        values = []
        for number, (is_full, name) in enumerate(zip(asked.tolist(), names, strict=True)):
            fixed, size = parts[is_full]
            values.append(seal(fixed[number * size : (number + 1) * size] + name.encode("ascii")))
        return values

    def load(self, store: KeyValue) -> Iterator[np.ndarray]:
        """Append all hosts of the store; yield the records of each chunk after appending it."""
        kinds: dict[bool, tuple[list[bytes], list[bytes]]] = {True: ([], []), False: ([], [])}
        for key, value in scan_prefix(store, HOST):
            payload = unseal(key, value)
            is_full = _is_full(key, payload)
            keys, parts = kinds[is_full]
            keys.append(key)
            parts.append(payload[: RECORD.size if is_full else SHORT.size])
            if len(parts) == _OPEN_CHUNK:
                yield self._append(keys, parts, is_full)
                keys.clear()
                parts.clear()
        for is_full, (keys, parts) in kinds.items():
            if parts:
                yield self._append(keys, parts, is_full)

    def _append(self, keys: Sequence[bytes], parts: Iterable[bytes], is_full: bool) -> np.ndarray:
        stored = np.frombuffer(b"".join(keys), dtype=_KEY_TYPE)["key"]
        records = np.frombuffer(b"".join(parts), dtype=_RECORD_TYPE if is_full else _SHORT_TYPE)
        if not is_full:
            wrong = np.flatnonzero(records["mark"] != ~stored & np.uint64(_MARK))
            if len(wrong):
                raise DamageError(f"store: the value of key {keys[wrong[0]]!r} belongs to another host")
            short, records = records, np.zeros(len(records), _RECORD_TYPE)
            records["key"] = stored
            for column in (*_SHORT_COLUMNS, "domain_key"):
                records[column] = short[column]
        self.extend(records)
        return records


def _is_full(key: bytes, payload: bytes) -> bool:
    """Return True for the payload of a full host record, False for the payload of a short one.

    Raises:
        DamageError: the payload is too short for either form.
    """
    # a full record starts with the host key (8 bytes, little-endian)
    is_full = payload.startswith(key[:1:-1])
    if len(payload) < (RECORD.size if is_full else SHORT.size):
        raise DamageError(f"store: the value of key {key!r} is too short")
    return is_full


def full_record(key: bytes, payload: bytes) -> bytes:
    """Return RECORD and the name of a host from its store key `key` and its `payload`, which may be full or short.

    Raises:
        DamageError: the payload belongs to another host, or is too short.
    """
    if _is_full(key, payload):
        return payload
    mark, cursor, todo, known, domain_key = SHORT.unpack_from(payload)
    host = int.from_bytes(key[len(HOST) :], "big")
    if mark != host & _MARK ^ _MARK:
        raise DamageError(f"store: the value of key {key!r} belongs to another host")
    fixed = RECORD.pack(host, 0.0, 0.0, 0.0, 0.0, cursor, todo, 0, known, domain_key, 0, 0, 0, 0, 0)
    return fixed + payload[SHORT.size :]


def host_key_bytes(key: int) -> bytes:
    """Return the store key of a host."""
    return HOST + key.to_bytes(8, "big")


class StoredHost(NamedTuple):
    """The state of a host in the store: its name, and its values in some columns of the table."""

    name: str
    flags: int
    failures: int
    cause: int


def stored_host(store: KeyValue, key: int) -> StoredHost:
    """Return the stored state of the host `key`.

    Raises:
        DamageError: the store does not contain the host.
    """
    store_key, payload = _stored_payload(store, key)
    record = full_record(store_key, payload)
    *_, flags, failures, _refusals, cause, _maps = RECORD.unpack_from(record)
    return StoredHost(record[RECORD.size :].decode("ascii"), flags, failures, cause)


def stored_name(store: KeyValue, key: int) -> str:
    """Return the name of the host `key`.

    Raises:
        DamageError: the store does not contain the host.
    """
    store_key, payload = _stored_payload(store, key)
    return host_name_in(store_key, payload).decode("ascii")


def _stored_payload(store: KeyValue, key: int) -> tuple[bytes, bytes]:
    store_key = host_key_bytes(key)
    value = store.get(store_key)
    if value is None:
        raise DamageError(f"store: host {store_key!r} has URLs but no record")
    return store_key, unseal(store_key, value)


def host_name_in(key: bytes, payload: bytes) -> bytes:
    """Return the name in a stored host record, given its store key `key` and its `payload`."""
    return payload[RECORD.size if _is_full(key, payload) else SHORT.size :]
