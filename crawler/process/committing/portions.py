"""Splits long lists into portions, so that the processing of a list does not block the event loop for long.

A page may have 20,000 links, and a sitemap 50,000 URLs. All decisions about one such list belong to one
`Change`, which is committed as a whole. A generator makes this change and pauses after each portion. At a
pause, the commit loop lets other tasks run if its turn is over (`storage/commit.py`).
"""

from collections.abc import Iterator, Sequence

# A portion takes about 5 ms if all its links are new, or if all its URLs have the maximum length.
PORTION_LINKS = 256
PORTION_CHARS = 64 << 10


def portions(hrefs: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield `hrefs` in order, in portions of at most `PORTION_LINKS` and about `PORTION_CHARS`. No portion is empty."""
    for begin in range(0, len(hrefs), PORTION_LINKS):
        portion = hrefs[begin : begin + PORTION_LINKS]
        if sum(map(len, portion)) < PORTION_CHARS:
            yield portion
        else:
            yield from _by_chars(portion)


def _by_chars(hrefs: Sequence[str]) -> Iterator[Sequence[str]]:
    begin, chars = 0, 0
    for place, href in enumerate(hrefs):
        if chars >= PORTION_CHARS:
            yield hrefs[begin:place]
            begin, chars = place, 0
        chars += len(href)
    if begin < len(hrefs):
        yield hrefs[begin:]
