"""The commands that can be given to one process of a crawl, which may be running or at rest.

This module is called by the control socket of a running process, and by the commands that work on the
directory of a crawl at rest. Every answer consists of plain data, such as dictionaries and lists.
"""

import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from crawler.admin.health import MemberStatus
from crawler.admin.status import Status
from crawler.change_signals import Signalled
from crawler.clock import iso_time
from crawler.config.units import shown
from crawler.crawl.blocked_hosts import add_blocked, remove_blocked
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.relaxed_settings import confirm
from crawler.errors import UsageError
from crawler.frontier.hosts.ranking import ORDERS
from crawler.pages.archive import original_of
from crawler.pages.reading import codings_of, decode_payload
from crawler.pages.stored_bodies import Place, open_place
from crawler.process.answering.explainer import Explainer, Steps
from crawler.process.answering.own_copies import OwnCopies
from crawler.process.answering.withdrawing import Withdrawing
from crawler.process.committing.portions import portions
from crawler.process.opening.stages import Stages
from crawler.process.results.retired import retiring
from crawler.process.results.sent_seeds import keeper_of
from crawler.process.results.trap_watch import stored_places
from crawler.records import LinkFlag, PageState, PeerStatus
from crawler.robots.cache import RobotsCopy
from crawler.storage.commit import Change, Maker
from crawler.typed_number import within
from crawler.urls.canonical import hostname
from crawler.urls.typed_url import (
    LOGIN_REFUSED,
    host_of,
    looked_up,
    percent_encoded,
    some_url,
    split_login,
    whole_host,
)
from crawler.user_patterns import compiled
from crawler.wording import not_one_of, wrong_field

Commit = Callable[[Change | Maker], None]
T = TypeVar("T")
AUTHORITIES_SHOWN = 100  # maximum number of authorities in the answer to the command `host`
# the commands that are answered only after their changes are durable
CHANGING = ("seed", "block", "unblock", "retire", "signal", "withdraw")
_SEED = LinkFlag.SEED
WHOLE_BYTES_MAX = 16 << 20  # a longer payload is not returned by `get`; the answer states its place
# number of page records that `retire` examines in search of a stored page; this takes about 1 s
RECORDS_LOOKED_AT = 100_000
# number of hosts examined between two pauses; it takes 13 us to read the queue of one host from the store
HOSTS_AT_ONCE = 100


