"""Who may hold the places of a process: hosts that answer soon are never without one.

    prompt   had its last page's place for at most `PROMPT_MAX`: any place
    others   new hosts, slow ones, those that did not answer: `untried_share` of them

Without this rule some hundred hosts that hang, or send a byte a second, would hold all
places for as long as a fetch may take. A quick robots.txt makes no host prompt: the page
after it may be endless. A prompt host that has a place longer than that, on the network
or with us, counts among the others.

Others that find their share taken wait in line. For each of them one place is asked back:

1. of a host that has had it for `PROMPT_MAX`; its request goes on without a place
   (`frontier/outstanding.py`);
2. if too many requests go on so, of a host that has had it for `PROMPT_MAX` and never
   answered, or for `crowded_timeout` if it once did; its request ends.

While nearly all places are taken, each place beyond the others' share is asked back too.
"""

from collections import deque
from math import ceil

from crawler.frontier.hosts.front_host import FrontHost
from crawler.frontier.hosts.table import HostFlag, HostTable
from crawler.records import Fetch, TaskKind

PROMPT_MAX = 5.0  # s of an answer; a place kept free is free again within that


class SlotShares:
    """Counts the places that other hosts than prompt ones hold, and keeps their line."""

    def __init__(
        self, hosts: HostTable, concurrency: int, share: float, crowded_timeout: float = PROMPT_MAX
    ) -> None:
        self._hosts = hosts
        self._crowded_timeout = crowded_timeout
        self._others_max = max(1, ceil(concurrency * share))
        self._prompt: dict[
            int, float
        ] = {}  # slots of prompt hosts with a place, and since when, in that order
        self._others: dict[int, float] = {}  # of others
        self._had: dict[
            int, float
        ] = {}  # seconds for which hosts with a fetch task had a place they gave back
        self._yielding: set[int] = set()  # others whose place was asked back
        self._line: deque[FrontHost] = deque()
        self._called: set[int] = set()  # slots of hosts out of the line whose turn has not come yet

    def __len__(self) -> int:
        """Hosts in the line."""
        return len(self._line)

    def is_prompt(self, slot: int) -> bool:
        return bool(self._hosts.flags[slot] & HostFlag.PROMPT)

    @property
    def has_room(self) -> bool:
        """Whether a host that is not prompt may have a place."""
        return len(self._others) < self._others_max

    def acquire(self, host: FrontHost, now: float) -> bool:
        """Take a place, or one in the line."""
        if not self.is_prompt(host.slot) and not self.has_room:
            host.waiting = True
            self._line.append(host)
            return False
        self.reacquire(host.slot, now)
        return True

    def reacquire(self, slot: int, now: float) -> None:
        """Take a place that was given back for a while: without a line, since others wait for its fetch task."""
        (self._prompt if self.is_prompt(slot) else self._others)[slot] = now

    def release(self, slot: int, now: float) -> None:
        """The place is free; harmless if the host has none."""
        since = self._others.pop(slot, None)
        since = self._prompt.pop(slot, None) if since is None else since
        self._yielding.discard(slot)
        if since is not None:
            self._had[slot] = self._had.get(slot, 0.0) + now - since

    def undo_acquire(self, slot: int) -> None:
        """The place is free, and nothing was asked."""
        self.release(slot, 0.0)
        self._had.pop(slot, None)

    def look(self, now: float) -> None:
        """Count prompt hosts among the others that have had their places for too long."""
        while self._prompt:
            slot, since = next(iter(self._prompt.items()))
            if now < since + PROMPT_MAX:
                break
            self._others[slot] = self._prompt.pop(slot)

    def must_yield(self, slot: int, now: float, *, full: bool = False) -> bool:
        """Whether the host is to end its request now, since another needs the place; it counts as asked.

        `full`: nearly all places are taken.
        """
        answers = self._hosts.flags[slot] & (HostFlag.LATE | HostFlag.PROMPT)
        if not self.is_wanted(slot, now, self._crowded_timeout if answers else PROMPT_MAX, full=full):
            return False
        self._yielding.add(slot)
        return True

    def is_wanted(self, slot: int, now: float, limit: float = PROMPT_MAX, *, full: bool = False) -> bool:
        """Whether another needs the place of a host that has had it for `limit` seconds."""
        self.look(now)
        since = self._others.get(slot)
        if since is None or slot in self._yielding or len(self._yielding) >= self._needed(full):
            return False
        return now >= since + limit

    def _needed(self, full: bool) -> int:
        """How many of the others' places are asked back."""
        room = self._others_max - len(self._others) - len(self._called)
        return max(0, len(self._line) - max(0, room)) + (max(0, -room) if full else 0)

    def next_waiting(self) -> FrontHost | None:
        """The first host in the line if there is room for it; it waits no more."""
        if not self._line or len(self._others) + len(self._called) >= self._others_max:
            return None
        host = self._line.popleft()
        host.waiting = False
        self._called.add(host.slot)
        return host

    def note_arrival(self, slot: int) -> None:
        """A host's turn has come."""
        self._called.discard(slot)

    def record_outcome(self, slot: int, fetch: Fetch, now: float, task: TaskKind = TaskKind.PAGE) -> None:
        """The host's request is over: its place is free. Note whether it answers soon, or at all."""
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
