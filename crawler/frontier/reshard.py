"""Moves queues, host records and refresh states with their buckets when a crawl is resharded.

`storage/reshard.py` copies all records with a bucket in their keys, except those of parked URLs. This module
copies and counts the parked URLs, and computes the numbers that apply to the whole frontier of a new process.
The new refresh level is the geometric mean of the old levels, so deadlines hardly change. The factors that
correct predictions and the variation of rates are means of the old ones. The heir gets the sums of the counts of
new pages.
"""

import math
from collections import Counter

from crawler.frontier.discovery.entries import decode
from crawler.frontier.hosts.budget import RULES
from crawler.frontier.hosts.registry import Meta
from crawler.frontier.refresh.news import added, stored_counts
from crawler.frontier.refresh.state import BIASES, bias_record, number_record, stored_bias, stored_number
from crawler.storage.keys import FRONTIER, NEWS, PARKED, REFRESH_BIAS, REFRESH_LEVEL, REFRESH_REVISIT
from crawler.storage.reshard import NewProcess, load, pack


def move(to: NewProcess) -> None:
    """Copy the queues of a new process from the old processes; derive its crawl-wide numbers from the old ones."""
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
    for key in (REFRESH_LEVEL, REFRESH_REVISIT):
        found = [number for source in to.sources if (number := stored_number(source.store, key)) > 0.0]
        if found:  # the geometric mean of the old levels
            to.put(key, number_record(math.exp(sum(map(math.log, found)) / len(found))))
    biases = [stored_bias(source.store) for source in to.sources]
    if whole := [numbers for numbers in biases if numbers is not None and len(numbers) == BIASES]:
        to.put(REFRESH_BIAS, bias_record([sum(each) / len(whole) for each in zip(*whole, strict=True)]))
    counts = added(stored_counts(source.store) for source in to.sources)
    if to.heir and counts.since:
        to.put(NEWS, pack(counts))
