"""`crawler.Crawl`: a crawl as a Python object. The command line is a thin layer over it.

    config = crawler.configure({"crawl": {"scope": "host"}})
    async with Crawl(config, directory="example", seeds=["https://example.org/"]) as crawl:
        async for page in crawl.pages():
            print(page.status, page.url, len(page.content))
    print(crawl.report["pages"])

Hooks are plain callables, or names of entry points in the groups
`crawler.filters`, `crawler.extractors` and `crawler.sinks`:

    url_filter(url) -> bool                    False drops the URL (rule "hook")
    link_extractor(page) -> iterable of URLs   in place of the built-in one, for HTML pages
    page_sink(page)                            called once the page is durable; may be a coroutine function
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import msgspec

from crawler.admin.control import ControlServer
from crawler.admin.report import Report, cpu_seconds, peak_rss_bytes
from crawler.admin.status import Status
from crawler.clock import SystemClock
from crawler.config import Config, convert
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.identity import check_identity
from crawler.crawl.seeds import SeedFile, Seeds
from crawler.crawl.topology import check_processes, topology
from crawler.errors import ConfigError, NoSeedError, StoreError, UsageError
from crawler.process.ending import within
from crawler.process.errands import Sink
from crawler.process.exchange import Member
from crawler.process.forked import Forked
from crawler.process.limits import STOP_GRACE
from crawler.process.live import Live
from crawler.process.process import Process
from crawler.process.reader import Extractor
from crawler.process.stages import Stages
from crawler.records import Errand, Extracted, Fetch

log = logging.getLogger("crawler")

HOSTS_IN_REPORT = 100
PAGES_WAITING_MAX = 64  # pages kept for a slow consumer of `pages()`; then the crawl waits for it


class Page(msgspec.Struct, frozen=True):
    """A page that was fetched and is durable: request URL, answer, decoded content."""

    url: str
    status: int
    outcome: str
    depth: int
    fetched_at: float
    content_type: str
    headers: tuple[tuple[bytes, bytes], ...]
    content: bytes
    links: tuple[str, ...] = ()
    title: str = ""


UrlFilterHook = Callable[[str], bool]
LinkExtractorHook = Callable[[Page], Iterable[str]]
PageSinkHook = Callable[[Page], Awaitable[None] | None]


def configure(settings: Mapping[str, Any] | None = None) -> Config:
    """The configuration of nested settings over the defaults; ConfigError names a wrong key."""
    return convert(settings or {})


def entry_point(group: str, name: str) -> Any:
    """The object that an installed package offers as `name` in `group`."""
    from importlib import metadata  # imported here, as it is slow and seldom needed

    found = metadata.entry_points(group=group, name=name)
    if not found:
        raise ConfigError(f"configuration: hooks: no entry point {name!r} in group {group!r} is installed")
    return next(iter(found)).load()


def _page(errand: Errand, fetch: Fetch, extracted: Extracted | None) -> Page:
    return Page(
        url=errand.url,
        status=fetch.status,
        outcome=str(fetch.outcome),
        depth=errand.depth,
        fetched_at=fetch.began,
        content_type=fetch.content_type,
        headers=fetch.headers,
        content=fetch.content,
        links=tuple(extracted.hrefs) if extracted else (),
        title=extracted.title if extracted else "",
    )


class Hooks(msgspec.Struct, frozen=True):
    """The callables that a user hangs into the crawl; None where there is none."""

    url_filter: UrlFilterHook | None = None
    link_extractor: LinkExtractorHook | None = None
    page_sink: PageSinkHook | None = None

    @classmethod
    def of(cls, config: Config, given: "Hooks") -> "Hooks":
        """`given`, completed by the entry points that the configuration names."""
        return cls(
            given.url_filter or _named("crawler.filters", config.hooks.url_filter),
            given.link_extractor or _named("crawler.extractors", config.hooks.link_extractor),
            given.page_sink or _named("crawler.sinks", config.hooks.page_sink),
        )


def _named(group: str, name: str) -> Any:
    return entry_point(group, name) if name else None


class Crawl:
    """One crawl directory, crawled by this process; with `member`, as one of several.

    `parser` is a child forked before the loop began (`reader.fork_parser`);
    without it one is started as a program when a heavy page comes.
    Entering opens the directory (DirectoryError if it is locked or damaged);
    leaving stops the crawl and closes it. `seeds` are URLs, or the file of them
    that a supervisor has written.
    """

    def __init__(
        self,
        config: Config | Mapping[str, Any] | None = None,
        *,
        directory: str | Path = "crawl",
        seeds: Iterable[str] | SeedFile = (),
        url_filter: UrlFilterHook | None = None,
        link_extractor: LinkExtractorHook | None = None,
        page_sink: PageSinkHook | None = None,
        member: Member | None = None,
        parser: Forked | None = None,
    ) -> None:
        self.config = config if isinstance(config, Config) else configure(config)
        self.directory = CrawlDirectory(Path(directory))
        self.final: Report | None = None  # once the run has ended
        self.hooks = Hooks.of(self.config, Hooks(url_filter, link_extractor, page_sink))
        self._member = member
        self._parser = parser
        self._seeds = seeds if isinstance(seeds, SeedFile) else Seeds(self.config, seeds)
        self._running: asyncio.Task[Any] | None = None

    # -- opening and closing -------------------------------------------------

    async def __aenter__(self) -> Self:
        check_identity(self.config)
        self.directory.create()
        name = "p0" if self._member is None else self._member.name
        place = topology(self.config, self.directory.path, name)
        if self._member is None and place.peers:
            raise UsageError("crawler.Crawl is one process; `crawler crawl --processes N` starts several")
        if not self._supervised:  # a supervisor has seen to it
            check_processes(self.config, self.directory)
        self.stages = Stages(
            self.config,
            self.directory.process(name),
            self.directory.seed(),
            clock=SystemClock(),
            name=name,
            topology=place,
            url_filter=self.hooks.url_filter,
        )
        try:
            await self._open()
        except BaseException as error:
            self.stages.close(clean=not isinstance(error, StoreError))
            raise
        return self

    async def _open(self) -> None:
        """Make what needs the stages; keep the configuration once it has turned out to be good."""
        self.stages.reserve_ballast()
        sink = self.hooks.page_sink
        self.process = Process(
            self.stages,
            pages_file=self.directory.pages_file,
            seeds=self._seeds,
            sink=None if sink is None else lambda *fetched: _call(sink, _page(*fetched)),
            extractor=self._extractor(),
            member=self._member,
            parser=self._parser,
        )
        if not self._supervised:
            self.directory.save_config(self.config)
        await self.process.exchange.start()
        self.live = Live(self.process)
        await self.live.start()
        self._control = ControlServer(self.stages.directory, self.command)
        await self._control.start()

    async def __aexit__(self, *_: object) -> None:
        limit = self.config.crawl.shutdown_step_max
        await within(limit, "control socket", self._control.close())
        await within(limit, "peers", self.process.exchange.close())
        if self._running is not None and not self._running.done():  # an iteration of `pages` was left early
            self.stop("closed")
            await asyncio.wait({self._running})
        if self.process.commits.writing:
            return  # its thread still uses the store; the next run finds what was committed
        self.process.close()
        self.stages.close(clean=self.process.failure is None)

    def _extractor(self) -> Extractor | None:
        hook = self.hooks.link_extractor
        if hook is None:
            return None
        return lambda errand, fetch: hook(_page(errand, fetch, None))

    # -- running ---------------------------------------------------------------

    async def run(self) -> dict[str, Any]:
        """Crawl to the end and return the report (also in DIR/report.json).

        Raises:
            StoreError: the disk failed; start again when it is mended.
            NoSeedError: the crawl ended without one page fetched.
        """
        try:
            await self.process.run()
        finally:
            self.final = self._build_report()
            if not self._supervised:
                self._save_report()
        alone = not self.stages.topology.peers  # others may have fetched what this one could not
        if alone and not self.process.stopped_on_purpose() and not self.final.any_success:
            reasons = self.final.why_nothing(self._seeds.refused)
            raise NoSeedError(f"not one page could be fetched: {reasons}")
        return self.report

    @property
    def report(self) -> dict[str, Any]:
        """The JSON report; empty before the run has ended."""
        return {} if self.final is None else self.final.plain()

    def _save_report(self) -> None:
        """Raises StoreError, unless the run failed already: then that is what to tell."""
        try:
            self.directory.save_report(self.report)
        except StoreError:
            if self.process.failure is None:
                raise

    async def pages(self) -> AsyncIterator[Page]:
        """Crawl, yielding each page once it is durable; the crawl waits for a slow consumer."""
        queue: asyncio.Queue[Page] = asyncio.Queue(PAGES_WAITING_MAX)
        running = self._running = asyncio.create_task(self.run())
        errands, own_sink = self.process.errands, self.process.errands.sink
        errands.sink = _both(own_sink, queue)
        try:
            while (page := await _next(queue, running)) is not None:
                yield page
        finally:
            errands.sink = own_sink
            self.stop("closed")
            while not running.done():  # free those who wait to put a page
                await _next(queue, running)
            await running

    def stop(self, reason: str = "stopped", *, grace: float = STOP_GRACE) -> None:
        """End the run soon: nothing new is taken, what ends within `grace` seconds is committed."""
        self.process.stop(reason, grace=grace)

    @property
    def _supervised(self) -> bool:
        return self._member is not None and self._member.supervised

    def signal(self, urls: Iterable[str], source: str = "signal") -> dict[str, int]:
        """Say that pages have changed: how many were noted, are new links, are not refreshed, were refused."""
        said: dict[str, int] = self.process.commands.signal(list(urls), source)
        self.process.wake()
        return said

    def kill(self) -> None:
        """Nothing runs outside this process that would have to be ended."""

    def status(self) -> Status:
        """What is going on; `plain()` makes JSON of it."""
        return msgspec.structs.replace(self.process.commands.status(), **self.live.sections())

    async def command(self, request: Mapping[str, Any]) -> Any:
        """Answer what `crawler status`, `why` and the others ask: {"command": name, argument: value, ...}."""
        if request.get("command") == "stop":
            self.stop("stopped")
            return {}
        return self.live.run(request)

    def _build_report(self) -> Report:
        stages, process = self.stages, self.process
        now = stages.clock.now()
        return Report(
            crawl_id=self.directory.crawl_id(),
            started=process.started,
            ended=now,
            stopped_by=process.stopped_by,
            counters=dict(stages.point.counters),
            run_counters=dict(stages.point.counters - stages.counters_before),
            frontier=stages.frontier_counts(),
            hosts=list(stages.frontier.hosts(now, HOSTS_IN_REPORT)),
            due=stages.due_counts(),
            splitter=stages.splitter_counts(),
            why_slow=stages.frontier.why_slow(),
            cpu_seconds=cpu_seconds(),
            peak_rss_bytes=peak_rss_bytes(),
            refreshing={} if stages.refresh is None else stages.refresh.view(now),
            problems=stages.problems() if process.failure is None else ["not checked: the run failed"],
        )


def _both(sink: Sink | None, queue: "asyncio.Queue[Page]") -> Sink:
    """A sink that gives each page to `sink`, if there is one, and to the queue."""

    async def put(errand: Errand, fetch: Fetch, extracted: Extracted | None) -> None:
        if sink is not None:
            await sink(errand, fetch, extracted)
        await queue.put(_page(errand, fetch, extracted))

    return put


async def _call(sink: PageSinkHook, page: Page) -> None:
    answer = sink(page)
    if inspect.isawaitable(answer):
        await answer


async def _next(queue: "asyncio.Queue[Page]", running: "asyncio.Task[Any]") -> Page | None:
    """The next page; None once the run has ended and nothing waits."""
    getting = asyncio.ensure_future(queue.get())
    await asyncio.wait({getting, running}, return_when=asyncio.FIRST_COMPLETED)
    if getting.done():
        return getting.result()
    getting.cancel()
    return queue.get_nowait() if queue.qsize() else None
