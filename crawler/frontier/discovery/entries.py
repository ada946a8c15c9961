"""To-do entries in the store: one ordered run of keys a host.

    t/ + bucket 2 + host 6 + order 8   ->  sealed Todo         to do
    p/ + bucket 2 + host 6 + order 8   ->  sealed Todo         parked: beyond a budget or the depth

    order = class (8 bits) | depth (16 bits) | sequence (40 bits)

so a scan of one host's keys gives its URLs by class (`orders/classes.py`; 0 first, 128 where
nobody gave one), then breadth-first, then in the order they came. A retry and a stay in the
park keep the order; a better link may give an entry that was not tried another class.

A queue in LevelDB leaves tombstones, and a scan from the queue's first key
walks over all of them: popping 10,000 URLs by seeking the prefix was measured
at 291 us each and growing, 4.4 us with a cursor. So a scan starts at the
host's `cursor`, and 32 to 64 entries are read at once.

The stored URL leaves out what the host's name says already: `/a?b` for
`https://NAME/a?b`, `h/a` for http, `:8443/a` with a port.

Nearly all entries have no other property and are stored short:

    tail | via 8 | low 48 bits of the fingerprint      little-endian; the bucket stands in the key

The others are MessagePack arrays; their first byte is above any
that a tail begins with. With 10 URLs a host LevelDB keeps 42 bytes a short entry and 48 an
array: 13 of the key, the rest compressed text.
"""

import struct
from collections.abc import Iterator

import msgspec

from crawler.storage.kv import KeyValue, seal, unseal

DEPTH_BITS = 16
SEQUENCE_BITS = 40
SEQUENCE_MAX = (1 << SEQUENCE_BITS) - 1
DEPTH_MAX = (1 << DEPTH_BITS) - 1


class Todo(msgspec.Struct, gc=False, array_like=True):
    """A URL of a host's queue; its depth is part of its order.

    `attempt` counts failures charged to it; before `retry_at` (whole seconds)
    it is not tried again. `rule` is the index of the rule that parked it, `strikes`
    counts host failures on this URL alone.
    """

    tail: str
    fingerprint: int
    via: int = 0
    redirects: int = 0
    flags: int = 0
    attempt: int = 0
    retry_at: int = 0
    rule: int = 0
    strikes: int = 0


_ARRAY_MIN = 0x80  # the least first byte of a MessagePack array; tails begin with "/", ":" or "h"
_NUMBERS = struct.Struct("<QQ")
_NUMBERS_BYTES = 14  # without the top 16 bits of the fingerprint

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Todo)

Entry = tuple[int, Todo]  # (order, what to do)


def make_order(place: int, depth: int, sequence: int) -> int:
    """The order of a new entry of the class `place`; depths beyond 16 bits count as the last one."""
    if depth > DEPTH_MAX:
        depth = DEPTH_MAX
    return (place << DEPTH_BITS | depth) << SEQUENCE_BITS | sequence


def class_in_order(order: int) -> int:
    """The class an order was made with."""
    return order >> DEPTH_BITS + SEQUENCE_BITS


def order_depth(order: int) -> int:
    """The depth an order was made with."""
    return order >> SEQUENCE_BITS & DEPTH_MAX


def split_url(url: str) -> tuple[str, str]:
    """(host name, tail) of a canonical URL; `join_url` is the inverse."""
    start = 8 if url.startswith("https:") else 7
    end = url.find("/", start)
    name = url[start:end]
    if ":" in name:
        name = name[: name.index("]") + 1] if name[0] == "[" else name[: name.index(":")]
    tail = url[start + len(name) :]
    return name, tail if start == 8 else "h" + tail


def join_url(name: str, tail: str) -> str:
    """The URL of `tail` on the host `name`."""
    return f"http://{name}{tail[1:]}" if tail[0] == "h" else f"https://{name}{tail}"


def split_authority(url: str) -> tuple[str, str]:
    """(scheme://host[:port], path and query) of a canonical URL."""
    end = url.find("/", 8)
    return url[:end], url[end:]


def encode(key: bytes, entry: Todo) -> bytes:
    """The value of `entry` at the store key `key`."""
    fingerprint = entry.fingerprint
    if (
        entry.redirects
        or entry.flags
        or entry.attempt
        or entry.retry_at
        or entry.rule
        or entry.strikes
        or fingerprint >> 48 != key[2] << 8 | key[3]
    ):
        return seal(_encoder.encode(entry))
    return seal(entry.tail.encode() + _NUMBERS.pack(entry.via, fingerprint)[:_NUMBERS_BYTES])


def decode(key: bytes, value: bytes) -> Todo:
    """The entry at the store key `key`.

    Raises:
        DamageError: it is not what was written.
    """
    payload = unseal(key, value)
    if payload[0] >= _ARRAY_MIN:
        return _decoder.decode(payload)
    via, fingerprint = _NUMBERS.unpack(payload[-_NUMBERS_BYTES:] + key[3:1:-1])
    return Todo(payload[:-_NUMBERS_BYTES].decode(), fingerprint, via)


def entry_key(prefix: bytes, order: int) -> bytes:
    """The store key of the entry `order` behind `t/` or `p/` and a host key."""
    return prefix + order.to_bytes(8, "big")


def record(prefix: bytes, order: int, entry: Todo) -> tuple[bytes, bytes]:
    """Store key and value of an entry behind `t/` or `p/` and a host key."""
    key = entry_key(prefix, order)
    return key, encode(key, entry)


# `entry_key` from its parts: (TODO or PARKED, host key, order).
make_key = struct.Struct(">2sQQ").pack


def read_queue(store: KeyValue, prefix: bytes, start: int) -> Iterator[Entry]:
    """The entries of one queue (`prefix` = `t/` or `p/` and the host key) from the order `start` on."""
    first = entry_key(prefix, start)
    for key, value in store.scan(first, prefix + b"\xff" * 9):
        yield int.from_bytes(key[10:], "big"), decode(key, value)
