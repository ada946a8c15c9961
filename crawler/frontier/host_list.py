"""The list of hosts. It ranks, filters and searches all hosts, but describes only the hosts at the top of the list.

Host names are not in memory, so a search reads them from the store. A search reads at most `SEARCHED_MAX`
names. The search pauses after each `SEARCHED_AT_ONCE` names, which take about 5 ms to read. The ranks take 40
bytes of memory per host; the descriptions of the listed hosts need further memory.
"""

from collections.abc import Generator
from typing import Any

import msgspec
import numpy as np

from crawler.frontier.hosts import ranking
from crawler.frontier.hosts.authorities import Authorities
from crawler.frontier.hosts.dispatch_gates import DispatchGates
from crawler.frontier.hosts.table import NOWHERE, host_name_in
from crawler.frontier.views import FrontierViews
from crawler.storage.keys import HOST
from crawler.storage.kv import KeyValue, scan_prefix, unseal

LISTED_MAX = 1_000
SEARCHED_MAX = 200_000  # the maximum number of host names that one search reads
SEARCHED_AT_ONCE = 1_000
_LISTED_AT_ONCE = 50  # the number of hosts that are described before the next pause


class HostList:
    """Lists the hosts of a frontier in one of the orders in `ranking.ORDERS`."""

    def __init__(
        self, store: KeyValue, gates: DispatchGates, authorities: Authorities, views: FrontierViews
    ) -> None:
        self._store = store
        self._registry, self._bench = gates.registry, gates.bench
        self._authorities = authorities
        self._views = views

    def page(
        self, now: float, order: str, limit: int, search: str = "", cause: str = ""
    ) -> Generator[None, None, dict[str, Any]]:
        """Return {"hosts": number, "matched": number, "failing": number, "unsearched": number, "rows": [...]}.

        A row is a `HostStatus` with its `rank`; the best rank comes first. `hosts` is the number of all
        hosts. If `search` is given, only hosts whose names contain it are listed. If `cause` is given, only
        hosts that fail for this cause are listed. `unsearched` is the number of hosts that the search did not
        examine. This method is a generator. It yields after each portion of the work, so that other tasks can
        run.
        """
        hosts, troubled = self._registry.hosts, self._authorities.troubled
        among = None if not cause else ranking.with_cause(hosts, troubled, cause)
        unsearched = 0
        if search:
            found, unsearched = yield from self._named(search.lower())
            named = np.zeros(len(hosts), np.bool_)
            named[found] = True
            among = named if among is None else named & among[: len(named)]
            hosts, troubled = self._registry.hosts, self._authorities.troubled
        busy = [host.slot for host in self._bench.front.values() if host.held]
        ranks = ranking.ranks(order, hosts, troubled, busy, now)
        if among is not None and len(among) < len(ranks):  # skip hosts that were added during a pause
            among = np.append(among, np.zeros(len(ranks) - len(among), np.bool_))
        totals = {
            "hosts": len(hosts),
            "matched": len(ranks) if among is None else int(among.sum()),
            "failing": int(ranking.failing(hosts, troubled).sum()),
            "unsearched": unsearched,
        }
        slots = ranking.first(ranks, min(limit, LISTED_MAX), among)
        return totals | {"rows": (yield from self._described(slots, ranks, now))}

    def _described(
        self, slots: list[int], ranks: np.ndarray, now: float
    ) -> Generator[None, None, list[dict[str, Any]]]:
        rows: list[dict[str, Any]] = []
        for number, slot in enumerate(slots, 1):
            if name := self._name(slot):
                status = self._views.describe(slot, name, now)
                rows.append(msgspec.structs.asdict(status) | {"rank": float(ranks[slot])})
            if not number % _LISTED_AT_ONCE:
                yield
        return rows

    def _name(self, slot: int) -> str:
        """Return a host's name; "" if it is not committed yet."""
        if (front := self._bench.front.get(slot)) is not None:
            return front.name
        return self._registry.stored_name(slot) if self._registry.is_stored(slot) else ""

    def _named(self, text: str) -> Generator[None, None, tuple[list[int], int]]:
        """Return the slots of the hosts whose name contains `text`, and the number of hosts that were not examined."""
        needle = text.encode("ascii", "replace")
        slots = {host.slot for host in self._bench.front.values() if text in host.name}
        if (exact := self._registry.find(text)) != NOWHERE:
            slots.add(exact)
        looked = 0
        for key, value in scan_prefix(self._store, HOST):
            if looked == SEARCHED_MAX:
                break
            looked += 1
            if needle in value and needle in host_name_in(key, unseal(key, value)):
                slot = self._registry.hosts.find(int.from_bytes(key[len(HOST) :], "big"))
                slots.update([slot] if slot != NOWHERE else [])
            if not looked % SEARCHED_AT_ONCE:
                yield
        return sorted(slots), max(0, len(self._registry.hosts) - looked) if looked == SEARCHED_MAX else 0
