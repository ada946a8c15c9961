"""Encodes the answers to requests that a process makes for a peer (`wire.Ask`).

    robots.txt of a host of p0 redirects to a host of p1:    p0 ── Ask{url} ──► p1, which knows when its host may be
                                                             p0 ◄── Fetched ─── requested, and requests the URL

An answer is a `Fetch` in MessagePack, compressed, because a robots.txt may be nearly as long as a frame.
"""

import zlib

import msgspec

from crawler.records import UNDECODABLE, Fetch
from crawler.splitter.wire import ProtocolError

# Maximum size of a decompressed answer: a body and its decoded form, 512,000 bytes each, and 128 KiB of headers.
_BYTES_MAX = 2 << 20
_DECODER = msgspec.msgpack.Decoder(Fetch)


def encode_fetch(fetch: Fetch, bytes_max: int) -> bytes:
    """Return an answer of at most `bytes_max` bytes; b"" if that is not enough. A large file is not sent, either."""
    if fetch.part is not None or fetch.rendering is not None:
        return b""
    packed = msgspec.msgpack.encode(msgspec.structs.replace(fetch, known=None))
    answer = zlib.compress(packed, 1) if len(packed) <= _BYTES_MAX else b""
    return answer if len(answer) <= bytes_max else b""


def decode_fetch(answer: bytes) -> Fetch:
    """Return the `Fetch` that `encode_fetch` encoded; raise ProtocolError if the answer cannot be read."""
    try:
        unpacking = zlib.decompressobj()
        packed = unpacking.decompress(answer, _BYTES_MAX)
        if not unpacking.eof:
            raise ProtocolError("splitter: the answer of a peer is incomplete or too long")
        return _DECODER.decode(packed)
    except (zlib.error, *UNDECODABLE) as error:
        raise ProtocolError(f"splitter: the answer of a peer cannot be read: {error}") from error
