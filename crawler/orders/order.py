"""Orders: an order scores each newly found URL by its link and by the page that holds the link.

An order is any object with a method `score(link, context) -> float` that returns 0 to 1. It is
chosen by name: either a shipped order (`builtin_orders.py`), or an entry point of an installed package
in the group `crawler.orders`. The entry point is called with the section `order` of the configuration.

    class Short:                                     [project.entry-points."crawler.orders"]
        def __init__(self, config): ...              short = "package.module:Short"
        def score(self, link, context):
            return 1 / (1 + len(link.url))

An order may set the attributes of `Order` as well. `score` is called once per link, about 50 times
per page, in the process that found the link. It must not block.
"""

import math
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from crawler.config import OrderConfig
from crawler.errors import ConfigError
from crawler.orders.classes import LEAST, NEUTRAL, score_of

BREADTH_FIRST = "breadth-first"
GROUP = "crawler.orders"


class FoundLink(msgspec.Struct, frozen=True, gc=False):
    """A link as found: the request form of its URL, the text of the first anchor with that URL on the page
    ("" unless `Order.reads_anchors`), and the depth that the URL would have."""

    url: str
    anchor: str = ""
    depth: int = 0


class FoundOn(msgspec.Struct, frozen=True, gc=False):
    """The page on which links were found.

    `score` is the score of the page's own class when the page was fetched, `depth` is the page's depth, and `links`
    the number of links on the page. `kind`: "page", "listing", "feed", "sitemap", "requisite" (the links are parts of
    the page), or "seed" (there is no page: `url` is "" and `score` 1).
    """

    url: str = ""
    score: float = 1.0
    depth: int = 0
    title: str = ""
    links: int = 1
    kind: str = "page"


class Order(Protocol):
    """The interface of an order; see the module docstring. Missing attributes have the defaults given here.

    `adds`: True to add up the scores of all links to a URL, starting with `base`; False to use the best score.
    `floor`: a URL with a lower score counts as one with this score.
    """

    reads_anchors: bool = False
    adds: bool = False
    base: float = 0.0
    floor: float = 0.0

    def score(self, link: FoundLink, context: FoundOn) -> float:
        """Return the value of the URL, 0 to 1, judged only by the link and its page."""


class Ranking:
    """Wraps an order: adds the defaults of missing attributes, and returns a valid score whatever the order does.

    `failed` is called with each exception of the order; the link then has no score.
    """

    def __init__(self, order: Any, failed: Callable[[Exception, str], object] | None = None) -> None:
        self._score = order.score
        self._failed = failed or (lambda error, url: None)
        self.reads_anchors = bool(getattr(order, "reads_anchors", False))
        self.adds = bool(getattr(order, "adds", False))
        self.base = float(getattr(order, "base", 0.0))
        self.floor = float(getattr(order, "floor", 0.0))

    def score(self, link: FoundLink, context: FoundOn) -> float:
        """Return the order's score, clamped to `LEAST` .. 1; the score of the class NEUTRAL if the order fails."""
        try:
            score = float(self._score(link, context))
            if math.isnan(score):
                raise ValueError("the score is not a number")
        except Exception as error:
            self._failed(error, link.url)
            return score_of(NEUTRAL)
        return max(LEAST, min(score, 1.0))


def ranking(config: OrderConfig, failed: Callable[[Exception, str], object] | None = None) -> Ranking | None:
    """Return the order that the configuration names, or None for breadth-first.

    Raises:
        ConfigError: no order has that name, or creating it failed.
    """
    if config.name == BREADTH_FIRST:
        return None
    from crawler.orders.builtin_orders import (
        SHIPPED,  # imported here, so that importing a frontier does not compile its patterns
    )

    make = SHIPPED.get(config.name) or _installed(config.name, SHIPPED)
    try:
        order = make(config)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"order.name {config.name}: {type(error).__name__}: {error}") from error
    if not callable(getattr(order, "score", None)):
        raise ConfigError(f"order.name {config.name}: {type(order).__name__} has no method named score")
    return Ranking(order, failed)


def _installed(name: str, shipped: dict[str, Any]) -> Any:
    """Return the factory of the order that an installed package offers as `name`."""
    from importlib import metadata  # imported here because it is slow and seldom needed

    found = metadata.entry_points(group=GROUP, name=name)
    if not found:
        known = ", ".join([BREADTH_FIRST, *shipped])
        raise ConfigError(f"order.name {name}: unknown; choose one of {known} or an entry point in {GROUP}")
    try:
        return next(iter(found)).load()
    except Exception as error:
        raise ConfigError(f"order.name {name}: {type(error).__name__}: {error}") from error
