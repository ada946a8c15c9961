"""The reply of a server: the deciding modules build it, and the I/O shell writes it."""

from collections.abc import Callable, Iterator

import msgspec


class Reply(msgspec.Struct):
    """A reply: A reply: the lines of `head` (without the empty line at the end), followed by `body` or `pieces`.

    `length` is the length of the body, or UNKNOWN_LENGTH if only the end of `pieces` shows it.
    """

    status: int
    head: bytes
    length: int
    body: bytes | None = None
    pieces: Callable[[], Iterator[bytes]] | None = None
