"""Manages the connection slots of a listener: decides which connection is closed when too many clients connect.

A connection is *served* while an answer is being made or sent, and *waiting* while the server waits for the
client: for a request, for the rest of its header, or for room to write. When all slots are taken, a new
client gets the slot of the client that has kept the server waiting longest, provided that this wait has
lasted at least `PATIENCE`. If no client has kept the server waiting for so long, the new client is turned
away. So slow or half-open clients do not harm the other clients, no matter how many there are. Every wait
ends after `timeout`.

All operations take constant time, except that `overdue` takes time linear in the length of its result.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

PATIENCE = 1.0  # seconds for which a waiting client keeps its slot; enough to send a header on a slow line

C = TypeVar("C", bound=Hashable)


class ConnectionSlots(Generic[C]):
    """The slots for at most `slots_max` connections. A connection may keep the server waiting for `timeout` seconds."""

    def __init__(self, slots_max: int, timeout: float) -> None:
        self.slots_max = slots_max
        self.timeout = timeout
        # connection -> the time at which its wait began; longest wait first
        self._waiting: dict[C, float] = {}
        self._served: set[C] = set()
        self.turned_away = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._served)

    def enter(self, connection: C, now: float) -> tuple[bool, C | None]:
        """Give the connection a slot, if one can be had.

        Return whether the connection may stay, and the connection that must be closed to make room (None if
        there is none).
        """
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
        """Return the connection with the longest wait, or None if that wait began after `since`."""
        for connection, began in self._waiting.items():
            return connection if began <= since else None
        return None

    def serve(self, connection: C) -> None:
        """Take note that the server works on an answer for the connection."""
        if self._waiting.pop(connection, None) is not None:
            self._served.add(connection)

    def wait(self, connection: C, now: float) -> None:
        """Take note that the server waits for the client."""
        if connection in self._served:
            self._served.remove(connection)
            self._waiting[connection] = now

    def note_answered(self, connection: C, now: float) -> None:
        """Take note that a request was answered at once, and that the server waits for the client again."""
        if self._waiting.pop(connection, None) is not None:
            self._waiting[connection] = now

    def leave(self, connection: C) -> None:
        """Free the connection's slot, if it has one."""
        self._waiting.pop(connection, None)
        self._served.discard(connection)

    def overdue(self, now: float) -> list[C]:
        """Return the connections that have kept the server waiting for longer than the timeout."""
        late = []
        for connection, since in self._waiting.items():
            if now - since < self.timeout:
                break
            late.append(connection)
        return late

    def _check(self) -> None:
        """Assert the invariants."""
        assert len(self) <= self.slots_max, len(self)
        assert not self._served & self._waiting.keys()
        began = list(self._waiting.values())
        assert began == sorted(began), began
