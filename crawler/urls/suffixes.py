"""The public suffix list, read once a process, on first use.

The library turns each of some 10,000 rules into A-labels: 40 ms in one turn of the
loop, longer on a busy machine. Only the few hundred that are not ASCII need it.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from ada_url import idna


@lru_cache(maxsize=1)
def suffix_list() -> Any:
    """The list, private section included: `privatesuffix(name)`, `is_public(name)`."""
    import publicsuffixlist  # imported when it is needed: some crawls never do

    with open(publicsuffixlist.PSLFILE, encoding="utf-8") as file:
        return publicsuffixlist.PublicSuffixList(_both_forms(file), accept_encoded_idn=False)


def _both_forms(lines: Iterator[str]) -> Iterator[str]:
    """The rules of the file, and those that are not ASCII once more in A-labels."""
    for line in lines:
        rule = line.partition(" ")[0].strip().lower()
        if not rule or rule.startswith("//"):
            continue
        yield rule
        if not rule.isascii():
            exception, name = ("!", rule[1:]) if rule[0] == "!" else ("", rule)
            yield exception + idna.encode(name).decode("ascii")


def suffix_list_version() -> str:
    """The version of the list; a crawl is pinned to it, since buckets depend on it."""
    from publicsuffixlist import __version__

    return str(__version__)
