"""What keeps the crawl, or one of its hosts, from being asked for now by order of somebody."""

from crawler.frontier.discovery.intake import Intake
from crawler.frontier.hosts.registry import Registry
from crawler.frontier.hosts.table import SILENCED, HostFlag
from crawler.frontier.refetches import Refetches


class Pauses:
    """Reasons for which nothing is given out (the user; a disk that is nearly full); false without any."""

    def __init__(self) -> None:
        self._reasons: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._reasons)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons, sorted."""
        return tuple(sorted(self._reasons))

    def pause(self, reason: str = "user") -> None:
        """Give nothing out until `resume` for the same reason."""
        self._reasons.add(reason)

    def resume(self, reason: str = "user") -> None:
        """End the pause for a reason."""
        self._reasons.discard(reason)


class HostBlocks:
    """Blocks hosts by hand."""

    def __init__(self, registry: Registry, intake: Intake, refetches: Refetches) -> None:
        self._registry = registry
        self._hosts = registry.hosts
        self._intake = intake
        self._refetches = refetches

    def block(self, hostname: str) -> None:
        """Ask the host no more until `unblock`; its URLs stay. Stored with the next batch."""
        slot = self._registry.slot(hostname)
        self._hosts.flags[slot] |= HostFlag.BLOCKED
        self._registry.note(slot, hostname)

    def unblock(self, hostname: str, now: float) -> None:
        """Ask the host again, whatever held it. Stored with the next batch."""
        slot = self._registry.slot(hostname)
        self._hosts.flags[slot] &= 0xFFFF ^ SILENCED
        self._hosts.refusals[slot] = self._hosts.cause[slot] = 0
        self._registry.note(slot, hostname)
        self._intake.settle_place(slot, now)
        self._refetches.reopen(slot, now)
