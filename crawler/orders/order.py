"""An order: what a URL found is worth, judged by the link and the page that it stands on.

An order is any object with a method `score(link, context) -> float` from 0 to 1, given by
name: shipped (`builtin_orders.py`), or an entry point of an installed package in the group
`crawler.orders`, called with the section `order` of the configuration.

    class Short:                                     [project.entry-points."crawler.orders"]
        def __init__(self, config): ...              short = "package.module:Short"
        def score(self, link, context):
            return 1 / (1 + len(link.url))

It may say more of itself by the attributes of `Order`. A score is asked for once a link, in the
process that found it, beside the parent's fetch: about 50 times a page. It must not wait.
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
    """A link as it was found: the URL's request form, the text of its first anchor ("" unless
    `Order.reads_anchors`), and the depth that the URL would have."""

    url: str
    anchor: str = ""
    depth: int = 0


class FoundOn(msgspec.Struct, frozen=True, gc=False):
    """The page that links were found on.

    `score` is what the page itself was worth when it was asked, that of its class; `depth` its depth,
    `links` how many links it has. `kind`: "page", "listing", "feed", "sitemap", "requisite" (the
    links are parts of the page), or "seed" (there is no page: `url` is "" and `score` 1).
    """

    url: str = ""
    score: float = 1.0
    depth: int = 0
    title: str = ""
    links: int = 1
    kind: str = "page"


class Order(Protocol):
    """See the module docstring. Attributes that an order lacks have the defaults given here.

    `adds`: scores of several links to a URL add up, beginning with `base`; else the best one counts.
    """

    reads_anchors: bool = False
    adds: bool = False
    base: float = 0.0

    def score(self, link: FoundLink, context: FoundOn) -> float:
        """What the URL is worth to whom the page `context` is all that is known; 0 to 1."""


class Ranking:
    """An order with its defaults filled in, that answers whatever the order does.

    `failed` is told of an exception of the order; the link then has no score.
    """

    def __init__(self, order: Any, failed: Callable[[Exception, str], object] | None = None) -> None:
        self._score = order.score
        self._failed = failed or (lambda error, url: None)
        self.reads_anchors = bool(getattr(order, "reads_anchors", False))
        self.adds = bool(getattr(order, "adds", False))
        self.base = float(getattr(order, "base", 0.0))

    def score(self, link: FoundLink, context: FoundOn) -> float:
        """The order's score within `LEAST` .. 1; that of the class NEUTRAL where it has none to give."""
        try:
            score = float(self._score(link, context))
            if math.isnan(score):
                raise ValueError("the score is not a number")
        except Exception as error:
            self._failed(error, link.url)
            return score_of(NEUTRAL)
        return max(LEAST, min(score, 1.0))


def ranking(config: OrderConfig, failed: Callable[[Exception, str], object] | None = None) -> Ranking | None:
    """The order that the configuration names; None for breadth-first.

    Raises:
        ConfigError: there is none of that name, or it cannot be made.
    """
    if config.name == BREADTH_FIRST:
        return None
    from crawler.orders.builtin_orders import (
        SHIPPED,  # else importing any frontier would compile its patterns
    )

    make = SHIPPED.get(config.name) or _installed(config.name, SHIPPED)
    try:
        order = make(config)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"order.name {config.name}: {type(error).__name__}: {error}") from error
    if not callable(getattr(order, "score", None)):
        raise ConfigError(f"order.name {config.name}: {type(order).__name__} has no method score")
    return Ranking(order, failed)


def _installed(name: str, shipped: dict[str, Any]) -> Any:
    """What makes the order that an installed package offers as `name`."""
    from importlib import metadata  # slow, and seldom needed

    found = metadata.entry_points(group=GROUP, name=name)
    if not found:
        known = ", ".join([BREADTH_FIRST, *shipped])
        raise ConfigError(f"order.name {name}: none of {known}, and no entry point in {GROUP}")
    try:
        return next(iter(found)).load()
    except Exception as error:
        raise ConfigError(f"order.name {name}: {type(error).__name__}: {error}") from error
