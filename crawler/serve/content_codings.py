"""Undoes content codings piece by piece, so that a body of any size needs the memory of a few pieces.

A truncated coding yields the content before the break, as in `pages/reading.py`.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import brotli

PIECE_BYTES = 64 << 10  # of the pieces that are yielded
_GZIP = 31


def inflated(inflater: object, data: bytes) -> Iterator[bytes]:
    """Yield the decompressed bytes of `data`, in pieces; `inflater` is that of zlib or isal."""
    decompress = inflater.decompress  # type: ignore[attr-defined]
    piece = decompress(data, PIECE_BYTES)
    while piece:
        yield piece
        if inflater.eof:  # type: ignore[attr-defined]
            return
        piece = decompress(inflater.unconsumed_tail, PIECE_BYTES)  # type: ignore[attr-defined]


def decoded(pieces: Iterable[bytes], codings: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the content without its codings, undone from the last applied to the first.

    Decoding stops at an unknown coding; the content is passed with the codings that remain.
    """
    for name in reversed(codings):
        undo = _UNDONE_BY.get(name)
        if undo is None:
            break
        pieces = undo(pieces)
    return iter(pieces)


def can_decode(codings: Sequence[bytes]) -> bool:
    """Return whether all codings are supported."""
    return all(name in _UNDONE_BY for name in codings)


def _gunzip(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Decode gzip of one or several members; content that does not begin as gzip passes unchanged."""
    inflater = None
    head, plain = b"", False
    for piece in pieces:
        if plain:
            yield piece
            continue
        data = head + piece
        head = b""
        while data:
            if inflater is None:
                if len(data) < 2:
                    head = data
                    break
                if data[:2] != b"\x1f\x8b":
                    plain = True
                    yield data
                    break
                inflater = zlib.decompressobj(_GZIP)
            try:
                yield from inflated(inflater, data)
            except zlib.error:
                return
            if not inflater.eof:
                break
            data, inflater = inflater.unused_data, None
            if data[:2] not in (b"", b"\x1f", b"\x1f\x8b"):
                return  # bytes after the last member
    yield head


def _undeflate(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Decode deflate, with or without the zlib wrapper that it should have."""
    inflater = None
    for piece in pieces:
        if inflater is None:
            wrapped = piece[0] & 0x0F == 8 and int.from_bytes(piece[:2], "big") % 31 == 0
            inflater = zlib.decompressobj(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)
        try:
            yield from inflated(inflater, piece)
        except zlib.error:
            return
        if inflater.eof:
            return


def _unbrotli(pieces: Iterable[bytes]) -> Iterator[bytes]:
    decoder = brotli.Decompressor()
    try:
        for piece in pieces:
            made = decoder.process(piece, output_buffer_limit=PIECE_BYTES)
            while made:
                yield made
                made = decoder.process(b"", output_buffer_limit=PIECE_BYTES)
            if decoder.is_finished():
                return
    except brotli.error:
        return


_UNDONE_BY: dict[bytes, Callable[[Iterable[bytes]], Iterator[bytes]]] = {
    b"gzip": _gunzip,
    b"x-gzip": _gunzip,
    b"deflate": _undeflate,
    b"br": _unbrotli,
}
