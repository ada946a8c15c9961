"""The orders that come with the crawler, beside breadth-first, which scores nothing.

depth   depth_decay ^ depth: breadth-first over all hosts at once
opic    cash by in-links: a page gives what it has in equal parts to its links
        (Abiteboul, Preda, Cobena 2003, "Adaptive on-line page importance computation")
words   logistic regression on the words of anchor, URL and the parent's title
"""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crawler.config import OrderConfig
from crawler.errors import ConfigError
from crawler.orders.classes import NEUTRAL, score_of
from crawler.orders.order import FoundLink, FoundOn

_WORD = re.compile(r"[^\W_]+")
_FIELDS = ("anchor", "url", "title", "parent", "")
WORD_CHARACTERS_MAX = 64
TEXT_CHARACTERS_MAX = 1_000  # of each text that is read for words


class Depth:
    """`depth_decay` to the power of the depth."""

    def __init__(self, config: OrderConfig) -> None:
        self._decay = config.depth_decay

    def score(self, link: FoundLink, context: FoundOn) -> float:
        """Falls by the same factor with each hop from the seeds."""
        return float(self._decay**link.depth)


class Opic:
    """In-link cash; a page that is fetched once gives its cash away then.

    Each URL begins with a cash of 1, a score of 2^-16, as in the paper each page begins with 1/n;
    all that is linked to may gather 65,536 times as much. What leaves the scope is lost, as in
    the paper it goes to the virtual page that all pages share.
    """

    adds = True
    base = score_of(NEUTRAL)

    def __init__(self, config: OrderConfig) -> None:
        pass

    def score(self, link: FoundLink, context: FoundOn) -> float:
        """The part of the parent's cash that the link brings; seeds and sitemaps bring none."""
        if context.kind in ("seed", "sitemap"):
            return 0.0
        return context.score / max(1, context.links)


class Words:
    """1 / (1 + exp(-(bias + sum of weights))), each word counted once a field.

    The file has a weight a line: `[anchor:|url:|title:|parent:]WORD WEIGHT`, in lower case; a word
    without a field counts in anchor, URL and title. `parent:` weighs the logarithm of the
    parent's score (with WORD `score`), so that links of good pages go before those of bad ones;
    `bias WEIGHT` is the constant. `#` begins a comment.
    """

    reads_anchors = True

    def __init__(self, config: OrderConfig) -> None:
        if not config.file:
            raise ConfigError("order.name words: order.file names no file of weights")
        try:
            lines = Path(config.file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"order.file {config.file}: {error}") from error
        self._weights: dict[str, float] = {}
        for number, line in enumerate(lines, 1):
            if text := line.partition("#")[0].strip():
                word, weight = _weight(text, f"order.file {config.file}, line {number}")
                self._weights[word] = weight
        self._bias = self._weights.pop("bias", 0.0)
        self._parent = self._weights.pop("parent:score", 0.0)

    def score(self, link: FoundLink, context: FoundOn) -> float:
        """The logistic function of the sum."""
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
    """(word, weight) of a line."""
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
