"""Crawls a link graph on a virtual clock, with the frontier and the link scores of the crawler.

    take ─► an answer after `TOOK` seconds ─► settle ─► links: scores, worths, the frontier
                                                         (new: add; news of a known URL: improve)

The crawl is polite: a host receives one request at a time, with a gap after each, and the rate of the whole
crawl is limited. The parts of a process that do not affect the order are left out: network, parser and disk.
A set of known URLs replaces the DUE, which detects known URLs in batches, and each link reaches this set at
once.
"""

import heapq
import random
from collections.abc import Callable, Generator, Sequence

import numpy as np

from crawler.clock import VirtualClock
from crawler.config import Config, OrderConfig, convert
from crawler.frontier.frontier import Frontier
from crawler.lab.order.link_graph import LinkGraph, page_rank
from crawler.lab.order.planted_quality import WORD, Planted
from crawler.orders.naming import ranking
from crawler.orders.order import FoundLink, FoundOn, Ranking
from crawler.process.results.link_scoring import LinkScoring, LinkSource, classed, page_score
from crawler.records import Fetch, FetchTask, Link, Outcome, TaskKind
from crawler.robots.cache import ALLOWED, Verdict
from crawler.storage.commit import Change, Pause
from crawler.storage.kv import MemoryStore

TOOK = 0.1  # seconds until an answer arrives
DELAY = 1.0  # seconds between two requests to a host
BITS = 16  # base-2 logarithm of the number of entries in the table of link scores


class _Known:
    """Scores by URL for the oracle and for PageRank. No crawler could know these scores in advance."""

    def __init__(self, values: np.ndarray, graph: LinkGraph) -> None:
        scale = 1.0 / max(values.max(), 1e-300)
        self._scores = {url: float(value) * scale for url, value in zip(graph.urls, values, strict=True)}

    def score(self, link: FoundLink, context: FoundOn) -> float:
        return self._scores[link.url]


def _order(name: str, graph: LinkGraph, planted: Planted, weights: str) -> Ranking | None:
    if name == "oracle":
        return Ranking(_Known(planted.quality, graph))
    if name == "pagerank":
        return Ranking(_Known(page_rank(graph), graph))
    return ranking(OrderConfig(name=name, file=weights if name == "words" else ""))


class _Hash:
    """Hashes of the hosts h0.test, h1.test ... Each host has its own bucket and its own domain."""

    def host_key(self, hostname: str) -> int:
        digits = "".join(filter(str.isdigit, hostname)) or "0"
        number = int(digits) + 1
        return number << 48 | number * 0x9E37_79B9_7F4A & 0xFFFF_FFFF_FFFF

    def host_key_beside(self, hostname: str, fingerprint: int) -> int:
        return self.host_key(hostname)

    def domain_key(self, domain: str) -> int:
        return self.host_key(domain)


class _NoRobots:
    """Robots rules that allow everything."""

    def verdict(self, authority: str, target: str, now: float) -> Verdict:
        return ALLOWED

    def crawl_delay(self, authority: str) -> float | None:
        return None

    def line(self, authority: str, target: str) -> str:
        return ""


def walk(
    graph: LinkGraph, planted: Planted, name: str, *, rate: float, seed: int, weights: str = ""
) -> list[int]:
    """Return the pages in the order in which a crawl fetches them.

    `name` is an order of the crawler, "oracle" (the quality itself) or "pagerank" (PageRank of the whole
    graph). `weights` is the path of the file of weights for the order `words`. `rate` is in pages per second; 0
    means no limit.
    """
    order = _order(name, graph, planted, weights)
    config = _config("depth" if name in ("oracle", "pagerank") else name, rate)
    return _Walk(graph, planted, order, config, seed).run()


def _config(name: str, rate: float) -> Config:
    return convert({
        "order": {"name": name},
        "crawl": {"rate": rate, "concurrency": 50, "scope": "any", "pages_per_host": -1, "depth": 1000},
        "politeness": {"delay": DELAY, "delay_factor": 0.0, "address_delay_share": 0.0},
        "robots": {"policy": "ignore"},
    })  # fmt: skip


