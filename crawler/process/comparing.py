"""What counts as a change of a page: by `[pages]` and `[[override]]`, asked by URL."""

from functools import lru_cache

from crawler.config import Overrides, PagesConfig
from crawler.pages.change_detection import Patterns, compile_patterns
from crawler.urls.canonical import hostname


class Comparing:
    """Answers by URL what a comparison leaves out, and whether it looks at the visible text only."""

    def __init__(self, config: PagesConfig, overrides: Overrides) -> None:
        self._config = config
        self._overrides = overrides
        self._compiled = lru_cache(maxsize=256)(compile_patterns)

    def ignored(self, url: str) -> Patterns:
        """Patterns (bytes) of what is left out."""
        texts = self._config.ignore
        if self._overrides:
            own = self._overrides.for_url(url, hostname(url)).ignore
            texts = texts if own is None else own
        return self._compiled(texts) if texts else ()

    def text_only(self, url: str) -> bool:
        """Whether of HTML only the visible text counts."""
        kind = self._config.change
        if self._overrides:
            kind = self._overrides.for_url(url, hostname(url)).change or kind
        return kind == "text"
