"""A server's answer: the noun between the modules that decide and the shell that sends."""

from collections.abc import Callable, Iterator

import msgspec


class Reply(msgspec.Struct):
    """What is written: `head` (lines, without the empty one), then `body` or `pieces`.

    `length` is that of the body, UNKNOWN_LENGTH if only its end tells.
    """

    status: int
    head: bytes
    length: int
    body: bytes | None = None
    pieces: Callable[[], Iterator[bytes]] | None = None
