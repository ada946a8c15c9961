"""The registry of hosts and domains, and their records in the store.

The registry loads the host table, the domain table and the budget from the store, and writes them to it.
There is one record per host under `h/`, and `m/frontier` has the crawl-wide numbers. Some records change
outside a commit, for example when a host leaves the front or the user blocks a host. Records that change
outside a commit are collected in `notes` and written with the next batch.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
import numpy as np

from crawler.clock import past
from crawler.config import Config
from crawler.errors import DamageError
from crawler.frontier.hosts.budget import RULES, Budget, DomainTable
from crawler.frontier.hosts.table import NOWHERE, HostFlag, HostTable, host_key_bytes, stored_name
from crawler.storage.keys import FRONTIER
from crawler.storage.kv import Batch, KeyValue
from crawler.storage.reshard import load, pack

_MEMO_MAX = 32_768  # number of host names whose slots are kept in memory: about 4 MB
_FEW = 32  # below this number of hosts, packing records one by one is faster


class HostHash(Protocol):
    """The part of the fingerprinter's interface that the frontier uses."""

    def host_key(self, hostname: str) -> int: ...

    def host_key_beside(self, hostname: str, fingerprint: int) -> int:
        """Return the host key of a hostname, with the bucket taken from the fingerprint of a URL of the host."""

    def domain_key(self, domain: str) -> int:
        """Return the key of a registrable domain."""


class Meta(msgspec.Struct):
    """The value of `m/frontier`.

    It holds the last sequence number, the number of parked URLs for each rule, the limits by which these URLs
    were parked, and the instant of the latest opening after an unclean stop.
    """

    sequence: int = 0
    parked: dict[str, int] = {}
    limits: str = ""
    unclean_at: float = 0.0


