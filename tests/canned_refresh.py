"""Prints the results of all refresh computations, and of the lab's caches, for a fixed input, as JSON.

Compiled and interpreted kernels must give the same results.

python -m tests.canned_refresh FOLDER
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from crawler.freshness.params import PageParameters
from crawler.frontier.refresh import Schedule, Settings
from crawler.lab.caches.link_locality import LinkLocality, synthetic_words
from crawler.lab.caches.locality_kernels import repeats_on_pages
from crawler.lab.caches.url_caches import POLICIES, Stream, misses
from crawler.records import LinkFlag
from tests.process.support import Joint, fetch

DAY = 86_400.0
SETTINGS = (
    Settings(),
    Settings(policy="greedy", min_age=DAY),
    Settings(policy="cis", neighbourhood=False, pooling=False),
    Settings(neighbourhood=False, pooling=False, max_age=90 * DAY),
    *(Settings(policy=policy) for policy in ("uniform", "interval", "azar-lds")),
)
PARAMETERS = (  # one row for each formula of the crawl value, and one row for signals in waves
    (1.0, 0.1 / DAY, 0.5, 0.2 / DAY),
    (2.0, 0.1 / DAY, 1.0, 0.2 / DAY),
    (1.0, 0.1 / DAY, 0.6, 0.0),
    (1.0, 0.0, 0.0, 0.0),
    (3.0, 0.01 / DAY, 0.9, 300.0 / DAY),
)


def scheduled(settings: Settings, steps: int = 150) -> dict[str, Any]:
    """Crawl pages in the order of a schedule that receives signals and learns.

    Return the final state of the schedule.
    """
    rng = random.Random(5)
    schedule = Schedule(settings, level=0.0 if settings.policy == "ncis" else 1e4)
    keys = np.arange(1, 41, dtype=np.uint64) << np.uint64(40)
    numbers = np.arange(40)
    schedule.add_many(
        keys, numbers % 3, 100 + numbers % 9, -DAY * numbers, 1.0 + numbers % 2, 0.0,
        changes=numbers % 4, watched=50 * DAY, signals=numbers % 2,
    )  # fmt: skip
    schedule.pace.rate = 8 / DAY
    if not settings.pooling:
        for page, parameters in enumerate(PARAMETERS):
            schedule.facts.set_page(page, PageParameters(*parameters), 0.0)
    now, asked = 0.0, []
    for step in range(steps):
        now += DAY / 8
        if step % 3 == 0:
            schedule.signals.note_change(rng.randrange(40), now, step % 8)
        if step == 20:
            schedule.signals.enqueue_changes(keys, now, 2)
        page = schedule.claim_next(now)
        asked.append(page)
        if page >= 0 and step % 7 == 3:
            schedule.give_back(page, now, now + DAY)
        elif page >= 0:
            result = step % 6 if step % 5 == 0 else rng.randrange(2)
            schedule.record_outcome(page, now + 5.0, result, now + DAY / 4)
        if step == 100:
            schedule.renew()
        else:
            schedule.work(now)
    schedule.remove(3)
    schedule._check()
    pages = [page for page in range(40) if page != 3]
    return {
        "asked": asked,
        "pages": [msgspec.to_builtins(schedule.overview.page(page, now)) for page in pages],
        "states": [schedule.records.page_state(page) for page in pages],
        "hosts": [msgspec.to_builtins(schedule.overview.host(host)) for host in range(3)],
        "sites": [schedule.records.site_state(host) for host in range(3)],
        "quality": [schedule.overview.quality(host) for host in range(3)],
        "directories": [schedule.records.directory_state(page) for page in pages[:9]],
        "level": schedule.pace.level,
        "price": schedule.marginal_value(now),
        "wakeup": schedule.next_wakeup(now),
    }


def joined(folder: Path, steps: int = 60) -> dict[str, Any]:
    """Refresh pages with all stages of a process. Return the requests, and the report about the pages."""
    joint = Joint(
        folder, refresh={"endless": True, "min_age": 0.0, "speed": 10_000, "arms": ["ncis", "greedy"]},
        crawl={"rate": 1.0},
    )  # fmt: skip
    stages = joint.stages
    assert stages.refresh is not None
    urls = [f"http://{host}.org/{n}" for host in "abc" for n in range(4)]
    joint.seeds(*urls)
    asked = []
    for step in range(steps):
        fetch_task = joint.fetch_task()
        if fetch_task.flags & LinkFlag.REFRESH:
            asked.append(fetch_task.url)
        body = f"<p>{step // 9}".encode()
        joint.page(fetch_task, fetch(fetch_task.url, body, began=joint.clock.now()))
        if step % 4 == 0:
            stages.refresh.changes.note_changes(
                [joint.fingerprint(urls[step % 12])], step % 3, joint.clock.now()
            )
    now = joint.clock.now()
    refresh = stages.refresh
    found = {
        "asked": asked,
        "view": refresh.views.summary(now),
        "why": [refresh.views.explain(joint.fingerprint(url), now, now) for url in urls],
        "fresh": [refresh.views.probability(joint.fingerprint(url), now, now) for url in urls],
        "hosts": refresh.views.by_host(now),
        "heard": refresh.changes.heard(),
        "wakeup": refresh.claims.next_wakeup(now),
    }
    stages.close()
    return found


def cached(links: int = 300) -> dict[str, Any]:
    """Simulate caches on a generated trace. Return the misses of each policy, and the repeats on pages."""
    stream = Stream(synthetic_words(LinkLocality(links_median=5.0, links_mean=6.0), 3, links, seed=1))
    found: dict[str, Any] = {
        policy: misses(policy, stream, [1, 2, 16, 64], bins=3).tolist() for policy in POLICIES
    }
    return found | {"repeats": repeats_on_pages(stream.ids, stream.distinct, np.arange(0, links + 1, 10))}


def rounded(value: Any) -> Any:
    """Round all numbers in `value` to nine digits."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def canned(folder: Path) -> Any:
    """Compute all results, and return them after they were converted to JSON and back."""
    found = {
        "schedules": [scheduled(settings) for settings in SETTINGS],
        "joint": joined(folder),
        "caches": cached(),
    }
    return rounded(json.loads(json.dumps(found)))


if __name__ == "__main__":
    print(json.dumps(canned(Path(sys.argv[1]))))
