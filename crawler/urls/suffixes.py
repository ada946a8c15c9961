"""The public suffix list, read once per process, on first use.

The library that holds the list cannot be used, because it would convert each of some 10,000 rules to
A-labels. The conversion would block the event loop for 40 ms, or longer on a busy machine. So this module
converts the rules itself, but only the few hundred rules that are not ASCII.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from ada_url import idna

_HOSTS_MAX = 1 << 15  # number of hosts whose domain is cached; a process uses some 10,000 hosts at a time


@lru_cache(maxsize=1)
def suffix_list() -> Any:
    """Return the public suffix list with its private section; call its `privatesuffix(name)` or `is_public(name)`."""
    import publicsuffixlist  # imported only when it is needed, because some crawls never use it

    with open(publicsuffixlist.PSLFILE, encoding="utf-8") as file:
        return publicsuffixlist.PublicSuffixList(_both_forms(file), accept_encoded_idn=False)


def _both_forms(lines: Iterator[str]) -> Iterator[str]:
    """Yield the rules of the file. Rules that are not ASCII come as they are, and converted to A-labels."""
    for line in lines:
        rule = line.partition(" ")[0].strip().lower()
        if not rule or rule.startswith("//"):
            continue
        yield rule
        if not rule.isascii():
            exception, name = ("!", rule[1:]) if rule[0] == "!" else ("", rule)
            yield exception + idna.encode(name).decode("ascii")


@lru_cache(maxsize=_HOSTS_MAX)
def registrable_domain(name: str) -> str:
    """Return the registrable domain of a canonical host name by the public suffix list and its private section.

    For an IP address, a public suffix or a name without a public suffix, this is the name itself.
    """
    if name.endswith("]") or name.rpartition(".")[2].isdigit():
        return name
    return suffix_list().privatesuffix(name) or name


def suffix_list_version() -> str:
    """Return the version of the list. A crawl keeps its first version, because buckets depend on it."""
    from publicsuffixlist import __version__

    return str(__version__)