class _Walk:
    def __init__(
        self, graph: LinkGraph, planted: Planted, order: Ranking | None, config: Config, seed: int
    ) -> None:
        self._graph, self._said = graph, planted.said
        self._clock = VirtualClock(1_000_000.0)
        self._store = MemoryStore()
        self._frontier = Frontier(
            self._store,
            config,
            robots=_NoRobots(),
            fingerprinter=_Hash(),
            registrable_domain=lambda hostname: hostname,
            concurrency=config.crawl.concurrency,
            rng=random.Random(seed),
        )
        self._ordering = LinkScoring(order, config.order, BITS, self._improve) if order else None
        self._seen: set[int] = set()
        self._ending: list[tuple[float, int, FetchTask]] = []
        self._pages: list[int] = []

    def run(self) -> list[int]:
        """Crawl to the end and return the pages in the order of their fetches."""
        frontier, clock = self._frontier, self._clock
        frontier.open(clock.now(), clean=True)
        self._links(LinkSource(), self._graph.first, [""] * len(self._graph.first), 0)
        while True:
            now = clock.now()
            while (fetch_task := frontier.claim_next(now)) is not None:
                self._begin(fetch_task, now)
            instants = [self._ending[0][0]] if self._ending else []
            if (wakeup := frontier.next_wakeup(now)) is not None:
                instants.append(wakeup)
            if not instants:
                return self._pages
            clock.advance(max(0.0, min(instants) - now))
            while self._ending and self._ending[0][0] <= clock.now():
                self._end(heapq.heappop(self._ending)[2])

    def _begin(self, fetch_task: FetchTask, now: float) -> None:
        if fetch_task.kind is TaskKind.RESOLVE:
            self._frontier.resolved(fetch_task, [fetch_task.hostname], now + 1e9, now)
            return
        assert fetch_task.kind is TaskKind.PAGE, fetch_task
        self._pages.append(fetch_task.fingerprint - 1)
        heapq.heappush(self._ending, (now + TOOK, len(self._pages), fetch_task))

    def _end(self, fetch_task: FetchTask) -> None:
        now, page = self._clock.now(), fetch_task.fingerprint - 1
        fetch = Fetch(fetch_task.url, Outcome.FETCHED, status=200, took=TOOK)
        decision = self._frontier.record_outcome(fetch_task, fetch, now)
        self._write(lambda change: self._frontier.stage(decision, change))
        links = self._graph.links[page]
        found_on = FoundOn(
            fetch_task.url,
            page_score(fetch_task.order),
            fetch_task.depth,
            self._graph.titles[page],
            len(links),
        )
        targets = [target for target, _ in links]
        texts = [f"{text} {WORD}" if (page, target) in self._said else text for target, text in links]
        self._links(LinkSource(found_on), targets, texts, fetch_task.depth + 1)
        self._frontier.release(decision, now)

    def _links(self, source: LinkSource, targets: Sequence[int], texts: Sequence[str], depth: int) -> None:
        """Score the links of a page. Add new URLs to the frontier, and improve the scores of known URLs."""
        links = [Link(target + 1, self._graph.urls[target], depth) for target in targets]
        new = [place for place, target in enumerate(targets) if target not in self._seen]
        self._seen.update(targets)

        def take(change: Change) -> None:
            found = [links[place] for place in new]
            if self._ordering is not None and links:
                fingerprints = np.array([link.fingerprint for link in links], np.uint64)
                urls = [link.url for link in links]
                scores = _end_of(self._ordering.scores(change, source, urls, texts, depth, 0))
                classes, news = self._ordering.own(fingerprints, scores)
                self._ordering.improve([classed(links[place], classes[place]) for place in news], change)
                found = [classed(links[place], classes[place]) for place in new]
            self._frontier.enqueue(found, change, self._clock.now())

        self._write(take)

    def _improve(self, links: Sequence[Link], change: Change) -> None:
        self._frontier.intake.improve(links, change, self._clock.now())

    def _write(self, fill: Callable[[Change], object]) -> None:
        """Commit one change, after `fill` has added its parts."""
        change = Change()
        fill(change)
        self._store.write(change)
        self._frontier.committed(change, self._clock.now())


def _end_of(scoring: Generator[Pause, None, np.ndarray]) -> np.ndarray:
    """Return the scores of an order of the crawler, for which no caller has to wait."""
    try:
        raise RuntimeError(f"the order waits: {next(scoring)}")
    except StopIteration as end:
        found: np.ndarray = end.value
        return found


def found_after(pages: Sequence[int], quality: np.ndarray, shares: Sequence[float]) -> list[float]:
    """Return, for each share in `shares`, the part of the quality found once this share of the pages is fetched."""
    gathered = np.concatenate([[0.0], np.cumsum(quality[np.array(pages, np.intp)])])
    return [float(gathered[round(share * len(pages))]) for share in shares]
