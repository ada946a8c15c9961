"""Rules that select which links of a page are followed, within the scope."""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from crawler.api.page import Page
from crawler.errors import ConfigError
from crawler.user_patterns import compiled

Follow = bool | Sequence[str]


class FollowRules(msgspec.Struct, frozen=True):
    """Rules of `follow=`: regular expressions for absolute URLs, and CSS selectors prefixed with `css:`.

    >>> from crawler import Page
    >>> from crawler.api.follow_rules import FollowRules
    >>> page = Page.of("http://x/", "<a href=/1>1</a><nav><a href=/next>next</a></nav><a href=/b>b</a>")
    >>> list(FollowRules.of(["/[0-9]+$", "css:nav a"]).links(page))
    ['http://x/1', '/next']
    """

    patterns: tuple[re.Pattern[str], ...] = ()
    queries: tuple[str, ...] = ()

    @classmethod
    def of(cls, rules: Sequence[str]) -> "FollowRules":
        """Parse the rules; raise ConfigError for an invalid regular expression or selector."""
        if isinstance(rules, str):
            rules = [rules]
        patterns, queries = [], []
        for rule in rules:
            if rule.startswith("css:"):
                query = rule.removeprefix("css:").strip()
                try:
                    Page.of("http://x/", "").css(query)
                except ValueError as error:
                    raise ConfigError(f"follow: {error}") from None
                queries.append(query)
                continue
            try:
                patterns.append(compiled(rule))
            except ConfigError as error:
                raise ConfigError(f"follow: {error}") from None
        return cls(tuple(patterns), tuple(queries))

    def links(self, page: Page) -> Iterator[str]:
        """Yield the URLs to follow.

        First come the links that match an expression, in page order, then the raw links that the selectors
        find.
        """
        for url in page.urls() if self.patterns else ():
            if any(pattern.search(url) for pattern in self.patterns):
                yield url
        for query in self.queries:
            yield from _links_of(page, query)


def _links_of(page: Page, query: str) -> Iterable[str]:
    """Return the raw links of the elements that a selector matches, and of the elements within them."""
    for element in page.css(query):
        for link in (element, *element.css("a[href]")) if element.tag != "a" else (element,):
            if href := link.attr("href"):
                yield href
