"""Check the store of a crawl that was killed on a changing web: hubs, credit, births, sources, validators.

The store is opened in the state after the kill. The store must agree with the web's log:

    every record and value       is whole (`crawler check`), and the schedule's invariants hold
    pages credited               are those stored pages that a refreshed page showed, each counted once
    a hub's `found`              is the sum over those pages, each faded since the hub's crawl before it
    births                       belong only to URLs without a record
    validators, sources          that were known before are still known
"""

import math
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from crawler.clock import SystemClock
from crawler.config import convert
from crawler.crawl.directory import CrawlDirectory
from crawler.lab.changing.web import ChangingWeb, HostSpec
from crawler.process.opening.stages import Stages, at_rest
from crawler.records import LinkFlag, PageState
from crawler.storage import keys
from crawler.storage.kv import scan_prefix
from crawler.upkeep.check import check

DAY = 86_400.0
MEAN_LIFE = 90.0 * DAY / math.log(2.0)  # the mean life of a credit
# A hub's sum of credits may differ from the expected sum by this number of credits, because a kill may lose a
# crawl of the hub.
OFF = 0.5
_NEWS = LinkFlag.NEWS


class Left(NamedTuple):
    """The content of a store: credited pages, hubs, births, keys of validators, keys of sources, and errors."""

    credited: int
    hubs: int
    births: int
    validators: frozenset[bytes]
    sources: frozenset[bytes]
    problems: list[str]

    def lost_since(self, before: "Left") -> list[str]:
        """Describe the data that an earlier store contained and that is missing in this store."""
        problems = []
        if self.credited < before.credited:
            problems.append(f"{before.credited} pages were credited, now {self.credited}")
        for name, old, new in (
            ("validators", before.validators, self.validators),
            ("sources", before.sources, self.sources),
        ):
            if gone := old - new:
                problems.append(f"{name} of {len(gone)} keys are gone")
        return problems


def living_web(start: float, speed: float, pages: int, horizon: float = 300.0) -> ChangingWeb:
    """Return a web of three hosts: one with a feed and true dates, one with false validators, and one with only hubs."""
    common: dict[str, Any] = {"pages": pages, "directories": 3, "rate": speed / (8 * DAY), "hubs": 4}
    rare = {"exceptions": (("/d1/", "etag-fixed"), ("/n1/", "none")), "lastmod": "none"}
    hosts = [
        HostSpec("h0", feed=True, articles=150, **common),
        HostSpec("h1", articles=150, **common, **rare),
        HostSpec("h2", articles=150, lastmod="none", **common),
    ]
    return ChangingWeb(hosts, horizon=horizon, start=start, seed=5)


def left(crawl: Path, web: ChangingWeb, speed: float) -> Left:
    """Open a copy of a crawl's directory. Return its content and errors."""
    directory = CrawlDirectory(crawl)
    config = convert(directory.settings.load())
    with at_rest(config, directory, "p0", clock=SystemClock(), restore=False) as stages:
        assert stages.views.freshness is not None
        stages.views.freshness._check()
        stages.frontier._check()
        credited = credited_pages(stages)
        births = {int.from_bytes(key[2:], "big") for key, _ in scan_prefix(stages.store, keys.BIRTHS)}
        problems = check(stages) + wrong_credit(stages, web, credited, speed)
        counted, found = stages.point.counters["hubs.credited"], sum(map(len, credited.values()))
        if counted != found:
            problems.append(f"{counted} pages were credited, {found} earned it")
        if known := [each for each in births if stages.pages.record(each) is not None]:
            problems.append(f"births of {len(known)} pages that have a record")
        return Left(
            counted,
            len(credited),
            len(births),
            frozenset(key for key, _ in scan_prefix(stages.store, keys.VALIDATORS)),
            frozenset(key for key, _ in scan_prefix(stages.store, keys.READINGS)),
            problems,
        )


def credited_pages(stages: Stages) -> dict[int, list[str]]:
    """Map the fingerprint of each page to the URLs of the new pages that it showed when it was fetched again."""
    assert stages.views.freshness is not None
    found = defaultdict(list)
    for _, record in stages.pages.all_records():
        if record.flags & _NEWS and record.state is PageState.STORED:
            found[stages.views.freshness.outcomes.shown_by(record.via)].append(record.url)
    return found


def wrong_credit(stages: Stages, web: ChangingWeb, credited: dict[int, list[str]], speed: float) -> list[str]:
    """Return the hubs whose sum of credits does not match the new pages that they have shown."""
    assert stages.views.freshness is not None
    schedule, problems = stages.views.freshness.schedule, []
    asked: dict[str, list[float]] = defaultdict(list)
    for each in web.log:
        asked[web.origins[each.host] + each.path].append(each.at)
    for fingerprint, urls in credited.items():
        record, page = stages.pages.record(fingerprint), schedule.find(fingerprint)
        assert record is not None and page >= 0
        crawled = schedule.records.page_state(page)[3] / speed
        instants, expected = asked[record.url], 0.0
        for url in urls:
            place = bisect_right(instants, asked[url][0])
            age = max(crawled - instants[place - 1], 0.0) * speed
            expected += math.exp(-age / MEAN_LIFE)
        found = schedule.records.hub_state(page)[0]
        if abs(found - expected) > OFF + 0.02 * expected:
            problems.append(
                f"{record.url}: credit of {found:.2f}, earned {expected:.2f} by {len(urls)} pages"
            )
    return problems