class Registry:
    """Hosts by name or slot, with totals over all hosts.

    `todo` is the number of entries in all queues, including the entries in flight. `parked[i]` is the number
    of entries parked by the rule with the index i. `reached` is the number of hosts that have ever answered.
    """

    def __init__(
        self,
        store: KeyValue,
        config: Config,
        fingerprinter: HostHash,
        registrable_domain: Callable[[str], str],
    ) -> None:
        self._store = store
        self._fingerprinter = fingerprinter
        self._registrable_domain = registrable_domain
        self._delay = config.politeness.delay
        self.hosts = HostTable()
        self.domains = DomainTable()
        self.budget = Budget(config, self.hosts, self.domains)
        self.sequence = 0
        self.todo = 0
        self.parked = [0] * len(RULES)
        self.reached = 0
        self.stored_limits = ""
        self.unclean_at = 0.0
        self.notes: dict[bytes, bytes | None] = {}  # None: delete
        # for hosts that the store lacks: host key -> ready time and gap (`resume_gap`)
        self._gaps_of_unknown: dict[int, tuple[float, float]] = {}
        self.memo: dict[str, int] = {}  # slots of the host names seen most recently

    def open(self, now: float, clean: bool, *, reading: bool = False) -> None:
        """Load all records. Unless `reading`, let hosts that were given up be tried again.

        After an unclean stop, each host first waits for its gap, or for `politeness.delay` if that is longer.
        If no frontier has used the store before, no request has been made and no host waits.
        """
        domain_keys = [np.array(records["domain_key"]) for records in self.hosts.load(self._store)]
        if domain_keys:
            self.domains.fill(np.concatenate(domain_keys), self.hosts)
        if not self._read_meta():
            self._note_first()
        elif clean:
            # If the clock was set back, the stored instant is in the future. It is replaced by `now`, so that hosts
            # do not wait for it.
            self.unclean_at = past(self.unclean_at, now)
        else:
            self.unclean_at = now
        self.hosts.opened_at = self.unclean_at + self._delay if self.unclean_at else 0.0
        self._set_instants(now)
        if not reading:
            self._try_again()
        self.todo = int(self.hosts.array("todo").sum())
        self.reached = int(((self.hosts.array("flags") & HostFlag.REACHED) != 0).sum())

    def _set_instants(self, now: float) -> None:
        """Limit the stored ready times to now + gap.

        After an unclean stop, there may have been requests that no record mentions. So each host waits for
        its gap, or for `politeness.delay` if that is longer, counted from the opening of the store after that
        stop.
        """
        hosts = self.hosts
        # float32 is too coarse for instants
        ready, gap = (hosts.array("ready"), hosts.array("gap").astype(np.float64))
        ready = np.minimum(ready, now + gap)
        hosts.put("ready", slice(None), np.maximum(ready, self.unclean_at + np.maximum(gap, self._delay)))
        # The time during which no process ran does not count as silence of a host.
        hosts.put("silent_since", hosts.array("silent_since") > 0.0, now)

    def _try_again(self) -> None:
        """Let hosts that the last run gave up be tried again."""
        hosts = self.hosts
        given_up = (hosts.array("flags") & HostFlag.GIVEN_UP) != 0
        for name in ("failures", "silent_since", "cause"):
            hosts.put(name, given_up, 0)
        hosts.put("flags", slice(None), hosts.array("flags") & np.uint16(0xFFFF ^ HostFlag.GIVEN_UP))

    def resume_gap(self, key: int, ready: float, gap: float) -> None:
        """Let a host wait until `ready`, because a process that was killed made a request that the store lacks.

        The store may lack the host, too. Then the wait applies when a link to the host is found again.
        """
        slot = self.hosts.find(key)
        if slot == NOWHERE:
            self._gaps_of_unknown[key] = ready, gap
        elif ready > self.hosts.ready[slot]:
            self.hosts.ready[slot], self.hosts.gap[slot] = ready, gap
            self.note(slot, self.stored_name(slot))

    def _note_first(self) -> None:
        """Record that requests may be made from now on, so that the next opening detects an unclean stop."""
        batch = self._store.batch(sync=True)
        self.put_meta(batch)
        self._store.write(batch)

    def _read_meta(self) -> bool:
        """Read the crawl-wide numbers; return False if there are none yet."""
        meta = load(self._store, FRONTIER, Meta, None)
        if meta is None:
            if len(self.hosts):
                raise DamageError(f"store: there are host records, but the key {FRONTIER!r} is missing")
            return False
        if not meta.parked.keys() <= set(RULES):
            raise DamageError(f"store: the value of key {FRONTIER!r} names an unknown rule")
        for rule, count in meta.parked.items():
            self.parked[RULES.index(rule)] = count
        self.sequence, self.stored_limits, self.unclean_at = meta.sequence, meta.limits, meta.unclean_at
        return True

    def put_meta(self, batch: Batch) -> None:
        """Put the crawl-wide numbers into the batch."""
        parked = {rule: count for rule, count in zip(RULES, self.parked, strict=True) if count}
        meta = Meta(self.sequence, parked, self.budget.describe(), self.unclean_at)
        batch.put(FRONTIER, pack(meta))

    def host_key(self, name: str) -> int:
        return self._fingerprinter.host_key(name)

    def domain_key(self, name: str) -> int:
        return self._fingerprinter.domain_key(self._registrable_domain(name))

    def find(self, name: str) -> int:
        """Return the slot of the host `name`, or NOWHERE."""
        return self.hosts.find(self._fingerprinter.host_key(name))

    def slot(self, name: str) -> int:
        """Return the slot of the host `name`, adding the host if it is new."""
        slot = self.memo.get(name, NOWHERE)
        return slot if slot != NOWHERE else self._slot(name, self._fingerprinter.host_key(name))

    def slot_beside(self, name: str, fingerprint: int) -> int:
        """Like `slot`, for the host of a URL whose fingerprint is known. This saves the look-up of the domain."""
        return self._slot(name, self._fingerprinter.host_key_beside(name, fingerprint))

    def _slot(self, name: str, key: int) -> int:
        slot = self.hosts.find(key)
        if slot == NOWHERE:
            slot = self._new_host(key, name)
        if len(self.memo) >= _MEMO_MAX:
            self.memo.clear()
        self.memo[name] = slot
        return slot

    def _new_host(self, key: int, name: str) -> int:
        slot = self.hosts.insert(key)
        if self.unclean_at:
            # the store may lack a request that was made to the host before an unclean stop
            self.hosts.ready[slot] = self.unclean_at + self._delay
        if self._gaps_of_unknown and (found := self._gaps_of_unknown.pop(key, None)) is not None:
            ready, self.hosts.gap[slot] = found
            self.hosts.ready[slot] = max(self.hosts.ready[slot], ready)
        domain_key = self.domain_key(name)
        domain = self.domains.find(domain_key)
        self.hosts.domain[slot] = self.domains.insert(domain_key) if domain == NOWHERE else domain
        self.budget.meet_host(slot)
        return slot

    def reach(self, slot: int) -> None:
        """Record that the host has answered. This fact is stored with the host's record."""
        if not self.hosts.flags[slot] & HostFlag.REACHED:
            self.hosts.flags[slot] |= HostFlag.REACHED
            self.reached += 1

    def stored_name(self, slot: int) -> str:
        """Return a host's name from the store; raises DamageError if it is missing."""
        return stored_name(self._store, self.hosts.key[slot])

    def is_stored(self, slot: int) -> bool:
        return self._store.get(host_key_bytes(self.hosts.key[slot])) is not None

    def record(self, slot: int, name: str) -> tuple[bytes, bytes]:
        """Return the store key and value of a host, and drop any pending note for the host.

        The caller must write the value at once, because it replaces the note.
        """
        hosts = self.hosts
        key = host_key_bytes(hosts.key[slot])
        if self.notes:
            self.notes.pop(key, None)
        return key, hosts.pack(slot, name, self.domains.key[hosts.domain[slot]])

    def records(self, names: Mapping[int, str]) -> list[tuple[bytes, bytes]]:
        """Return the results of `record` for many hosts, given as slot -> name."""
        if len(names) < _FEW:
            return [self.record(slot, name) for slot, name in names.items()]
        keys = [host_key_bytes(self.hosts.key[slot]) for slot in names]
        if self.notes:
            for key in keys:
                self.notes.pop(key, None)
        slots = list(names)
        domain_keys = self.domains.gather("key", self.hosts.gather("domain", np.array(slots, np.intp)))
        values = self.hosts.pack_many(slots, names.values(), domain_keys)
        return list(zip(keys, values, strict=True))

    def note(self, slot: int, name: str) -> None:
        """Write the host's record with the next batch."""
        key, value = self.record(slot, name)
        self.notes[key] = value

    def put_notes(self, batch: Batch) -> None:
        for key, value in self.notes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        self.notes.clear()
