"""`crawler.Crawl`: a crawl as a Python object. The command line is a thin layer over this class.

    settings = {"crawl": {"scope": "host"}}
    async with Crawl(settings, directory="example", seeds=["https://example.org/"]) as crawl:
        async for page in crawl.pages():
            print(page.status, page.url, len(page.content))
    print(crawl.report["pages"])

Hooks are plain callables, or names of entry points in the groups
`crawler.filters`, `crawler.extractors` and `crawler.sinks`:

    url_filter(url) -> bool                    False drops the URL (rule "hook")
    link_extractor(page) -> iterable of URLs   replaces the built-in one for HTML pages
    page_sink(page)                            called once the page is durable; may be a coroutine function

`parse(page)` is a callback as in Scrapy (`delivery.py`). If the user's code raises an error for a page, the error
is counted in the report's `hooks` and logged with the URL, and the next run delivers the page again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from msgspec.structs import replace

from crawler.admin.control import ControlServer, in_turns
from crawler.admin.report import Report
from crawler.admin.status import Status
from crawler.admin.withdrawal import TakeDown, Withdrawn, conduct
from crawler.api.delivery import Delivery, Errors, ItemProcessor, OnError
from crawler.api.follow_rules import Follow, FollowRules
from crawler.api.hooks import (
    Hooks,
    LinkExtractorHook,
    PageSinkHook,
    UrlFilterHook,
    guarded_extractor,
    guarded_filter,
)
from crawler.api.item_files import ItemFiles, ItemsGiven, item_paths
from crawler.api.options import Settings, check_arguments, expect, layered
from crawler.api.page import Page
from crawler.api.page_queue import PageQueue
from crawler.api.request import PRIORITY, Callback, Request
from crawler.api.stored import stored_pages
from crawler.clock import SystemClock
from crawler.config import Config
from crawler.crawl import rendered_parts, safe_settings
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.identity import Contact
from crawler.crawl.lost_processes import begun_names
from crawler.crawl.relaxed_settings import SeedPlaces
from crawler.crawl.seeds import SeedFile, Seeds
from crawler.crawl.shipper import Shipper
from crawler.crawl.start_checks import check_start
from crawler.crawl.topology import check_processes, topology
from crawler.errors import NoSeedError, StoreError, UsageError, blame_of_system
from crawler.export.archives import opened
from crawler.forked_children import ForkedChild
from crawler.kernel_selection import tell_of_kernels
from crawler.pages.withdrawals import RuleFile
from crawler.process.answering.commands import CHANGING
from crawler.process.exchange.exchange import Member
from crawler.process.fetching.reader import Extractor
from crawler.process.lifecycle.limits import STOP_GRACE, SUPERVISOR_GONE
from crawler.process.lifecycle.shutdown import within
from crawler.process.live_services import LiveServices
from crawler.process.opening.stages import Stages
from crawler.process.process import Process
from crawler.process.services.final_report import final_report
from crawler.records import Link
from crawler.storage.object_store import local_folder
from crawler.upgrade.ready import ready
from crawler.urls.canonical import canonical, hostname

log = logging.getLogger("crawler")

COMPLETE = "complete; known pages are not fetched again (fresh=True starts over; `crawler refresh` fetches them again)"


def _settled(given: Settings, directory: CrawlDirectory) -> tuple[Config, SeedPlaces]:
    """Return the configuration of a crawl, and the places of its seeds.

    A `Config` is used without changes. Settings in any other form replace only the same keys of the settings
    that the directory keeps.
    """
    if isinstance(given, Config):
        return given, SeedPlaces(given.crawl.scope)
    ready(directory)
    layers = layered(given, directory.settings.layers())
    config = layers.config()
    return config, directory.settings.seed_places(config, directory.settings.given(layers))


def _of_run(config: Config, *, asks: bool, follows_all: bool) -> Config:
    """Return the configuration of a run; the directory does not keep the settings that this function changes.

    Args:
        asks: requests of the user's code are expected. Cookies are kept, because the code may log in with a form.
        follows_all: all links are followed. Otherwise, only those are for which a callback or a rule asks, so
            sitemaps and feeds are not read.
    """
    if asks and config.fetch.cookies == "auto":
        config = replace(config, fetch=replace(config.fetch, cookies=True))
    if not follows_all:
        config = replace(config, sitemaps=replace(config.sitemaps, robots=False, guess=False, feeds=False))
    return config


def _check_seed(seed: object) -> None:
    expect("seeds", seed, isinstance(seed, str | Request), "a URL or a crawler.Request")


class Crawl:
    """One crawl directory, crawled by this process.

        >>> async def titles():
        ...     async with crawler.Crawl(settings, directory=folder / "crawl", seeds=url) as crawl:
        ...         return [page.css("title").text async for page in crawl.pages()]
        >>> asyncio.run(titles())
        ['Home', 'About']
        >>> [page.status for page in crawler.Crawl(directory=folder / "crawl").stored()]
        [200, 200]

    `async with` opens the directory (DirectoryError if it is locked or damaged); when the block ends, the crawl is
    stopped and the directory is closed. The arguments mean the same as for `run_async`. If `config` is a mapping, it
    changes only the settings that it contains, as flags on the command line do; the directory keeps the rest. A
    `Config` replaces all settings.
    """

    # The command line uses three more arguments. If `member` is given, this process is one of several. If `saved` is
    # given, the directory keeps these settings instead of `config`. `parser` is a child that was forked before the
    # event loop started (`reader.fork_parser`); without it, a parser program is started for the first heavy page.

    def __init__(
        self,
        config: Settings = None,
        *,
        seeds: str | Request | Iterable[str | Request] | SeedFile | Seeds = (),
        parse: Callback | None = None,
        member: Member | None = None,
        saved: Config | None = None,
        parser: ForkedChild | None = None,
        directory: str | Path = "crawl",
        items: ItemsGiven = "",
        follow: Follow = True,
        on_error: OnError = "continue",
        processors: Sequence[ItemProcessor] = (),
        url_filter: UrlFilterHook | None = None,
        link_extractor: LinkExtractorHook | None = None,
        page_sink: PageSinkHook | None = None,
    ) -> None:
        hooks = Hooks(url_filter, link_extractor, page_sink)
        if isinstance(processors, Iterable):
            processors = tuple(processors)
        check_arguments(directory, items, follow, on_error, processors, hooks)
        expect("parse", parse, parse is None or callable(parse), "a function")
        self.directory = CrawlDirectory(local_folder(directory))
        self.config, places = _settled(config, self.directory)
        if isinstance(seeds, str | Request):
            seeds = [seeds]
        is_many = isinstance(seeds, Iterable | SeedFile | Seeds)
        expect("seeds", seeds, is_many, "URLs or requests")
        some = seeds if isinstance(seeds, list | tuple) else ()  # other seeds are checked when they are read
        for seed in some:
            _check_seed(seed)
        self._asks = parse is not None or any(isinstance(seed, Request) for seed in some)
        self._saved_config = saved or self.config
        self.config = _of_run(self.config, asks=self._asks, follows_all=follow is True)
        self.final: Report | None = None  # the report of the run; None until the run has ended
        self.hooks = Hooks.of(self.config, hooks)
        self._member = member
        self._parser = parser
        self._parse = parse
        item_paths(items)  # raises an error if `items` is invalid
        self._items_given = items
        self._items = ItemFiles("")  # opened by `__aenter__`
        self._processors = processors
        self._rules = FollowRules() if follow is True or follow is False else FollowRules.of(follow)
        self._follow_all = follow is True
        self.errors = Errors(on_error, self._fail)
        if isinstance(seeds, SeedFile | Seeds):
            self._seeds = seeds
        else:
            places.check(seed if isinstance(seed, str) else seed.url for seed in some)
            self._seeds = Seeds(self.config, self._texts(seeds), places)
        self._delivery: Delivery = None  # type: ignore[assignment]  # set by `__aenter__`
        self._clock = SystemClock()
        self._peers: tuple[str, ...] = ()
        self._running: asyncio.Task[dict[str, Any]] | None = None
        self._opened = False
        self.process: Process = None  # type: ignore[assignment]  # set by `__aenter__`
        self.live: LiveServices = None  # type: ignore[assignment]  # set by `__aenter__`

    # -- opening and closing -------------------------------------------------

    async def __aenter__(self) -> Self:
        check_start(self.config, self.directory.path)
        self.directory.create()
        ready(self.directory)
        name = "p0" if self._member is None else self._member.name
        place = topology(self.config, self.directory.path, name)
        self._peers = place.peers
        if not self._supervised:  # the supervisor of several processes has already checked their settings
            check_processes(self.config, self.directory)
        if self._member is None and place.peers:
            raise UsageError("crawler.Crawl is one process; `crawler crawl --processes N` starts several")
        self.stages = Stages(
            self.config,
            self.directory.process(name),
            self.directory.seed(),
            clock=self._clock,
            name=name,
            topology=place,
            url_filter=guarded_filter(self.hooks.url_filter, self.errors),
            priority=self._rank if self._asks else None,
        )
        self._shipper = Shipper(self.directory.path, self.config.pages, self._clock.now)
        try:
            await self._open()
        except BaseException as error:
            try:
                self._items.close()
            finally:
                if self.live is not None:
                    await within(self.config.crawl.shutdown_step_max, "page server", self.live.close())
                if self.process is not None:
                    self.process.close()
                self.stages.close(clean=not isinstance(error, StoreError))
            raise
        self._opened = True
        if not self._supervised:  # with several processes, the supervisor ships the segments of all processes
            self._shipper.start()
        return self

    async def _open(self) -> None:
        """Create the parts that need the stages; then save the configuration, which is now known to be valid."""
        self._items = ItemFiles(self._items_given)
        self.stages.reserve_ballast()
        if self._asks:  # the requests that are stored may contain secrets
            (self.stages.directory / "store").chmod(0o700)
        self.process = Process(
            self.stages,
            pages_file=self.directory.pages_file,
            seeds=self._seeds,
            extractor=self._extractor(),
            member=self._member,
            parser=self._parser,
        )
        self._delivery = Delivery(
            self.process,
            self.errors,
            sink=self.hooks.page_sink,
            parse=self._parse,
            items=self._items,
            processors=self._processors,
        )
        self._switch_delivery()
        if not self._supervised:
            self.directory.settings.save(self._saved_config)
        if isinstance(self._seeds, Seeds):
            self._seeds.places.restrict(self.directory.settings.places())
            self._seeds.note = self.directory.settings.note_places
        await self.process.exchange.start()
        self.live = LiveServices(self.process)
        await self.live.start()
        if not self._supervised:
            tell_of_kernels(log.warning)  # here, where the status of the crawl keeps warnings
        self._control = ControlServer(self.stages.directory, self.command)
        await self._control.start()

    async def __aexit__(self, *_: object) -> None:
        limit = self.config.crawl.shutdown_step_max
        await within(limit, "control socket", self._control.close())
        await within(limit, "page server", self.live.close())
        await within(limit, "peers", self.process.exchange.close())
        if self._running is not None and not self._running.done():  # the loop over `pages` ended early
            self.stop("closed")
            await asyncio.wait({self._running})
        try:
            self._items.close()
        finally:
            self._close_directory()
            if not self._supervised:
                await self._shipper.end()

    def _close_directory(self) -> None:
        """Release the directory, unless a write that has not ended still uses it."""
        if self.process.commits.writing:
            return  # a thread still writes to the store; the next run continues from the last commit
        self._opened = False
        self.process.commits.commit_rest()  # this call is needed if the crawl was opened but never run
        self.process.close()
        self.stages.close(
            clean=self.process.run_end.failure is None,
            orphaned=self.process.run_end.reason == SUPERVISOR_GONE,
        )

    def _switch_delivery(self) -> None:
        """Turn on the delivery of pages if the user's code wants pages."""
        fetch_tasks, wanted = self.process.fetch_tasks, self._delivery.wanted
        fetch_tasks.sink = self._delivery.deliver if wanted else None
        fetch_tasks.promise = self._delivery.promise if wanted else None
        fetch_tasks.request_options_of = self._delivery.request_options_of
        fetch_tasks.flags_of = self._delivery.flags_of if self._asks else None
        self.process.before_end = self._delivery.deliver_unreached if wanted else None

    def _rank(self, link: Link) -> int:
        """Return the rank of a link in its host's queue."""
        return PRIORITY if self._delivery is None else self._delivery.rank_of(link)

    def _texts(self, seeds: Iterable[str | Request]) -> Iterator[str]:
        """Yield the seeds that are URLs, and queue those that are requests."""
        contact = Contact(self.config)
        for seed in seeds:
            _check_seed(seed)
            if isinstance(seed, str) or (url := canonical(seed.url)) is None:
                yield seed if isinstance(seed, str) else seed.url
            else:
                contact.check(hostname(url))
                self._delivery.begin(seed)
                self._switch_delivery()

    def _extractor(self) -> Extractor | None:
        """Return the function that finds the links of a page; None means the built-in extractor."""
        hook = self.hooks.link_extractor
        if hook is None and self._follow_all:
            return None
        return guarded_extractor(hook or self._rules.links, self.errors)

    def _fail(self, error: BaseException) -> None:
        self.process.run_end.fail(error, of_user=True)

    # -- running ---------------------------------------------------------------

    async def run(self) -> dict[str, Any]:
        """Crawl to the end and return the report (also in DIR/report.json).

        >>> async def all_pages():
        ...     async with crawler.Crawl(settings, directory=folder / "run", seeds=url) as crawl:
        ...         return await crawl.run()
        >>> asyncio.run(all_pages())["pages"]
        {'fetched': 2}

        Raises:
            StoreError: the disk failed; start again when it is repaired.
            NoSeedError: the crawl ended without fetching a single page.
        """
        try:
            await self._delivery.deliver_waiting()
            await self.process.run()
        finally:
            self._make_report()
        alone = not self._peers  # with several processes, another process may have fetched pages
        final = self.final
        if alone and final and not self.process.run_end.on_purpose() and not final.any_success:
            reasons = final.why_nothing(self._seeds.refused)
            raise NoSeedError(f"no page could be fetched: {reasons}")
        return self.report

    def say_if_complete(self) -> None:
        """Log that a run fetched nothing because the crawl was already complete.

        >>> async def again():
        ...     async with crawler.Crawl(settings, directory=folder / "again", seeds=url) as crawl:
        ...         await crawl.run()
        ...         crawl.say_if_complete()  # logs nothing: pages were fetched
        >>> asyncio.run(again())
        """
        if self.final is not None and self.final.nothing_new:
            log.warning("%s: %s", self.directory.path, COMPLETE)

    @property
    def report(self) -> dict[str, Any]:
        """The report as JSON values; it is empty until the run has ended.

        >>> crawl = crawler.Crawl(settings, directory=folder / "report", seeds=url)
        >>> async def ended():
        ...     async with crawl:
        ...         await crawl.run()
        ...     return crawl.report["stopped_by"], crawl.report["hooks"]
        >>> asyncio.run(ended())
        ('done', {'errors': {}, 'items': 0})
        """
        if self.final is None:
            return {}
        hooks = {"errors": dict(self.errors.counts), "items": self._items.written}
        return self.final.plain() | {"hooks": hooks}

    def _make_report(self) -> None:
        """Make and save the report. If the run has failed, ignore errors of the environment: the first counts."""
        try:
            self.final = final_report(self.process, self.directory.crawl_id())
            if not self._supervised:
                self.directory.save_report(self.report)
        except Exception as error:
            if self.process.run_end.failure is None or blame_of_system(error) is None:
                raise

    async def pages(self) -> AsyncIterator[Page]:
        """Crawl, yielding each page once it is durable; the crawl waits for a slow consumer.

        Every finished fetch is yielded as a page, in the order in which the fetches finish. An answer may
        have any status; `page.ok` is true for 2xx. A redirect has its own status. A request without an answer
        has status 0, and `page.outcome` is the reason. A URL that is retried is yielded again. Pages stored
        by an earlier run are not fetched again; `stored` returns them.

        >>> async def statuses():
        ...     async with crawler.Crawl(settings, directory=folder / "pages", seeds=url) as crawl:
        ...         return [page.status async for page in crawl.pages()]
        >>> asyncio.run(statuses())
        [200, 200]

        A page counts as processed when the loop requests the next one. If the loop is left by an
        exception or `break`, its current page is yielded again in the next run.
        """
        queue = PageQueue()
        self._delivery.consume = queue.offer
        self._switch_delivery()
        running = self._running = asyncio.create_task(self.run())
        try:
            while (offer := await queue.next(running)) is not None:
                try:
                    yield offer.page
                except BaseException:
                    offer.answer(False)
                    raise
                offer.answer(True)
        finally:
            self.stop("closed")
            while not running.done():  # pages that are still offered wait for the next run
                if (offer := await queue.next(running)) is not None:
                    offer.answer(False)
            self._delivery.consume = None
            await running
            self.say_if_complete()

    def stored(self, *, newest: bool = True, allow: str = "") -> Iterator[Page]:
        """Yield the stored pages: the newest copies, or all copies if `newest` is False.

        `allow` names a use, such as "train-ai": only copies that may be used for it are
        yielded (`page.consent`, `consent.unknown`). For an open crawl these are the pages committed so far.

        >>> _ = crawler.run(url, directory=folder / "stored", config=settings)
        >>> sorted(page.title for page in crawler.Crawl(directory=folder / "stored").stored())
        ['About', 'Home']

        Raises:
            DirectoryError: there is no crawl.
            UsageError: there is no such use.
        """
        if self._opened:
            stages, me = self.stages, self.stages.context.name
            partition = stages.context.topology.partition
            yield from stored_pages(
                [stages.pages],
                stages.config,
                lambda fingerprint: 0 if partition.owner(fingerprint) == me else -1,
                lambda url: bool(stages.frontier.views.withholding_line(url)),
                newest=newest,
                allow=allow,
            )
            return
        self.directory.require()
        ready(self.directory)
        if not begun_names(self.directory):
            return
        with opened(self.directory.path) as crawled:
            yield from stored_pages(
                crawled.archives,
                crawled.config,
                crawled.owner,
                crawled.disallowed(),
                newest=newest,
                allow=allow,
            )

    def stop(self, reason: str = "stopped", *, grace: float = STOP_GRACE) -> None:
        """End the run soon: start no new fetches, and commit the fetches that finish within `grace` seconds.

        >>> async def first():
        ...     async with crawler.Crawl(settings, directory=folder / "stop", seeds=url) as crawl:
        ...         async for page in crawl.pages():
        ...             crawl.stop("had enough")
        ...     return crawl.report["stopped_by"]
        >>> asyncio.run(first())
        'had enough'
        """
        self.process.run_end.stop(reason, grace=grace)

    @property
    def _supervised(self) -> bool:
        return self._member is not None and self._member.supervised

    def signal(self, urls: Iterable[str], source: str = "signal") -> dict[str, Any]:
        """Report that pages have changed; return how many of the URLs had each result.

        The results are noted, kept, queued, sent, not_refreshed, retired, out_of_scope and refused. `why` counts
        the refused URLs by reason, and `urls` states what happened to each of the first hundred URLs.

        >>> async def tell():
        ...     async with crawler.Crawl(settings, directory=folder / "signal", seeds=url) as crawl:
        ...         await crawl.run()
        ...         return crawl.signal([url])["kept"]
        >>> asyncio.run(tell())
        1
        """
        said: dict[str, Any] = self.process.commands.run(
            {"command": "signal", "urls": list(urls), "source": source}
        )
        self.process.run_end.wake()
        return said

    async def withdraw(
        self,
        url: str = "",
        *,
        host: str = "",
        prefix: str = "",
        before: str = "",
        reason: str = "",
        undo: bool = False,
        dry_run: bool = False,
        erase: bool = False,
    ) -> dict[str, Any]:
        """Take stored pages down, as `crawler withdraw` does; return the result, with the number of pages.

        Before the crawl is opened, this works like the command: the crawl may be running or at rest, with any
        number of processes.

        >>> async def take_down():
        ...     async with crawler.Crawl(settings, directory=folder / "withdraw", seeds=url) as crawl:
        ...         await crawl.run()
        ...         return (await crawl.withdraw(url, reason="asked for"))["pages"]
        >>> asyncio.run(take_down())
        1

        Args:
            url, host, prefix: what is withdrawn, at most one of them; these URLs are not fetched again.
            before: only copies fetched before this date or time (ISO 8601, UTC).
            reason: shown to clients.
            undo: show the pages again.
            dry_run: only count the pages.
            erase: overwrite their bytes in the archive, which cannot be undone.

        Raises:
            UsageError: an argument is invalid, or there is nothing to undo.
        """
        order = TakeDown(url, host, prefix, before, reason, undo, dry_run, erase)
        if not self._opened:
            return (await asyncio.to_thread(self._withdraw_in_all, order)).plain()
        rules = RuleFile(self.directory.path, self.process.context.config.pages.withdrawals_max)
        steps = conduct(order, rules, self._clock.now())
        try:
            request = next(steps)
            while True:
                request = steps.send([await self.command(request)])
        except StopIteration as end:
            result: Withdrawn = end.value
            return result.plain()

    def _withdraw_in_all(self, order: TakeDown) -> Withdrawn:
        """Carry out an order in all processes of the crawl, as the command line does."""
        from crawler.cli.withdraw import carry_out

        order.rule(0.0)  # refuse an order with an invalid target before anything is read
        self.directory.require()
        ready(self.directory, "withdraw")
        return carry_out(self.directory, [order])[-1]

    def kill(self) -> None:
        """Do nothing: this process has no children to kill."""

    def status(self) -> Status:
        """Return the current state; its method `plain()` converts it to JSON values.

        >>> async def todo():
        ...     async with crawler.Crawl(settings, directory=folder / "status", seeds=url) as crawl:
        ...         await crawl.run()
        ...         return crawl.status().frontier.todo
        >>> asyncio.run(todo())
        0
        """
        return self.process.commands.status()

    async def command(self, request: Mapping[str, Any]) -> Any:
        """Answer a command of the command line (`status`, `why`, ...): {"command": name, argument: value, ...}."""
        if request.get("command") == "stop":
            self.stop("stopped")
            return {}
        settings, request = rendered_parts.separated(request, self.config.crawl.scope)
        if settings:
            await self.command({"command": "set", "settings": settings})
        # a client that is still connected may send a command while the crawl closes
        answer = await in_turns(self.process.commands.steps(request), is_open=lambda: self._opened)
        if request.get("command") == "set" and not self._supervised:
            safe_settings.record(self.directory, request["settings"])
        if request.get("command") in CHANGING and not await self.process.commits.kept():
            raise StoreError("the change is not on disk yet, because the disk is slow; try again")
        if request.get("command") == "seed":
            answer["waits_for"] = await self.process.exchange.undelivered(answer["waits_for"])
        return answer
