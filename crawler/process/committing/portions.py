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
    if len(hrefs) <= PORTION_LINKS and sum(map(len, hrefs)) < PORTION_CHARS:
        if hrefs:
            yield hrefs
        return
    begin, chars = 0, 0
    for place, href in enumerate(hrefs):
        if place - begin == PORTION_LINKS or chars >= PORTION_CHARS:
            yield hrefs[begin:place]
            begin, chars = place, 0
        chars += len(href)
    if begin < len(hrefs):
        yield hrefs[begin:]
