"""Commands to one process of a crawl, running or at rest.

The control socket of a running process and the commands on a directory both
end here. Every answer is plain data.
"""

import inspect
import re
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from crawler.admin.status import MemberStatus, Status
from crawler.change_signals import Signalled
from crawler.clock import iso_time
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.loosened import SeedPlaces, confirm, inherited
from crawler.errors import UsageError
from crawler.frontier.views import EXPLAINED_MAX
from crawler.process import verdict
from crawler.process.portions import portions
from crawler.process.stages import Stages
from crawler.records import Capture, LinkFlag, PageRecord, PageState, PeerStatus
from crawler.robots.cache import RobotsCopy
from crawler.serve.seam import Ahead
from crawler.storage.commit import Change, Maker
from crawler.urls.canonical import authority, canonical, hostname, target

Commit = Callable[[Change | Maker], None]
T = TypeVar("T")
Steps = Generator[None, None, Any]
AUTHORITIES_SHOWN = 100  # of one host
CHANGING = (
    "seed",
    "block",
    "unblock",
    "retire",
    "signal",
)  # commands whose answer waits until the change is durable
_SEED = int(LinkFlag.SEED)
HOSTS_AT_ONCE = 100  # hosts looked at before a pause; one whose queue is read from the store costs 13 us


class Commands:
    """The commands of one process.

    `commit` makes a change durable in its own time; `peers` says how the other
    processes are reached, None if this one does not run.
    """

    def __init__(
        self,
        stages: Stages,
        commit: Commit,
        peers: Callable[[], dict[str, PeerStatus]] | None = None,
    ) -> None:
        self._stages = stages
        self._commit = commit
        self._peers = peers or stages.waiting_for_peers
        self.running: Callable[[], dict[str, Any]] = dict  # what a process that runs adds to its status
        commands = (
            self.host, self.why, self.get, self.seed, self.block, self.unblock, self.retire, self.signal,
            self.signals,
        )  # fmt: skip
        self._commands = {command.__name__: _checked(command) for command in commands}
        self._commands["status"] = _checked(self._status)

    def run(self, request: Mapping[str, Any]) -> Any:
        """Answer {"command": name, argument: value, ...} in one step.

        Raises:
            UsageError: no such command, or wrong arguments.
        """
        return _end_of(self.steps(request))

    def steps(self, request: Mapping[str, Any]) -> Steps:
        """The same with pauses where it takes long, so that other work may be done in between."""
        arguments = dict(request)
        name = arguments.pop("command", "")
        command = self._commands.get(name) if isinstance(name, str) else None
        if command is None:
            raise UsageError(f"no command {name!r} here")
        answer = command(arguments)
        if isinstance(answer, Generator):
            answer = yield from answer
        return answer.plain() if isinstance(answer, Status) else answer

    def status(self, hosts: int = 20) -> Status:
        """Counters, queues, the DUE, and some hosts with what they wait for."""
        status: Status = _end_of(self._status(hosts))
        return status

    def _status(self, hosts: int = 20) -> Steps:
        """The same with pauses."""
        stages = self._stages
        now = stages.clock.now()
        waiting = []
        for host in stages.frontier.hosts(now, hosts):
            waiting.append(host)
            if not len(waiting) % HOSTS_AT_ONCE:
                yield
        status = Status(
            name=stages.name,
            now=now,
            counters=dict(stages.point.counters),
            frontier=stages.frontier_counts(),
            due=stages.due_counts(),
            splitter=stages.splitter_counts(),
            peers={stages.name: self._peers()} if stages.topology.peers else {},
            waiting=waiting,
            members=[MemberStatus(stages.name, "at_rest", now)],
            refreshing=stages.refreshing(now, hosts),
        )
        return replace(status, **self.running())

    def host(self, host: str) -> dict[str, Any]:
        """How a host stands, as in the status, and what is known of the robots.txt of each of its authorities."""
        stages = self._stages
        name = _host_name(host)
        status = stages.frontier.host(name, stages.clock.now())
        if status is None:
            return {"host": name, "state": "unknown"}
        copies = stages.robots.copies(name, AUTHORITIES_SHOWN)
        return msgspec.structs.asdict(status) | {"robots": [_plain_robots(*copy) for copy in copies]}

    def why(self, url: str) -> Steps:
        """Everything known of a URL: the filter's verdict, its record, its captures, what it waits for."""
        stages = self._stages
        answer: dict[str, Any] = {"verdict": "", "raw_url": url}
        request_form = canonical(url)
        if request_form is None:
            return answer | {"verdict": f"Never asked: {stages.intake.explain(url).reason}."}
        fingerprint = stages.fingerprinter.fingerprint(request_form)
        answer |= {"url": request_form, "fingerprint": f"{fingerprint:016x}"}
        if stages.topology.peers:
            answer |= {"process": stages.name, "owner": stages.topology.partition.owner(fingerprint)}
        answer |= self._facts(request_form)
        record = stages.pages.record(fingerprint)
        if record is not None:
            answer["record"] = _plain_record(record)
            answer["captures"] = [_plain_capture(capture) for capture in stages.pages.captures(fingerprint)]
        answer["known"] = record is not None or stages.due.contains(fingerprint)
        if stages.freshness is not None and record is not None:
            answer["refresh"] = _in_words(stages.freshness.explain(fingerprint, stages.clock.now()))
        queued = {}
        if record is None or record.state is PageState.FAILED:
            queued = yield from stages.frontier.entry(request_form)
        if record is None or queued:
            now = stages.clock.now()
            answer |= queued
            answer["waiting"] = waiting = stages.frontier.explain(request_form, now)
            if record is None and answer["known"] and not queued and not stages.due.waits(fingerprint):
                length = waiting.get("todo", 0) + waiting.get("parked", 0)
                answer["dropped"] = length <= EXPLAINED_MAX  # the whole queue was read
            if stages.frontier.paused:
                answer["paused"] = list(stages.frontier.paused)
            _say_times(answer, now)
        if via := self._found_on(record, answer):
            answer["found_on"] = via
        answer["verdict"] = verdict.sentence(answer)
        return answer

    def _facts(self, url: str) -> dict[str, Any]:
        """What filter and robots.txt say of a URL (request form)."""
        explanation = self._stages.intake.explain(url)
        facts = {"filter": explanation.rule or "accepted", "reason": explanation.reason}
        robots = self._robots_of(url)
        return facts | {"robots": robots} if robots else facts

    def prospect(self, url: str, record: PageRecord | None) -> Ahead:
        """Whether a URL (request form) with this record may be asked: the verdict of `why`, without its queue."""
        frontier = self._stages.frontier
        waiting = frontier.explain(url, self._stages.clock.now())
        facts: dict[str, Any] = {"record": record, "waiting": waiting, "paused": list(frontier.paused)}
        if record is None:
            fingerprint = self._stages.fingerprinter.fingerprint(url)
            facts["dropped"] = verdict.is_retired(self._stages.due, frontier, url, fingerprint)
        return verdict.prospect(self._facts(url) | facts)

    def _robots_of(self, url: str) -> dict[str, Any]:
        """What the stored robots.txt of a URL's authority says of it; {} if there is none."""
        copy = self._stages.robots.copy(authority(url))
        if not copy.fetched_at:
            return {}
        line = self._stages.robots.line(authority(url), target(url))
        return {
            "url": f"{authority(url)}/robots.txt",
            "fetched_at": iso_time(copy.fetched_at),
            "line": line or "no line is about it",
            "denied": line.startswith("Disallow") and self._stages.frontier.obeys_robots(url),
        }

    def _found_on(self, record: PageRecord | None, answer: Mapping[str, Any]) -> str:
        """The URL of the page on which a URL was found first, "" if it is a seed, or another process has the page."""
        via = record.via if record is not None else int(answer.get("via") or "0", 16)
        page = self._stages.pages.record(via) if via else None
        return page.url if page is not None else ""

    def get(self, url: str, headers: bool = False, with_noarchive: bool = False) -> dict[str, Any] | None:
        """The newest stored copy of a URL, its content in base64 as JSON has it; None if there is none."""
        request_form = canonical(url)
        if request_form is None:
            raise UsageError(f"{url!r} is no http(s) URL")
        fingerprint = self._stages.fingerprinter.fingerprint(request_form)
        page = self._stages.pages.get(fingerprint, with_noarchive=with_noarchive)
        if page is None:
            return None
        return {
            "url": page.capture.url,
            "status": page.status,
            "reason": page.reason,
            "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in page.headers],
            "fetched_at": iso_time(page.capture.fetched_at),
            "content": b"" if headers else page.content,
        }

    def seed(self, urls: list[str], settings: dict[str, str] | None = None) -> Steps:
        """Queue seeds; the answer names those that no seed may be, with the reason.

        `settings` are looser ones in force that are meant for these seeds too (`crawl/loosened.py`).
        """
        config, directory = self._stages.config, CrawlDirectory(self._stages.directory.parent)
        confirm(config, settings or {})
        places = SeedPlaces(config.crawl.scope, inherited(config, settings or {}))
        places.known(directory.seed_places())
        good: list[str] = []
        refused: list[dict[str, str]] = []
        for portion in portions(urls):
            for url in portion:
                judged = self._stages.intake.explain(url, _SEED)
                if judged.rule:
                    refused.append({"url": url, "why": judged.reason})
                else:
                    places.take(judged.url)
                    good.append(judged.url)
            yield
        if places.grown:
            places.known(directory.seed_places())  # another request may have come in between
            directory.note_places(places.names)
        if good:
            self._commit(partial(self._stages.admission.seeds, good))
        return {"queued": len(good), "refused": refused}

    def signal(self, urls: list[str], source: str = "signal") -> Steps:
        """Say that pages have changed: what became of each (`change_signals.Signalled`)."""
        said = Signalled()
        self._commit(partial(self._stages.signal_intake.take, urls, source, said))
        yield from self._stages.point.making()
        return said.plain()

    def signals(self) -> list[dict[str, Any]]:
        """By host and source, what signals of changes have been worth; [] where nothing is refreshed."""
        stages = self._stages
        if stages.refresh is None:
            return []
        rows = stages.refresh.heard()
        for row in rows:
            row["host"] = stages.frontier.host_name(row.pop("host_key"))
        return rows

    def block(self, host: str) -> Steps:
        """Ask nothing more of a host, if this process owns it."""
        name = _host_name(host)
        yield from self._stages.point.making()
        if self._owns(name):
            self._stages.frontier.block(name)
            self._commit(Change())
        return {"host": name}

    def unblock(self, host: str) -> Steps:
        """Take a host up again, if this process owns it."""
        name = _host_name(host)
        yield from self._stages.point.making()
        if self._owns(name):
            self._stages.frontier.unblock(name, self._stages.clock.now())
            self._commit(Change())
        return {"host": name}

    def _owns(self, host: str) -> bool:
        """Whether this process crawls a host; such commands go to all processes."""
        stages = self._stages
        return stages.topology.partition.owner(stages.fingerprinter.host_key(host)) == stages.name

    def retire(self, pattern: str) -> Steps:
        """Drop the to-do URLs that match a regular expression."""
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(f"{pattern!r} is no regular expression: {error}") from error
        portions = self._stages.harvest.retiring(pattern, self._commit)
        while True:
            yield from self._stages.point.making()
            try:
                next(portions)
            except StopIteration as end:
                return {"retired": end.value}
            yield


