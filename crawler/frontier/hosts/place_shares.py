"""Who may hold the places of a process: hosts that answer soon are never without one.

    prompt   the last answer came within `PROMPT_MAX`: any place
    others   new hosts, slow ones, those that did not answer: `untried_share` of them

Without this rule some hundred hosts that hang, or send a byte a second, would hold all
places for as long as a fetch may take. Others that find theirs taken wait in
line, and for each that waits one place is asked back: of a host that has had it
for `PROMPT_MAX` and never answered, or for `crowded_timeout` if it once did.
"""

from collections import deque
from math import ceil

from crawler.frontier.hosts.front_host import FrontHost
from crawler.frontier.hosts.table import HostFlag, HostTable
from crawler.records import Fetch

PROMPT_MAX = 5.0  # s of an answer; a place kept free is free again within that


class PlaceShares:
    """Counts the places that other hosts than prompt ones hold, and keeps their line."""

    def __init__(
        self, hosts: HostTable, concurrency: int, share: float, crowded_timeout: float = PROMPT_MAX
    ) -> None:
        self._hosts = hosts
        self._crowded_timeout = crowded_timeout
        self._others_max = max(1, ceil(concurrency * share))
        self._others: dict[int, float] = {}  # slots of hosts with a place, and since when
        self._yielding: set[int] = set()  # those of them whose place was asked back
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

    def take(self, host: FrontHost, now: float) -> bool:
        """Take a place, or one in the line."""
        if self.is_prompt(host.slot):
            return True
        if not self.has_room:
            host.waiting = True
            self._line.append(host)
            return False
        self._others[host.slot] = now
        return True

    def retake(self, slot: int, now: float) -> None:
        """Take a place that was given back for a while: without a line, since others wait for its errand."""
        if not self.is_prompt(slot):
            self._others[slot] = now

    def give(self, slot: int) -> None:
        """The place is free; harmless if it was not of the others' share."""
        self._others.pop(slot, None)
        self._yielding.discard(slot)

    def yields(self, slot: int, now: float) -> bool:
        """Whether the host is to end its request now, since one in the line needs the place; it counts as asked."""
        since = self._others.get(slot)
        if since is None or slot in self._yielding or len(self._yielding) >= len(self._line):
            return False
        late = self._hosts.flags[slot] & HostFlag.LATE
        if now < since + (self._crowded_timeout if late else PROMPT_MAX):
            return False
        self._yielding.add(slot)
        return True

    def call(self) -> FrontHost | None:
        """The first host in the line if there is room for it; it waits no more."""
        if not self._line or len(self._others) + len(self._called) >= self._others_max:
            return None
        host = self._line.popleft()
        host.waiting = False
        self._called.add(host.slot)
        return host

    def came(self, slot: int) -> None:
        """A host's turn has come."""
        self._called.discard(slot)

    def settle(self, slot: int, fetch: Fetch) -> None:
        """The host's request is over: its place is free. Note whether it answers soon, or at all."""
        self.give(slot)
        self._hosts.flags[slot] &= 0xFFFF ^ (HostFlag.PROMPT | HostFlag.LATE)
        if fetch.status and fetch.truncated != "time":
            self._hosts.flags[slot] |= HostFlag.PROMPT if fetch.took <= PROMPT_MAX else HostFlag.LATE

    def _check(self, in_flight: set[int]) -> None:
        assert self._others.keys() <= in_flight
        assert self._yielding <= self._others.keys()
        assert all(host.waiting and not host.held for host in self._line)
