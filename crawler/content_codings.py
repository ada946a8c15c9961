"""Decodes content codings (RFC 9110 8.4) piece by piece, within limits, for the fetcher and for readers of the archive.

A few hundred bytes can expand to gigabytes. Therefore, each call of a layer of coding produces at most a
fixed number of bytes, called a step. Decoding stops when any layer has produced `limit` bytes, counted over
all gzip members. The memory that the decoder uses is at most the limit plus one step per layer.

    wire bytes -> outer layer -> (inner layer) -> content, at most `limit` bytes

The module reads the wrappers (gzip, zlib) and gives isal only the raw deflate stream. So no content is lost
if a checksum is wrong or a trailer is missing. A damaged stream yields everything before the damage.
Decompressors drop the output of the call that fails, so the stream is decoded again in ever smaller pieces to
find the last byte that can be decoded. This is done only within the first `_KEPT_BYTES_MAX` bytes of a stream,
because the input is kept for it. If a stream is truncated, the output of its last symbol (at most 258
bytes) may be lost, because isal may hold it back. A body that is labelled gzip but is not gzip is returned
unchanged (`fetcher/README.md`, "Content codings and types").
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import brotli
from isal import isal_zlib

ACCEPTED = "gzip, deflate, br"  # Accept-Encoding: exactly the codings decoded here

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_HEADER_MAX = 64 << 10
_GZIP_TRAILER = 8
# enough gzip members for 64 MiB in bgzip's blocks of 64 KiB; this limit bounds the cost of empty members
_MEMBERS_MAX = 1024
_BROTLI_STEP = 64 << 10  # bytes; brotli's output grows in blocks, so a call for 64 KiB returns at most 96 KiB
_RECOVERY_PIECES = (4096, 64, 1)
_KEPT_BYTES_MAX = 4 << 20  # bytes of input that a stream keeps, to decode it again if it is damaged
_ERRORS: Any = (isal_zlib.error, brotli.error)


class UnknownCoding(ValueError):
    """The body has a coding that is not supported, or too many codings."""


class _Stream(Protocol):
    """A raw compressed stream. The stream is `hungry` when it needs new input to produce more output."""

    ended: bool
    hungry: bool
    rest: bytes

    def feed(self, data: bytes, step: int) -> bytes: ...


class _Deflate:
    __slots__ = ("_inflate", "_tail", "ended", "hungry", "rest")

    def __init__(self) -> None:
        self._inflate = isal_zlib.decompressobj(wbits=-15)
        self._tail = b""
        self.ended = False
        self.hungry = True
        self.rest = b""

    def feed(self, data: bytes, step: int) -> bytes:
        out: bytes = self._inflate.decompress(self._tail + data if self._tail else data, step)
        self._tail = self._inflate.unconsumed_tail
        self.ended = self._inflate.eof
        self.hungry = not self._tail and len(out) < step
        if self.ended:
            self.rest = self._inflate.unused_data
        return out


class _BrotliStream:
    __slots__ = ("_decompressor", "ended", "hungry", "rest")

    def __init__(self) -> None:
        self._decompressor = brotli.Decompressor()
        self.ended = False
        self.hungry = True
        self.rest = b""

    def feed(self, data: bytes, step: int) -> bytes:
        out: bytes = self._decompressor.process(data, output_buffer_limit=min(step, _BROTLI_STEP))
        self.ended = self._decompressor.is_finished()
        self.hungry = not out and self._decompressor.can_accept_more_data()
        return out


class _Layer:
    """One coding. `decode` yields the output of a piece; `finish` returns the output left at the end."""

    __slots__ = ()

    def decode(self, data: bytes, step: int) -> Iterator[bytes]:
        raise NotImplementedError

    def finish(self) -> bytes:
        return b""


class _Inflation(_Layer):
    """A raw stream while it is decoded. The input is kept, because recovery from damage decodes it again."""

    __slots__ = ("_fed", "_left", "_make", "_stream", "broken", "ended", "made", "rest")

    def __init__(self, make: Callable[[], _Stream]) -> None:
        self._make = make
        self._stream = make()
        self._fed: list[bytes] = []
        self._left = _KEPT_BYTES_MAX  # number of bytes that may still be kept; below 0, nothing is kept
        self.made = 0
        self.ended = False
        self.broken = False
        self.rest = b""

    def decode(self, data: bytes, step: int) -> Iterator[bytes]:
        if self.ended:
            return
        self._keep(data)
        while True:
            try:
                out = self._stream.feed(data, step)
            except _ERRORS:
                self.ended = self.broken = True
                yield from _slices(self._recovered(step)[self.made :], step)
                return
            self.made += len(out)
            if out:
                yield out
            if self._stream.ended:
                self.ended, self.rest = True, self._stream.rest
                return
            if self._stream.hungry or not (out or data):
                return
            data = b""

    def _keep(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self._fed.clear()
        else:
            self._fed.append(data)

    def _recovered(self, step: int) -> bytes:
        """Return the output of the longest prefix of the input that can be decoded."""
        data = b"".join(self._fed)
        good = 0
        for size in _RECOVERY_PIECES:
            good = self._last_good(data, good, size, step)
        out: list[bytes] = []
        _drain(self._make(), data[:good], step, out)
        return b"".join(out)

    def _last_good(self, data: bytes, good: int, size: int, step: int) -> int:
        stream, out = self._make(), list[bytes]()
        try:
            _drain(stream, data[:good], step, out)
            while good < len(data) and not stream.ended:
                _drain(stream, data[good : good + size], step, out)
                good += size
        except _ERRORS:
            pass
        return min(good, len(data))


def _drain(stream: _Stream, data: bytes, step: int, out: list[bytes]) -> None:
    """Append all output of `data` to `out`.

    The loop ends when all input is used, or when `feed` raises an error because the data is damaged.
    """
    while True:
        made = stream.feed(data, step)
        out.append(made)
        if stream.ended or stream.hungry or not (made or data):
            return
        data = b""


def _slices(data: bytes, step: int) -> Iterator[bytes]:
    for start in range(0, len(data), step):
        yield data[start : start + step]


class _Zlib(_Layer):
    """The coding deflate, with or without the zlib wrapper (RFC 9110 8.4.1.2)."""

    def __init__(self) -> None:
        self._head = b""
        self._wrapped = False
        self._inflation: _Inflation | None = None

    def decode(self, data: bytes, step: int) -> Iterator[bytes]:
        if self._inflation is None:
            self._head += data
            if len(self._head) < 2:
                return
            self._wrapped = self._head[0] & 0x0F == 8 and int.from_bytes(self._head[:2], "big") % 31 == 0
            data, self._inflation = self._head[2 if self._wrapped else 0 :], _Inflation(_Deflate)
        yield from self._inflation.decode(data, step)
        if self._wrapped and self._inflation.broken and not self._inflation.made:
            # the first bytes only resembled a zlib wrapper
            self._wrapped, self._inflation = (False, _Inflation(_Deflate))
            yield from self._inflation.decode(self._head, step)


class _Gzip(_Layer):
    """The coding gzip, of one or several members (RFC 1952 2.2).

    Data without gzip's magic number is passed through.
    """

    def __init__(self) -> None:
        self._head = b""
        self._skip = 0
        self._members = 0
        self._plain = False
        self._over = False
        self._inflation: _Inflation | None = None

    def decode(self, data: bytes, step: int) -> Iterator[bytes]:
        while data and not self._over:
            if self._plain:
                yield data
                return
            if self._inflation is None:
                data = self._open(data)
                if self._inflation is None and not self._plain:
                    return
                continue
            yield from self._inflation.decode(data, step)
            if not self._inflation.ended:
                return
            data = self._close(self._inflation)

    def _open(self, data: bytes) -> bytes:
        """Read a member's header; return the bytes after it."""
        if self._skip:
            dropped = data[: self._skip]
            self._skip -= len(dropped)
            data = data[len(dropped) :]
        self._head += data
        if len(self._head) < 2:
            return b""
        if self._head[:2] != _GZIP_MAGIC:
            self._plain = not self._members
            self._over = not self._plain  # trailing bytes
            return self._head
        length = _gzip_header_length(self._head)
        if length is None:
            self._over = len(self._head) > _GZIP_HEADER_MAX
            return b""
        data, self._head = self._head[length:], b""
        self._inflation = _Inflation(_Deflate)
        return data

    def _close(self, inflation: _Inflation) -> bytes:
        self._inflation = None
        self._members += 1
        self._skip = _GZIP_TRAILER
        self._over = inflation.broken or self._members >= _MEMBERS_MAX
        return inflation.rest

    def finish(self) -> bytes:
        return self._head if not self._members and len(self._head) < 2 else b""


