"""Make inputs that are nearly valid, by mutating a corpus with words of its grammar.

Parsers mostly fail after a small change to a valid input, or because of a word that is unexpected in its
place. Repetition exposes costs that grow faster than the input.
"""

import random
from collections.abc import Callable, Sequence

POOL_MAX = 400  # number of inputs kept in addition to the corpus
_NUMBERS = (
    b"0", b"-1", b"1", b"255", b"65536", b"2147483648", b"4294967296", b"18446744073709551616", b"1e309",
    b"-0", b"00000000000000000001", b"0x10", b"9" * 400, b"NaN", b"Infinity", b"\xd9\xa1",
)  # fmt: skip
_BYTES = (
    b"\0", b"\r", b"\n", b"\r\n", b"\t", b" ", b"\x0b", b"\x7f", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf",
    b"\xfe\xff", b"\xff\xfe", b"\xe2\x80\xa8", b"\xf4\x90\x80\x80", b"%", b"%00", b"%zz", b"\\", b'"', b"'", b"<", b">",
    b"&", b"&#x10FFFF;", b"&#55296;", b";", b",", b"=", b":", b"/", b"?", b"#", b"[", b"]", b"{", b"}", b"(", b")",
    b"*", b"$",
)  # fmt: skip


class Mutator:
    """Makes inputs of at most `size_max` bytes from the `corpus` and the inputs added by `keep`."""

    def __init__(
        self, corpus: Sequence[bytes], words: Sequence[bytes], size_max: int, rng: random.Random
    ) -> None:
        self._corpus = [*corpus]
        self._kept: list[bytes] = []
        self._words = [*words, *_NUMBERS, *_BYTES]
        self._size_max = size_max
        self._rng = rng
        self._ways: list[Callable[[bytearray], None]] = [
            self._flip, self._remove, self._copy, self._word, self._word, self._splice, self._number, self._swap,
            self._cut,
        ]  # fmt: skip

    def keep(self, data: bytes) -> None:
        """Add an input that had a new effect to the inputs that are mutated."""
        if len(self._kept) >= POOL_MAX:
            self._kept[self._rng.randrange(POOL_MAX)] = data
        else:
            self._kept.append(data)

    def next(self) -> bytes:
        """Return the next input."""
        rng = self._rng
        data = bytearray(self._any())
        for _ in range(1 + int(rng.expovariate(0.4))):
            rng.choice(self._ways)(data)
        if rng.random() < 0.1:
            self._repeat(data)
        return bytes(data[: self._size_max])

    def _any(self) -> bytes:
        kept = self._kept and self._rng.random() < 0.5
        return self._rng.choice(self._kept if kept else self._corpus)

    def _part(self, data: bytes | bytearray, most: int = 64) -> tuple[int, int]:
        start = self._rng.randrange(len(data) + 1)
        return start, min(len(data), start + self._rng.randrange(1, max(2, most)))

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self._rng.randrange(len(data))] = self._rng.randrange(256)

    def _remove(self, data: bytearray) -> None:
        start, end = self._part(data)
        del data[start:end]

    def _copy(self, data: bytearray) -> None:
        start, end = self._part(data)
        at = self._rng.randrange(len(data) + 1)
        data[at:at] = data[start:end]

    def _word(self, data: bytearray) -> None:
        at = self._rng.randrange(len(data) + 1)
        data[at:at] = self._rng.choice(self._words)

    def _splice(self, data: bytearray) -> None:
        other = self._any()
        start, end = self._part(other, 1 + len(other))
        at = self._rng.randrange(len(data) + 1)
        data[at:at] = other[start:end]

    def _number(self, data: bytearray) -> None:
        """Replace a number by another number."""
        places = [place for place, byte in enumerate(data[:4096]) if 48 <= byte <= 57]
        if places:
            start = end = self._rng.choice(places)
            while end < len(data) and 48 <= data[end] <= 57:
                end += 1
            data[start:end] = self._rng.choice(_NUMBERS)

    def _swap(self, data: bytearray) -> None:
        """Replace some bytes by a word."""
        start, end = self._part(data, 12)
        data[start:end] = self._rng.choice(self._words)

    def _cut(self, data: bytearray) -> None:
        if self._rng.random() < 0.3:
            del data[self._rng.randrange(len(data) + 1) :]

    def _repeat(self, data: bytearray) -> None:
        """Repeat a part of the input, a word or two words, up to the permitted size."""
        start, end = self._part(data)
        parts = [bytes(data[start:end]), self._rng.choice(self._words), self._rng.choice(self._words)]
        part = b"".join(self._rng.sample(parts, self._rng.randrange(1, 4))) or b"<"
        size = int(self._size_max ** self._rng.random()) if self._rng.random() < 0.7 else self._size_max
        data[start:start] = part * (1 + size // len(part))