def _end_of(steps: Generator[None, None, T]) -> T:
    """What comes of it, without pauses."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def _checked(command: Callable[..., Any]) -> Callable[[Mapping[str, Any]], Any]:
    """`command` with its arguments as a mapping; a UsageError where they are not those of its signature."""
    name = command.__name__.removeprefix("_")
    fields = [
        (each.name, each.annotation, msgspec.NODEFAULT if each.default is each.empty else each.default)
        for each in inspect.signature(command).parameters.values()
    ]
    arguments_of = msgspec.defstruct(name, fields, forbid_unknown_fields=True)

    def run(arguments: Mapping[str, Any]) -> Any:
        try:
            checked = msgspec.convert(arguments, arguments_of)
        except msgspec.ValidationError as error:
            raise UsageError(f"{name}: {error}") from error
        return command(**msgspec.structs.asdict(checked))

    return run


def _in_words(known: dict[str, Any]) -> dict[str, Any]:
    """What the refresh schedule knows of a page, its instants as people read them."""
    instants = ("crawled_at", "deadline", "host_ready")
    return known | {name: iso_time(known[name]) for name in instants if known.get(name) is not None}


def _say_times(answer: dict[str, Any], now: float) -> None:
    """Instants as people read them; those that are past or unknown go."""
    waiting = answer["waiting"]
    for part, name in ((answer, "retry_at"), (waiting, "ready_at"), (waiting, "next_retry_at")):
        if name in part:
            instant = part.pop(name)
            if now < instant < float("inf"):
                part[name] = iso_time(instant)


def _host_name(text: str) -> str:
    """The canonical host name of a host or URL.

    Raises:
        UsageError: there is none.
    """
    url = canonical(text if "://" in text else f"http://{text}/")
    if url is None:
        raise UsageError(f"{text!r} is no host name")
    return hostname(url)


def _plain_robots(of: str, copy: RobotsCopy) -> dict[str, Any]:
    """What is known of the robots.txt of an authority; instants as people read them."""
    plain = {"of": of, "status": copy.status, "outcome": copy.outcome, "failures": copy.failures}
    instants = {"fetched_at": copy.fetched_at, "retry_at": copy.retry_at}
    return plain | {name: iso_time(instant) for name, instant in instants.items() if instant}


def _plain_record(record: PageRecord) -> dict[str, Any]:
    plain = {name: getattr(record, name) for name in record.__struct_fields__}
    plain["digest"], plain["content_digest"] = record.digest.hex(), record.content_digest.hex()
    plain["via"] = f"{record.via:016x}"
    plain["flags"] = str(LinkFlag(record.flags).name or record.flags)
    for name in ("fetched_at", "changed_at"):
        plain[name] = iso_time(plain[name])
    return plain


def _plain_capture(capture: Capture) -> dict[str, Any]:
    plain = {name: getattr(capture, name) for name in capture.__struct_fields__}
    plain["fetched_at"] = iso_time(capture.fetched_at)
    return plain | {name: value.hex() for name, value in plain.items() if isinstance(value, bytes)}
