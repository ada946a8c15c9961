"""Places of a listener: which connection gives way when too many clients come.

A connection is *served* while an answer is being made or taken, and *waiting*
while we wait for the client: for a request, the rest of its header, or room to
write. When all places are taken a newcomer gets the place of the client that has
kept us waiting longest, if that was at least `PATIENCE`; else it is turned away. So
slow or half-open clients, however many, cost the others nothing. Every wait ends
after `timeout`.

Operations are O(1); `overdue` is linear in its result.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

PATIENCE = 1.0  # seconds; an honest client on a slow line needs that for its header

C = TypeVar("C", bound=Hashable)


class ConnectionSlots(Generic[C]):
    """At most `slots_max` connections; `timeout` seconds is how long one may keep us waiting."""

    def __init__(self, slots_max: int, timeout: float) -> None:
        self.slots_max = slots_max
        self.timeout = timeout
        self._waiting: dict[C, float] = {}  # since when; longest first
        self._served: set[C] = set()
        self.turned_away = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._served)

    def enter(self, connection: C, now: float) -> tuple[bool, C | None]:
        """(whether the newcomer may stay, who has to go for it)."""
        victim = None
        if len(self) >= self.slots_max:
            victim = self._longest(now - PATIENCE)
            if victim is None:
                self.turned_away += 1
                return False, None
            del self._waiting[victim]
            self.evicted += 1
        self._waiting[connection] = now
        return True, victim

    def _longest(self, since: float) -> C | None:
        """Who has kept us waiting longest, if that began at `since` or before."""
        for connection, began in self._waiting.items():
            return connection if began <= since else None
        return None

    def serve(self, connection: C) -> None:
        """It is our turn."""
        if self._waiting.pop(connection, None) is not None:
            self._served.add(connection)

    def wait(self, connection: C, now: float) -> None:
        """It is the client's turn."""
        if connection in self._served:
            self._served.remove(connection)
            self._waiting[connection] = now

    def note_answered(self, connection: C, now: float) -> None:
        """It asked and has its answer, at once: it is the client's turn again."""
        if self._waiting.pop(connection, None) is not None:
            self._waiting[connection] = now

    def leave(self, connection: C) -> None:
        """It has gone; harmless if it had no place."""
        self._waiting.pop(connection, None)
        self._served.discard(connection)

    def overdue(self, now: float) -> list[C]:
        """Those that have kept us waiting too long."""
        late = []
        for connection, since in self._waiting.items():
            if now - since < self.timeout:
                break
            late.append(connection)
        return late

    def _check(self) -> None:
        """Assert what always holds."""
        assert len(self) <= self.slots_max, len(self)
        assert not self._served & self._waiting.keys()
        began = list(self._waiting.values())
        assert began == sorted(began), began
