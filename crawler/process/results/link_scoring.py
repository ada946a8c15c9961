"""What links are worth: scores of the order, and which links say more of a URL than was known.

    page ─► scores (`orders/order.py`) ─► worth by all links met lately (`orders/link_scores.py`)
                                            ├─► class of a link that goes on: to the DUE, or another process
                                            └─► news: a URL that waits is moved (`Frontier.improve`)

Scores are given by the process that finds a link and travel as the class in its flags. To
another process goes what a link adds to what that process was told: where scores add up the
sum since, else the best. There it counts as any link does. The target of a redirect is worth what the page is,
a sitemap that robots.txt or an index names goes first.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from crawler.config import OrderConfig
from crawler.frontier.discovery.entries import class_in_order
from crawler.orders.classes import LEAST, NEUTRAL, PER_OCTAVE, WORST, class_in, score_of, with_class
from crawler.orders.link_scores import LinkScores
from crawler.orders.order import FoundLink, FoundOn, Ranking, ranking
from crawler.records import Link, LinkFlag
from crawler.storage.commit import Change

log = logging.getLogger("crawler")

REDIRECT = "redirect"
_SITEMAP = LinkFlag.SITEMAP
_SEED = FoundOn(kind="seed")
Scores = NDArray[np.float64]


class LinkSource(msgspec.Struct, frozen=True):
    """Where links come from: the page, and the texts of its anchors by raw URL."""

    page: FoundOn = _SEED
    anchors: Mapping[str, str] = {}


NO_PAGE = LinkSource()


class LinkScoring:
    """The order of one process.

    Args:
        bits: 2^bits URLs are remembered of each: our own links, and those sent.
        improve: told of better links to URLs of our own, with the change that they belong to.
    """

    def __init__(
        self,
        order: Ranking,
        config: OrderConfig,
        bits: int,
        improve: Callable[[Sequence[Link], Change], None],
    ) -> None:
        self._order = order
        self._improve = improve
        news = config.raise_classes
        self._own = LinkScores(bits, adds=order.adds, base=order.base, news=news)
        self._sent = LinkScores(bits, adds=order.adds, base=0.0, news=news)

    @property
    def reads_anchors(self) -> bool:
        """Whether the order wants the texts of anchors."""
        return self._order.reads_anchors

    def scores(
        self, source: LinkSource, urls: Sequence[str], anchors: Sequence[str], depth: int, flags: int
    ) -> Scores:
        """The scores of a page's links, (n,)."""
        page = source.page
        if flags & _SITEMAP:
            return np.ones(len(urls))
        if page.kind == REDIRECT:
            return np.full(len(urls), max(0.0, page.score - self._order.base))
        score = self._order.score
        links = (FoundLink(url, anchor, depth) for url, anchor in zip(urls, anchors, strict=True))
        return np.fromiter((score(link, page) for link in links), np.float64, len(urls))

    def own(self, fingerprints: np.ndarray, scores: Scores) -> tuple[list[int], list[int]]:
        """(classes, places of those that are news) of links to URLs of our own."""
        worth, _, news = self._own.add(fingerprints, scores)
        return _classes(worth), np.flatnonzero(news).tolist()

    def sent(self, fingerprints: np.ndarray, scores: Scores) -> tuple[list[int], list[int]]:
        """The same of links to another process: classes of what they add to what it was told."""
        worth, told, news = self._sent.add(fingerprints, scores)
        return _classes(worth - told if self._order.adds else worth), np.flatnonzero(news).tolist()

    def improve(self, links: Sequence[Link], change: Change) -> None:
        """Move the URLs of `links`, which are news, if they wait."""
        if links:
            self._improve(links, change)

    @staticmethod
    def scores_in(links: Sequence[Link]) -> Scores:
        """The scores that links of other processes have brought, (n,)."""
        return np.fromiter((score_of(class_in(link.flags)) for link in links), np.float64, len(links))

    def forget_sent(self) -> None:
        """A peer has lost what it was told."""
        self._sent.clear()


def _classes(worth: Scores) -> list[int]:
    """Classes as `orders.classes.class_of` gives them."""
    places = np.rint(-PER_OCTAVE * np.log2(np.maximum(worth, LEAST)))
    found: list[int] = np.clip(places, 0, WORST).astype(np.intp).tolist()
    return found


def classed(link: Link, place: int) -> Link:
    """The link with the class `place`."""
    flags = with_class(link.flags, place)
    return Link(link.fingerprint, link.url, link.depth, link.via, link.redirects, flags)


def page_score(order: int) -> float:
    """What a page was worth whose fetch task has `order`; of one that stood in no queue, the score of none."""
    return score_of(class_in_order(order) if order > 0 else NEUTRAL)


def named(config: OrderConfig) -> Ranking | None:
    """The order that the configuration names; the first exception of its scores is logged.

    Raises:
        ConfigError: see `orders.order.ranking`.
    """
    told: set[str] = set()

    def failed(error: Exception, url: str) -> None:
        kind = type(error).__name__
        if kind not in told:
            told.add(kind)
            log.error(
                "order %s: %s: %s, for %s; such links go without a score", config.name, kind, error, url
            )

    return ranking(config, failed)
