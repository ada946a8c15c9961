"""Reads what a client demands of the age of a copy: the field Cache-Control of a request (RFC 9111, 5.2.1).

    max-age=N                    N > 0: a copy that is at most N seconds old; otherwise 504, and the page is queued
      with max-stale=M           at most N + M seconds old; without M, of any age
      with min-fresh=M           at most N - M seconds old
    max-age=0, no-cache          the copy, of any age, and the page is queued: no stored copy could meet this demand
    only-if-cached               no page is queued; a demand that no copy meets, or a missing page, is answered with 504

The server never asks the site's server while a client waits, so it cannot validate a copy. A browser sends
`max-age=0` or `no-cache` whenever its user reloads a page. If such a request were answered with 504, users
could not reload pages. `max-stale` alone is met by each copy. `min-fresh` alone is ignored, because a copy
has a probability that it is fresh instead of a lifetime. All other directives are ignored, as RFC 9111
permits.
"""

import math
import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

# A directive with an optional argument, which may be a quoted string (RFC 9111, 5.2).
_DIRECTIVE = re.compile(r'([!#$%&\'*+.^_`|~0-9A-Za-z-]+)(?:=(?:"([^"\\]*)"|([!#$%&\'*+.^_`|~0-9A-Za-z-]*)))?')
_SECONDS = re.compile(r"[0-9]{1,12}")


class FreshnessDemand(Struct, frozen=True):
    """A client's demand for a young copy. `age_max` is a number of seconds, or infinity.

    If `revalidate` is true, the client wants a newer copy than any that is stored. If `only_cached` is true, no
    page is queued for the client.
    """

    age_max: float = math.inf
    revalidate: bool = False
    only_cached: bool = False


def demand_of(headers: Mapping[str, str]) -> FreshnessDemand | None:
    """Return the demand of a request; None if it has none. Unreadable arguments are ignored."""
    lines = _lines(headers, "Cache-Control")
    if not lines:
        # RFC 9111, 5.4
        return (
            FreshnessDemand(revalidate=True) if "no-cache" in _directives(_lines(headers, "Pragma")) else None
        )
    given = _directives(lines)
    only_cached = "only-if-cached" in given
    age_max = 0.0 if "no-cache" in given else _age_max(given)
    revalidate = age_max == 0.0 and not only_cached
    demand = FreshnessDemand(math.inf if revalidate else age_max, revalidate, only_cached)
    return None if demand == FreshnessDemand() else demand


def _age_max(given: Mapping[str, str]) -> float:
    """Return the greatest age that the client accepts, which is negative if no copy can meet the demand."""
    age = _seconds(given, "max-age")
    if age is None:
        return math.inf
    stale, fresh = _seconds(given, "max-stale"), _seconds(given, "min-fresh")
    if "max-stale" in given and not given["max-stale"]:
        return math.inf
    return age + (stale or 0.0) - (fresh or 0.0)


def _seconds(given: Mapping[str, str], name: str) -> float | None:
    text = given.get(name, "")
    return float(text) if _SECONDS.fullmatch(text) else None


def _lines(headers: Mapping[str, str], name: str) -> list[str]:
    """Return all values of a field, which may be repeated."""
    getall = getattr(headers, "getall", None)
    found: list[str] = getall(name, []) if getall is not None else [headers[name]] if name in headers else []
    return found


def _directives(lines: Iterable[str]) -> dict[str, str]:
    """Return the arguments of the directives by name ("" if there is none). Of a repeated directive, the first counts."""
    given: dict[str, str] = {}
    for name, quoted, plain in _DIRECTIVE.findall(",".join(lines)):
        given.setdefault(name.lower(), quoted or plain)
    return given
