"""Holds a body in memory while it arrives: a small one as a list of pieces, a large one in a growing buffer.

Joining the pieces of a large body would need memory for two copies of it, and the freed pieces would stay in
the process's heap. The buffer grows in place (the C library moves large blocks by changing page tables), and
`io.BytesIO` returns its content without a copy.
"""

import io

# up to this many bytes, pieces are kept in a list, because joining them takes less than 0.1 ms
_PIECES_BYTES_MAX = 256 << 10


class HeldBody:
    """The bytes of a body received so far; `size` is the number of these bytes."""

    __slots__ = ("_buffer", "_pieces", "size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._buffer: io.BytesIO | None = None
        self.size = 0

    def append(self, piece: bytes) -> None:
        """Add the next bytes."""
        self.size += len(piece)
        if self._buffer is not None:
            self._buffer.write(piece)
        elif self.size <= _PIECES_BYTES_MAX:
            self._pieces.append(piece)
        else:
            self._buffer = io.BytesIO()
            for each in (*self._pieces, piece):
                self._buffer.write(each)
            self._pieces.clear()

    def joined(self) -> bytes:
        """Return all bytes. Until more bytes are added, every call returns the same object."""
        if self._buffer is not None:
            self._pieces, self._buffer = [self._buffer.getvalue()], None
        elif len(self._pieces) != 1:
            self._pieces = [b"".join(self._pieces)]
        return self._pieces[0]

    @property
    def start(self) -> bytes:
        """The first bytes; b"" if there are none yet."""
        if self._buffer is not None:
            return bytes(self._buffer.getbuffer()[:_PIECES_BYTES_MAX])
        return self._pieces[0] if self._pieces else b""

    def __repr__(self) -> str:
        return f"HeldBody({self.size:,} bytes)"
