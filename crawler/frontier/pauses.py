"""Pauses of the whole crawl and blocks of single hosts, set by the user or by the process."""

from contextlib import suppress

import numpy as np

from crawler.errors import DamageError
from crawler.frontier.discovery.intake import Intake
from crawler.frontier.hosts.registry import Registry
from crawler.frontier.hosts.table import SILENCED, HostFlag
from crawler.frontier.refetches import Refetches
from crawler.storage.kv import Batch

USER = "user"  # the reason for a pause that the user has requested


class Pauses:
    """The reasons why no fetch task is given out, such as the user or a nearly full disk.

    The object is false if there is no reason.
    """

    def __init__(self) -> None:
        self._reasons: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._reasons)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons, sorted."""
        return tuple(sorted(self._reasons))

    def pause(self, reason: str = USER) -> None:
        """Give out nothing until `resume` is called with the same reason."""
        self._reasons.add(reason)

    def resume(self, reason: str = USER) -> None:
        """End the pause that has this reason."""
        self._reasons.discard(reason)


class HostBlocks:
    """Blocks and unblocks hosts by hand."""

    def __init__(self, registry: Registry, intake: Intake, refetches: Refetches) -> None:
        self._registry = registry
        self._hosts = registry.hosts
        self._intake = intake
        self._refetches = refetches

    def block(self, hostname: str) -> None:
        """Send no request to the host until `unblock`; its URLs stay queued. Stored by `stage`."""
        slot = self._registry.slot(hostname)
        self._hosts.flags[slot] |= HostFlag.BLOCKED
        self._registry.note(slot, hostname)

    def names(self) -> set[str]:
        """Return the hosts that are blocked. A host whose stored name cannot be read is left out."""
        flags = self._hosts.array("flags")
        found = set()
        for slot in np.flatnonzero(flags & int(HostFlag.BLOCKED)).tolist():
            with suppress(DamageError):
                found.add(self._registry.stored_name(slot))
        return found

    def unblock(self, hostname: str, now: float) -> None:
        """Allow requests to the host again, regardless of the reason why it was blocked. Stored by `stage`."""
        slot = self._registry.slot(hostname)
        self._hosts.flags[slot] &= 0xFFFF ^ SILENCED
        self._hosts.refusals[slot] = self._hosts.cause[slot] = 0
        self._registry.note(slot, hostname)
        self._intake.settle_place(slot, now)
        self._refetches.reopen(slot, now)

    def stage(self, batch: Batch) -> None:
        """Put the records of the hosts that were blocked or unblocked into a batch."""
        self._registry.put_notes(batch)
