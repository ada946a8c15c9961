"""The orders that come with the crawler. Breadth-first, the default, computes no scores, so it has no class here.

depth   depth_decay ^ depth: breadth-first over all hosts at once
opic    cash passed along links: a page divides its cash among its links, and a link brings the root of its part
        (Abiteboul, Preda, Cobena 2003, "Adaptive on-line page importance computation")
words   logistic regression on the words of the anchor, the URL and the parent's title
"""

import math
import re
from collections.abc import Callable
from typing import Any

from crawler.config import OrderConfig
from crawler.errors import ConfigError, reason_of
from crawler.input_files import read_bytes
from crawler.orders.classes import NEUTRAL, score_of
from crawler.orders.order import FoundLink, FoundOn

_WORD = re.compile(r"[^\W_]+")
_FIELDS = ("anchor", "url", "title", "parent", "")
WORD_CHARACTERS_MAX = 64
COUNTED = 1.5
TEXT_CHARACTERS_MAX = 1_000  # longer texts are cut to this length before they are split into words


class Depth:
    """Gives each link the score `depth_decay` to the power of the link's depth."""

    def __init__(self, config: OrderConfig) -> None:
        self._decay = config.depth_decay

    def score(self, link: FoundLink, context: FoundOn) -> float:
        """Return a score that falls by a fixed factor with each hop from the seeds."""
        return float(self._decay**link.depth)


class Opic:
    """Scores a link by the cash that it brings. A page divides its cash among its links when it is fetched.

    Each URL begins with a cash of 1, which corresponds to a score of 2^-16. In the paper, each of n pages
    begins with 1/n. A URL with many links can gather up to 65,536 times its initial cash. The cash of links
    that leave the scope is lost. In the paper, this cash is given to a virtual page that all pages share.

    A link brings the square root of its part of the cash, in units of the initial cash. In the paper, it
    brings the part itself. But the paper fetches each page many times, until its cash is known well. A page
    that is fetched only once passes on only the cash that arrived before that fetch. So without the root,
    nearly all the cash would come from pages with few links. The root makes links from different pages more
    equal. With the root, the share of the quality that is found after half of a crawl is higher by 0.024 to
    0.031 (`crawler/lab/order/README.md`).

    The cash of a URL affects the order only once it is at least `COUNTED` times the initial cash. Smaller
    amounts depend mostly on the number of links of the linking page, so URLs with smaller amounts are crawled
    breadth-first.
    """

    adds = True
    base = score_of(NEUTRAL)
    counts_from = COUNTED * base

    def __init__(self, config: OrderConfig) -> None:
        pass

    def score(self, link: FoundLink, context: FoundOn) -> float:
        """Return the cash that the link brings. Seeds and links of sitemaps bring no cash."""
        if context.kind in ("seed", "sitemap"):
            return 0.0
        return math.sqrt(self.base * context.score / max(1, context.links))


class Words:
    """Gives a link the score 1 / (1 + exp(-(bias + sum of the weights of its words))). A word counts once per field.

    Each line of the file `order.file` has one weight: `[anchor:|url:|title:|parent:]WORD WEIGHT`, in lower
    case. A word that is given without a field counts in the anchor, the URL and the title. `parent:score
    WEIGHT` gives a weight to the logarithm of the parent's score. With such a weight, links of good pages are
    crawled before links of bad pages. `bias WEIGHT` sets the constant `bias` of the formula. `#` begins a
    comment.
    """

    reads_anchors = True

    def __init__(self, config: OrderConfig) -> None:
        if not config.file:
            raise ConfigError("order.name words: set order.file to a file of weights")
        try:
            lines = read_bytes(config.file).decode().splitlines()
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"order.file {config.file}: {reason_of(error)}") from error
        self._weights: dict[str, float] = {}
        for number, line in enumerate(lines, 1):
            if text := line.partition("#")[0].strip():
                word, weight = _weight(text, f"order.file {config.file}, line {number}")
                self._weights[word] = weight
        self._bias = self._weights.pop("bias", 0.0)
        self._parent = self._weights.pop("parent:score", 0.0)

    def score(self, link: FoundLink, context: FoundOn) -> float:
        """Return the logistic function of the weighted sum."""
        total = self._bias + self._sum("anchor:", link.anchor) + self._sum("title:", context.title)
        total += self._sum("url:", link.url.partition("//")[2])
        if self._parent:
            total += self._parent * math.log(context.score)
        return 1.0 / (1.0 + math.exp(-max(-500.0, min(total, 500.0))))

    def _sum(self, field: str, text: str) -> float:
        weights = self._weights
        words = set(_WORD.findall(text[:TEXT_CHARACTERS_MAX].lower()))
        return sum(weights.get(word, 0.0) + weights.get(field + word, 0.0) for word in words)


def _weight(text: str, where: str) -> tuple[str, float]:
    """Parse a line of the file; return the word with its field, and the word's weight."""
    word, _, number = text.rpartition(" ")
    word = word.strip().lower()
    field = word.rpartition(":")[0]
    try:
        weight = float(number)
    except ValueError:
        weight = math.nan
    if not word or field not in _FIELDS or len(word) > WORD_CHARACTERS_MAX or not math.isfinite(weight):
        raise ConfigError(f"{where}: expected WORD WEIGHT, not {text!r:.80}")
    return word, weight


SHIPPED: dict[str, Callable[[OrderConfig], Any]] = {"depth": Depth, "opic": Opic, "words": Words}
