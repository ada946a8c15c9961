"""The callables that a user adds to a crawl, given as arguments or named by entry points."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from crawler.api.delivery import Errors, page_of
from crawler.api.page import Page
from crawler.config import Config
from crawler.crawl.start_checks import HOOK_GROUPS, find_entry_point
from crawler.errors import ConfigError, bad_setting
from crawler.process.fetching.reader import Extractor
from crawler.records import Fetch, FetchTask

UrlFilterHook = Callable[[str], bool]
LinkExtractorHook = Callable[[Page], Iterable[str]]
PageSinkHook = Callable[[Page], Awaitable[None] | None]


def entry_point(group: str, name: str) -> Any:
    """Return the object that an installed package offers as `name` in `group`; raise ConfigError if there is none."""
    return find_entry_point(group, name).load()


class Hooks(msgspec.Struct, frozen=True):
    """The callables that a user adds to the crawl; a callable that is not used is None.

    They are called in the event loop, which waits for each call. Between two slow calls, the crawl gets a
    turn. When the crawl is stopped, no call begins more than 1 s later; the remaining pages are delivered in
    the next run.

    >>> crawler.Hooks(url_filter=lambda url: "/tag/" not in url).url_filter("http://x/tag/1")
    False
    """

    url_filter: UrlFilterHook | None = None
    link_extractor: LinkExtractorHook | None = None
    page_sink: PageSinkHook | None = None

    @classmethod
    def of(cls, config: Config, given: "Hooks") -> "Hooks":
        """Return `given`, with missing hooks taken from the entry points that the configuration names."""
        return cls(
            *(
                getattr(given, name) or _named(name, group, getattr(config.hooks, name))
                for name, group in HOOK_GROUPS.items()
            )
        )


def _named(key: str, group: str, name: str) -> Any:
    try:
        return entry_point(group, name) if name else None
    except ConfigError as error:
        raise bad_setting(f"hooks.{key}", str(error)) from None


def guarded_filter(hook: UrlFilterHook | None, errors: Errors) -> UrlFilterHook | None:
    """Wrap the user's filter, so that a URL for which the filter raises is dropped."""
    if hook is None:
        return None

    def accepts(url: str) -> bool:
        try:
            return hook(url)
        except Exception as error:
            errors.note("filter", url, error)
            return False

    return accepts


def guarded_extractor(links: LinkExtractorHook, errors: Errors) -> Extractor:
    """Wrap the user's link extractor, so that a page for which the extractor raises has no links."""

    def extract(fetch_task: FetchTask, fetch: Fetch) -> Iterable[str]:
        try:
            return list(links(page_of(fetch_task, fetch, None, {})))
        except Exception as error:
            errors.note("extractor", fetch_task.url, error)
            return ()

    return extract
