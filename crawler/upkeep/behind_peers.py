"""Finds and repairs processes that are behind their peers, that is, which have lost links that they had confirmed.

A process confirms links once they are durable, and the sender then deletes them. If the store of the receiver is
later replaced by an earlier state, or rebuilt after damage, links that it confirmed are lost on both sides. Both
sides count the links that were ever durable at the receiver (`splitter/spool.py`), so the comparison is exact.
Peers compare the counts at each greeting; this module compares the counts of the processes in one directory.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from crawler.clock import Clock
from crawler.config import Config
from crawler.crawl.directory import CrawlDirectory
from crawler.process.opening.stages import Stages, at_rest
from crawler.upkeep.recover import recover_links
from crawler.upkeep.repair import RepairNote
from crawler.wording import several


class Exchanged(NamedTuple):
    """The number of links that a process has exchanged with each peer.

    `confirmed` is the total number of links that the peer had received from this process when it last sent a
    confirmation. `applied` is the total number of links that this process has received from the peer.
    """

    confirmed: Mapping[str, int]
    applied: Mapping[str, int]

    @classmethod
    def of(cls, stages: Stages) -> "Exchanged":
        """Read the counts of an open process."""
        peers = stages.topology.peers
        return cls(
            {peer: stages.outbox.spools[peer].confirmed.applied for peer in peers},
            {peer: stages.inbox.applied_from(peer) for peer in peers},
        )


class Behind(NamedTuple):
    """A process that has lost links.

    `links` is the number of lost links. The process had received them from `peer` and confirmed them.
    """

    name: str
    peer: str
    links: int

    def __str__(self) -> str:
        return (
            f"{self.name}: its store is of an earlier state and lacks {several(self.links, 'link')} from {self.peer} "
            "that it had confirmed"
        )


def find_behind(exchanged: Mapping[str, Exchanged]) -> list[Behind]:
    """Return a `Behind` for each pair of these processes in which one process is behind the other."""
    return [
        Behind(name, peer, lost)
        for name, own in exchanged.items()
        for peer in own.applied
        if peer in exchanged and (lost := exchanged[peer].confirmed[name] - own.applied[peer]) > 0
    ]


def recover_behind(
    config: Config, directory: CrawlDirectory, names: Sequence[str], clock: Clock
) -> tuple[list[str], list[str]]:
    """Recover the links of processes that are behind or were rebuilt. Return what was done, and the problems.

    A process whose store was rebuilt may have lost links even if no peer reports a higher count. The reason
    is that the peers may have been rebuilt, too, and have counted from zero since then. This function also
    ends the repair of such a process.

    Raises:
        DirectoryError: a process uses its folder, or the folder is damaged.
        StoreError: the disk failed.
    """
    exchanged = {}
    for name in names if len(names) > 1 else ():
        with at_rest(config, directory, name, clock=clock) as stages:
            exchanged[name] = Exchanged.of(stages)
    found = find_behind(exchanged)
    rebuilt = [name for name in names if RepairNote(directory, name).store_damaged]
    done, problems = [str(each) for each in found], []
    lost = dict.fromkeys([*(each.name for each in found), *rebuilt])
    # Links that waited in the rebuilt store for other processes may also be lost, so links are recovered in
    # both directions.
    pairs = dict.fromkeys(pair for name in lost for peer in names for pair in ((name, peer), (peer, name)))
    queued = Counter[str]()
    for name, finder in pairs:
        if name != finder:
            links, unread = recover(config, directory, name, [finder], clock)
            queued[name] += links
            problems += unread
    done += [
        f"{name}: {several(queued[name], 'link')} queued for it, from the archives of its peers"
        for name in queued
    ]
    for name in rebuilt:
        RepairNote(directory, name).end()
    return done, problems


def recover(
    config: Config,
    directory: CrawlDirectory,
    lost: str,
    peers: Iterable[str],
    clock: Clock,
    before: Callable[[], None] = lambda: None,
) -> tuple[int, list[str]]:
    """Search the archives of the peers for links that the process `lost` owns, and queue them for it.

    Return the number of links that were queued, and the problems. `before` is called before each change.
    """
    total, problems = 0, []
    for name in peers:
        with at_rest(config, directory, name, clock=clock) as stages:
            count, unread = recover_links(stages, lost, before)
        total += count
        problems += [f"{name}: {line}" for line in unread]
    return total, problems
