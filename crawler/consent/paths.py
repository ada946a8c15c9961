"""Finds the statements that apply to a path: the longest matching path decides, as for Allow lines (RFC 9309, 2.2.2).

Paths are patterns as in robots.txt (`robots/README.md`, "The file"). If several statements have the same
path, the most restrictive one applies. (Among Allow and Disallow lines with the same path, the most
permissive one applies instead.)
"""

import re
from collections.abc import Callable, Iterable

from crawler.consent.statements import FIELD_OCTETS_MAX, LINES_MAX, Preferences, Statement, combined
from crawler.robots.rules import matches, pattern_of, spelling

_BLANKS = re.compile(r"[ \t]+")


def address_of(url: str) -> tuple[str, str]:
    """Return (authority, path and query) of a canonical URL."""
    authority, _, rest = url.partition("#")[0].partition("://")[2].partition("/")
    return authority, f"/{rest}"


def longest(patterns: Iterable[str], target: str) -> list[int]:
    """Return the positions of the longest patterns (in octets) that match; [] if none matches."""
    every = tuple(patterns)
    if not every:
        return []
    wanted = spelling(target)
    found = [
        (len(pattern), position)
        for position, pattern in enumerate(map(pattern_of, every))
        if matches(pattern, wanted)
    ]
    length = max(found, default=(0, 0))[0]
    return [position for size, position in found if size == length]


def by_path(lines: Iterable[str], target: str, meaning: Callable[[str], Preferences]) -> Statement:
    """Return the lines that apply to the path `target`, and their meaning.

    A line begins with a path and a blank, or has no path and applies to the whole site. If there are more than
    `LINES_MAX` lines, or one is longer than `FIELD_OCTETS_MAX`, all answers are unknown.
    """
    every = tuple(lines)
    if len(every) > LINES_MAX or any(len(line) > FIELD_OCTETS_MAX for line in every):
        return Statement(tuple(line[:FIELD_OCTETS_MAX] for line in every[:LINES_MAX]))
    divided = [_divided(line) for line in every]
    deciding = longest((path for path, _ in divided), target)
    meanings = (meaning(divided[at][1]) for at in deciding)
    return Statement(tuple(every[at] for at in deciding), combined(meanings))


def path_of(line: str) -> str:
    """Return the path of a line; "/" if the line has none."""
    return _divided(line)[0]


def _divided(line: str) -> tuple[str, str]:
    """Split a line into (path, statement)."""
    line = line.strip(" \t")
    if not line.startswith("/"):
        return "/", line
    path, *rest = _BLANKS.split(line, maxsplit=1)
    return path, rest[0] if rest else ""
