"""The back queue: ready hosts outside the front, in the order of their turns.

Prompt hosts, whose last page arrived quickly, have a separate queue. So prompt hosts need not wait while the
fetch slots for new and slow hosts are taken. When both prompt hosts and others may enter the front, they
enter nearly in order of arrival. The order is not exact, because the queue records only the number of prompt
hosts among every `BLOCK` arrivals.
"""

from collections import deque
from collections.abc import Iterator

import numpy as np

from crawler.frontier.hosts.calendar import Chain
from crawler.frontier.hosts.table import HostFlag, HostTable

BLOCK = 64


class BackQueue:
    """Two chains of slots: for hosts with and without the flag PROMPT.

    This flag does not change while a host is queued. `_blocks` holds [number of prompt hosts, number of
    others] for each block, in order of arrival. `_ahead` is the number of prompt hosts that left the queue
    while the other hosts had to wait. `_blocks` still counts these prompt hosts.
    """

    __slots__ = ("_ahead", "_blocks", "_hosts", "_others", "_prompt")

    def __init__(self, hosts: HostTable) -> None:
        self._hosts = hosts
        self._prompt = Chain(hosts)
        self._others = Chain(hosts)
        self._blocks: deque[list[int]] = deque()
        self._ahead = 0

    def __len__(self) -> int:
        return len(self._prompt) + len(self._others)

    def __iter__(self) -> Iterator[int]:
        yield from self._prompt
        yield from self._others

    def holds(self, *, others: bool) -> bool:
        """Return whether a host with the flag PROMPT is queued. If `others` is True, any host counts."""
        return bool(self._prompt or (others and self._others))

    def append(self, slot: int) -> None:
        prompt = bool(self._hosts.flags[slot] & HostFlag.PROMPT)
        (self._prompt if prompt else self._others).append(slot)
        self._note(prompt, not prompt)

    def extend(self, slots: np.ndarray) -> None:
        """Append many slots."""
        prompt = (self._hosts.gather("flags", slots) & HostFlag.PROMPT) != 0
        for chain, some in ((self._prompt, slots[prompt]), (self._others, slots[~prompt])):
            if len(some):
                chain.extend(some)
        for at in range(0, len(slots), BLOCK):
            some = prompt[at : at + BLOCK]
            self._note(int(some.sum()), int((~some).sum()))

    def first(self, *, others: bool) -> int:
        """Return the slot that `popleft` probably returns next; the queue must not be empty."""
        return self._others.head if others and self._others else self._prompt.head

    def improved(self, slot: int) -> None:
        """Do nothing: a better first URL does not change a host's turn here."""

    def _note(self, prompt: int, others: int) -> None:
        if self._blocks and sum(self._blocks[-1]) < BLOCK:
            self._blocks[-1][0] += prompt
            self._blocks[-1][1] += others
        else:
            self._blocks.append([prompt, others])

    def popleft(self, *, others: bool) -> int:
        """Remove and return the next slot; the queue must not be empty."""
        if not (others and self._others):
            self._ahead += 1
            slot = self._prompt.popleft()
            if not self:
                self._blocks.clear()
                self._ahead = 0
            return slot
        while True:
            block = self._blocks[0]
            gone = min(block[0], self._ahead)
            block[0] -= gone
            self._ahead -= gone
            if block[1]:
                block[1] -= 1
                return self._others.popleft()
            if block[0]:
                block[0] -= 1
                return self._prompt.popleft()
            self._blocks.popleft()

    def _check(self) -> None:
        assert sum(block[0] for block in self._blocks) - self._ahead == len(self._prompt)
        assert sum(block[1] for block in self._blocks) == len(self._others)
