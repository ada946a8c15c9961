"""A whole crawl in one call: `run` in scripts, `await run_async` in notebooks and coroutines."""

import asyncio
import inspect
import logging
import os
import signal
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, Unpack

from msgspec.structs import replace

from crawler.api.crawl import Crawl
from crawler.api.options import CrawlOptions, Settings, completed, configure, takes_options
from crawler.api.page import Page
from crawler.api.request import Callback, Request
from crawler.config import Config
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.restart import earlier, rename_file_to_numbered, rename_to_numbered
from crawler.errors import UsageError
from crawler.storage.object_store import local_folder

log = logging.getLogger("crawler")

SIGNAL = "signal"  # the reason of a run that a signal stopped, as on the command line
Taken = ParamSpec("Taken")
Given = TypeVar("Given")


@takes_options
async def run_async(
    seeds: str | Request | Iterable[str | Request] = (),
    parse: Callback | None = None,
    *,
    config: Settings = None,
    fresh: bool = False,
    cached: bool = False,
    **options: Unpack[CrawlOptions],
) -> dict[str, Any]:
    """Crawl to the end and return the report.

        >>> crawling = crawler.run_async(url, directory=folder / "async", config=settings)
        >>> asyncio.run(crawling)["pages"]  # in a notebook: await crawling
        {'fetched': 2}

    Args:
        seeds: where the crawl starts: a URL or request, or several.
        parse: receives each page with status 2xx; yields items and `Request`s.
        config: settings that override the defaults, nested as in the configuration file.
        fresh: start a new crawl; an existing crawl in the directory is renamed to DIR.1, DIR.2, ...
        cached: as `fresh`, but use the answers that these earlier crawls stored instead of sending requests, and
            rename the items file in the same way. This is useful for trying changes of the callbacks.
        **options

    Raises:
        CrawlerError: see `Crawl` and `Crawl.run`.
    """
    own = {"seeds": seeds, "parse": parse, "config": config, "fresh": fresh, "cached": cached}
    return await _run(own | completed("run_async", options))


async def _run(options: dict[str, Any], *, script: bool = False) -> dict[str, Any]:
    """Crawl to the end with the arguments of `run_async`; in a script, the first Ctrl-C stops the crawl cleanly."""
    fresh, cached = options.pop("fresh", False), options.pop("cached", False)
    directory = CrawlDirectory(local_folder(options.get("directory", "crawl")))
    if fresh or cached:
        rename_to_numbered(directory)
    if cached:
        config = options.get("config")
        config = config if isinstance(config, Config) else configure(config)
        answers_from = tuple(earlier(directory))
        options["config"] = replace(config, crawl=replace(config.crawl, answers_from=answers_from))
        if items := options.get("items"):
            rename_file_to_numbered(Path(items))
    async with Crawl(**options) as crawl:
        with _stopped_by_signals(crawl) if script else nullcontext():
            await crawl.run()
        crawl.say_if_complete()
    if crawl.report["stopped_by"] == SIGNAL:
        log.warning("%s; run the script again to continue", _summary(crawl.report, directory))
    return crawl.report


def _summary(report: Mapping[str, Any], directory: CrawlDirectory) -> str:
    fetched = report["run"].get("pages", {}).get("fetched", 0)
    return (
        f"stopped by a signal after {report['seconds']:.1f} s: {fetched:,} pages fetched, "
        f"{report['frontier']['todo']:,} URLs to do (report: {directory.report_file})"
    )


@contextmanager
def _stopped_by_signals(crawl: Crawl) -> Iterator[None]:
    """Stop the crawl cleanly at Ctrl-C or SIGTERM; a second signal has its usual effect."""
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {}

    def stop(*_: object) -> None:
        restore()
        # not `print`: the signal may have interrupted one
        os.write(2, b"stopping; press Ctrl-C again to stop at once\n")
        loop.call_soon_threadsafe(crawl.stop, SIGNAL)

    def restore() -> None:
        while before:
            signal.signal(*before.popitem())

    if threading.current_thread() is threading.main_thread():
        before.update({number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)})
    try:
        yield
    finally:
        restore()


def _taking(
    described: Callable[Taken, Awaitable[Given]],
) -> Callable[[Callable[..., Given]], Callable[Taken, Given]]:
    """Give a function the signature of `described`, for readers, editors and type checkers."""

    def sign(function: Callable[..., Given]) -> Callable[Taken, Given]:
        function.__signature__ = inspect.signature(described)  # type: ignore[attr-defined]
        return function

    return sign


@_taking(run_async)
def run(*positional: Any, **options: Any) -> dict[str, Any]:
    """Crawl to the end and return the report: `run_async` for scripts.

    Ctrl-C stops the crawl cleanly, and `run` returns the report so far; run the script again to
    continue. A second Ctrl-C raises KeyboardInterrupt.

    In this example, `url` is a site of two pages, `folder` a Path and `settings` a mapping:

        >>> report = crawler.run(url, directory=folder / "run", config=settings)
        >>> report["stopped_by"], report["pages"]
        ('done', {'fetched': 2})

    Raises:
        UsageError: an event loop is already running here, as in a notebook; use `await crawler.run_async(...)`.
    """
    _check_no_loop("run")
    given = inspect.signature(run_async).bind(*positional, **options).arguments
    return asyncio.run(_run(given, script=True))


def fetch(url: str, config: Settings = None) -> Page:
    """Fetch one page as politely as a crawl would, and store nothing; useful for trying selectors.

    Redirects are followed; the last answer is returned.

        >>> crawler.fetch(url, settings).css("title").text
        'Home'

    Raises:
        CrawlerError: the page could not be fetched.
    """
    _check_no_loop("fetch")
    with tempfile.TemporaryDirectory(prefix="crawler-") as folder:
        return asyncio.run(_fetch(url, config, Path(folder)))


async def _fetch(url: str, config: Settings, folder: Path) -> Page:
    settings = config if isinstance(config, Config) else configure(config)
    settings = replace(settings, seeds=(), crawl=replace(settings.crawl, processes=1))
    last = None
    async with Crawl(settings, directory=folder, seeds=url, follow=False) as crawl:
        async for page in crawl.pages():
            last = page
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
