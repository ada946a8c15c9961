"""Defines, for each URL, what counts as a change of the page, from `[pages]` and `[[override]]`."""

from functools import lru_cache

from crawler.config import Overrides, PagesConfig
from crawler.pages.change_detection import Comparison, compile_patterns
from crawler.urls.canonical import hostname


class ChangeComparison:
    """Chooses how two answers of a URL are compared."""

    def __init__(self, config: PagesConfig, overrides: Overrides) -> None:
        self._config = config
        self._overrides = overrides
        self._made = lru_cache(maxsize=256)(_comparison)

    def comparison(self, url: str) -> Comparison:
        """Return the comparison that decides whether the page at `url` has changed."""
        config = self._config
        kind, distance, ignored = config.change, config.simhash_distance, config.ignore
        if self._overrides:
            own = self._overrides.for_url(url, hostname(url))
            kind = own.change or kind
            distance = distance if own.simhash_distance is None else own.simhash_distance
            ignored = ignored if own.ignore is None else own.ignore
        return self._made(kind, distance, ignored)


def _comparison(kind: str, distance: int, ignored: tuple[str, ...]) -> Comparison:
    return Comparison(kind, distance, compile_patterns(ignored))
