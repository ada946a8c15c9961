"""Agrees with the peers that the crawl has ended, and lets a process leave only when its peers know.

A process that has finished keeps running until all other processes know of the end, but at most for
`crawl.patience`, because a silent process may be dead. A process that is cut off during this time waits until
one of the others is started again and tells it of the end. It also leaves if the machines of the others have
refused connections for `GONE_PATIENCES` times `crawl.patience`, and it has proof that no work is left: the last
messages of all processes or, if it was started again after the end, the end that it has stored.
"""

import asyncio
import logging
from contextlib import suppress

from crawler.process.exchange.exchange import Loops, Member, pages_of
from crawler.process.exchange.termination import Extent, MissingPeers, Termination
from crawler.process.opening.stages import Stages
from crawler.splitter.coordination import Coordination, Progress, Weights
from crawler.splitter.peers import Peers

log = logging.getLogger("crawler")

# number of heartbeats for which a process keeps running after the end or a limit, so that its peers learn of
# it
LAST_WORDS = 2
# Missing peers count as gone for good once their machines have refused connections for this multiple of
# `crawl.patience`. This time is long, so that a machine that restarts at the end of the crawl still finds its
# peers.
GONE_PATIENCES = 5


class AgreedEnd:
    """The end of a crawl of several processes, as one of them knows it."""

    def __init__(self, stages: Stages, coordination: Coordination, loops: Loops, member: Member) -> None:
        self._coordination, self._loops = coordination, loops
        self._outbox, self._inbox, self._counters = stages.outbox, stages.inbox, stages.point.counters
        self._clock, self._name = stages.clock, stages.name
        self._supervised = member.supervised
        crawl, self._splitter = stages.config.crawl, stages.config.splitter
        self._crawl_patience = crawl.patience
        self._limits = f"{stages.frontier.limits} {crawl.patience:g}"
        silence_max = self._splitter.silence_max
        self._stored = Termination(
            stages.store, self._extent, silence_max, self._clock.now(), clean=stages.was_clean
        )
        self._awaited = MissingPeers(silence_max)
        self._weights = Weights(stages.name, stages.topology.peers)
        # A supervisor must be told that the crawl has ended, even if this process has not stored the end.
        coordination.tells_end = member.supervised

    def complete(self, own: Progress) -> None:
        """Add to `own`, the progress of this process, what the process knows about the end of the crawl."""
        own.past_end = self._stored.past_end
        if own.idle and not self._outbox.links:
            own.sent_sum = self._weights.sent_sum(self._outbox.confirmed_by_peer())
            own.applied_sum = self._weights.applied_sum(self._inbox.applied_by_peer())

    def is_known(self, peers: Peers) -> bool:
        """Return whether this process may conclude that the crawl has ended."""
        return self.is_recalled() or self.is_proved(peers)

    def is_recalled(self) -> bool:
        """Return whether an earlier run stored the end of the crawl, and it still applies."""
        coordination = self._coordination
        return self._stored.recalls(
            coordination.rates_stated(), coordination.process_count, self._clock.now()
        )

    def is_proved(self, peers: Peers) -> bool:
        """Return whether all missing peers have left for good, and no work is left.

        Either the last messages of the peers prove this, or the end that an earlier run stored.
        """
        missing = self._coordination.missing(self._clock.now())
        if self._supervised or self._coordination.ended or not missing:
            return False
        gone = peers.have_left(missing, GONE_PATIENCES * self._crawl_patience)
        if not gone:
            return False
        if self._coordination.proves_end():
            proof = "the last messages show that nothing was left to do"
        elif self._stored.is_undisturbed(self._coordination.rates_stated()):
            proof = "nothing was done here since an earlier run ended"
        else:
            return False
        log.warning("the crawl has ended: %s left, and %s", ", ".join(missing), proof)
        return True

    def warn_of_missing(self) -> None:
        """Log missing peers if this process has nothing left to do, because it may wait for them forever."""
        now = self._clock.now()
        missing = self._awaited.check(self._coordination.missing(now), self._loops.idle(), now)
        if missing and not self._supervised and not self._coordination.ended:
            log.warning(
                "nothing is left to do here, but the crawl cannot end without %s (no contact for %g s); "
                "if the crawl has ended there, start one of them again, and it will tell this process; "
                "this process can be stopped without losing data",
                ", ".join(missing),
                self._splitter.silence_max,
            )

    async def part(self, stopped_by: str) -> None:
        """Before this process leaves, give its peers time to learn that the crawl has ended or reached a limit."""
        heartbeat = self._splitter.heartbeat
        if self._supervised:
            return  # the supervisor informs all processes, and knows when one has died
        if self._coordination.ended:
            patience = self._patience()
            await self._store()
            patience += self._clock.now()
            while not self._coordination.all_know and self._clock.now() < patience:
                await asyncio.sleep(heartbeat / 4)
            if not self._coordination.all_know:
                # Since the end was stored, peers may have reported that they have no work.
                await self._store()
            self._warn_of_uninformed()
            await asyncio.sleep(LAST_WORDS * heartbeat)  # the last peer may not know of the end yet
        elif stopped_by.startswith("max_"):
            await asyncio.sleep(LAST_WORDS * heartbeat)

    def _warn_of_uninformed(self) -> None:
        """Log the peers that do not know of the end of the crawl."""
        if uninformed := self._coordination.uninformed():
            log.warning(
                "the crawl has ended, but there is no contact with %s; if a process still waits there, "
                "start this one again, and it will tell the others",
                ", ".join(uninformed),
            )

    def _patience(self) -> float:
        """Return the seconds to wait for peers that do not know that the crawl has ended.

        This time is shorter if an earlier run has stored that the crawl has ended, and this is still true.
        """
        silence_max = self._splitter.silence_max
        return silence_max if self._stored.holds else max(self._crawl_patience, silence_max)

    async def _store(self) -> None:
        """Store that the crawl has ended. After a crash, there may be no peer left that knows this."""
        kept = asyncio.Event()
        said = self._coordination.rates_stated()
        change = self._stored.keep({name: said[name] for name in said if name != self._name})
        change.after.append(kept.set)
        self._loops.queue(change)
        with suppress(TimeoutError):  # if the write fails, the commit loop ends the process
            await asyncio.wait_for(kept.wait(), self._splitter.silence_max)
            self._coordination.tells_end = True

    def _extent(self) -> Extent:
        return Extent(self._outbox.appended, self._inbox.applied, pages_of(self._counters), self._limits)
