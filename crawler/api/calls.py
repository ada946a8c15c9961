"""A whole crawl in one call: `run` in scripts, `await run_async` in notebooks and coroutines."""

import asyncio
import inspect
import logging
import os
import signal
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from msgspec.structs import replace

from crawler.admin.crawl_wait import next_wait
from crawler.admin.report import WHY_HINT
from crawler.api.crawl import Crawl
from crawler.api.delivery import ItemProcessor, OnError
from crawler.api.follow_rules import Follow
from crawler.api.hooks import LinkExtractorHook, PageSinkHook, UrlFilterHook
from crawler.api.item_files import ItemsGiven, check_items, item_paths
from crawler.api.options import Settings, configure, expect
from crawler.api.page import Page
from crawler.api.request import Callback, Request
from crawler.config import Config
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.restart import rename_file_to_numbered, rename_to_numbered
from crawler.crawl.start_checks import check_start
from crawler.errors import NoSeedError, UsageError
from crawler.printable import printable
from crawler.wording import several

log = logging.getLogger("crawler")

_WAIT_LOOK = 5.0  # seconds between two looks at what the crawl waits for
_WAIT_TOLD = 10.0  # seconds; shorter waits are not logged
SIGNAL = "signal"  # the value of `stopped_by` for a run that a signal stopped, as on the command line
Taken = ParamSpec("Taken")
Given = TypeVar("Given")


class _SignalStop:
    """Stops a script's crawl cleanly on Ctrl-C or SIGTERM. A second signal has its usual effect.

    A signal that arrives before the crawl is open stops the crawl as soon as it begins.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._came = False
        self._stop: Callable[[], object] | None = None

    def install(self) -> None:
        """Handle the signals from now on, which is possible only in the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._receive)

    def attach(self, crawl: Crawl) -> None:
        """Let a signal stop `crawl`, which is about to run. If a signal has already arrived, stop it at once."""
        self._stop = partial(asyncio.get_running_loop().call_soon_threadsafe, crawl.stop, SIGNAL)
        if self._came:
            self._stop()

    def restore(self) -> None:
        """Give the signals their usual effect."""
        while self._before:
            signal.signal(*self._before.popitem())

    def _receive(self, *_: object) -> None:
        self.restore()
        self._came = True
        # `os.write` is used, because the signal may have interrupted a `print`
        os.write(2, b"stopping; press Ctrl-C again to stop at once\n")
        if self._stop is not None:
            self._stop()


async def run_async(
    seeds: str | Request | Iterable[str | Request] = (),
    parse: Callback | None = None,
    *,
    config: Settings = None,
    fresh: bool = False,
    cached: bool = False,
    directory: str | Path = "crawl",
    items: ItemsGiven = "",
    follow: Follow = True,
    on_error: OnError = "continue",
    processors: Sequence[ItemProcessor] = (),
    url_filter: UrlFilterHook | None = None,
    link_extractor: LinkExtractorHook | None = None,
    page_sink: PageSinkHook | None = None,
) -> dict[str, Any]:
    """Crawl to the end and return the report.

        >>> crawling = crawler.run_async(url, directory=folder / "async", config=settings)
        >>> asyncio.run(crawling)["pages"]  # in a notebook: await crawling
        {'fetched': 2}

    Args:
        seeds: where the crawl starts: a URL or request, or several.
        parse: receives each page with status 2xx; yields items and `Request`s.
        config: settings, nested as in the configuration file, that override the defaults and the settings
            that the directory keeps; or a `Config`, which is complete.
        fresh: start a new crawl; an existing crawl in the directory is renamed to DIR.1, DIR.2, ...
        cached: as `fresh`, but use the answers that these earlier crawls stored instead of sending requests, and
            rename the items file in the same way. Cached runs that only repeat the answers of other crawls
            are removed. This is useful for trying changes of the callbacks. A stored answer sets no cookies, because
            archives do not contain their values; to log in, use a run that is not cached.
        directory: the crawl directory; a crawl that exists there is continued.
        items: file of the items, named .jsonl, .csv or .parquet; items are appended to an existing file. A
            Parquet file is written when the crawl ends; until then its rows are in NAME.parquet.rows (JSONL).
            A mapping of classes to files, such as {Tea: "teas.csv", Review: "reviews.jsonl"}, writes each type of
            items to a file of its own; `dict` stands for items that are mappings.
        follow: links to follow in addition to the requests: True all links in scope, False none, or
            rules: regular expressions of URLs, and CSS selectors prefixed with "css:".
        on_error: the reaction to an error of the user's code, "continue" or "stop".
        processors: functions of (item, page) through which each item passes before it is written; each returns
            the item, changed or not, or None to drop it.
        url_filter, link_extractor, page_sink: see `Hooks`.

    Raises:
        CrawlerError: see `Crawl` and `Crawl.run`.
    """
    return await _run(locals())  # the arguments by their names


async def _run(options: dict[str, Any], stopping: _SignalStop | None = None) -> dict[str, Any]:
    """Crawl to the end with the arguments of `run_async`. During the crawl, `stopping` stops it when a signal arrives."""
    fresh, cached = options.pop("fresh", False), options.pop("cached", False)
    for name, flag in (("fresh", fresh), ("cached", cached)):
        expect(name, flag, isinstance(flag, bool), "True or False")
    if fresh or cached:
        _start_anew(options, cached)
    async with Crawl(**options) as crawl:
        if stopping is not None:
            stopping.attach(crawl)
        telling = asyncio.create_task(_tell_waits(crawl))
        try:
            await crawl.run()
        finally:
            telling.cancel()
        if stopping is not None:
            stopping.restore()
        crawl.say_if_complete()
    if crawl.report["stopped_by"] == SIGNAL:
        log.warning("%s; run the script again to continue", _summary(crawl.report, crawl.directory))
    return crawl.report


