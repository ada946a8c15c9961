"""Ranks hosts for lists.

Depending on the order, the busiest hosts, the failing ones, those with the longest wait, or the largest come
first. All hosts, including those outside the front, are ranked by the columns of the host table: O(n) with
numpy, 10 ms for 100,000 hosts. Only the names of hosts that are shown are read. A rank is a single number, so
that the lists of several processes can be merged.

A host counts as failing in three cases. First, its latest requests failed; these may have been requests for
pages, for robots.txt or for the host's address. Second, the crawl has given the host up, or has stopped
requesting it because it refused too many requests in a row. Third, no connection was possible to the scheme
and port of the host that were tried last (`Authorities.troubled`).
"""

from collections.abc import Iterable, Mapping

import numpy as np

from crawler.frontier.hosts.politeness import CAUSES
from crawler.frontier.hosts.table import GAVE_UP, SILENCED, HostFlag, HostTable
from crawler.records import Outcome

ORDERS = ("busy", "failing", "wait", "size")
# A number greater than every count of URLs. A host's rank is a multiple of this number plus such a count, so
# the multiple decides first. These sums are exact in a float64.
_GREATER = float(1 << 33)

Troubles = Mapping[int, tuple[int, float, str]]  # as `Authorities.troubled`


def failing(hosts: HostTable, troubled: Troubles) -> np.ndarray:
    """Return an array of bool, shape (n,): True for each host that fails."""
    mask = (hosts.array("failures") > 0) | ((hosts.array("flags") & GAVE_UP) != 0)
    mask[_slots(troubled)] = True
    return mask


def with_cause(hosts: HostTable, troubled: Troubles, cause: str) -> np.ndarray:
    """Return an array of bool, shape (n,): True for each host that fails for this cause (`politeness.CAUSES`)."""
    mask = failing(hosts, troubled)
    index = CAUSES.index(cause) if cause in CAUSES else -1
    mask &= hosts.array("cause") == index
    mask[_slots(troubled)] = [latest == cause for _, _, latest in troubled.values()]
    return mask


def nameless(hosts: HostTable) -> int:
    """Return the number of hosts that were given up because their name does not exist."""
    given_up = (hosts.array("flags") & HostFlag.GIVEN_UP) != 0
    return int((given_up & (hosts.array("cause") == CAUSES.index(Outcome.DNS_NOT_FOUND))).sum())


def ranks(order: str, hosts: HostTable, troubled: Troubles, busy: Iterable[int], now: float) -> np.ndarray:
    """Return a number per host, shape (n,). The host with the highest number is listed first.

    Args:
        order: one of `ORDERS`.
        busy: the slots of hosts with a request in flight.
        now: an instant.
    """
    todo = hosts.array("todo").astype(np.float64)
    if order == "busy":
        todo[list(busy)] += _GREATER
        return todo
    if order == "failing":
        failures = hosts.array("failures").astype(np.float64) + hosts.array("refusals")
        failures[_slots(troubled)] += [count for count, _, _ in troubled.values()]
        return todo + _GREATER * np.where(failing(hosts, troubled), 1.0 + np.minimum(failures, 254.0), 0.0)
    if order == "wait":
        ready = hosts.array("ready")
        slots = _slots(troubled)
        ready[slots] = np.maximum(ready[slots], [until for _, until, _ in troubled.values()])
        return np.where(todo > 0.0, np.maximum(0.0, ready - now), 0.0)
    return hosts.array("known").astype(np.float64)


def least_times(hosts: HostTable, now: float) -> np.ndarray:
    """Return the least number of seconds until all URLs of each host can be requested, shape (n,).

    The host must first be ready, and a gap as long as its latest one precedes each further request. The result is 0
    for a host that may not be requested or has no URLs to do.
    """
    todo = hosts.array("todo").astype(np.float64)
    seconds = np.maximum(0.0, hosts.array("ready") - now) + (todo - 1.0) * hosts.array("gap")
    return np.where((todo > 0.0) & ((hosts.array("flags") & SILENCED) == 0), seconds, 0.0)


def first(ranks: np.ndarray, limit: int, among: np.ndarray | None = None) -> list[int]:
    """Return up to `limit` slots with the highest ranks, best first; `among` (bool, shape (n,)) restricts the choice."""
    slots = np.arange(len(ranks)) if among is None else np.flatnonzero(among)
    found = ranks[slots]
    if len(slots) > limit:
        best = np.argpartition(found, -limit)[-limit:] if limit else slots[:0]
        slots, found = slots[best], found[best]
    chosen: list[int] = slots[np.lexsort((slots, -found))].tolist()
    return chosen


def _slots(troubled: Troubles) -> list[int]:
    return list(troubled)
