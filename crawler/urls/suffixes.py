"""The public suffix list, read once per process, on first use.

The package `publicsuffixlist` holds the list. Its own reader takes 100 ms, in which it would block the event
loop, because it converts each of some 10,000 rules to A-labels. `SuffixList` takes 8 ms: it converts only the few
hundred rules that are not ASCII.
"""

from functools import lru_cache

from ada_url import idna

_HOSTS_MAX = 1 << 15  # number of hosts whose domain is cached; a process uses some 10,000 hosts at a time


class SuffixList:
    """The rules of the list, ICANN's and private ones, for canonical names. The default rule `*` also applies.

    The list explains how to apply the rules: https://github.com/publicsuffix/list/wiki/Format
    """

    def __init__(self, text: str) -> None:
        # a rule is the beginning of its line, up to white space
        rules = [line.split(None, 1)[0] for line in text.split("\n") if line and line[0] != "/"]
        rules += [_in_a_labels(rule) for rule in rules if not rule.isascii()]
        self._rules = frozenset(rules)
        self._labels_max = max(rule.count(".") for rule in rules) + 1

    def registrable_domain(self, name: str) -> str:
        """Return the public suffix of a name and the label before it; the name itself if no label is before it."""
        labels = _labels(name)
        count = self._suffix_labels(labels) + 1
        return ".".join(labels[-count:]) if labels and count <= len(labels) else name

    def is_public(self, name: str) -> bool:
        """Return whether a name is a public suffix."""
        labels = _labels(name)
        return bool(labels) and self._suffix_labels(labels) == len(labels)

    def _suffix_labels(self, labels: list[str]) -> int:
        """Return the number of labels of a name's public suffix. The longest rule counts, and an exception first."""
        for first in range(max(0, len(labels) - self._labels_max), len(labels)):
            rest, count = ".".join(labels[first:]), len(labels) - first
            if f"!{rest}" in self._rules:
                return count - 1
            if f"*.{rest}" in self._rules:  # this rule also makes its own root a public suffix
                return min(count + 1, len(labels))
            if rest in self._rules:
                return count
        return 1


def _labels(name: str) -> list[str]:
    """Return the labels of a name, without the empty one behind a last dot; [] if another label is empty."""
    labels = name.removesuffix(".").split(".")
    return [] if "" in labels else labels


def _in_a_labels(rule: str) -> str:
    exception, name = ("!", rule[1:]) if rule[0] == "!" else ("", rule)
    return exception + idna.encode(name).decode("ascii")


@lru_cache(maxsize=1)
def suffix_list() -> SuffixList:
    """Return the public suffix list with its private section."""
    from publicsuffixlist import PSLFILE  # imported only when it is needed, because some crawls never use it

    with open(PSLFILE, encoding="utf-8") as file:
        return SuffixList(file.read())


@lru_cache(maxsize=_HOSTS_MAX)
def registrable_domain(name: str) -> str:
    """Return the registrable domain of a canonical host name by the public suffix list and its private section.

    For an IP address, a public suffix or a name without a public suffix, this is the name itself.
    """
    if name.endswith("]") or name.rpartition(".")[2].isdigit():
        return name
    return suffix_list().registrable_domain(name)


def suffix_list_version() -> str:
    """Return the version of the list. A crawl keeps its first version, because buckets depend on it."""
    from publicsuffixlist import __version__

    return str(__version__)
