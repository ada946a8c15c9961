"""The reply of a server.

The modules that decide what to answer build the reply, and the I/O shell writes it to the client.
"""

from collections.abc import Callable, Iterator

import msgspec


class Reply(msgspec.Struct):
    """A reply: the lines of `head` (without the empty line at the end), followed by `body` or `pieces`.

    `length` is the length of the body, or UNKNOWN_LENGTH if it is known only at the end of `pieces`.
    """

    status: int
    head: bytes
    length: int
    body: bytes | None = None
    pieces: Callable[[], Iterator[bytes]] | None = None
