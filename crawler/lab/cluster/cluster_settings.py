"""What a run of the virtual world is told, and what is seen of it beside the web's log."""

from typing import Any

import msgspec

from crawler.config import Config, convert
from crawler.lab.cluster import fault_plan
from crawler.lab.cluster.fault_plan import Fault
from crawler.lab.cluster.page_changes import RealChanges
from crawler.lab.cluster.synthetic_web import SyntheticWeb, WebSpec
from crawler.splitter.wire import Frame

START = 1_700_000_000.0  # the first instant, by a right clock
SLOW = 10  # times as slow as the others is a slow process
FINISHED = ("done", "patience")  # how a process ends that has nothing left to do


class ClusterSettings(msgspec.Struct, frozen=True):
    """One run. `rate` is pages a second over all processes; `length` in seconds, 0: until the crawl ends by itself.
    `points` are those of kills, if not all.
    `slow`: process 0 has a tenth of the places of the others, and ten times their gaps.
    `pieces`: what processes write to one another arrives in pieces.
    `changes_of`: pages change as real ones did, not by `web.change_rate`.
    """

    seed: int = 1
    processes: int = 3
    web: WebSpec = WebSpec()
    faults: tuple[str, ...] = fault_plan.USUAL
    points: tuple[str, ...] = ()
    count: int = 6
    within: float = 120.0
    rate: float = 0.0
    length: float = 0.0
    refresh: bool = False
    concurrency: int = 8
    slow: bool = False
    pieces: bool = True
    changes_of: RealChanges | None = None
    tree: dict[str, Any] = {}


class LifeEnd(msgspec.Struct, frozen=True):
    """How a life ended, and when; `killed` by a fault."""

    life: int
    machine: str
    at: float
    how: str
    killed: bool = False


class Observed(msgspec.Struct):
    """What came of a run, beside the web's log."""

    ended: bool = False  # every process ended by itself, since nothing was left to do
    elapsed: float = 0.0
    steps: int = 0
    wire_bytes: dict[Frame, int] = {}  # between processes, by kind of frame
    wire_frames: dict[Frame, int] = {}
    lives: list[LifeEnd] = []
    unexpected: list[str] = []
    problems: list[str] = []  # laws of counting that did not hold
    done: list[Fault] = []
    cloned_at: float = 0.0
    restored: dict[str, float] = {}  # name -> instant at which its disk was put back to a backup last
    begun: dict[int, float] = {}  # life -> seconds at which it began
    survivors: dict[str, str] = {}  # name -> machine whose process of that name has ended for good
    wire_writes: int = 0
    levels: dict[str, list[float]] = {}  # what a page that is next is worth to each process, at each look
    outbox_max: int = 0  # links that waited in all outboxes at once, at most
    counters: dict[str, int] = {}  # of all processes, as they stood at the end


def config_of(settings: ClusterSettings, web: SyntheticWeb) -> Config:
    """The configuration of the processes of a run: everything small, so that everything happens often."""
    budget = 2 * max(len(host.pages) for host in web.hosts) + 40  # redirects and errors count, too
    tree: dict[str, dict[str, Any]] = {
        "crawl": {
            "scope": "any",
            "concurrency": settings.concurrency,
            "rate": settings.rate,
            "depth": 100_000,
            "pages_per_host": budget,
            "pages_per_domain": budget,
            "patience": 7200.0,
        },
        "cache": {"bits": 6},
        "due": {"buffer_entries_max": 64},
        "pages": {"segment_bytes": 20_000},
        "splitter": {"window_bytes": 20_000, "entry_bytes": 500, "frame_bytes_max": 40_000},
        "extract": {"inline_bytes_max": 1 << 24, "inline_tags_max": 1 << 20},
        "traps": {"same_digest_pages_max": 1 << 20},
        "politeness": {"address_delay_share": 0.0},  # a host has an address alone: its own gap is what counts
    }
    if settings.refresh:
        tree["refresh"] = {"share": 0.3, "endless": True, "min_age": 60.0}
    for section, values in settings.tree.items():
        tree.setdefault(section, {}).update(values)
    return convert(tree)


def slowed(config: Config, settings: ClusterSettings) -> Config:
    """The configuration of a slow process among them."""
    crawl = msgspec.structs.replace(config.crawl, concurrency=max(1, settings.concurrency // SLOW))
    politeness = msgspec.structs.replace(
        config.politeness, delay=SLOW * float(config.politeness.delay), delay_max=SLOW * 30.0
    )
    return msgspec.structs.replace(config, crawl=crawl, politeness=politeness)
