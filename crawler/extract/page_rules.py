"""Determines, from the configuration and the header of the answer, how a page is read.

The crawl uses this module to make the `Context` of a page, and so do programs that later read the stored
pages.
"""

from collections.abc import Iterable

from crawler.config import Config, Overrides
from crawler.extract.collected import Context
from crawler.urls.canonical import hostname
from crawler.urls.media_type import XHTML, field_text

# the header fields that a context contains
NAMES = frozenset((b"link", b"x-robots-tag", b"refresh"))
_NAMES = {b"link": "link_values", b"x-robots-tag": "robots_tags"}


class PageRules:
    """Makes contexts under one configuration.

    Args:
        want_all: ignore robots directives and `rel=nofollow`, and extract
            requisites even if the crawl does not fetch them.
        want_anchors: also extract the texts of links.
        want_markup: also extract the markup that the audit checks.
    """

    def __init__(
        self,
        config: Config,
        *,
        want_all: bool = False,
        want_anchors: bool = False,
        want_markup: bool = False,
    ) -> None:
        self._want_anchors = want_anchors
        self._want_markup = want_markup
        self._token = config.identity.token
        self._policy = config.robots.policy
        self._nofollow_links = config.robots.nofollow_links
        self._requisites = config.crawl.requisites or want_all
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
        """Return the context of an answer.

        Args:
            url: the URL that the answer came from.
            headers: its header fields, in order.
            content_type: essence of its Content-Type.
            charset: charset of its Content-Type, "" if none.
            asked_url: the requested URL, for `[[override]]`; "" if it is `url`.
        """
        values: dict[str, list[str]] = {"link_values": [], "robots_tags": []}
        refresh = ""
        for name, value in headers:
            lowered = name.lower()
            if lowered in _NAMES:
                values[_NAMES[lowered]].append(field_text(value))
            elif lowered == b"refresh" and not refresh:
                refresh = field_text(value)
        return Context(
            url,
            charset,
            self._token,
            tuple(values["link_values"]),
            refresh,
            tuple(values["robots_tags"]),
            self._obeys(asked_url or url),
            self._nofollow_links,
            self._requisites,
            content_type == XHTML,
            self._want_anchors,
            self._want_markup,
        )

    def _obeys(self, url: str) -> bool:
        """Return whether the page's own robots directives are obeyed."""
        policy = self._policy
        if self._overrides:
            policy = self._overrides.for_url(url, hostname(url)).robots or policy
        return policy != "ignore" and not self._want_all
