"""Queue entries in the store: each host has one range of ordered keys.

    t/ + bucket 2 + host 6 + order 8   ->  encoded Todo         to do
    p/ + bucket 2 + host 6 + order 8   ->  encoded Todo         parked: beyond a budget or the depth

    order = class (8 bits) | depth (16 bits) | sequence (40 bits)

A scan of one host's keys therefore returns its URLs by class (`orders/classes.py`; 0 is first, 128 the
default), then breadth-first, then in order of arrival. Retries and parking do not change the order. But if a
better link to a URL is found before the URL is first tried, the class of its entry may change. The first
`MAPS_FIRST` sitemaps that a robots.txt names are fetched before the pages. The next 16 sitemaps are ordered
as if they were at depth 2, the next 32 as if they were at depth 3, and so on (`levels_of`), so they do not
delay all pages.

Scans start at the host's `cursor`, and read `frontier.read_ahead` entries at once, because LevelDB leaves a
tombstone for each deleted entry (`frontier/README.md`, "Queues and memory").

Of the URL, an entry stores only the *tail*, without the parts that the host's name implies: the tail is
`/a?b` for `https://NAME/a?b`, `h/a` for http, and `:8443/a` if the URL has a port.

Nearly all entries consist only of the following three parts and use a short form:

    tail | via 8 | low 48 bits of the fingerprint      little-endian; the bucket is in the key

All other entries are MessagePack arrays. The first byte of such an array is greater than the first byte of
any tail, so the two forms can be distinguished. At 10 URLs per host, LevelDB uses 42 bytes per short entry
and 48 bytes per array; 13 of these are for the key, the rest is compressed text.
"""

import struct
from collections.abc import Iterator

import msgspec

from crawler.storage.kv import KeyValue, seal, unseal

DEPTH_BITS = 16
SEQUENCE_BITS = 40
# The number of a host's sitemaps that are fetched before its pages. Nearly all sites name fewer sitemaps than
# this in their robots.txt.
MAPS_FIRST = 16
SEQUENCE_MAX = (1 << SEQUENCE_BITS) - 1
DEPTH_MAX = (1 << DEPTH_BITS) - 1


class Todo(msgspec.Struct, gc=False, array_like=True):
    """A URL in a host's queue; its depth is part of its order (`depth_of`).

    `attempt` is the number of failures charged to the URL. The URL is not tried again before `retry_at`
    (whole seconds). `rule` is the index of the rule that parked the URL. `strikes` is the number of failures
    that were charged to the host although probably only this URL caused them. The URL is ordered as if its
    depth were greater by `levels`.
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
    levels: int = 0


# An entry is stored as a MessagePack array or as its tail and two numbers. The first byte of an array is at
# least this number, and the first byte of a tail ("/", ":" or "h") is less.
_ARRAY_MIN = 0x80
_NUMBERS = struct.Struct("<QQ")
# bytes of `via` and of the low 48 bits of the fingerprint; its other 16 bits are in the key
_NUMBERS_BYTES = 14

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Todo)

Entry = tuple[int, Todo]  # (order, queue entry)


def make_order(place: int, depth: int, sequence: int) -> int:
    """Return the order of a new entry of class `place`; depths beyond 16 bits are capped."""
    if depth > DEPTH_MAX:
        depth = DEPTH_MAX
    return (place << DEPTH_BITS | depth) << SEQUENCE_BITS | sequence


def class_in_order(order: int) -> int:
    """Return the class encoded in an order."""
    return order >> DEPTH_BITS + SEQUENCE_BITS


def order_depth(order: int) -> int:
    """Return the depth encoded in an order."""
    return order >> SEQUENCE_BITS & DEPTH_MAX


def depth_of(order: int, entry: Todo) -> int:
    return max(0, order_depth(order) - entry.levels)


def split_url(url: str) -> tuple[str, str]:
    """Split a canonical URL into (host name, tail); `join_url` is the inverse."""
    start = 8 if url.startswith("https:") else 7
    end = url.find("/", start)
    name = url[start:end]
    if ":" in name:
        name = name[: name.index("]") + 1] if name[0] == "[" else name[: name.index(":")]
    tail = url[start + len(name) :]
    return name, tail if start == 8 else "h" + tail


def join_url(name: str, tail: str) -> str:
    return f"http://{name}{tail[1:]}" if tail[0] == "h" else f"https://{name}{tail}"


def split_authority(url: str) -> tuple[str, str]:
    """Split a canonical URL into (scheme://host[:port], path and query)."""
    end = url.find("/", 8)
    return url[:end], url[end:]


def encode(key: bytes, entry: Todo) -> bytes:
    """Return the stored value of `entry` for the store key `key`."""
    fingerprint = entry.fingerprint
    if (
        entry.redirects
        or entry.flags
        or entry.attempt
        or entry.retry_at
        or entry.rule
        or entry.strikes
        or entry.levels
        or fingerprint >> 48 != key[2] << 8 | key[3]
    ):
        return seal(_encoder.encode(entry))
    return seal(entry.tail.encode() + _NUMBERS.pack(entry.via, fingerprint)[:_NUMBERS_BYTES])


def decode(key: bytes, value: bytes) -> Todo:
    """Return the entry stored under the key `key`.

    Raises:
        DamageError: the value is damaged.
    """
    payload = unseal(key, value)
    if payload[0] >= _ARRAY_MIN:
        return _decoder.decode(payload)
    via, fingerprint = _NUMBERS.unpack(payload[-_NUMBERS_BYTES:] + key[3:1:-1])
    return Todo(payload[:-_NUMBERS_BYTES].decode(), fingerprint, via)


def entry_key(prefix: bytes, order: int) -> bytes:
    """Return the store key of the entry with this order. `prefix` is `t/` or `p/`, followed by the host key."""
    return prefix + order.to_bytes(8, "big")


def record(prefix: bytes, order: int, entry: Todo) -> tuple[bytes, bytes]:
    """Return the store key and the value of an entry, for the prefix `t/` or `p/` followed by a host key."""
    key = entry_key(prefix, order)
    return key, encode(key, entry)


def levels_of(maps: int) -> int:
    """Return the number of levels to add to the depth of the next sitemap of a host that has `maps` sitemaps."""
    return 0 if maps < MAPS_FIRST else 1 + (maps // MAPS_FIRST).bit_length()


# Builds the key that `entry_key` returns. The parts are TODO or PARKED, the host key, and the order.
make_key = struct.Struct(">2sQQ").pack


def read_queue(store: KeyValue, prefix: bytes, start: int) -> Iterator[Entry]:
    """Yield the entries of a queue (`prefix` = `t/` or `p/` and the host key) with order numbers from `start` on."""
    first = entry_key(prefix, start)
    for key, value in store.scan(first, prefix + b"\xff" * 9):
        yield int.from_bytes(key[10:], "big"), decode(key, value)
