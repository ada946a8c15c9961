"""The settings of a run in the virtual world, and observations of the run that the web's log does not contain."""

from typing import Any

import msgspec

from crawler.config import Config, convert
from crawler.lab.cluster import fault_plan
from crawler.lab.cluster.fault_plan import Fault
from crawler.lab.cluster.page_changes import RealChanges
from crawler.lab.cluster.synthetic_web import SyntheticWeb, WebSpec
from crawler.splitter.wire import Frame

START = 1_700_000_000.0  # the instant at which a run begins, according to a correct clock
SLOW = 10  # a slow process is this many times slower than the others
FINISHED = ("done", "patience")  # the reasons for the end of a process that has nothing left to do


class ClusterSettings(msgspec.Struct, frozen=True):
    """The settings of one run.

    `rate`: pages per second, over all processes.
    `length`: the length of the run in seconds; with 0, the run lasts until the crawl ends by itself.
    `points`: the points of the code at which kills may happen; if empty, they may happen at all points.
    `slow`: process 0 has a tenth of the fetch slots of the others and ten times their gaps.
    `pieces`: messages between processes arrive in pieces.
    `changes_of`: recorded changes of real pages. If it is given, the simulated pages change at the recorded times,
    and `web.change_rate` is not used.
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
    """How and when a life ended; `killed` is True if a fault ended it."""

    life: int
    machine: str
    at: float
    how: str
    killed: bool = False


class Act(msgspec.Struct, frozen=True):
    """An act of the operator on a URL or host. It lasts from `at` to `until`, in seconds from the start of the run."""

    kind: str
    at: float
    target: str = ""
    until: float = 0.0


class Observed(msgspec.Struct):
    """The observations of a run that are not in the web's log."""

    ended: bool = False  # every process ended by itself because nothing was left to do
    elapsed: float = 0.0
    steps: int = 0
    wire_bytes: dict[Frame, int] = {}  # bytes sent between processes, by kind of frame
    wire_frames: dict[Frame, int] = {}
    lives: list[LifeEnd] = []
    unexpected: list[str] = []
    problems: list[str] = []  # violated counting laws
    done: list[Fault] = []
    acts: list[Act] = []
    visits: list[float] = []  # instants at which a process was restarted because another waited for it
    # instants at which the crawl was divided anew, in seconds from the start of the run
    resharded: list[float] = []
    cloned_at: float = 0.0
    restored: dict[str, float] = {}  # name of a process -> when its disk was last restored from a backup
    # A life is a process from a start to its end; lives are numbered. For each life, `begun` has the instant of
    # its beginning, and `told_to_stop` the instant at which it received TERM. `limits` has its limit on the
    # pages per host and on the depth, if it had one. Instants are in seconds from the start of the run.
    told_to_stop: dict[int, float] = {}
    limits: dict[int, int] = {}
    begun: dict[int, float] = {}
    survivors: dict[str, str] = {}  # name of a process -> the machine on which it finished
    wire_writes: int = 0
    # label of a machine -> for each check, the crawl value of the page that the machine's process would fetch
    # next
    levels: dict[str, list[float]] = {}
    outbox_max: int = 0  # the largest number of links that waited in all outboxes at the same time
    counters: dict[str, int] = {}  # the final counters, summed over all processes


def config_of(settings: ClusterSettings, web: SyntheticWeb) -> Config:
    """Return the configuration of the processes. Its limits are small, so that every case happens often."""
    budget = budget_of(web)
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
        # no hosts share an address, so only a host's own gap matters
        "politeness": {"address_delay_share": 0.0},
    }
    if web.spec.scripted:
        tree["render"] = {"when": "always"}
    if settings.refresh:
        tree["refresh"] = {"share": 0.3, "endless": True, "min_age": 60.0}
    for section, values in settings.tree.items():
        tree.setdefault(section, {}).update(values)
    return convert(tree)


def limited(config: Config, web: SyntheticWeb, limit: int) -> Config:
    """Return the configuration with other limits on pages per host and on depth; 0 lifts both limits."""
    pages, depth = (limit, limit) if limit else (budget_of(web), 100_000)
    return msgspec.structs.replace(
        config, crawl=msgspec.structs.replace(config.crawl, pages_per_host=pages, depth=depth)
    )


def budget_of(web: SyntheticWeb) -> int:
    """Return a budget of pages per host that only traps exceed.

    Redirects and errors count against the budget, too.
    """
    return 2 * max(len(host.pages) for host in web.hosts) + 40


def slowed(config: Config, settings: ClusterSettings) -> Config:
    """Return the configuration of the slow process."""
    crawl = msgspec.structs.replace(config.crawl, concurrency=max(1, settings.concurrency // SLOW))
    politeness = msgspec.structs.replace(
        config.politeness, delay=SLOW * float(config.politeness.delay), delay_max=SLOW * 30.0
    )
    return msgspec.structs.replace(config, crawl=crawl, politeness=politeness)