class Commands:
    """The commands of one process.

    `commit` queues a `Change`, which becomes durable later. `peers` returns the connection state of the other
    processes. Pass None for `peers` if this process is not running.
    """

    def __init__(
        self, stages: Stages, commit: Commit, peers: Callable[[], dict[str, PeerStatus]] | None = None
    ) -> None:
        self._context, self._views, self._point = stages.context, stages.views, stages.point
        self._frontier, self._pages, self._robots = stages.frontier, stages.pages, stages.robots
        self._refresh, self._link_filter = stages.refresh, stages.intake
        self._fingerprinter = stages.fingerprinter
        self._decisions = lambda: stages.decisions
        self._outbox = stages.outbox
        self._copies = OwnCopies(stages)
        self._now = stages.clock.now
        self._died = stages.died
        self._commit = commit
        self._peers = peers or stages.views.waiting_for_peers
        self._explainer = Explainer(stages)
        self.prospect = self._explainer.prospect
        # returns the status fields that only a running process has
        self.running: Callable[[], dict[str, Any]] = dict
        commands = (
            self._explainer.why, self._explainer.page_url, self.host, self.hosts, self.get, self.seed,
            self.block, self.unblock, self.retire, self.signal, self.signals, self.consent,
            Withdrawing(stages, commit).withdraw,
        )  # fmt: skip
        self._commands: dict[str, Callable[..., Any]] = {}
        self.add(**{command.__name__: command for command in commands}, status=self._status)
        self._checked: dict[str, Callable[[Mapping[str, Any]], Any]] = {}

    def add(self, **commands: Callable[..., Any]) -> None:
        """Answer these commands, too. The annotations of the arguments say which values are accepted."""
        self._commands |= commands

    def run(self, request: Mapping[str, Any]) -> Any:
        """Return the answer to a request {"command": name, argument: value, ...}, computed without pauses.

        Raises:
            UsageError: the command does not exist, or its arguments are wrong.
        """
        return _end_of(self.steps(request))

    def steps(self, request: Mapping[str, Any]) -> Steps:
        """Return the same answer as `run`, but as a generator that pauses in long commands, so other work can run."""
        arguments = dict(request)
        name = arguments.pop("command", "")
        if not isinstance(name, str) or name not in self._commands:
            raise UsageError(f"unknown command {name!r}")
        if name not in self._checked:
            self._checked[name] = _checked(name, self._commands[name])
        answer = self._checked[name](arguments)
        if isinstance(answer, Generator):
            answer = yield from answer
        return answer.plain() if isinstance(answer, Status) else answer

    def status(self, hosts: int = 20) -> Status:
        """Return the counters, the states of the queues and the DUE, and why the first `hosts` hosts wait."""
        status: Status = _end_of(self._status(hosts))
        return status

    def _status(self, hosts: int = 20) -> Steps:
        """Compute the result of `status`, with pauses."""
        within("hosts", hosts, 0)
        now = self._now()
        waiting = []
        for host in self._frontier.views.hosts(now, hosts):
            waiting.append(host)
            if not len(waiting) % HOSTS_AT_ONCE:
                yield
        status = Status(
            name=self._context.name,
            now=now,
            counters=dict(self._point.counters),
            frontier=self._views.frontier_counts(),
            due=self._views.due_counts(),
            splitter=self._views.splitter_counts(),
            peers={self._context.name: self._peers()} if self._context.topology.peers else {},
            waiting=waiting,
            members=[MemberStatus(self._context.name, "died" if self._died() else "at_rest", now)],
            refreshing=self._views.refreshing(now, hosts),
            traps=stored_places(self._pages.store),
        )
        return replace(status, **self.running())

    def host(self, host: str) -> dict[str, Any]:
        """Return the state of a host as `status` shows it, together with the robots.txt of each of its authorities."""
        name = host_of(host)
        status = self._frontier.views.host(name, self._now())
        if status is None:
            return {"host": name, "state": "unknown"}
        copies = self._robots.copies(name, AUTHORITIES_SHOWN)
        return msgspec.structs.asdict(status) | {"robots": [_plain_robots(*copy) for copy in copies]}

    def hosts(self, order: str = "busy", limit: int = 100, search: str = "", cause: str = "") -> Steps:
        """Return the first `limit` hosts that match `search` and `cause`, sorted by `order`; see `HostList.page`."""
        if order not in ORDERS:
            raise UsageError(f"order: {not_one_of(shown(order), ORDERS)}")
        within("limit", limit, 0)
        return (yield from self._frontier.host_list.page(self._now(), order, limit, search, cause))

    def get(
        self,
        url: str,
        headers: bool = False,
        with_noarchive: bool = False,
        static: bool = False,
        allow: str = "",
        screenshot: bool = False,
    ) -> dict[str, Any] | None:
        """Return this process's newest copy of a URL, with its content in base64 for JSON; None if it has none.

        `holding` is what the process has (`pages/holdings.py`); the caller chooses the process that answers. If the
        copies are withheld, the answer contains nothing else.

        If the content has more than `WHOLE_BYTES_MAX` bytes, `place` is returned instead, from which the caller
        reads the content in pieces (`stored_bodies.open_place`).

        With `static`, return the server's answer even if a browser showed the page. With `screenshot`, the
        content is the picture that the browser took, or empty if there is no picture. If `allow` names a
        purpose, ignore copies that may not be used for it.
        """
        from crawler.consent.describing import in_plain  # imported here, because only this command needs it
        from crawler.consent.use_rule import UseRule

        rule = UseRule.of(allow, self._context.config.consent)
        request_form = looked_up(url)
        fingerprint = self._fingerprinter.fingerprint(request_form)
        newest = self._copies.newest
        capture, holding = newest(request_form, fingerprint, with_noarchive=with_noarchive, rule=rule)
        if holding is None:
            return None
        answer = {"holding": msgspec.structs.asdict(holding)}
        if holding.withheld:
            return answer
        assert capture is not None
        place = Place(str(self._pages.folder.absolute()), capture, original_of(self._pages, capture), static)
        copy = open_place(place)
        content, large = b"", copy.length > WHOLE_BYTES_MAX
        if screenshot:
            content = self._pages.view(capture)
        elif not headers and not large:
            page = self._pages.read(capture, static=static)
            # content with an unknown coding stays encoded, because it may still be useful
            content = decode_payload(page.payload, codings_of(page.headers))
        return answer | {
            "url": capture.url,
            "status": copy.status,
            "reason": copy.reason,
            "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in copy.headers],
            "fetched_at": iso_time(capture.fetched_at),
            "fresh": self._probability(fingerprint),
            "consent": in_plain(self._pages.store, fingerprint, capture),
            "content": content,
            "place": msgspec.json.encode(place).decode() if large and not screenshot else "",
        }

    def _probability(self, fingerprint: int) -> float | None:
        """Return the probability that the copy of a page is current; None if there is none, as for gone pages."""
        freshness, record = self._views.freshness, self._pages.record(fingerprint)
        if freshness is None or record is None or record.state is not PageState.STORED:
            return None
        return freshness.views.probability(fingerprint, record.fetched_at, self._now())

    def seed(self, urls: list[str], settings: dict[str, str] | None = None) -> Steps:
        """Queue seeds. The answer lists the rejected seeds, each with the reason.

        In the answer, `waits_for` names the peers that have not stored the seeds yet: their owners, and the process that
        keeps copies of the seeds of this process (`process/results/sent_seeds.py`).

        `settings` contains the relaxed settings of the crawl that must also apply to these seeds
        (`crawl/relaxed_settings.py`).

        Raises:
            UsageError: no seed is a URL, or the seeds need relaxed settings that were not given.
        """
        urls = [*map(percent_encoded, urls)]
        some_url(urls)
        config, directory = self._context.config, CrawlDirectory(self._context.directory.parent)
        confirm(config, settings or {})
        places = directory.settings.seed_places(config, settings or {})
        good: list[str] = []
        refused: list[dict[str, str]] = []
        for portion in portions(urls):
            for raw_url in portion:
                url, login = split_login(raw_url)
                judged = self._link_filter.explain(url, _SEED)
                if login:
                    refused.append({"url": url, "why": LOGIN_REFUSED})
                elif judged.rule:
                    refused.append({"url": url, "why": judged.reason})
                else:
                    places.add(judged.url)
                    good.append(judged.url)
            yield
        if places.grown:
            # in the meantime, another request may have stored the places (hosts or domains) of other seeds
            places.restrict(directory.settings.places())
            directory.settings.note_places(places.names)
        if good:
            self._commit(partial(self._decisions().admission.seeds, good, copied=True))
        return {"queued": len(good), "refused": refused, "waits_for": self._receivers(good)}

    def _receivers(self, seeds: Sequence[str]) -> list[str]:
        """Return the peers to which seeds are sent."""
        partition, me = self._context.topology.partition, self._context.name
        owners = {partition.owner(self._fingerprinter.fingerprint(url)) for url in seeds}
        return sorted({keeper_of(partition, me) if owner == me else owner for owner in owners} - {me})

    def signal(self, urls: list[str], source: str = "signal") -> Steps:
        """Accept signals that pages have changed; return what was done with each URL (`change_signals.Signalled`).

        Raises:
            UsageError: no signal is about a URL.
        """
        urls = [*map(percent_encoded, urls)]
        some_url(urls)
        said = Signalled()
        self._commit(partial(self._decisions().signal_intake.decide, urls, source, said))
        yield from self._point.making()
        return said.plain()

    def signals(self) -> list[dict[str, Any]]:
        """Return the measured quality of change signals by host and source; [] if no page is refreshed."""
        if self._refresh is None:
            return []
        rows = self._refresh.changes.heard()
        for row in rows:
            row["host"] = self._frontier.views.host_name(row.pop("host_key"))
        return rows

    def consent(self, pages: int = 100_000) -> Steps:
        """Count the first `pages` stored pages by host, by use, and by the site's answer for the use; see `Summary`."""
        from crawler.consent.summary import Summary
        from crawler.export.consent_columns import stored_uses

        within("pages", pages, 0)
        summary, partition, me = Summary(), self._context.topology.partition, self._context.name
        stored = stored_uses(self._pages, lambda fingerprint: partition.owner(fingerprint) == me)
        for number, (url, uses) in enumerate(islice(stored, pages)):
            summary.add(hostname(url), uses)
            if not number % HOSTS_AT_ONCE:
                yield
        return summary.rows()

    def block(self, host: str) -> Steps:
        """If this process owns the host, block it, so that it receives no more requests."""
        return (yield from self._set_blocked(host, True))

    def unblock(self, host: str) -> Steps:
        """If this process owns the host, lift its block."""
        return (yield from self._set_blocked(host, False))

    def _set_blocked(self, host: str, blocked: bool) -> Steps:
        """Block a host of this process, or lift its block. The command is sent to all processes."""
        name, blocks, change = whole_host(host, "a block"), self._frontier.blocks, Change()
        yield from self._point.making()
        owner = self._context.topology.partition.owner(self._fingerprinter.host_key(name))
        if owner == self._context.name:
            if blocked:
                add_blocked(self._context.directory.parent, [name])
                blocks.block(name)
            else:
                remove_blocked(self._context.directory.parent, name)
                blocks.unblock(name, self._now())
            blocks.stage(change)
            self._commit(change)
        return {"host": name}

    def retire(self, pattern: str) -> Steps:
        """Drop waiting URLs that match a regular expression.

        These are URLs that wait to be fetched by this process, or to be sent to the process that owns them.
        """
        matches = compiled(pattern).search
        portions = retiring(self._frontier, self._now, matches, self._commit)
        while True:
            yield from self._point.making()
            try:
                next(portions)
            except StopIteration as ended:
                gone = ended.value
                break
            yield
        for peer in self._outbox.spools:
            gone += yield from self._retire_links(peer, matches)
        stored = False if gone else (yield from self._stores(matches))
        return {"retired": gone, "stored": stored}

    def _retire_links(self, peer: str, matches: Callable[[str], object]) -> Generator[None, None, int]:
        """Retire the matching links that wait for an unreachable peer. Return their number."""
        while self._outbox.compacting:
            yield
        while (plan := self._outbox.retirement(peer, matches)) is not None:
            yield from plan.steps()
            if self._outbox.adopt(plan):
                change = Change(sync=True)
                change.after.append(plan.sweep)
                self._commit(change)
                return plan.retired
            plan.sweep()
            if not plan.retired:
                break
        return 0

    def _stores(self, matches: Callable[[str], object]) -> Steps:
        """Return whether the URL of a stored page matches. Examine at most `RECORDS_LOOKED_AT` records."""
        for number, (_, record) in enumerate(islice(self._pages.all_records(), RECORDS_LOOKED_AT)):
            if record.state is PageState.STORED and matches(record.url):
                return True
            if not number % HOSTS_AT_ONCE:
                yield
        return False


