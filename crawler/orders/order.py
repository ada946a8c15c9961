"""Orders: an order scores each newly found URL by the link to it and by the page with this link.

An order is any object with a method `score(link, context) -> float`, which returns a number from 0 to 1. An
order is chosen by its name (`naming.py`). The name stands for an order of the crawler itself
(`builtin_orders.py`), or for an entry point of an installed package in the group `crawler.orders`. The entry
point is called with the section `order` of the configuration.

    class Short:                                     [project.entry-points."crawler.orders"]
        def __init__(self, config): ...              short = "package.module:Short"
        def score(self, link, context):
            return 1 / (1 + len(link.url))

An order may set the attributes of `Order` as well. `score` is called once per link, about 50 times per page,
in the process that found the link. The order of a package is called in a thread of its own
(`order_thread.py`).
"""

import math
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from crawler.orders.classes import LEAST, NEUTRAL, score_of

BREADTH_FIRST = "breadth-first"


class FoundLink(msgspec.Struct, frozen=True, gc=False):
    """A link on a page.

    `url` is the request form of the link's URL. `anchor` is the text of the first anchor with this URL on the
    page. Unless `Order.reads_anchors` is set, it is "". `depth` is the depth of the URL if it is reached by
    this link.
    """

    url: str
    anchor: str = ""
    depth: int = 0


class FoundOn(msgspec.Struct, frozen=True, gc=False):
    """The page on which links were found.

    `score` is the page's own score, computed from the class that the page had when it was fetched. `depth` is
    the page's depth, and `links` is the number of links on the page. `kind` is "page", "listing", "feed",
    "sitemap", "requisite" or "seed". With "requisite", the links are parts of the page. With "seed" there is
    no page: `url` is "" and `score` is 1.
    """

    url: str = ""
    score: float = 1.0
    depth: int = 0
    title: str = ""
    links: int = 1
    kind: str = "page"


class Order(Protocol):
    """The interface of an order; see the module docstring. Missing attributes have the defaults given here.

    If `adds` is True, the score of a URL is `base` plus the scores of all links to it; otherwise, it is the
    best of these scores. A URL whose score is below `counts_from` is treated as if its score were
    `counts_from`.
    """

    reads_anchors: bool = False
    adds: bool = False
    base: float = 0.0
    counts_from: float = 0.0

    def score(self, link: FoundLink, context: FoundOn) -> float:
        """Return the score of the link's URL, from 0 to 1. Only the link and the page that contains it are known."""


class Ranking:
    """Wraps an order: supplies defaults for missing attributes, and returns a valid score whatever the order does.

    `failed` is called with each exception that the order raises. The link then has no score. `own` is False
    for the order of a package, whose `score` may be slow.

    Raises:
        ValueError: `base` or `counts_from` is not a number from 0 to 1.
    """

    def __init__(
        self, order: Any, failed: Callable[[BaseException, str], object] | None = None, *, own: bool = True
    ) -> None:
        self._score = order.score
        self.own = own
        self._failed = failed or (lambda error, url: None)
        self.reads_anchors = bool(getattr(order, "reads_anchors", False))
        self.adds = bool(getattr(order, "adds", False))
        self.base = _fraction(order, "base")
        self.counts_from = _fraction(order, "counts_from")

    def score(self, link: FoundLink, context: FoundOn) -> float:
        """Return the order's score, clamped to `LEAST` .. 1, or the score of the class NEUTRAL if the order fails.

        The order of a package runs in a thread of its own. In this thread, only the order itself raises `SystemExit`,
        `CancelledError` and similar exceptions, so they count as failures of the order.
        """
        try:
            score = self._score(link, context)
            if math.isnan(score):  # unlike `float`, this refuses texts
                raise ValueError("the score is not a number")
            score = float(score)
        except BaseException as error:
            if self.own and not isinstance(error, Exception):
                raise
            self._failed(error, link.url)
            return score_of(NEUTRAL)
        return max(LEAST, min(score, 1.0))


def _fraction(order: Any, name: str) -> float:
    """Return the attribute of an order that must be a number from 0 to 1; 0 if it is missing."""
    value = getattr(order, name, 0.0)
    if not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} is {value!r}, which is not a number from 0 to 1")
    return float(value)