def _gzip_header_length(data: bytes) -> int | None:
    """Return the length of the member header at the start of `data`; None if it is incomplete."""
    if len(data) < 10:
        return None
    flags, position = data[3], 10
    if flags & 4:
        position += 2 + int.from_bytes(data[10:12], "little")
    for flag in (8, 16):  # name and comment end with a zero byte
        if flags & flag:
            position = data.find(b"\0", position) + 1
            if not position:
                return None
    position += 2 if flags & 2 else 0
    return position if position <= len(data) else None


_LAYERS: dict[bytes, Callable[[], _Layer]] = {
    b"gzip": _Gzip,
    b"x-gzip": _Gzip,
    b"deflate": _Zlib,
    b"br": partial(_Inflation, _BrotliStream),
}
_NONE = (b"identity", b"")
LAYERS_MAX = 2  # maximum number of codings of one body that are undone


class Decoder:
    """Decodes a chain of codings. The decoder is `full` once a layer would exceed `limit` bytes."""

    __slots__ = ("_layers", "_limit", "_made", "_step", "full")

    def __init__(self, layers: Sequence[_Layer], *, limit: int, step: int) -> None:
        self._layers = layers
        self._limit = limit
        self._step = step
        self._made = [0] * len(layers)
        self.full = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the decoded content of `data` as a list of pieces. Once the decoder is `full`, the list is empty."""
        return list(self.pieces(data))

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield the decoded content of `data` in pieces of at most one step."""
        return self._through(0, data)

    def finish(self) -> list[bytes]:
        """Return the content that was held back until the end of the body."""
        pieces = []
        for index, layer in enumerate(self._layers):
            rest = layer.finish()
            if rest:
                pieces += list(self._through(index + 1, rest))
        return pieces

    def _through(self, index: int, data: bytes) -> Iterator[bytes]:
        if index == len(self._layers):
            yield data
            return
        for out in self._layers[index].decode(data, self._step):
            room = self._limit - self._made[index]
            if len(out) > room:
                self.full = True
                out = out[:room]
            self._made[index] += len(out)
            if out:
                yield from self._through(index + 1, out)
            if self.full:
                return

    def __repr__(self) -> str:
        layers = [type(layer).__name__ for layer in self._layers]
        return f"Decoder({layers}, made={self._made}, full={self.full})"


def can_decode(codings: Sequence[bytes]) -> bool:
    """Return whether all these codings (in lower case) can be undone."""
    return len(codings) <= LAYERS_MAX and all(name in _LAYERS for name in codings)


def decoder_of(codings: Sequence[bytes], *, limit: int, step: int) -> Decoder:
    """Return a decoder that undoes these codings, the last one first, up to the first one that it does not know."""
    known = itertools.takewhile(_LAYERS.__contains__, reversed(codings))
    return Decoder([_LAYERS[name]() for name in known], limit=limit, step=step)


def decoder_for(codings: Sequence[bytes], *, limit: int, step: int) -> Decoder | None:
    """Return the decoder of a body with these codings (lower case, in the order applied).

    Return None if there is nothing to decode.

    Raises:
        UnknownCoding: the body must be kept as received and not parsed.
    """
    names = [name for name in codings if name not in _NONE]
    if not names:
        return None
    if not can_decode(names):
        raise UnknownCoding(f"unknown content coding {b', '.join(names)[:40]!r}")
    return decoder_of(names, limit=limit, step=step)
