"""The end of a crawl as one of several processes knows it: after a crash, and when others have left.

Who has told of the end may be left alone by all who were told. So it is kept first
(`m/ended`), with how far the process was: links that it had sent and applied, pages
that it had fetched, seeds that it was given. What comes behind it, such as seeds of
a new run, moves these numbers, and the mark says nothing any more. A start is given
the seeds of its run again; those of other processes are sent again then, and count
for nothing: these had them before the end.
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
    """How far a process is, over all runs: links appended to outboxes and applied from inboxes, pages.

    `seeds` are those of the links that seeds of this start have been, `digest` is the sum of their fingerprints.
    """

    appended: int
    applied: int
    pages: int
    seeds: int = 0
    digest: int = 0

    def is_beyond(self, kept: "Extent") -> bool:
        """Whether more than the same seeds came behind `kept`."""
        before = (kept.appended, kept.applied, kept.pages, kept.digest)
        return (self.appended - self.seeds, self.applied, self.pages, self.digest) != before


class Termination:
    """Whether this process knew of the end in an earlier life, and what follows for this one.

    `extent` says how far it is; `silence_max` in seconds.
    """

    def __init__(self, store: KeyValue, extent: Callable[[], Extent], silence_max: float, now: float) -> None:
        self._kept = load(store, ENDED, Extent | None, None)  # type: ignore[arg-type]
        self._extent = extent
        self._silence_max = silence_max
        self._quiet_since = now  # some are missing, and nobody has work

    @property
    def holds(self) -> bool:
        """Whether it knew of the end, and has done nothing since."""
        return self._kept is not None and not self._extent().is_beyond(self._kept)

    def keep(self) -> Change:
        """What lets a start after a crash know of the end."""
        change = Change(sync=True)
        change.put(ENDED, pack(self._extent()))
        return change

    def recalls(self, said: Mapping[str, Progress | Counters], processes: int, now: float) -> bool:
        """Whether the end that was known is the end still; to be asked often.

        So it is if some were not heard in this life, for long, and the rest are idle: in a
        new run, or if a peer has come back with work, somebody is not.
        """
        work = any(not each.idle or each.outbox for each in said.values())
        if len(said) == processes or work or not self.holds:
            self._quiet_since = now
        return now - self._quiet_since >= self._silence_max


class MissingPeers:
    """Says once for whom a process waits that has nothing left to do; `silence_max` in seconds."""

    def __init__(self, silence_max: float) -> None:
        self._silence_max = silence_max
        self._since: float | None = None
        self._told: Sequence[str] = ()

    def check(self, missing: Sequence[str], idle: bool, now: float) -> Sequence[str]:
        """The missing to be told of now, if others were told of before; `missing` were not heard for `silence_max`."""
        if not idle or not missing:
            self._since, self._told = None, ()
            return ()
        self._since = now if self._since is None else self._since
        if now - self._since < self._silence_max or missing == self._told:
            return ()
        self._told = missing
        return missing
