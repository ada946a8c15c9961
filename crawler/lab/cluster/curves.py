"""Measures the costs of crawls by 1, 4, 16, ... processes in the virtual world.

`lab/cluster/README.md`, "Curves" describes the two runs of a row, which have no faults, and the levels of
processes. In the refresh run, a page changes every ten minutes on average, and is fetched every five minutes. The
schedule runs on a faster clock (`refresh.speed`), on which these are ten and five days. With `slow`, process 0 is
ten times slower than the others. CPU time is measured in real seconds; computing takes no virtual time.

Each process sends beats to every other process. With 256 processes, there would be 130,560 beats per second,
and sending them would be nearly all the work. Larger crawls therefore send beats more rarely and have fewer
pages per process, as `Scale` and the rows state.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from crawler.lab.cluster.cluster import Cluster, memory_folder
from crawler.lab.cluster.cluster_settings import START, ClusterSettings
from crawler.lab.cluster.judge import by_page, freshness, judge
from crawler.lab.cluster.synthetic_web import WebSpec
from crawler.splitter.wire import Frame

FULL = 0.8  # a crawl is at full speed while the rate in a window is at least this share of the best rate
WINDOW = 5.0  # seconds over which the rate is measured
PLACES = 10  # number of concurrent fetches of a process; a slow process has one
REFRESHED = 4800.0  # length of the refresh run in seconds
# changes per second and page in the refresh run; pages may be fetched at twice this rate
CHANGE_RATE = 1 / 600.0
LEAST_AGE = 3600.0  # `refresh.min_age`, in seconds of site time; this is its default
# With this factor, a page changes every ten days of site time. The defaults for bursts, minimum ages and
# priors fit such a page.
SPEED = 1440
TENTHS = (0.1, 0.9)  # the quantiles of levels that a row holds
LINKS = (Frame.ENTRIES, Frame.RESYNC)
BEATS = (Frame.HEARTBEAT, Frame.ACK)  # the receiving end sends acknowledgements instead of heartbeats
GROWING = ("pages_a_second", "connections", "hosts_in_flight")  # fields drawn on logarithmic axes
HANDSHAKE = (Frame.OPEN, Frame.CHALLENGE, Frame.HELLO, Frame.WELCOME)


class Scale(NamedTuple):
    """`beat` is the number of seconds between heartbeats in a crawl run, and `refresh_beat` in a refresh run.

    `pages` is the number of pages per process in a refresh run.
    """

    beat: float
    refresh_beat: float
    pages: int


# The size of a run, by the number of processes: each entry is for runs with at least this many processes.
SCALES = {1: Scale(1.0, 30.0, 100), 17: Scale(10.0, 60.0, 40), 65: Scale(30.0, 120.0, 25)}


class CurveRow(msgspec.Struct, frozen=True):
    """The result of a crawl and a refresh run.

    `own_links` is the share of links whose hosts belong to the process that found them. `sent_share` is the
    share of the other links that were sent; the rest were not sent because the process had met the same links
    lately. `link_bytes_a_page` and `link_bytes_a_link` are the bytes of the sent links, per fetched page and
    per sent link. `beat` is the number of seconds between two beats (heartbeats or acknowledgements) on a
    connection. `beat_bytes_a_second` and `connections` are per process. `hosts_in_flight` is a mean over the
    time at full speed. Seconds are virtual, except CPU seconds, which are real.

    The other fields describe the refresh run: its number of pages, the freshness in its second half, the
    freshness with one process on the same web, and the relative levels of pages. The relative level of a page
    is the level of its process divided by the level of the crawl with one process. It is below `level_low`
    for a tenth of the pages, and above `level_high` for another tenth.
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
    refreshed: int
    freshness: float
    freshness_of_one: float
    level_low: float
    level_high: float
    flawless: bool


class Refreshed(msgspec.Struct, frozen=True):
    """The result of a refresh run: freshness in its second half, and the mean level and the pages of each process."""

    freshness: float
    levels: dict[str, float]
    pages: dict[str, int]
    flawless: bool


def rows(sizes: Sequence[int], *, seed: int, pages: int, hosts: int) -> Iterator[CurveRow]:
    """Yield a row for each number of processes. If there are several processes, yield another row with a slow process.

    `pages` and `hosts` are numbers per process.
    """
    for processes in sizes:
        one = refreshed(processes, seed=seed, alone=True)
        for slow in (False, True)[: min(2, processes)]:
            many = refreshed(processes, seed=seed, slow=slow) if processes > 1 else one
            yield measure(processes, many, one, slow=slow, seed=seed, pages=pages, hosts=hosts)


def measure(
    processes: int, many: Refreshed, one: Refreshed, *, slow: bool, seed: int, pages: int, hosts: int
) -> CurveRow:
    """Run a crawl by `processes` processes; return a row with its results.

    The row also holds the results of the refresh runs `many` and `one`.
    """
    beat = _scale(processes).beat
    settings = _settings(processes, pages, hosts, beat, seed=seed, slow=slow)
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
    level_low, level_high = level_parts(many, one)
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
        refreshed=sum(many.pages.values()),
        freshness=many.freshness,
        freshness_of_one=one.freshness,
        level_low=level_low,
        level_high=level_high,
        flawless=verdict.flawless and many.flawless and one.flawless,
    )


