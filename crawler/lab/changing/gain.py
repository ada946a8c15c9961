"""Measures how fresh the refresh policies of the crawler keep their copies of a changing web.

The crawler fetches over HTTP; freshness is computed from the server's log.

Each arm, which is a way to refresh, crawls the same web (same seed, same changes) at the same rate for the
same time. First the crawl finds all pages, then it refreshes them by the policy of its arm. Freshness and
requests are measured after the warm-up.

    uniform     every page equally often
    oracle      NCIS with each page's true change rate, and the true recall and noise of its signals
    learned     the shipped frontier: rates, neighbourhood and signal quality are learned during the crawl
        deaf        learned, but no signals are pushed

If hosts have articles, the crawl begins at their first pages and must find the other pages itself. The delay
from the birth of an article to its first copy is measured for articles that are born after the warm-up and
not shortly before the end.

The web runs `speed` times as fast as real time: one of its days takes milliseconds. The crawl receives
`speed` as the setting `refresh.speed`, so that priors and time constants in days keep their meaning.
Politeness, sockets and commits run in real time. If each host gets a few requests per second, politeness,
sockets and commits together take about a thousandth of the time between two crawls of a page.
"""

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from crawler.api import Crawl
from crawler.clock import SystemClock
from crawler.freshness.params import PageParameters
from crawler.lab.changing.server import ChangingServer
from crawler.lab.changing.web import ChangingWeb, HostSpec, WebRequest

DAY = 86_400.0
PUSH_EVERY = 0.05  # seconds between two rounds of pushes
NEVER = 1e-12  # a rate that is practically 0: once in 30,000 years


class Arm(msgspec.Struct, frozen=True):
    """The way in which a crawl refreshes.

    It uses `policy`. The field `true` states whether the policy is given the true parameters of pages;
    otherwise they are learned. The field `told` states whether signals of changes are pushed to the crawl.
    """

    name: str
    policy: str = "ncis"
    true: bool = False
    told: bool = True
    # settings of the crawl that this arm adds to the settings of the game
    settings: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)


UNIFORM = Arm("uniform", policy="uniform", told=False)
ORACLE = Arm("oracle", true=True)
LEARNED = Arm("learned")
DEAF = Arm("deaf", told=False)


class GainGame(msgspec.Struct, frozen=True):
    """A web and the budget of a crawl.

    On average, a page is crawled `visits` times in the game. Between two changes of a page, it is crawled
    `budget` times on average. The crawl fetches `rate` pages per second.

    `change_days` is the mean time between two changes of a page, in days of the web. The rate and the noise
    of a host are given as multiples of the mean change rate. With a `patience` above 1, the game may take
    longer than planned, so that all planned fetches are made. Articles of a host are born during the game.
    `pareto` is the shape of the Pareto distribution of importance; with 0, all pages are equally important.
    """

    hosts: tuple[HostSpec, ...]
    visits: float = 20.0
    rate: float = 100.0
    budget: float = 2.0
    change_days: float = 300.0
    warm_up: float = 0.5
    seed: int = 1
    explore: float = 0.05
    patience: float = 1.0  # the game ends after this multiple of `seconds`, even if fetches are missing
    pareto: float = 0.0
    grace: float = 14.0  # articles born in the last `grace` days are not counted

    @property
    def pages(self) -> int:
        return sum(host.pages for host in self.hosts)

    @property
    def seconds(self) -> float:
        return self.visits * self.pages / self.rate

    @property
    def speed(self) -> int:
        """The number of seconds that pass in the simulated web in one second of real time."""
        return round(self.rate * self.change_days * DAY / (self.budget * self.pages))

    @property
    def has_news(self) -> bool:
        return any(host.articles for host in self.hosts)

    def weights(self) -> list[float]:
        """Return the importance of each page of a web without articles."""
        rng = random.Random(self.seed)
        return [rng.paretovariate(self.pareto) if self.pareto else 1.0 for _ in range(self.pages)]


class Played(msgspec.Struct, frozen=True):
    """The result of an arm after the warm-up.

    freshness: the share of the time in which a page's copy was current, as a mean over pages weighted by
    importance. requests, conditional: the number of requests for pages, and the number of conditional
    requests for pages. not_modified: the number of answers 304. repeated: the number of answers 200 with the
    version that the crawl already had. others: the number of requests for listings, hubs, sitemaps and feeds.
    delays: days from the birth of each article to its first copy; infinite if it has no copy.
    """

    freshness: float
    requests: int
    conditional: int
    not_modified: int
    repeated: int
    others: int
    delays: list[float]
    report: dict[str, Any]


def web_of(game: GainGame, start: float) -> ChangingWeb:
    """Return the web of the game. In the game, rates of hosts are multiples of the mean change rate."""
    rate = game.speed / (game.change_days * DAY)
    horizon = game.patience * game.seconds + 60.0
    hosts = [
        msgspec.structs.replace(
            host,
            rate=host.rate * rate,
            noise=host.noise * rate,
            articles=round(host.articles * horizon / game.seconds),
        )
        for host in game.hosts
    ]
    return ChangingWeb(hosts, horizon=horizon, start=start, seed=game.seed)


