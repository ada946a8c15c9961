"""A server's reply: built by the modules that decide, written by the I/O shell."""

from collections.abc import Callable, Iterator

import msgspec


class Reply(msgspec.Struct):
    """A reply: `head` (lines, without the empty one), then `body` or `pieces`.

    `length` is the length of the body, or UNKNOWN_LENGTH if only the end of `pieces` shows it.
    """

    status: int
    head: bytes
    length: int
    body: bytes | None = None
    pieces: Callable[[], Iterator[bytes]] | None = None
