"""Stores that the crawl has ended, so that a process knows this after a crash, even if its peers have left.

When a process announces the end, all peers may leave as soon as they have heard of it. So the process first
stores, under `m/ended`, that the crawl has ended, and how much work the process had done by then (its
extent). The extent consists of the links that the process has sent and applied, the pages that it has
fetched, and the limits in force. Later work, such as on new seeds, changes the extent, and then the stored
end no longer applies. The stored end also no longer applies after a change of the limits. URLs that were
parked or had to wait too long may then be fetched, by this process or by one that starts later. Each process
tells its peers whether it has stored an end, and whether the stored end still applies (`PastEnd`). While any
peer has a stored end that no longer applies, no process relies on the end that it has stored itself. A
restarted process receives its seeds a second time. These seeds do not change the extent, because a seed is
sent to its owner only once (`process/results/sent_seeds.py`).

A stored end is used in three cases. The first case is a restart after a crash. The process may have been
killed while it was leaving, and its peers may have left, too. So the process does not wait for missing peers
forever. After a crash, the process leaves when no process has reported work for `silence_max`. The second
case is a start after a clean end. This start is a new run, which waits for all peers. But one of the peers
may have been cut off when the others left, and may still be waiting for them. So the stored end also contains
the numbers of links that each peer had sent and applied. If the numbers of a peer are still the same, and the
peer knows of no end, the first process that is started again tells the peer that the crawl has ended. The
third case is a start after a clean end when no peer waits for the others any more, for example because the
waiting peer has ended by itself in the meantime. In the third case, the process leaves when the machines of
all missing processes have refused connections for long (`agreed_end.py`).
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from crawler.splitter.coordination import Progress
from crawler.splitter.wire import Counters, PastEnd
from crawler.storage.commit import Change
from crawler.storage.keys import ENDED
from crawler.storage.kv import KeyValue
from crawler.storage.reshard import load, pack


class Extent(msgspec.Struct, frozen=True):
    """The work of a process in all its runs: links appended to outboxes, links applied from inboxes, pages fetched.

    `limits` describes the settings that decide which known URLs are not fetched. `peers` holds the numbers
    (appended, applied) of each peer whose last message said that it had no work.
    """

    appended: int
    applied: int
    pages: int
    limits: str = ""
    peers: dict[str, tuple[int, int]] = {}

    def is_beyond(self, kept: "Extent") -> bool:
        """Return whether, since `kept`, the limits changed or work was done."""
        before = (kept.appended, kept.applied, kept.pages, kept.limits)
        return (self.appended, self.applied, self.pages, self.limits) != before


class Termination:
    """Remembers whether this process knew, before it restarted, that the crawl had ended, and whether that still holds.

    `extent` returns the current extent. `silence_max` is in seconds. `clean` is true if the last run ended
    cleanly.
    """

    def __init__(
        self,
        store: KeyValue,
        extent: Callable[[], Extent],
        silence_max: float,
        now: float,
        *,
        clean: bool = False,
    ) -> None:
        self._kept = load(store, ENDED, Extent | None, None)  # type: ignore[arg-type]
        self._extent = extent
        self._silence_max = silence_max
        self._clean = clean
        self._at_rest: dict[str, tuple[int, int]] = {}  # the peers that `keep` has stored
        # Since this time, some peers have been missing and no process has had work.
        self._quiet_since = now

    @property
    def past_end(self) -> PastEnd:
        """Says whether an earlier run stored the end of the crawl, and whether work was done or limits changed since."""
        if self._kept is None:
            return PastEnd.NONE
        return PastEnd.VOID if self._extent().is_beyond(self._kept) else PastEnd.HOLDS

    @property
    def holds(self) -> bool:
        """True if an earlier run stored the end of the crawl, and there was no work and no new limit since."""
        return self.past_end is PastEnd.HOLDS

    def keep(self, peers: Mapping[str, Progress | Counters]) -> Change:
        """Build the `Change` that stores that the crawl has ended. `peers` holds the last reports of the peers.

        A second call adds the peers that have reported since the first call that they have no work.
        """
        self._at_rest |= {
            name: (each.appended, each.applied)
            for name, each in peers.items()
            if each.idle and not each.outbox
        }
        change = Change(sync=True)
        change.put(ENDED, pack(replace(self._extent(), peers=dict(self._at_rest))))
        return change

    def recalls(self, said: Mapping[str, Progress | Counters], processes: int, now: float) -> bool:
        """Return whether this process may leave because an earlier run stored that the crawl has ended. Call this often.

        Since that end, there must have been no work and no new limit. Some processes must be missing.
        All processes that have sent a report since this start must be idle and know of no later work. Also, one
        of the reporting processes must have missed the end: it does not know that the crawl has ended, and it
        has sent and applied no links since the end was stored. After a crash, this last condition is dropped
        when the other conditions have held for `silence_max`.
        """
        work = any(not each.idle or each.outbox or each.past_end is PastEnd.VOID for each in said.values())
        if len(said) == processes or work or not self.holds:
            self._quiet_since = now
            return False
        return self._is_awaited(said) or (not self._clean and now - self._quiet_since >= self._silence_max)

    def _is_awaited(self, said: Mapping[str, Progress | Counters]) -> bool:
        """Return whether any peer does not know of the end, and has sent and applied no links since it was stored."""
        return any(
            each.past_end is PastEnd.NONE and self._is_unchanged(name, each) for name, each in said.items()
        )

    def is_undisturbed(self, said: Mapping[str, Progress | Counters]) -> bool:
        """Return whether the stored end applies, and no process that has sent a report has had work since then."""
        return self.holds and all(
            each.idle
            and not each.outbox
            and (each.past_end is PastEnd.HOLDS or self._is_unchanged(name, each))
            for name, each in said.items()
        )

    def _is_unchanged(self, name: str, said: Progress | Counters) -> bool:
        """Return whether a peer has sent and applied no links since the end was stored."""
        peers = self._kept.peers if self._kept is not None else {}
        return said.past_end is not PastEnd.VOID and peers.get(name) == (said.appended, said.applied)


class MissingPeers:
    """Reports each set of missing peers once, if the process has had nothing to do for `silence_max` seconds."""

    def __init__(self, silence_max: float) -> None:
        self._silence_max = silence_max
        self._since: float | None = None
        self._told: Sequence[str] = ()

    def check(self, missing: Sequence[str], idle: bool, now: float) -> Sequence[str]:
        """Return the peers that must be reported as missing, or () if there is nothing to report.

        After `silence_max` seconds without work, all of `missing` are reported once.
        """
        if not idle or not missing:
            self._since, self._told = None, ()
            return ()
        self._since = now if self._since is None else self._since
        if now - self._since < self._silence_max or missing == self._told:
            return ()
        self._told = missing
        return missing