def settings_of(game: GainGame, arm: Arm) -> dict[str, Any]:
    """Return the settings of a crawl at a fixed rate, without politeness, as for sites that the user owns.

    The settings of the arm take precedence.
    """
    tree: dict[str, dict[str, Any]] = {
        "network": {"allow_networks": ["127.0.0.0/8"]},
        "politeness": {"delay": 0.005, "delay_factor": 0.0, "address_delay_share": 0.0},
        "sitemaps": {"robots": False},
        "due": {"max_wait": 0.2},
        "admin": {"address": "off"},
        "store": {"durability": "process"},
        "crawl": {"rate": game.rate, "max_time": game.patience * game.seconds},
        "refresh": {
            "endless": True,
            "share": 0.05,  # nearly all fetches go to new URLs until all pages are found
            "policy": arm.policy,
            "pooling": not arm.true,
            "neighbourhood": not arm.true,
            "explore": game.explore,
            "min_age": 0.0,
            "speed": game.speed,
        },
    }
    if not game.has_news:
        tree["crawl"]["depth"] = 0
    return tree | {part: tree.get(part, {}) | dict(own) for part, own in arm.settings.items()}


async def play(game: GainGame, arm: Arm, directory: Path) -> Played:
    """Crawl the game's web with the arm's settings; return the result."""
    clock = SystemClock()
    web = web_of(game, clock.now())
    async with ChangingServer(web, clock) as server:
        seeds = server.seeds() if game.has_news else [web.url(page) for page in range(len(web))]
        begin = clock.now() + game.warm_up * game.seconds
        tree = settings_of(game, arm)
        weights = game.weights() if game.pareto else None
        if weights is not None:
            tree["refresh"]["importance_file"] = str(_weights_file(directory, seeds, weights))
        async with Crawl(tree, directory=directory, seeds=seeds) as crawl:
            influencing = asyncio.create_task(_influence(web, game, arm, crawl, clock))
            try:
                report = await crawl.run()
            finally:
                influencing.cancel()
                await asyncio.gather(influencing, return_exceptions=True)
        end = clock.now()
    pages = [each for each in web.log if each.page >= 0]
    if game.patience > 1.0 and pages:
        begin = pages[int(game.warm_up * len(pages))].at
    asked = [each for each in pages if begin <= each.at < end]
    others = sum(each.page < 0 and begin <= each.at < end for each in web.log)
    delays = web.delays(begin, end - game.grace * DAY / game.speed)
    return Played(
        web.freshness(begin, end, weights),
        len(asked),
        sum(each.conditional for each in asked),
        sum(each.status == 304 for each in asked),
        _repeated(pages, begin, end),
        others,
        [delay * game.speed / DAY for delay in delays],
        report,
    )


def _repeated(pages: list[WebRequest], begin: float, end: float) -> int:
    """Count the 200 answers from `begin` to `end` that show the same version as the previous 200 answer for the page."""
    copies: dict[int, int] = {}
    repeated = 0
    for each in pages:
        if each.status == 200:
            repeated += begin <= each.at < end and copies.get(each.page) == each.version
            copies[each.page] = each.version
    return repeated


def _weights_file(directory: Path, urls: list[str], weights: list[float]) -> Path:
    """Write a file for `refresh.importance_file` next to the crawl's directory; return its path."""
    file = directory.with_suffix(".importance")
    file.write_text("".join(f"{url} {weight}\n" for url, weight in zip(urls, weights, strict=True)))
    return file


async def _influence(web: ChangingWeb, game: GainGame, arm: Arm, crawl: Crawl, clock: SystemClock) -> None:
    """Push signals of changes to the running crawl, and reveal true parameters of pages to it, as the arm demands."""
    fingerprint = crawl.stages.fingerprinter.fingerprint
    unknown = {page: fingerprint(web.url(page)) for page in range(len(web))} if arm.true else {}
    until = web.start
    while True:
        await asyncio.sleep(PUSH_EVERY)
        now = clock.now()
        if unknown:
            for page in _reveal(web, game, crawl, unknown, now):
                del unknown[page]
        if arm.told:
            crawl.signal([web.url(page) for page in web.signals(until, now)], "websub")
        until = now
        if game.patience > 1.0 and len(web.log) >= game.visits * game.pages:
            crawl.stop("enough")


def _reveal(web: ChangingWeb, game: GainGame, crawl: Crawl, pages: Mapping[int, int], now: float) -> set[int]:
    """Set the true parameters of those `pages` that the schedule knows, and return these pages.

    `pages` maps the numbers of pages to their fingerprints.
    """
    refresh = crawl.stages.refresh
    assert refresh is not None
    told, weights = set(), game.weights()
    for page, fingerprint in pages.items():
        number = refresh.schedule.find(fingerprint)
        if number >= 0:
            host = web.hosts[web.host_of[page]]
            rate = max(web.rates[page] / game.speed, NEVER)
            truth = PageParameters(weights[page], rate, host.recall, host.noise / game.speed)
            refresh.schedule.facts.set_page(number, truth, now * game.speed)
            told.add(page)
    return told
