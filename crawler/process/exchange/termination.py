"""The end of a crawl of several processes, as one of them remembers it after a crash, when others may have left.

A process that announces the end may be left alone by all peers that it has told. So it first
stores the end (`m/ended`) with its extent: the links that it had sent and applied, the pages
that it had fetched, the seeds that it was given. Later work, such as the seeds of a new run,
changes these numbers, and then the stored end is void. A restart is given the seeds of its run
again and sends those of other processes again; these seeds are not counted, because the
other processes had them before the end.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from crawler.splitter.coordination import Progress
from crawler.splitter.wire import Counters
from crawler.storage.commit import Change
from crawler.storage.keys import ENDED
from crawler.storage.kv import KeyValue
from crawler.storage.reshard import load, pack


class Extent(msgspec.Struct, frozen=True):
    """The work of a process over all runs: links appended to outboxes, links applied from inboxes, pages fetched.

    `seeds` is the number of those links that are seeds of this start, `digest` the sum of the seeds' fingerprints.
    """

    appended: int
    applied: int
    pages: int
    seeds: int = 0
    digest: int = 0

    def is_beyond(self, kept: "Extent") -> bool:
        """Return whether this extent has more work than `kept`, apart from the same seeds."""
        before = (kept.appended, kept.applied, kept.pages, kept.digest)
        return (self.appended - self.seeds, self.applied, self.pages, self.digest) != before


class Termination:
    """Remembers whether this process knew of the end before it restarted, and whether that end still applies.

    `extent` returns the current extent; `silence_max` is in seconds.
    """

    def __init__(self, store: KeyValue, extent: Callable[[], Extent], silence_max: float, now: float) -> None:
        self._kept = load(store, ENDED, Extent | None, None)  # type: ignore[arg-type]
        self._extent = extent
        self._silence_max = silence_max
        self._quiet_since = now  # since then some peers have been missing, and no process has had work

    @property
    def holds(self) -> bool:
        """True if this process knew of the end and has done nothing since."""
        return self._kept is not None and not self._extent().is_beyond(self._kept)

    def keep(self) -> Change:
        """Make the change that stores the end for a start after a crash."""
        change = Change(sync=True)
        change.put(ENDED, pack(self._extent()))
        return change

    def recalls(self, said: Mapping[str, Progress | Counters], processes: int, now: float) -> bool:
        """Return whether the stored end still applies; call this often.

        It applies if, for `silence_max`, some peers were not heard in this life and all
        others were idle. In a new run, or if a peer comes back with work, some process is not idle.
        """
        work = any(not each.idle or each.outbox for each in said.values())
        if len(said) == processes or work or not self.holds:
            self._quiet_since = now
        return now - self._quiet_since >= self._silence_max


class MissingPeers:
    """Reports each set of missing peers once if the process has nothing left to do; `silence_max` in seconds."""

    def __init__(self, silence_max: float) -> None:
        self._silence_max = silence_max
        self._since: float | None = None
        self._told: Sequence[str] = ()

    def check(self, missing: Sequence[str], idle: bool, now: float) -> Sequence[str]:
        """Return `missing` if it is to be reported now, else (); its peers were not heard for `silence_max`."""
        if not idle or not missing:
            self._since, self._told = None, ()
            return ()
        self._since = now if self._since is None else self._since
        if now - self._since < self._silence_max or missing == self._told:
            return ()
        self._told = missing
        return missing
