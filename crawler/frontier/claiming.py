"""Chooses the next fetch task: a look-up, a new URL or a known page.

paused, full, rate  ──► nothing may start        `next_wakeup` gives the time of the next try
look-up             ──► needs no fetch slot
discovery, refresh  ──► by their share, or by the value of the next fetch of each (`share.py`)
"""

import math
from dataclasses import dataclass

from crawler.config import OrderConfig
from crawler.frontier.discovery import entries
from crawler.frontier.discovery.intake import Intake
from crawler.frontier.host_turns import HostTurns
from crawler.frontier.hosts.dispatch_gates import DispatchGates
from crawler.frontier.hosts.table import NO_ORDER, NOWHERE
from crawler.frontier.outstanding import Outstanding
from crawler.frontier.pauses import Pauses
from crawler.frontier.refetches import Refetches
from crawler.frontier.share import Side, UsualImportance
from crawler.frontier.views import Waited
from crawler.orders.classes import score_of
from crawler.orders.order import BREADTH_FIRST
from crawler.records import FetchTask, LinkFlag, TaskKind

_REFRESH = LinkFlag.REFRESH


@dataclass(eq=False, repr=False)
class Claims:
    """Gives out fetch tasks.

    `patience` is the number of seconds that a finite crawl waits for its last hosts. `waited` measures the
    time during which there was no fetch task to give out. `taken_at` is the time of the last attempt to take
    a fetch task.
    """

    gates: DispatchGates
    outstanding: Outstanding
    turns: HostTurns
    refetches: Refetches
    intake: Intake
    pauses: Pauses
    order: OrderConfig
    patience: float

    def __post_init__(self) -> None:
        self._registry = self.gates.registry
        self._bench = self.gates.bench
        self.waited = Waited()
        self._usual = UsualImportance()
        self.taken_at = 0.0

    def claim_next(self, now: float) -> FetchTask | None:
        """Claim the next fetch task with its host, address and fetch slot; return None if nothing may start now."""
        self.taken_at = now
        fetch_task = None if self.pauses else self.turns.look_up(now)
        if fetch_task is not None:
            return fetch_task
        self.gates.call_others(now)
        blocked = self._blocked_by(now)
        fetch_task = None if blocked else self._next_fetch_task(now)
        if fetch_task is None:
            self.waited.add(blocked or self._waits_for(), now)
        else:
            self.waited.add("", now)
        return fetch_task

    def _blocked_by(self, now: float) -> str:
        """Return the reason why no request may start, or "" if there is none."""
        if self.pauses:
            return "empty"
        if self.outstanding.is_full:
            return "full"
        return "rate" if self.gates.rate.ready_at() > now else ""

    def _waits_for(self) -> str:
        has_work = self._registry.todo or self.refetches.share is not None
        return self._bench.plans.waits_for() if has_work else "empty"

    def _next_fetch_task(self, now: float) -> FetchTask | None:
        """Take the next task: a new URL or a known page, whichever has its turn.

        If there is no task of that kind, take one of the other kind.
        """
        share, turns = self.refetches.share, self.turns
        if share is None:
            return turns.of_front(now)
        if share.auto and (fetch_task := turns.of_idle(now)) is not None:
            return fetch_task
        instant = self._bench.next_event(now)
        discovery = instant is not None and instant <= now
        refresh = self.refetches.next_wakeup(now) <= now
        fetch_task, new, known = None, 0.0, 0.0
        if share.auto and discovery and refresh:
            new, known = self.refetches.worths(self._usual.relative(self.best_waiting(now)), now)
        if share.first(discovery=discovery, refresh=refresh, new=new, known=known) is Side.REFRESH:
            fetch_task = turns.of_known_page(now) or turns.of_front(now)
        elif discovery:
            fetch_task = turns.of_front(now) or (turns.of_known_page(now) if refresh else None)
        if fetch_task is not None and fetch_task.kind is TaskKind.PAGE:
            side = Side.REFRESH if fetch_task.flags & _REFRESH else Side.DISCOVERY
            share.spend(side, contended=discovery and refresh)
            if side is Side.DISCOVERY:
                self._usual.note(self.importance_at(fetch_task.order))
        return fetch_task

    def next_wakeup(self, now: float) -> float | None:
        """Return the earliest instant at which `claim_next` may succeed, or None if a new event must come first."""
        if self.pauses:
            return None
        if self.gates.look_ups.may_start:
            return now
        if self.outstanding.is_full:
            return None
        instant = self._bench.next_event(now)
        earliest = min(math.inf if instant is None else instant, self.refetches.next_wakeup(now))
        return None if earliest == math.inf else max(earliest, self.gates.rate.ready_at())

    def best_waiting(self, now: float) -> float:
        """Return the importance, 0 to 1, of the next URL among the hosts that are ready; 0.0 if there is none.

        If the crawl has an order of new URLs (`orders/`), this is the importance of the best URL class
        (`orders/classes.py`) among those hosts. It is found in O(log n). In a breadth-first crawl, the
        importance is `order.depth_decay` to the power of the depth of the next host's first URL.
        """
        if self.pauses:
            return 0.0
        slot, order = self._bench.first(now)
        return 0.0 if slot == NOWHERE else self.importance_at(order)

    def importance_at(self, order: int) -> float:
        """Return the importance of a waiting URL, given its `order` in the queue."""
        if order == NO_ORDER:
            return 0.0
        if self.order.name == BREADTH_FIRST:
            return float(self.order.depth_decay ** entries.order_depth(order))
        return score_of(entries.class_in_order(order))

    def dry(self, now: float) -> bool:
        """Return whether a fetch slot is free and no host is ready for it, so that new URLs are needed."""
        if self.pauses or self.outstanding.requests >= self.outstanding.concurrency:
            return False
        instant = self._bench.next_event(now)
        return instant is None or instant > now

    def finished(self, now: float) -> str:
        """Return the reason why a finite crawl is over, or "" if it is not over.

        "done" means that only blocked hosts and hosts that were given up remain. "patience" means that all
        remaining URLs must wait longer than the patience.
        """
        if self.refetches.are_endless:
            return ""
        if self.outstanding or self.intake.pending or len(self.gates.visits) or self.pauses:
            return ""
        instant = self.refetches.next_try(now)
        if instant is None:
            return "done"
        return "patience" if instant > now + self.patience else ""
