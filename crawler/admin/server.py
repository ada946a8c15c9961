"""The admin server: dashboard, metrics, health, explanations, the bot's page, and state changes with the token.

`admin/README.md` lists the paths and their parameters. Reading needs no token: by default the server listens on
loopback only. A `StatusSource` supplies the data; this module imports no stage.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from crawler.admin import actions, bot, consent_page, host_pages, ledger, ledger_page, tails, withdrawal
from crawler.admin.explanation import explanation, may_be_unfollowed
from crawler.admin.said import said
from crawler.admin.sampling import Sampler
from crawler.admin.status_source import Answers, StatusSource
from crawler.config import Config
from crawler.config.forms import http_origin
from crawler.config.units import shown
from crawler.consent.summary import merged, total
from crawler.crawl import rendered_parts, safe_settings
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import CrawlerError, UsageError
from crawler.pages.withdrawals import RuleFile
from crawler.serve import host_check
from crawler.serve.header_fields import head
from crawler.serve.http_error import HttpError, check_method
from crawler.serve.http_server import (
    HttpListener,
    Sending,
    ServedConnection,
    error_reply,
    json_reply,
    read_body,
)
from crawler.serve.query import query_fields
from crawler.serve.reply import Reply
from crawler.serve.request_reader import ServedRequest
from crawler.typed_number import number_of
from crawler.urls.typed_url import host_of
from crawler.wording import not_one_of, wrong_field

log = logging.getLogger("crawler")

Search = Callable[[str], Mapping[str, str]]

ROWS_MAX = 99_999  # maximum number of rows of an answer
WATCHERS_MAX = 16  # simultaneous event streams
BODY_BYTES_MAX = 1 << 20
BEAT = 1.5  # after this many seconds without a sample, an event stream sends a sign of life
RETRY = 1.0  # seconds after which a browser reconnects to a lost event stream
# Seconds: a client must complete a header or a body, and must read what is buffered, within this time.
TIMEOUT = 15.0
CHANGES = "/do"
EVENTS = "/events"
HOST = "/hosts/"  # followed by the name of a host

_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_PAGE_FIELDS = (
    (b"Content-Security-Policy", b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
     b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Referrer-Policy", b"no-referrer"),
    (b"Cross-Origin-Opener-Policy", b"same-origin"),
    (b"Cross-Origin-Resource-Policy", b"same-origin"),
    (b"Cache-Control", b"no-store"),
)  # fmt: skip


def _reply(content: bytes, kind: str, code: int = 200) -> Reply:
    typed = (b"Content-Type", f"{kind}; charset=utf-8".encode() if "charset" not in kind else kind.encode())
    return Reply(code, head(code, "OK", (typed, *_PAGE_FIELDS)), len(content), content)


def _json(value: object) -> Reply:
    return _reply(msgspec.json.encode(value) + b"\n", "application/json")


def _find_nothing(_url: str) -> dict[str, str]:
    return {}


class AdminServer:
    """Shows and controls a crawl; `directory` contains the token and the log of fetches.

    `search` is called in a thread for a URL that no process knows, and returns further facts about it for `why`.
    """

    def __init__(
        self,
        source: StatusSource,
        config: Config,
        directory: Path,
        now: Callable[[], float],
        looking: Sampler | None = None,
        search: Search = _find_nothing,
    ) -> None:
        self._source = source
        self._search = search
        self._searching = asyncio.Lock()  # one search at a time, because a search reads many pages
        self._looking = looking or Sampler(source, config.admin, now, directory)
        self._config = config
        self._files_of = CrawlDirectory(directory)
        self._now = now
        self._names = frozenset(name.lower() for name in config.admin.names)
        self.token = actions.token(directory)
        self._files = _static_files()
        self.listener = HttpListener(
            self._answer,
            now,
            connections_max=config.admin.connections_max,
            header_bytes_max=16 << 10,
            idle_timeout=TIMEOUT,
            write_timeout=TIMEOUT,
        )

    async def start_on(self, sock: socket.socket) -> None:
        """Accept clients on a socket that already listens."""
        await self.listener.start_on(sock)
        self._looking.start()

    def link(self) -> str:
        """The dashboard's URL with the token in its fragment; the page's script sends the token as a header field."""
        return f"{http_origin(*self.listener.address)}/#token={self.token}"

    async def close(self, failure: str = "") -> None:
        """End the event streams, with the reason if the crawl failed, and stop listening."""
        await self._looking.close(failure)
        await self.listener.close()

    # -- answering

    async def _answer(self, request: ServedRequest, connection: ServedConnection) -> Sending:
        try:
            host = host_check.check_host(request.headers.getall("Host", []), self._names)
            path, _, query = request.raw_path.partition("?")
            self._check_method(request.method, path)
            if path == CHANGES:
                return Sending(await self._change(request, connection, host))
            if path == EVENTS:
                return self._events()
            return Sending(await self._get(path, query))
        except HttpError as refusal:
            return Sending(error_reply(refusal))
        except UsageError as error:
            return Sending(error_reply(HttpError(400, "bad_request", str(error))))
        except (CrawlerError, TimeoutError) as error:
            return Sending(json_reply(503, msgspec.json.encode({"error": str(error)}) + b"\n"))

    def _check_method(self, method: str, path: str) -> None:
        """Raise HttpError: 404, the path is unknown; 405, it does not have this method."""
        if path == CHANGES:
            check_method(method, ("POST",))
        elif path in self._files or path in _READS or path == EVENTS or path.startswith(HOST):
            check_method(method, ("GET", "HEAD"))
        else:
            raise HttpError(
                404,
                "no_such_path",
                "see /, /metrics, /status, /why, /hosts, /hosts/NAME, /fetches, /log, /consent, /bot, /healthz; "
                f"send changes to {CHANGES}",
            )

    async def _get(self, path: str, query: str) -> Reply:
        if path in self._files:
            return _reply(*self._files[path])
        if path.startswith(HOST):
            return await self._host(unquote(path[len(HOST) :], errors="surrogateescape"))
        read = _READS[path]
        fields = query_fields(query, path, read.parameters)
        return await getattr(self, read.answer)({name: value for name, value in fields.items() if value})

    async def _metrics(self, fields: dict[str, str]) -> Reply:
        # Importing Prometheus' client takes a tenth of the CPU time of a start, and few crawls get a request
        # for metrics.
        from crawler.admin import metrics

        parts = await self._source.ask({"command": "status", "hosts": 0})
        return _reply(metrics.text(parts), metrics.CONTENT_TYPE)

    async def _show_status(self, fields: dict[str, str]) -> Reply:
        return _json(await self._looking.status())

    async def _why(self, fields: dict[str, str]) -> Reply:
        if not fields.get("url"):
            raise HttpError(400, "bad_request", "name the URL: /why?url=URL")
        steps = explanation(fields["url"])
        try:
            answers = await self._source.ask(next(steps))
            while True:
                answers = await self._source.ask(steps.send(answers))
        except StopIteration as end:
            answer: dict[str, Any] | None = end.value
        if answer is None:
            raise _absent(f"{answers[0]['owner']}, which owns this URL,", answers)
        if may_be_unfollowed(answer):
            async with self._searching:
                answer |= await asyncio.to_thread(self._search, answer["url"])
        return _json(answer | {"page_server": self._config.serve.address})

    async def _show_history(self, fields: dict[str, str]) -> Reply:
        return _json(self._looking.history.plain())

    async def _healthz(self, fields: dict[str, str]) -> Reply:
        return _json({"ok": True})

    async def _readyz(self, fields: dict[str, str]) -> Reply:
        await self._source.ask({"command": "status", "hosts": 0})
        why = self._source.not_ready()
        if why:
            return json_reply(503, msgspec.json.encode({"ok": False, "why": why}) + b"\n")
        return _json({"ok": True})

    async def _bot(self, fields: dict[str, str]) -> Reply:
        return _reply(bot.page(self._config), "text/html")

    async def _ledger(self, fields: dict[str, str]) -> Reply:
        if not fields.get("host"):
            raise HttpError(400, "bad_request", "name the host: /bot/ledger?host=NAME")
        host, form = host_of(fields["host"]), _choice(fields, "format", ("json", "html"))
        path = self._files_of.pages_file
        made = await asyncio.to_thread(lambda: ledger.of_host(ledger.tail_lines(path), host))
        found = await self._source.ask({"command": "host", "host": host})
        robots = [each for answer in found for each in answer.get("robots", [])]
        made |= {"robots": robots, "missing": list(found.missing)}
        return _reply(ledger_page.page(made), "text/html") if form == "html" else _json(made)

    async def _hosts(self, fields: dict[str, str]) -> Reply:
        limit = _number(fields, "limit", 100)
        request = {"command": "hosts", "limit": limit}
        request |= {name: fields[name] for name in ("order", "search", "cause") if fields.get(name)}
        answers = await self._source.ask(request)
        return _json(host_pages.merged(answers, limit, answers.missing))

    async def _consent(self, fields: dict[str, str]) -> Reply:
        form = _choice(fields, "format", ("html", "json"))
        answers = await self._source.ask({"command": "consent"})
        rows, missing = merged(answers), list(answers.missing)
        if form == "json":
            return _json({"all": total(rows), "hosts": rows, "missing": missing})
        return _reply(consent_page.page(rows, missing), "text/html")

    async def _fetches(self, fields: dict[str, str]) -> Reply:
        path, limit = self._files_of.pages_file, _number(fields, "limit", 100)
        outcome, text = fields.get("outcome", ""), fields.get("text", "")
        rows = await asyncio.to_thread(tails.fetches, path, outcome=outcome, text=text, limit=limit)
        return _json({"rows": rows})

    async def _log(self, fields: dict[str, str]) -> Reply:
        path, limit = self._files_of.log_file, _number(fields, "limit", 100)
        level, text = _choice(fields, "level", tuple(tails.LEVELS)), fields.get("text", "")
        rows = await asyncio.to_thread(tails.log_lines, path, level=level, text=text, limit=limit)
        return _json({"rows": rows})

    async def _host(self, text: str) -> Reply:
        host = host_of(text)
        answers = await self._source.ask({"command": "host", "host": host})
        known = [each for each in answers if each.get("state") != "unknown"]
        if not known and answers.missing:
            raise _absent("the process that owns this host", answers)
        if not known:
            raise HttpError(404, "unknown", "no URL of this host is known", host=host)
        path = self._files_of.pages_file
        fetches = await asyncio.to_thread(ledger.latest_of_host, path, host, 50)
        return _json(host_pages.described(known[0]) | {"fetches": fetches})

    async def _change(self, request: ServedRequest, connection: ServedConnection, host: str) -> Reply:
        actions.check(request.headers, self.token, host)
        command = actions.parse(await read_body(request, connection, BODY_BYTES_MAX, TIMEOUT))
        log.info("admin: %s", command)
        if command["command"] == actions.WITHDRAW:
            result = await self._withdraw(command)
            in_words = withdrawal.in_words(result)
            return _json({"done": actions.WITHDRAW, "said": in_words, "answers": [result.plain()]})
        settings, command = rendered_parts.separated(command, self._config.crawl.scope)
        if settings:
            await self._set(settings)
        if command["command"] == "set":
            answers = await self._set(command["settings"])
        else:
            name = command["command"]
            answers = await self._source.ask(command, first=name in actions.TO_ONE, patient=name != "stop")
            if answers.missing and name in actions.TO_OWNERS:
                raise _absent(f"the change was not made in {', '.join(answers.missing)}, which", answers)
        with suppress(CrawlerError):  # after `stop`, the processes may have ended
            await self._looking.sample()
        return _json({"done": command["command"], "said": said(command, answers), "answers": answers})

    async def _set(self, settings: dict[str, str]) -> list[Any]:
        """Change settings of all processes, and save them."""
        answers = await self._source.ask({"command": "set", "settings": settings}, patient=True)
        safe_settings.record(self._files_of, settings)
        return answers

    async def _withdraw(self, command: dict[str, Any]) -> withdrawal.Withdrawn:
        """Carry out a withdrawal, an undo or a dry run; return the result."""
        try:
            order = msgspec.convert(
                {name: value for name, value in command.items() if name != "command"}, withdrawal.TakeDown
            )
        except msgspec.ValidationError as error:
            raise HttpError(400, "bad_request", f"withdraw: {wrong_field(str(error))}") from None
        rules = RuleFile(self._files_of.path, self._config.pages.withdrawals_max)
        steps = withdrawal.conduct(order, rules, self._now())
        try:
            request = next(steps)
            while True:
                answers = await self._source.ask(request)
                if answers.missing:
                    raise _absent(f"the withdrawal is recorded, but {', '.join(answers.missing)}", answers)
                request = steps.send(answers)
        except StopIteration as end:
            result: withdrawal.Withdrawn = end.value
            return result

    def _events(self) -> "EventStream":
        if self._looking.watchers >= WATCHERS_MAX:
            raise HttpError(503, "full", f"the maximum of {WATCHERS_MAX} event streams is open")
        return EventStream(self._looking)


class _Read(NamedTuple):
    """A path that shows data: the method of `AdminServer` that answers, and the parameters; if none, all are ignored."""

    answer: str
    parameters: tuple[str, ...] = ()


_READS = {
    "/metrics": _Read("_metrics"),
    "/status": _Read("_show_status"),
    "/why": _Read("_why", ("url",)),
    "/history": _Read("_show_history"),
    "/hosts": _Read("_hosts", ("order", "search", "cause", "limit")),
    "/consent": _Read("_consent", ("format",)),
    "/fetches": _Read("_fetches", ("outcome", "text", "limit")),
    "/log": _Read("_log", ("level", "text", "limit")),
    "/healthz": _Read("_healthz"),
    "/readyz": _Read("_readyz"),
    "/bot": _Read("_bot"),
    "/bot/ledger": _Read("_ledger", ("host", "format")),
}


class EventStream(Sending):
    """A stream of server-sent events (HTML standard, section 9.2), until the client disconnects."""

    def __init__(self, looking: Sampler) -> None:
        fields = ((b"Content-Type", b"text/event-stream"), *_PAGE_FIELDS)
        super().__init__(Reply(200, head(200, "OK", fields), -1), close=True)
        self._looking = looking

    async def write(self, request: ServedRequest) -> None:
        """Write the head, each sample, a sign of life after `BEAT` seconds without a sample, and the end of the crawl."""
        await super().write(request)
        looking = self._looking
        looking.begin_watching()
        try:
            await self._put(b"retry: %d\n\n" % (1000 * RETRY))
            while looking.end is None and not self._connection.gone:
                sampled = looking.sampled
                await self._put(b"data: " + looking.event() + b"\n\n")
                await self._beat_until(sampled)
            if looking.end is not None:
                await self._put(b"event: end\ndata: " + msgspec.json.encode(looking.end) + b"\n\n")
                await self._put(b"")
        finally:
            looking.watchers -= 1

    async def _beat_until(self, sampled: asyncio.Event) -> None:
        while not (sampled.is_set() or self._connection.gone):
            with suppress(TimeoutError):
                await asyncio.wait_for(sampled.wait(), BEAT)
            if not sampled.is_set():
                await self._put(b"event: beat\ndata: " + self._looking.beat() + b"\n\n")

    async def _put(self, event: bytes) -> None:
        self._connection.write(b"%x\r\n%b\r\n" % (len(event), event))
        await self._connection.room()


def _absent(who: str, answers: Answers) -> HttpError:
    return HttpError(503, "missing", f"{who} is not running", missing=list(answers.missing))


def _number(fields: dict[str, str], name: str, default: int) -> int:
    text = fields.get(name, "")
    return number_of(name, text, int, 0, ROWS_MAX) if text else default


def _choice(fields: dict[str, str], name: str, choices: Sequence[str]) -> str:
    """Return the value of a parameter, which must be one of `choices`; the default is the first."""
    value = fields.get(name, choices[0])
    if value not in choices:
        raise HttpError(400, "bad_request", f"{name}: {not_one_of(shown(value), choices)}")
    return value


def _static_files() -> dict[str, tuple[bytes, str]]:
    """Return {path: (content, media type)} of the dashboard's files. The server serves no other files."""
    files = {}
    for entry in resources.files("crawler.admin").joinpath("static").iterdir():
        suffix = Path(entry.name).suffix
        if suffix in _TYPES:
            files[f"/static/{entry.name}"] = (entry.read_bytes(), _TYPES[suffix])
    files["/"] = files["/static/dashboard.html"]
    return files
