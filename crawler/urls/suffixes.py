"""The public suffix list, read once a process, on first use: a table of rules, and look-ups in it.

    example.co.uk    a rule that matches as it is
    *.ck             a wildcard: b.ck is a suffix, and ck
    !www.ck          an exception from it: www.ck is none

The longest rule that matches decides, an exception before a wildcard before an exact rule; where none does, the
last label is the suffix (publicsuffix.org, "The list", its algorithm). A look-up of a name of three labels takes 0.8 us,
that of the package 2.4.

The package turns each of some 10,000 rules into A-labels: 40 ms in one turn of the
loop, longer on a busy machine. Only the few hundred that are not ASCII need it.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache

from ada_url import idna

_EXACT, _WILDCARD, _EXCEPTION = range(3)  # where a name has two rules, the larger one counts


class SuffixList:
    """Look-ups in a table of rules: names in lower case without a dot at the end, rules as in the file."""

    def __init__(self, rules: Iterable[str]) -> None:
        self._kinds: dict[str, int] = {}
        for rule in rules:
            kind, name = _EXACT, rule
            if rule[0] == "!":
                kind, name = _EXCEPTION, rule[1:]
            elif rule.startswith("*."):
                kind, name = _WILDCARD, rule[2:]
            self._kinds[name] = max(kind, self._kinds.get(name, _EXACT))

    def __len__(self) -> int:
        return len(self._kinds)

    def registrable(self, name: str) -> str:
        """The suffix of a name and one label more; "" if it has no further label, or one that is empty."""
        return self._parts(name)[0]

    def is_public(self, name: str) -> bool:
        """Whether the name is a public suffix."""
        return name != "" and self._parts(name)[1] == name

    def _parts(self, name: str) -> tuple[str, str]:
        """The registrable domain of a name, "" if it has none, and its public suffix."""
        if ".." in name or name.startswith(".") or name.endswith("."):
            return "", ""
        kinds = self._kinds
        before, previous, rest = "", "", name
        while rest not in kinds:
            shorter = rest.partition(".")[2]
            if not shorter:
                return previous, rest
            before, previous, rest = previous, rest, shorter
        kind = kinds[rest]
        if kind == _EXACT or (kind == _WILDCARD and not previous):
            return previous, rest
        return (before, previous) if kind == _WILDCARD else (rest, rest.partition(".")[2])


@lru_cache(maxsize=1)
def suffix_list() -> SuffixList:
    """The list, private section included."""
    import publicsuffixlist  # imported when it is needed: some crawls never do

    with open(publicsuffixlist.PSLFILE, encoding="utf-8") as file:
        return SuffixList(_both_forms(file))


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
