"""The costs of a crawl of 1, 4, 16, ... processes at constant pages a process, in the virtual world.

A row is two runs without faults: a crawl to its end, and half an hour of refreshing
pages that change. With `slow`, process 0 has a tenth of the speed of the others. The
crawl gives the splitter's costs: bytes between processes a page and a foreign link,
beats, waiting links, time to full speed and to the end. The refreshing gives
freshness, and how far the levels of the processes are apart. CPU time is real and
takes no virtual time.

Beats go from each process to each: at 256 processes 130,560 a second, which would be
nearly all the work. Among many processes they are rarer, which the rows say (`beat`).
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
from crawler.splitter.wire import Frame

FULL = 0.8  # of the best rate over a window: full speed
WINDOW = 5.0  # seconds over which the rate is counted
PLACES = 10  # fetches at once of a process; a slow one has one
REFRESHED = 1800.0  # seconds of the second run
REFRESHED_PAGES = 100  # a process, of that run
CHANGE_RATE = 1 / 600.0  # changes a second and page there; twice as many fetches are allowed
BEAT, REFRESH_BEAT = 1.0, 30.0  # seconds between heartbeats of the two runs
RARER = {16: 10.0, 64: 30.0}  # above so many processes beats are so many times as far apart
LINKS = (Frame.ENTRIES, Frame.RESYNC)
BEATS = (Frame.HEARTBEAT, Frame.ACK)  # an acknowledgement is also a beat, of the other end of a connection
GROWING = ("pages_a_second", "connections", "hosts_in_flight")  # drawn by their logarithm
HANDSHAKE = (Frame.OPEN, Frame.CHALLENGE, Frame.HELLO, Frame.WELCOME)


class CurveRow(msgspec.Struct, frozen=True):
    """A crawl and a refresh.

    `own_links` is the share of links to hosts of the process that found them; `sent_share` of the others were not
    met lately and sent; `link_bytes` are those of entries; `beat` is the seconds between two heartbeats or
    acknowledgements of a connection, `beat_bytes_a_second` what they are for each process; `connections` those of a
    process; `hosts_in_flight` is a mean while the crawl runs at full speed; seconds are virtual, CPU seconds are not.
    """

    processes: int
    slow: bool
    pages: int
    pages_a_second: float
    own_links: float
    sent_share: float
    writes_a_page: float
    link_bytes_a_page: float
    link_bytes_a_link: float
    connections: int
    handshake_bytes: float
    beat: float
    beat_bytes: float
    beat_bytes_a_second: float
    outbox_most: int
    hosts_in_flight: float
    full_speed_at: float
    seconds: float
    cpu_a_page: float
    level_spread: float
    freshness: float
    flawless: bool


def measure(processes: int, *, slow: bool, seed: int, pages: int, hosts: int) -> CurveRow:
    """One run of `processes`, with `pages` and `hosts` for each."""
    spec = WebSpec(hosts=hosts * processes, pages=pages * processes, down=0.0, traps=0.0, slow=0.0, zipf=0.7)
    beat = _beat(BEAT, processes)
    settings = ClusterSettings(
        seed=seed,
        processes=processes,
        web=spec,
        faults=(),
        count=0,
        concurrency=PLACES,
        slow=slow,
        tree=_beating(beat),
    )
    began = time.process_time()
    with memory_folder() as folder:
        cluster = Cluster(settings, Path(folder))
        observed = cluster.run()
        cpu = time.process_time() - began
        verdict = judge(cluster)
    counters, wire, frames = observed.counters, observed.wire_bytes, observed.wire_frames
    foreign, sent = counters.get("splitter.foreign", 0), counters.get("urls.to_outbox", 0)
    accepted = max(1, counters.get("urls.accepted", 0))
    windows = Counter(int((row.at - START) // WINDOW) for row in cluster.log.rows)
    full = {window for window, count in windows.items() if count >= FULL * max(windows.values())}
    under_way = sum(row.end - row.at for row in cluster.log.rows if (row.at - START) // WINDOW in full)
    link_bytes, connections = sum(wire.get(kind, 0) for kind in LINKS), 2 * (processes - 1)
    beats, beat_bytes = sum(frames.get(kind, 0) for kind in BEATS), sum(wire.get(kind, 0) for kind in BEATS)
    level_spread, fresh, refresh_flawless = _refreshed(processes, slow=slow, seed=seed)
    return CurveRow(
        processes=processes,
        slow=slow,
        pages=verdict.pages,
        pages_a_second=verdict.pages / observed.elapsed,
        own_links=1.0 - foreign / accepted,
        sent_share=sent / foreign if foreign else 0.0,
        writes_a_page=observed.wire_writes / verdict.pages,
        link_bytes_a_page=link_bytes / verdict.pages,
        link_bytes_a_link=link_bytes / sent if sent else 0.0,
        connections=connections,
        handshake_bytes=sum(wire.get(kind, 0) for kind in HANDSHAKE) / max(1, frames.get(Frame.HELLO, 0)),
        beat=beat,
        beat_bytes=beat_bytes / beats if beats else 0.0,
        beat_bytes_a_second=beat_bytes / processes / observed.elapsed,
        outbox_most=observed.outbox_max,
        hosts_in_flight=under_way / (WINDOW * len(full)),
        full_speed_at=min(full) * WINDOW,
        seconds=observed.elapsed,
        cpu_a_page=cpu / verdict.pages,
        level_spread=level_spread,
        freshness=fresh,
        flawless=verdict.flawless and refresh_flawless,
    )


def _beat(seconds: float, processes: int) -> float:
    """Seconds between two beats among so many."""
    return seconds * max([1.0, *(factor for few, factor in RARER.items() if processes > few)])


def _beating(beat: float) -> dict[str, Any]:
    """The configuration of processes that speak so seldom."""
    return {"splitter": {"heartbeat": beat, "silence_max": max(30.0, 5 * beat)}}


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
        tree=_beating(max(REFRESH_BEAT, _beat(BEAT, processes))),
    )
    with memory_folder() as folder:
        cluster = Cluster(settings, Path(folder))
        levels = cluster.run().levels
        verdict = judge(cluster)
    usual = [statistics.median(each[len(each) // 2 :]) for each in levels.values()] or [1.0]
    return max(usual) / min(usual), verdict.freshness, verdict.flawless


def picture(rows: Sequence[CurveRow], sheet: Callable[..., tuple[Any, Any]]) -> Any:
    """Eight panels over the number of processes; dashed: with one slow process."""
    panels = {
        "pages_a_second": "pages a second",
        "own_links": "share of links to own hosts",
        "link_bytes_a_page": "bytes of links sent a page",
        "connections": "connections of a process",
        "seconds": "virtual seconds to the end",
        "hosts_in_flight": "hosts in flight at full speed",
        "freshness": "freshness of refreshed pages",
        "level_spread": "highest level over lowest",
    }
    figure, axes = sheet(9.0, 11.0, 4, 2)
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
        if name in GROWING:
            place.set_yscale("log")
        else:
            place.set_ylim(bottom=0.0)
    axes.flat[0].legend()
    return figure
