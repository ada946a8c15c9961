"""Determines, from the configuration and the header of the answer, how a page is read.

The crawl uses this module to make the `Context` of a page, and so do programs that later read the stored
pages.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from crawler.config import Config, Overrides
from crawler.extract.collected import Context
from crawler.urls.canonical import hostname
from crawler.urls.media_type import XHTML, field_text

# the header fields that a context contains
NAMES = frozenset((b"link", b"x-robots-tag", b"refresh"))


class PageRules:
    """Makes contexts under one configuration.

    With `want_all`, robots directives and `rel=nofollow` are ignored, and requisites are extracted even if the
    crawl does not fetch them.
    """

    def __init__(
        self, config: Config, *, want_all: bool = False, want_anchors: bool = False, want_markup: bool = False
    ) -> None:
        self._page = Context(
            "",
            token=config.identity.token,
            obey_nofollow=config.robots.nofollow_links,
            want_requisites=config.crawl.requisites or want_all,
            want_anchors=want_anchors,
            want_markup=want_markup,
        )
        self._policy = config.robots.policy
        self._want_all = want_all
        self._overrides = Overrides(config.override)

    def context(
        self,
        url: str,
        headers: Iterable[tuple[bytes, bytes]],
        content_type: str,
        charset: str,
        asked_url: str = "",
    ) -> Context:
        """Return the context of an answer from `url`.

        `content_type` and `charset` are those of its Content-Type. `asked_url` is the requested URL, for
        `[[override]]`; "" if it is `url`.
        """
        values: dict[bytes, list[str]] = {name: [] for name in NAMES}
        for name, value in headers:
            if (kept := values.get(name.lower())) is not None:
                kept.append(field_text(value))
        return replace(
            self._page,
            url=url,
            charset=charset,
            link_values=tuple(values[b"link"]),
            refresh_value=next(iter(values[b"refresh"]), ""),
            robots_tags=tuple(values[b"x-robots-tag"]),
            obey_robots=self._obeys(asked_url or url),
            xhtml=content_type == XHTML,
        )

    def _obeys(self, url: str) -> bool:
        """Return whether the page's own robots directives are obeyed."""
        policy = self._policy
        if self._overrides:
            policy = self._overrides.for_url(url, hostname(url)).robots or policy
        return policy != "ignore" and not self._want_all
