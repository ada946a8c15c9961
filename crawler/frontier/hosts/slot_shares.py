"""Shares of the fetch slots: hosts that answer quickly always find a free slot.

    prompt   the last page held its slot for at most `PROMPT_MAX`: any slot
    others   new hosts, slow hosts, hosts that did not answer: `untried_share` of the slots

Without this rule, a few hundred hosts that hang, or send one byte per second, would hold all slots for as
long as a fetch may take. A quick answer to the request for robots.txt does not change the kind of a host from
`others` to `prompt`, because the page after it may be endless. If a prompt host holds a slot for longer than
`PROMPT_MAX`, because of the transfer or because the page is being processed, it counts among the `others`.

If the share of the `others` is full, further hosts of that kind wait in a queue. For each waiting host, one
slot is reclaimed:

1. It is taken from a host that has held it for `PROMPT_MAX`. The request of this host continues without a slot
   (`frontier/outstanding.py`).
2. If too many requests already continue without a slot, a request is ended. A host that answered its
   previous request may hold its slot for `crowded_timeout` before its request is ended. Any other host may hold
   its slot for `PROMPT_MAX`.

If `crawl.max_pages` lets no further request start, the requests under way hold the last places of the run. While
another host is ready, they are ended one after another by the second rule. Otherwise, a few hosts that hang
would keep the run from its end.

While nearly all slots are taken, the hosts that are not prompt also lose each slot that they hold beyond
their share.
"""

from collections import deque
from math import ceil

from crawler.frontier.hosts.front_host import FrontHost
from crawler.frontier.hosts.table import HostFlag, HostTable
from crawler.records import Fetch, TaskKind

# seconds for which a prompt host may hold a slot; so a slot reserved for such hosts is soon free again
PROMPT_MAX = 5.0


class SlotShares:
    """Counts the fetch slots that slow hosts hold, and queues the slow hosts that wait for one."""

    def __init__(
        self, hosts: HostTable, concurrency: int, share: float, crowded_timeout: float = PROMPT_MAX
    ) -> None:
        self._hosts = hosts
        self._crowded_timeout = crowded_timeout
        self._others_max = max(1, ceil(concurrency * share))
        # Prompt hosts with a fetch slot: host slot -> the instant at which the host took it, oldest first.
        self._prompt: dict[int, float] = {}
        self._others: dict[int, float] = {}  # like `_prompt`, for hosts that are not prompt
        # host slot -> the seconds for which the host's running task held a fetch slot before it gave the slot
        # back
        self._had: dict[int, float] = {}
        self._yielding: set[int] = set()  # hosts that are not prompt and whose fetch slot was reclaimed
        self._line: deque[FrontHost] = deque()
        self._called: set[int] = set()  # slots of hosts that left the queue and wait for their turn

    def __len__(self) -> int:
        return len(self._line)

    def is_prompt(self, slot: int) -> bool:
        return bool(self._hosts.flags[slot] & HostFlag.PROMPT)

    @property
    def has_room(self) -> bool:
        """True if a host without the flag PROMPT may take a fetch slot."""
        return len(self._others) < self._others_max

    def acquire(self, host: FrontHost, now: float) -> bool:
        """Take a fetch slot and return True, or queue the host and return False."""
        if not self.is_prompt(host.slot) and not self.has_room:
            host.waiting = True
            self._line.append(host)
            return False
        self.reacquire(host.slot, now)
        return True

    def reacquire(self, slot: int, now: float) -> None:
        """Take a fetch slot again after a pause, without joining the queue.

        The fetch task may hold other hosts for which other tasks wait. If it joined the queue,
        these tasks would wait, too.
        """
        (self._prompt if self.is_prompt(slot) else self._others)[slot] = now

    def release(self, slot: int, now: float) -> None:
        """Free the host's fetch slot, if it has one."""
        since = self._others.pop(slot, None)
        since = self._prompt.pop(slot, None) if since is None else since
        self._yielding.discard(slot)
        if since is not None:
            self._had[slot] = self._had.get(slot, 0.0) + now - since

    def undo_acquire(self, slot: int) -> None:
        """Free the fetch slot as if it had not been taken, because no request was made."""
        self.release(slot, 0.0)
        self._had.pop(slot, None)

    def look(self, now: float) -> None:
        """Move each prompt host that has held its fetch slot for `PROMPT_MAX` to the class `others`."""
        while self._prompt:
            slot, since = next(iter(self._prompt.items()))
            if now < since + PROMPT_MAX:
                break
            self._others[slot] = self._prompt.pop(slot)

    def must_yield(self, slot: int, now: float, *, full: bool = False, last: bool = False) -> bool:
        """Return whether the host must end its request because another host needs the fetch slot.

        If so, remember that the host must end it. `full` is True if nearly all fetch slots are taken. `last` is
        True if another host needs one of the last places of the run.
        """
        limit = self._crowded_timeout if self.answers(slot) else PROMPT_MAX
        if not self.is_wanted(slot, now, limit, full=full, last=last):
            return False
        self._yielding.add(slot)
        return True

    def answers(self, slot: int) -> bool:
        """Return whether the host answered its previous request."""
        return bool(self._hosts.flags[slot] & (HostFlag.LATE | HostFlag.PROMPT))

    def is_wanted(
        self, slot: int, now: float, limit: float = PROMPT_MAX, *, full: bool = False, last: bool = False
    ) -> bool:
        """Return whether another host needs the fetch slot of a host that has held it for `limit` seconds."""
        self.look(now)
        since = self._others.get(slot)
        needed = max(self._needed(full), last)
        if since is None or slot in self._yielding or len(self._yielding) >= needed:
            return False
        return now >= since + limit

    def _needed(self, full: bool) -> int:
        """Return the number of fetch slots to reclaim from hosts that are not prompt."""
        room = self._others_max - len(self._others) - len(self._called)
        return max(0, len(self._line) - max(0, room)) + (max(0, -room) if full else 0)

    def next_waiting(self) -> FrontHost | None:
        """Remove and return the first queued host if there is room for it, else None."""
        if not self._line or len(self._others) + len(self._called) >= self._others_max:
            return None
        host = self._line.popleft()
        host.waiting = False
        self._called.add(host.slot)
        return host

    def note_arrival(self, slot: int) -> None:
        """Record that a host that was taken from the queue has begun its turn."""
        self._called.discard(slot)

    def record_outcome(self, slot: int, fetch: Fetch, now: float, task: TaskKind = TaskKind.PAGE) -> None:
        """Free the fetch slot after the host's request, and record whether the host answered and was prompt."""
        self.release(slot, now)
        took = max(fetch.took, self._had.pop(slot, 0.0))
        was_prompt = self.is_prompt(slot)
        self._hosts.flags[slot] &= 0xFFFF ^ (HostFlag.PROMPT | HostFlag.LATE)
        if fetch.status and fetch.truncated != "time":
            prompt = took <= PROMPT_MAX and (task is TaskKind.PAGE or was_prompt)
            self._hosts.flags[slot] |= HostFlag.PROMPT if prompt else HostFlag.LATE

    def _check(self, in_flight: set[int]) -> None:
        assert self._others.keys() | self._prompt.keys() <= in_flight
        assert self._had.keys() <= in_flight
        assert not self._others.keys() & self._prompt.keys()
        assert list(self._prompt.values()) == sorted(self._prompt.values())
        assert self._yielding <= self._others.keys()
        assert all(host.waiting and not host.held for host in self._line)
