"""The costs of a crawl of 1, 4, 16, ... processes at constant pages a process, in the virtual world.

A row is one run without faults. With `slow`, process 0 has a tenth of the places of
the others. The costs are the splitter's: bytes between processes a page and a foreign
link, waiting links, time to full speed and to the end. CPU time is real and takes no
virtual time.
"""

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


class CurveRow(msgspec.Struct, frozen=True):
    """One run: `own_links` is the share of links to hosts of the process that found them; bytes are those between
    processes; `sent_share` of the foreign links were not met lately and sent; seconds are virtual."""

    processes: int
    slow: bool
    pages: int
    pages_a_second: float
    own_links: float
    sent_share: float
    bytes_a_page: float
    bytes_a_link: float
    outbox_most: int
    connections: int
    full_speed_at: float
    seconds: float
    cpu_a_page: float
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
    best = max(windows.values())
    return CurveRow(
        processes,
        slow,
        verdict.pages,
        verdict.pages / observed.elapsed,
        1.0 - foreign / accepted,
        sent / foreign if foreign else 0.0,
        observed.wire_bytes / verdict.pages,
        observed.wire_bytes / sent if sent else 0.0,
        observed.outbox_max,
        processes * (processes - 1),
        min(window for window, count in windows.items() if count >= FULL * best) * WINDOW,
        observed.elapsed,
        cpu / verdict.pages,
        verdict.flawless,
    )


def picture(rows: Sequence[CurveRow], sheet: Callable[..., tuple[Any, Any]]) -> Any:
    """Four panels over the number of processes; dashed: with one slow process."""
    panels = {
        "pages_a_second": "pages a second",
        "bytes_a_page": "bytes between processes a page",
        "own_links": "share of links to own hosts",
        "seconds": "virtual seconds to the end",
    }
    figure, axes = sheet(9.0, 6.0, 2, 2)
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
