"""Queues, host records and refresh states follow their buckets when a crawl is resharded."""

from collections import Counter

from crawler.frontier.discovery.entries import decode
from crawler.frontier.hosts.budget import RULES
from crawler.frontier.hosts.registry import Meta
from crawler.storage.keys import FRONTIER, HOST, PARKED, REFRESH, REFRESH_DIRECTORY, REFRESH_SITE, TODO
from crawler.storage.moving import NewProcess, load, pack


def move(to: NewProcess) -> None:
    """Bring the queues of a new process, and make its crawl-wide numbers from all."""
    for prefix in (TODO, HOST, REFRESH, REFRESH_SITE, REFRESH_DIRECTORY):
        for _ in to.copy(prefix):
            pass
    parked: Counter[str] = Counter()
    for _, key, value in to.copy(PARKED):
        parked[RULES[decode(key, value).rule]] += 1
    metas = [load(source.store, FRONTIER, Meta, Meta()) for source in to.sources]
    meta = Meta(
        sequence=max(each.sequence for each in metas),
        parked=dict(parked),
        limits=metas[0].limits,
        unclean_at=max(each.unclean_at for each in metas),
    )
    to.put(FRONTIER, pack(meta))
