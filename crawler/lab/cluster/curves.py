"""The costs of a crawl of 1, 4, 16, ... processes at constant pages a process, in the virtual world.

A row is two runs without faults: a crawl to its end, and half an hour of refreshing
pages that change. With `slow`, process 0 has a tenth of the speed of the others. The
crawl gives the splitter's costs: writes and bytes between processes a page and a
foreign link, waiting links, time to full speed and to the end. The refreshing gives
freshness, and how far the levels of the processes are apart. CPU time is real and
takes no virtual time.
"""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from crawler.lab.cluster.cluster import START, Cluster, ClusterSettings, memory_folder
from crawler.lab.cluster.judge import judge
from crawler.lab.cluster.synthetic_web import WebSpec

FULL = 0.8  # of the best rate over a window: full speed
WINDOW = 5.0  # seconds over which the rate is counted
PLACES = 10  # fetches at once of a process; a slow one has one
REFRESHED = 1800.0  # seconds of the second run
REFRESHED_PAGES = 100  # a process, of that run
CHANGE_RATE = 1 / 600.0  # changes a second and page there; twice as many fetches are allowed
BEAT = 10.0  # seconds between heartbeats there


class CurveRow(msgspec.Struct, frozen=True):
    """A crawl and a refresh: `own_links` is the share of links to hosts of the process that found them; `sent_share`
    of the others were not met lately and sent; writes and bytes are those between processes; `hosts_in_flight`
    is a mean while the crawl runs at full speed; seconds are virtual."""

    processes: int
    slow: bool
    pages: int
    pages_a_second: float
    own_links: float
    sent_share: float
    writes_a_page: float
    bytes_a_page: float
    bytes_a_link: float
    outbox_most: int
    hosts_in_flight: float
    connections: int
    full_speed_at: float
    seconds: float
    cpu_a_page: float
    level_spread: float
    freshness: float
    flawless: bool


def measure(processes: int, *, slow: bool, seed: int, pages: int, hosts: int) -> CurveRow:
    """One run of `processes`, with `pages` and `hosts` for each."""
    spec = WebSpec(hosts=hosts * processes, pages=pages * processes, down=0.0, traps=0.0, slow=0.0, zipf=0.7)
    settings = ClusterSettings(
        seed=seed, processes=processes, web=spec, faults=(), count=0, concurrency=PLACES, slow=slow
    )
    began = time.process_time()
    with memory_folder() as folder:
        cluster = Cluster(settings, Path(folder))
        observed = cluster.run()
        cpu = time.process_time() - began
        verdict = judge(cluster)
    counters = observed.counters
    foreign, sent = counters.get("splitter.foreign", 0), counters.get("urls.to_outbox", 0)
    accepted = max(1, counters.get("urls.accepted", 0))
    windows = Counter(int((row.at - START) // WINDOW) for row in cluster.log.rows)
    full = {window for window, count in windows.items() if count >= FULL * max(windows.values())}
    under_way = sum(row.end - row.at for row in cluster.log.rows if (row.at - START) // WINDOW in full)
    level_spread, fresh, refresh_flawless = _refreshed(processes, slow=slow, seed=seed)
    return CurveRow(
        processes,
        slow,
        verdict.pages,
        verdict.pages / observed.elapsed,
        1.0 - foreign / accepted,
        sent / foreign if foreign else 0.0,
        observed.wire_writes / verdict.pages,
        observed.wire_bytes / verdict.pages,
        observed.wire_bytes / sent if sent else 0.0,
        observed.outbox_max,
        under_way / (WINDOW * len(full)),
        processes * (processes - 1),
        min(full) * WINDOW,
        observed.elapsed,
        cpu / verdict.pages,
        level_spread,
        fresh,
        verdict.flawless and refresh_flawless,
    )


def _refreshed(processes: int, *, slow: bool, seed: int) -> tuple[float, float, bool]:
    """How far the median levels of the second half of a refresh run are apart, freshness, no rule broken."""
    pages = REFRESHED_PAGES * processes
    spec = WebSpec(
        hosts=pages // 4, pages=pages, down=0.0, traps=0.0, slow=0.0, zipf=0.7, change_rate=CHANGE_RATE
    )
    settings = ClusterSettings(
        seed=seed,
        processes=processes,
        web=spec,
        faults=(),
        count=0,
        concurrency=PLACES,
        slow=slow,
        refresh=True,
        length=REFRESHED,
        rate=2.0 * CHANGE_RATE * pages,
        tree={"splitter": {"heartbeat": BEAT, "silence_max": 5 * BEAT}},
    )
    with memory_folder() as folder:
        cluster = Cluster(settings, Path(folder))
        levels = cluster.run().levels
        verdict = judge(cluster)
    usual = [statistics.median(each[len(each) // 2 :]) for each in levels.values()] or [1.0]
    return max(usual) / min(usual), verdict.freshness, verdict.flawless


def picture(rows: Sequence[CurveRow], sheet: Callable[..., tuple[Any, Any]]) -> Any:
    """Six panels over the number of processes; dashed: with one slow process."""
    panels = {
        "pages_a_second": "pages a second",
        "bytes_a_page": "bytes between processes a page",
        "own_links": "share of links to own hosts",
        "seconds": "virtual seconds to the end",
        "freshness": "freshness of refreshed pages",
        "level_spread": "highest level of a process over the lowest",
    }
    figure, axes = sheet(9.0, 9.0, 3, 2)
    for place, (name, label) in zip(axes.flat, panels.items(), strict=True):
        for slow in (False, True):
            some = [row for row in rows if row.slow is slow]
            style = {
                "linestyle": "--" if slow else "-",
                "marker": "o",
                "label": "one slow" if slow else "all alike",
            }
            place.plot([row.processes for row in some], [getattr(row, name) for row in some], **style)
        place.set_xscale("log", base=2)
        place.set_xlabel("processes")
        place.set_ylabel(label)
        place.set_ylim(bottom=0.0)
    axes.flat[0].legend()
    return figure
