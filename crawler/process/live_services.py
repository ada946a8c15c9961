"""The services of a running process: page server, admin server, vital signs, request counts, live settings.

    page server    at [serve] address, and at DIR/<name>/serve.sock for the other processes of the crawl
    admin server   only in a crawl of one process; in a crawl of several the supervisor has one (`supervision/`)
    commands       the commands of `commands.py`, and host, pause, resume, set

The interfaces that the page server needs (`serve/interfaces.py`) are built here from the stages.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from crawler.admin import process_metrics
from crawler.admin.health import recent_requests
from crawler.admin.status import MemberStatus
from crawler.change_signals import Signalled
from crawler.config import Config
from crawler.consent.use_rule import UseRule
from crawler.crawl import safe_settings
from crawler.errors import DamageError, UsageError
from crawler.extract.feed import read_feed
from crawler.process.answering.commands import Steps
from crawler.process.answering.wait_log import HOSTS_MAX, WaitLog
from crawler.process.results.notices import StoredNotices
from crawler.serve.demand import Demand
from crawler.serve.http_error import HttpError
from crawler.serve.indexnow import KEY_AGE_MAX, REFUSED_AGE_MAX, KeyUnreadError, contains
from crawler.serve.interfaces import Ahead, AheadState
from crawler.serve.stored_crawl import StoredCrawl
from crawler.storage.commit import Change
from crawler.storage.keys import ASKED
from crawler.storage.kv import scan_prefix, seal, unseal
from crawler.urls.canonical import canonical

if TYPE_CHECKING:
    from crawler.process.process import Process
    from crawler.serve.notification_handlers import NotificationHandlers
    from crawler.serve.server import PageServer

log = logging.getLogger("crawler")

KEY_FILE_WAIT = 600.0  # seconds after which a key file that has not been fetched counts as missing
LAG_INTERVAL = 0.25  # seconds between measurements of the event loop's lag
_GROWTH_LOOKS = 20  # lag measurements between two samples of the counters
COUNTS_INTERVAL = 5.0  # seconds of request counts that a crash may lose

_FULL = Ahead(AheadState.FULL, "too many pages already wait to be fetched out of turn", 60.0)


class LiveServices:
    """The services of `process` while it runs; `errors` collects its warnings for the dashboard."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        process.commands.running = self.sections
        stages = process.stages
        self._context = stages.context
        self._config: Config = stages.config
        self._store, self._pages, self._counters = stages.store, stages.pages, stages.point.counters
        self._fetched_before = stages.counters_before["pages.fetched"]
        self._frontier, self._due, self._refresh = stages.frontier, stages.due, stages.refresh
        self._fingerprinter, self._signal_intake = stages.fingerprinter, stages.signal_intake
        self._now = stages.clock.now
        self._lag = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._ahead: set[int] = set()
        self._waits = WaitLog()
        self._recent = process_metrics.LastMinute()
        self.errors = process_metrics.RecentErrors()
        self.timings = {"commit": process_metrics.Histogram(), "flush": process_metrics.Histogram()}
        serve = self._config.serve
        self.demand = Demand(serve.request_half_life, serve.counted_pages_max, now=self._now())
        self.crawl = StoredCrawl(
            {stages.name: stages},
            self._now,
            ahead=self.ahead,
            count=lambda fingerprint: self.demand.add(fingerprint, self._now()),
        )
        self.server: PageServer | None = None

    async def start(self) -> None:
        """Listen if `serve.address` is set, and start to watch the event loop's lag.

        Raises:
            ConfigError: the process cannot listen on the address.
        """
        logging.getLogger("crawler").addHandler(self.errors)
        self._process.commits.observe = lambda name, seconds: self.timings[name].observe(seconds)
        self._tasks.append(asyncio.get_running_loop().create_task(self._watch_lag()))
        config = self._config.serve
        if config.address:
            await self._serve()

    def _use_rule(self) -> UseRule | None:
        return UseRule.of(self._config.serve.allow, self._config.consent)

    async def _serve(self) -> None:
        # Imported here, because most crawls have no page server.
        from crawler.serve.http_server import more_descriptors
        from crawler.serve.page_handler import PageHandler
        from crawler.serve.rewriting import rewriter
        from crawler.serve.server import PageServer
        from crawler.serve.sibling_client import SiblingClient
        from crawler.serve.subscriber import Subscriber, read_topics

        config = self._config.serve
        more_descriptors()
        self._load_counts()
        if self._refresh is not None:
            self._refresh.importance.asked = self.demand.rate
        several = len(self._context.topology.names) > 1
        folder = self._context.directory
        receivers = self._receivers()
        if config.websub:
            receivers.subscriptions.want(self._own(read_topics(config.websub, config.public_url)))
            subscriber = Subscriber(
                receivers.subscriptions,
                config.public_url,
                self._now,
                self._process.ask,
                self._config.politeness.delay,
            )
            self._tasks.append(asyncio.get_running_loop().create_task(subscriber.run()))
        server = PageServer(
            PageHandler(self.crawl, config, rewriter(), self._use_rule()),
            config,
            self._now,
            ready=self.crawl.ready,
            receive=receivers.receive,
            forward=SiblingClient(config.peers, folder.parent).ask if several else None,
        )
        self.server = server
        await server.start(config.address, shared=several)
        if several:
            await server.listener.start_unix(folder)
        receivers.resume()
        self._tasks.append(asyncio.get_running_loop().create_task(self._keep_counts()))
        self._process.last_changes.append(self.put_counts)

    def _own(self, topics: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the (topic, hub) pairs that this process owns, so that each topic has one subscriber in the crawl."""
        locate = self.crawl.locate
        return [
            (topic, hub) for topic, hub in topics if locate(canonical(topic) or topic).archive is not None
        ]

    async def close(self) -> None:
        """Stop listening."""
        logging.getLogger("crawler").removeHandler(self.errors)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.server is not None:
            await self.server.close()

    # -- importance from client requests

    def _load_counts(self) -> None:
        """Load the stored counts in ascending order, so that the largest counts remain exact."""
        found = []
        with suppress(DamageError):
            for key, value in scan_prefix(self._store, ASKED):
                count, then = msgspec.msgpack.decode(unseal(key, value))
                found.append((int.from_bytes(key[2:], "big"), count, then))
        self.demand.load(found)

    async def _keep_counts(self) -> None:
        while True:
            await asyncio.sleep(COUNTS_INTERVAL)
            self.put_counts()

    def put_counts(self) -> None:
        """Queue the changed counts, and the importance of pages that follows from them, for the next commit."""
        now = self._now()
        if counts := dict(self.demand.changed(now)):
            self._process.queue(lambda: self._counted(counts, now))

    def _counted(self, counts: Mapping[int, float], now: float) -> Change:
        """Build the `Change` for `counts`; this runs in queue order, so it keeps what earlier changes learned."""
        change = Change()
        if self._refresh is not None:
            self._refresh.outcomes.renew_importance(counts, self._now(), change)
        for fingerprint, count in counts.items():
            key = ASKED + fingerprint.to_bytes(8, "big")
            if count > 0.0:
                change.put(key, seal(msgspec.msgpack.encode((count, now))))
            else:
                change.delete(key)
        return change

    # -- receivers

    def _receivers(self) -> "NotificationHandlers":
        from crawler.serve.notification_handlers import NotificationHandlers

        return NotificationHandlers(
            self.crawl,
            self._config.serve,
            self._now,
            signal=self.signal,
            notices=StoredNotices(
                self._store,
                self._fingerprinter.fingerprint,
                self._signal_intake,
                self._process.queue,
                self._process.kept,
            ),
            processes=self._context.topology.names,
            me=self._context.name,
            random=os.urandom,
            fetch_key_file=self._key_file,
            read_feed=lambda body: [
                entry.loc for entry in read_feed(body, self._config.serve.signal_urls_max).entries
            ],
            in_background=self._in_background,
        )

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    async def _key_file(self, url: str, key: str) -> bytes | None:
        """Fetch the key file of a site like any link, in the crawl's order; return None if it does not arrive in time.

        A stored copy that contains the key may be a day old; any other copy only a few minutes.

        Raises:
            KeyUnreadError: the crawl stops.
        """
        fingerprint = self._fingerprinter.fingerprint(url)
        asked = self._now()
        while self._now() - asked < KEY_FILE_WAIT:
            capture = next(iter(self._pages.captures(fingerprint)), None)
            if capture is not None and (age := self._now() - capture.fetched_at) < KEY_AGE_MAX:
                text = self._pages.read(capture).content[:1024] if capture.status == 200 else None
                if age < REFUSED_AGE_MAX or contains(text, key):
                    return text
            state = self.ahead(url, fingerprint).state
            if state is AheadState.AT_REST:
                raise KeyUnreadError
            if state not in (AheadState.QUEUED, AheadState.FULL):
                return None
            await asyncio.sleep(1.0)
        return None

    # -- requests of clients

    def ahead(self, url: str, fingerprint: int) -> Ahead:
        """Have a page fetched soon, politely: a known page by the refresh schedule, an unknown one as a link."""
        if self._process.stopped_by:
            return Ahead(AheadState.AT_REST, "the crawl has ended or is stopping")
        record = self._pages.record(fingerprint)
        verdict = self._process.commands.prospect(url, record)
        if not verdict.queued or fingerprint in self._ahead:
            return verdict
        if len(self._ahead) >= self._config.serve.ahead_max:
            return _FULL
        if record is not None:
            return self._ask_again(fingerprint, verdict)
        if not self._due.contains(fingerprint):
            self._process.queue(partial(self._signal_intake.decide, [url], "signal", Signalled()))
            self._ahead.add(fingerprint)
            asyncio.get_running_loop().call_later(60.0, self._ahead.discard, fingerprint)
        return verdict

    def _ask_again(self, fingerprint: int, verdict: Ahead) -> Ahead:
        """Have a known page fetched as soon as its host permits, if the page is kept fresh."""
        refresh = self._refresh
        if refresh is None or fingerprint not in refresh:
            return Ahead(AheadState.NOT_REFRESHED, "it is known, and this crawl does not refetch it")
        taken = refresh.claims.request(fingerprint)
        self._process.wake()
        return verdict if taken else _FULL

    async def signal(self, raw_urls: Sequence[str], source: str) -> Signalled:
        """Take signals in the order of the commit queue; once they are durable, return what was done with each.

        Raises:
            Refusal: 503, the disk is too slow.
        """
        said = Signalled()
        self._process.queue(partial(self._signal_intake.decide, raw_urls, source, said))
        if not await self._process.kept():
            raise HttpError(503, "late", "the signals are not on disk yet; send them again")
        return said

    # -- commands

    def steps(self, request: Mapping[str, Any]) -> Steps:
        """Answer a command of `Commands` or of this class, with pauses for other work.

        Raises:
            UsageError: the command does not exist, or its arguments are wrong.
        """
        own: dict[str, Callable[..., Any]] = {
            "pause": self._pause,
            "resume": self._resume,
            "set": self._set,
        }
        name = request.get("command", "")
        if name not in own:
            return (yield from self._process.commands.steps(request))
        arguments = {key: value for key, value in request.items() if key != "command"}
        try:
            return own[name](**arguments)
        except TypeError as error:
            raise UsageError(f"{name}: {error}") from error

    def _pause(self) -> dict[str, Any]:
        """Start no fetch until `resume`."""
        self._frontier.pauses.pause()
        log.info("paused: nothing is fetched until `crawler resume`")
        return {"paused": list(self._frontier.pauses.reasons)}

    def _resume(self) -> dict[str, Any]:
        self._frontier.pauses.resume()
        log.info("going on")
        self._process.wake()
        return {"paused": list(self._frontier.pauses.reasons)}

    def _set(self, settings: Mapping[str, str]) -> dict[str, Any]:
        """Change settings that can be changed while the crawl runs."""
        if "refresh.share" in settings and self._refresh is None:
            raise UsageError(
                "refresh.share: this crawl does not refresh pages; start it with --refresh-share"
            )
        made = live_settings(self._context.config, settings, self._config.crawl.concurrency)
        if level := settings.get("log.level"):
            logging.getLogger("crawler").setLevel(level.upper())
            for handler in logging.getLogger("crawler").handlers:
                if handler is not self.errors:
                    handler.setLevel(level.upper())
        self._process.configure(made)
        return {"set": dict(settings)}

    # -- status

    def sections(self) -> dict[str, Any]:
        """Return the sections of a status that only a running process has."""
        frontier, counters = self._frontier, self._counters
        process = process_metrics.of_process() | {
            "name": self._context.name,
            "started": self._process.started,
            "loop_lag": round(self._lag, 4),
        }
        return {
            "members": [MemberStatus(process["name"], "running", self._now(), process["pid"])],
            "processes": [process],
            "run": {"fetched": counters["pages.fetched"] - self._fetched_before},
            "recent": self._recent.plain(),
            "timings": {name: histogram.plain() for name, histogram in self.timings.items()},
            "waited": frontier.views.why_slow(self._now()),
            "paused": list(frontier.pauses.reasons),
            "errors": self.errors.plain(),
            "log": dict(self.errors.counts),
            "serve": self._served(),
        }

    def _served(self) -> dict[str, Any]:
        if self.server is None:
            return {}
        places, response_cache = self.server.listener.places, self.server.response_cache
        return {
            "requests": self.server.listener.requests,
            "answers": {str(status): n for status, n in sorted(self.server.answers.items())},
            "connections": len(places),
            "evicted": places.evicted,
            "turned_away": places.turned_away,
            "ready_bytes": response_cache.bytes,
            "ready_hits": response_cache.hits,
            "ready_misses": response_cache.misses,
            "counted_pages": len(self.demand),
        }

    def _growing(self) -> dict[str, int]:
        """Return the counters whose growth shows the progress of the crawl."""
        return {
            "done": self._counters["urls.done"],
            "hosts": self._frontier.views.hosts_reached,
            "new": self._due.new,
            "known": self._due.known,
        } | recent_requests(self._counters)

    async def _watch_lag(self) -> None:
        """Measure the lag of the event loop: keep the largest recent value, which decays."""
        loop, looks = asyncio.get_running_loop(), 0
        while True:
            if looks % _GROWTH_LOOKS == 0:
                self._recent.sample(self._growing(), self._now())
            due = loop.time() + LAG_INTERVAL
            await asyncio.sleep(LAG_INTERVAL)
            self._lag = max(loop.time() - due, self._lag * 0.75)
            looks += 1
            if looks % 4 == 0 and log.isEnabledFor(logging.DEBUG):
                for line in self._waits.new_lines(self._frontier.views.hosts(self._now(), HOSTS_MAX)):
                    log.debug("%s", line.text, extra={"fields": line.fields})


def live_settings(config: Config, given: Mapping[str, str], concurrency_max: int) -> Config:
    """Return `config` with the given settings changed.

    Raises:
        UsageError, ConfigError: a setting cannot be changed while the crawl runs, or its value is invalid.
    """
    made = safe_settings.changed(config, given)
    if made.crawl.concurrency > concurrency_max:
        raise UsageError(
            f"crawl.concurrency: at most {concurrency_max}, its value at the start, while the crawl runs"
        )
    refresh = replace(config.refresh, share=made.refresh.share)
    return replace(
        config, politeness=made.politeness, crawl=made.crawl, refresh=refresh, override=made.override
    )