def _end_of(steps: Generator[None, None, T]) -> T:
    """Run a generator to completion, without pauses, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def _checked(name: str, command: Callable[..., Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Return the command `name` as a function of a mapping of arguments.

    The function raises a UsageError if the arguments do not fit the command.
    """
    fields = [
        (each.name, each.annotation, msgspec.NODEFAULT if each.default is each.empty else each.default)
        for each in inspect.signature(command).parameters.values()
    ]
    arguments_of = msgspec.defstruct(name, fields, forbid_unknown_fields=True)

    def run(arguments: Mapping[str, Any]) -> Any:
        try:
            checked = msgspec.convert(arguments, arguments_of)
        except msgspec.ValidationError as error:
            raise UsageError(f"{name}: {wrong_field(str(error))}") from error
        return command(**msgspec.structs.asdict(checked))

    return run


def _plain_robots(of: str, copy: RobotsCopy) -> dict[str, Any]:
    """Return the stored facts about the robots.txt of an authority, with times in ISO 8601."""
    plain = {"of": of, "status": copy.status, "outcome": copy.outcome, "failures": copy.failures}
    instants = {"fetched_at": copy.fetched_at, "retry_at": copy.retry_at}
    return plain | {name: iso_time(instant) for name, instant in instants.items() if instant}
