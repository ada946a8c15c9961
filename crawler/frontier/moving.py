"""Queues, host records and refresh states follow their buckets when a crawl is resharded.

`storage/moving.py` moves most of it. This module moves what a process has beside them: its
level of refreshes begins at the mean of the levels before, so deadlines stay nearly where they were.
"""

import math
from collections import Counter

from crawler.frontier.discovery.entries import decode
from crawler.frontier.hosts.budget import RULES
from crawler.frontier.hosts.registry import Meta
from crawler.frontier.refresh.state import level_record, stored_level
from crawler.storage.keys import FRONTIER, PARKED, REFRESH_LEVEL
from crawler.storage.moving import NewProcess, load, pack


def move(to: NewProcess) -> None:
    """Bring the queues of a new process, and make its crawl-wide numbers from all."""
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
    levels = [level for source in to.sources if (level := stored_level(source.store)) > 0.0]
    if levels:
        to.put(REFRESH_LEVEL, level_record(math.exp(sum(map(math.log, levels)) / len(levels))))