async def _tell_waits(crawl: Crawl) -> None:
    """Log each long wait of the crawl once, because a script shows no progress."""
    until = 0.0  # end of the wait that was logged last
    while True:
        await asyncio.sleep(_WAIT_LOOK)
        status = crawl.status()
        wait = None if status.paused else next_wait(status)
        if wait is not None and wait.until > max(until, status.now + _WAIT_TOLD):
            until = wait.until
            ends = f"; a run ends if all waits are longer than crawl.patience ({crawl.config.crawl.patience:g} s)"
            log.warning(
                "the crawl %s%s",
                printable(wait.described(status.now)),
                "" if crawl.config.refresh.endless else ends,
            )


def _start_anew(options: dict[str, Any], cached: bool) -> None:
    """Check the arguments, and then rename an existing crawl. Change `options` for the new crawl."""
    # the new crawl does not use the settings of the old one
    if not isinstance(options.get("config"), Config):
        options["config"] = configure(options.get("config"))
    new = Crawl(**options)
    if not (options.get("seeds") or new.config.seeds):
        raise UsageError("nothing to crawl: give seeds")
    check_start(new.config, new.directory.path)
    items = item_paths(options.get("items", ""))
    for path in items:
        if new.directory.path.absolute() not in path.absolute().parents:
            check_items(path)
    if not cached:
        rename_to_numbered(new.directory)
        return
    from crawler.export.cached_runs import start_cached

    answers_from = tuple(start_cached(new.directory).answers_from)
    config = options["config"]
    options["config"] = replace(config, crawl=replace(config.crawl, answers_from=answers_from))
    for path in items:
        rename_file_to_numbered(path)


def _summary(report: Mapping[str, Any], directory: CrawlDirectory) -> str:
    fetched = report["run"].get("pages", {}).get("fetched", 0)
    return (
        f"stopped by a signal after {report['seconds']:.1f} s: {several(fetched, 'page')} fetched, "
        f"{several(report['frontier']['todo'], 'URL')} to do (report: {directory.report_file})"
    )


def _taking(
    described: Callable[Taken, Awaitable[Given]],
) -> Callable[[Callable[..., Given]], Callable[Taken, Given]]:
    """Give a function the signature of `described`. `help()`, editors and type checkers then show this signature."""

    def sign(function: Callable[..., Given]) -> Callable[Taken, Given]:
        function.__signature__ = inspect.signature(described)  # type: ignore[attr-defined]
        return function

    return sign


@_taking(run_async)
def run(*positional: Any, **options: Any) -> dict[str, Any]:
    """Crawl to the end and return the report. This is `run_async` for scripts without an event loop.

    Ctrl-C stops the crawl cleanly, and `run` returns the report so far; run the script again to
    continue. A second Ctrl-C raises KeyboardInterrupt.

    In this example, `url` is the URL of a site of two pages, `folder` is a Path, and `settings` is a mapping:

        >>> report = crawler.run(url, directory=folder / "run", config=settings)
        >>> report["stopped_by"], report["pages"]
        ('done', {'fetched': 2})

    Raises:
        UsageError: an event loop is already running here, as in a notebook; use `await crawler.run_async(...)`.
    """
    _check_no_loop("run")
    try:
        given = inspect.signature(run_async).bind(*positional, **options).arguments
    except TypeError as error:
        raise TypeError(
            f'run() {error}; settings are given as config={{"politeness": {{"delay": 2}}}}'
        ) from None
    stopping = _SignalStop()
    stopping.install()
    try:
        return asyncio.run(_run(given, stopping))
    finally:
        stopping.restore()


def fetch(url: str, config: Settings = None) -> Page:
    """Fetch one page as politely as a crawl would, but store nothing. This is useful for trying selectors.

    Redirects are followed; the last answer is returned, whatever its status is. A failed request is not
    repeated. If the host or its robots.txt does not answer, the error is raised at once.

        >>> crawler.fetch(url, settings).css("title").text
        'Home'

    Raises:
        CrawlerError: the page could not be fetched.
    """
    _check_no_loop("fetch")
    with tempfile.TemporaryDirectory(prefix="crawler-") as folder:
        return asyncio.run(_fetch(url, config, Path(folder)))


def _one_try(settings: Config) -> Config:
    """Return settings with which one process ends at its first failure: each failure waits longer than the patience."""
    wait = settings.crawl.patience + 60.0
    politeness = settings.politeness
    return replace(
        settings,
        seeds=(),
        crawl=replace(settings.crawl, processes=1),
        frontier=replace(settings.frontier, tries=1),
        robots=replace(settings.robots, unreachable_delays=(wait,)),
        politeness=replace(
            politeness,
            backoff_first=max(wait, politeness.backoff_first),
            backoff_max=max(wait, politeness.backoff_max),
        ),
    )


async def _fetch(url: str, config: Settings, folder: Path) -> Page:
    settings = _one_try(config if isinstance(config, Config) else configure(config))
    last = None
    async with Crawl(settings, directory=folder, seeds=url, follow=False) as crawl:
        try:
            async for page in crawl.pages():
                last = page
        except NoSeedError as error:
            if last is None or not last.status:
                raise NoSeedError(str(error).removesuffix(WHY_HINT)) from error
    if last is None:
        raise UsageError(f"{url}: nothing was fetched")
    return last


def _check_no_loop(name: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    hint = "`await crawler.run_async(...)`" if name == "run" else "`asyncio.to_thread(crawler.fetch, url)`"
    raise UsageError(f"crawler.{name}: an event loop is already running here; use {hint}")
