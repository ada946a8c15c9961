"""Computes the scores of links in an order of new URLs, and detects links that improve the score of a waiting URL.

    page ─► scores (`orders/order.py`) ─► worth by all links seen recently (`orders/link_scores.py`)
                                            ├─► the class of a new link: to the DUE, or to another process
                                            └─► news: a waiting URL is moved (`Frontier.improve`)

The process that finds a link scores it, and stores the score as a class in the flags of the link. If another
process owns the URL, the link that is sent to it carries only what that process does not know yet. In an
order that sums the scores of all links to a URL, the link carries the amount by which the sum has grown since
the sum was last sent. In other orders, the link carries the URL's best score. The other process treats the
link like any other. The target of a redirect has the score of the redirecting page. A sitemap that is named
in a robots.txt or in a sitemap index gets the best class.
"""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from crawler.config import OrderConfig
from crawler.frontier.discovery.entries import class_in_order
from crawler.orders.classes import LEAST, NEUTRAL, PER_OCTAVE, WORST, class_in, score_of, with_class
from crawler.orders.link_scores import LinkScores
from crawler.orders.naming import ranking
from crawler.orders.order import FoundLink, FoundOn, Ranking
from crawler.orders.order_thread import OrderThread
from crawler.records import Link, LinkFlag
from crawler.storage.commit import Change, Pause

log = logging.getLogger("crawler")

REDIRECT = "redirect"
_SITEMAP = LinkFlag.SITEMAP
_SEED = FoundOn(kind="seed")
_NO_SCORE = score_of(NEUTRAL)
Scores = NDArray[np.float64]


class LinkSource(msgspec.Struct, frozen=True):
    """The source of links: the page that contains them, and the anchor text of each raw URL."""

    page: FoundOn = _SEED
    anchors: Mapping[str, str] = {}


NO_PAGE = LinkSource()


class LinkScoring:
    """Computes the scores of links as the order of new URLs defines them, and remembers them for one process.

    Args:
        bits: 2^bits URLs are remembered for links to this process, and as many for links sent to others.
        improve: called with (links, change) for links that improve the score of a URL of this process.
        thread: calls the order, if a package provides it; without it, the order is called directly.
    """

    def __init__(
        self,
        order: Ranking,
        config: OrderConfig,
        bits: int,
        improve: Callable[[Sequence[Link], Change], None],
        thread: OrderThread | None = None,
    ) -> None:
        self._order = order
        self._thread = thread
        self._improve = improve
        news = config.raise_classes
        self._own = LinkScores(
            bits, adds=order.adds, base=order.base, news=news, counts_from=order.counts_from
        )
        self._sent = LinkScores(bits, adds=order.adds, base=0.0, news=news)

    @property
    def reads_anchors(self) -> bool:
        """True if the order uses anchor texts."""
        return self._order.reads_anchors

    def scores(
        self,
        change: Change,
        source: LinkSource,
        urls: Sequence[str],
        anchors: Sequence[str],
        depth: int,
        flags: int,
    ) -> Generator[Pause, None, Scores]:
        """Return the scores of a page's links, as an array of shape (n,).

        While the order of a package scores the links, the generator waits. Links for whose scores the time did
        not suffice are counted.
        """
        page = source.page
        if flags & _SITEMAP:
            return np.ones(len(urls))
        if page.kind == REDIRECT:
            return np.full(len(urls), max(0.0, page.score - self._order.base))
        links = [FoundLink(url, anchor, depth) for url, anchor in zip(urls, anchors, strict=True)]
        if self._thread is None:
            score = self._order.score
            return np.fromiter((score(link, page) for link in links), np.float64, len(urls))
        scoring = self._thread.begin(links, page)
        if scoring.left() > 0.0:
            yield scoring
        scores = self._thread.end(scoring)
        change.count("urls.unscored", len(links) - len(scores))
        return np.array(scores + [_NO_SCORE] * (len(links) - len(scores)))

    def own(self, fingerprints: np.ndarray, scores: Scores) -> tuple[list[int], list[int]]:
        """Return the classes of links to URLs of this process, and the positions of links that improve a score."""
        worth, _, news = self._own.add(fingerprints, scores)
        return _classes(worth), np.flatnonzero(news).tolist()

    def sent(self, fingerprints: np.ndarray, scores: Scores) -> tuple[list[int], list[int]]:
        """Return the class to send with each link to another process, and the positions of links with improved scores."""
        worth, told, news = self._sent.add(fingerprints, scores)
        return _classes(worth - told if self._order.adds else worth), np.flatnonzero(news).tolist()

    def improve(self, links: Sequence[Link], change: Change) -> None:
        """Move the waiting URLs of `links` to earlier places in their queues, because the links improved their scores."""
        if links:
            self._improve(links, change)

    @staticmethod
    def scores_in(links: Sequence[Link]) -> Scores:
        """Return the scores of links that another process sent, as an array of shape (n,)."""
        return np.fromiter((score_of(class_in(link.flags)) for link in links), np.float64, len(links))


def _classes(worth: Scores) -> list[int]:
    """Return the class of each score, computed as in `orders.classes.class_of`."""
    places = np.rint(-PER_OCTAVE * np.log2(np.maximum(worth, LEAST)))
    found: list[int] = np.clip(places, 0, WORST).astype(np.intp).tolist()
    return found


def classed(link: Link, place: int) -> Link:
    """Return the link with the class `place`."""
    flags = with_class(link.flags, place)
    return Link(link.fingerprint, link.url, link.depth, link.via, link.redirects, flags)


def page_score(order: int) -> float:
    """Return the score of a page, given the `order` of its fetch task; the default score if it was in no queue."""
    return score_of(class_in_order(order) if order > 0 else NEUTRAL)


def named(config: OrderConfig) -> Ranking | None:
    """Return the configured order. If its score function raises exceptions, the first of each type is logged.

    Raises:
        ConfigError: see `orders.naming.ranking`.
    """
    told: set[str] = set()

    def failed(error: BaseException, url: str) -> None:
        kind = type(error).__name__
        if kind not in told:
            told.add(kind)
            log.error("order %s: %s: %s, for %s; such links get no score", config.name, kind, error, url)

    return ranking(config, failed)
