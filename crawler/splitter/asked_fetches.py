"""Encodes the answers to requests that a process makes for a peer (`wire.Ask`).

    a page of p0 needs a file of a host of p1:    p0 ── Ask{request} ───► p1, which knows when its host may be
                                                  p0 ◄── Fetched{part} ── requested, and makes the request

An answer is a `Fetch` in MessagePack. It is sent in parts, because it may be longer than a frame.
"""

import msgspec

from crawler.records import UNDECODABLE, Fetch
from crawler.splitter.wire import ANSWER_BYTES_MAX, REQUEST_FIELDS_MAX, AskedRequest, ProtocolError

_DECODER = msgspec.msgpack.Decoder(Fetch)


def encode_fetch(fetch: Fetch) -> bytes:
    """Return an answer in the form in which it is sent; b"" if it is too long. A large file is not sent, either."""
    if fetch.part is not None or fetch.rendering is not None:
        return b""
    answer = msgspec.msgpack.encode(msgspec.structs.replace(fetch, known=None))
    return answer if len(answer) <= ANSWER_BYTES_MAX else b""


def decode_fetch(answer: bytes) -> Fetch:
    """Return the `Fetch` that `encode_fetch` encoded; raise ProtocolError if the answer cannot be read."""
    try:
        return _DECODER.decode(answer)
    except UNDECODABLE as error:
        raise ProtocolError(f"splitter: the answer of a peer cannot be read: {error}") from error


def is_too_long(asked: AskedRequest, bytes_max: int) -> bool:
    """Return whether a request is too long to be sent to the owner of its host."""
    return len(asked.headers) > REQUEST_FIELDS_MAX or len(msgspec.msgpack.encode(asked)) > bytes_max