def refreshed(processes: int, *, seed: int, slow: bool = False, alone: bool = False) -> Refreshed:
    """Make a refresh run with `processes` processes and return its result.

    With `alone`, use one process with the web, rate and slots of all these processes.
    """
    _, beat, each = _scale(processes)
    settings = _settings(processes, each, each // 4, beat, seed=seed, slow=slow)
    settings = msgspec.structs.replace(
        settings,
        web=msgspec.structs.replace(settings.web, change_rate=CHANGE_RATE),
        refresh=True,
        length=REFRESHED,
        rate=2.0 * CHANGE_RATE * each * processes,
        tree=settings.tree | {"refresh": {"speed": SPEED, "min_age": LEAST_AGE}},
    )
    if alone:
        settings = msgspec.structs.replace(settings, processes=1, concurrency=PLACES * processes)
    with memory_folder() as folder:
        cluster = Cluster(settings, Path(folder))
        levels = cluster.run().levels
        verdict = judge(cluster)
        late = freshness(
            cluster.web,
            by_page(cluster.web, cluster.log.rows),
            START + REFRESHED,
            since=START + REFRESHED / 2,
        )
    pages = Counter(cluster.population.owner(cluster.web.url(page)) for page in range(settings.web.pages))
    return Refreshed(
        late, {name: _mean_level(told) for name, told in levels.items()}, dict(pages), verdict.flawless
    )


def level_parts(many: Refreshed, one: Refreshed) -> tuple[float, float]:
    """Return two quantiles (low, high) of the pages' relative levels.

    The relative level of a page is the level of its process divided by the level of `one`.
    """
    (true_level,) = one.levels.values()
    parts = sorted((many.levels[name] / true_level, many.pages[name]) for name in many.levels)
    reached = np.cumsum([pages for _, pages in parts])
    low, high = (int(np.searchsorted(reached, tenth * reached[-1])) for tenth in TENTHS)
    return parts[low][0], parts[high][0]


def _mean_level(told: Sequence[float]) -> float:
    late = [level for level in told[len(told) // 2 :] if level > 0.0]
    return math.exp(sum(map(math.log, late)) / len(late))


def _settings(
    processes: int, pages: int, hosts: int, beat: float, *, seed: int, slow: bool
) -> ClusterSettings:
    """Return the settings of a world without faults, with `pages` and `hosts` per process."""
    web = WebSpec(
        hosts=hosts * processes,
        pages=pages * processes,
        down=0.0,
        traps=0.0,
        slow=0.0,
        sitemaps=0.0,
        zipf=0.7,
    )
    return ClusterSettings(
        seed=seed,
        processes=processes,
        web=web,
        faults=(),
        count=0,
        concurrency=PLACES,
        slow=slow,
        pieces=False,
        tree={"splitter": {"heartbeat": beat, "silence_max": max(30.0, 5 * beat)}},
    )


def _scale(processes: int) -> Scale:
    return SCALES[max(least for least in SCALES if processes >= least)]


def picture(rows: Sequence[CurveRow], sheet: Callable[..., tuple[Any, Any]]) -> Any:
    """Draw eight panels with the number of processes on the horizontal axis.

    Dashed lines show runs with a slow process; dotted lines show runs of one process on the same web.
    """
    panels = {
        "pages_a_second": "pages per second",
        "own_links": "share of links to own hosts",
        "link_bytes_a_page": "bytes of sent links per page",
        "connections": "connections per process",
        "seconds": "virtual seconds to the end",
        "hosts_in_flight": "hosts in flight at full speed",
        "freshness": "freshness of refreshed pages",
        "levels": "levels / level of one process",
    }
    figure, axes = sheet(9.0, 11.0, 4, 2)
    for place, (name, label) in zip(axes.flat, panels.items(), strict=True):
        for slow, style, who in ((False, "C0o-", "all alike"), (True, "C1o--", "one slow")):
            some = [row for row in rows if row.slow is slow]
            for part in ("level_low", "level_high") if name == "levels" else (name,):
                points = [(row.processes, getattr(row, part)) for row in some]
                # 0 cannot be drawn on a logarithmic axis
                points = [point for point in points if point[1] or name not in GROWING]
                if points:
                    place.plot(*zip(*points, strict=True), style, label=who)
        place.set_xscale("log", base=2)
        place.set_xticks(sizes := sorted({row.processes for row in rows}), [str(size) for size in sizes])
        place.set_xlabel("processes")
        place.set_ylabel(label)
        if name in GROWING:
            place.set_yscale("log", base=2)
            place.yaxis.set_major_formatter("{x:g}")
        else:
            place.set_ylim(bottom=0.0)
    alike = [row for row in rows if not row.slow]
    fresh = axes.flat[6]
    fresh.plot(
        [row.processes for row in alike],
        [row.freshness_of_one for row in alike],
        "C2:",
        label="one process, same web",
    )
    fresh.legend(loc="lower left")
    return figure
