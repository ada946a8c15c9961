"""Collects the facts known about a URL, for `crawler why` and for the decision whether the URL may be fetched."""

import math
from collections.abc import Generator, Mapping
from itertools import islice
from typing import Any

import msgspec

from crawler.clock import iso_time
from crawler.errors import UsageError
from crawler.frontier.later_tries import LaterTries
from crawler.frontier.views import EXPLAINED_MAX
from crawler.pages.change_detection import SUCCESSES
from crawler.pages.withdrawals import Erased, Withdrawal
from crawler.process.answering import explain
from crawler.process.answering.own_copies import OwnCopies
from crawler.process.opening.stages import Stages
from crawler.process.results.retired import queue_entry
from crawler.records import MESSAGE, Capture, PageRecord, RenderingFacts, flag_names
from crawler.serve.interfaces import Ahead
from crawler.urls.canonical import authority, target
from crawler.urls.typed_url import looked_up

Steps = Generator[None, None, Any]
# number of entries of an outbox that are searched for a URL: about 100,000 links
OUTBOX_ENTRIES_MAX = 1000


class Explainer:
    """Collects the facts about a URL. `explain.py` turns these facts into a sentence."""

    def __init__(self, stages: Stages) -> None:
        self._context, self._views = stages.context, stages.views
        self._frontier, self._pages, self._due = stages.frontier, stages.pages, stages.due
        self._robots, self._link_filter = stages.robots, stages.intake
        self._fingerprinter, self._outbox = stages.fingerprinter, stages.outbox
        self._copies = OwnCopies(stages)

    def why(
        self, url: str, sender: str = "", stored_by: str = "", captures: list[dict[str, Any]] | None = None
    ) -> Steps:
        """Collect the facts about a URL: the filter's verdict, its record, its captures, and why it waits.

        If another process has the URL in its outbox, `sender` is the name of that process. A process that does
        not own the URL says whether its outbox contains the URL, and what it has stored of it (`holding`). If such
        a process answers for the URL, `stored_by` is its name, and `captures` are its captures.

        Raises:
            UsageError: the text is not a URL.
        """
        request_form = looked_up(url)
        answer: dict[str, Any] = {"verdict": "", "raw_url": url}
        fingerprint = self._fingerprinter.fingerprint(request_form)
        answer |= {"url": request_form, "fingerprint": f"{fingerprint:016x}"}
        if self._context.topology.peers:
            owner = self._context.topology.partition.owner(fingerprint)
            answer |= {"process": self._context.name, "owner": owner}
            if owner != self._context.name:
                answer["in_outbox"] = yield from self._is_in_outbox(owner, request_form)
            _, holding = self._copies.newest(request_form, fingerprint)
            answer["holding"] = None if holding is None else msgspec.structs.asdict(holding)
        if stored_by:
            answer["stored_by"] = stored_by
        if sender:
            answer["sender"] = sender
        record = self._pages.record(fingerprint)
        if record is not None:
            answer["consent"] = self._consent(fingerprint, record)
        own = [_plain_capture(capture) for capture in self._pages.captures(fingerprint)]
        if record is not None or own or captures:
            answer["captures"] = own or captures or []
        if self._views.freshness is not None and record is not None:
            answer["refresh"] = _in_words(
                self._views.freshness.views.explain(fingerprint, record.fetched_at, self._context.clock.now())
            )
        yield from self._find_state(answer, request_form, fingerprint, record)
        if via := self._found_on(record, answer):
            answer["found_on"] = via
        answer["withheld"] = explain.withheld(answer)
        answer["verdict"] = explain.verdict(answer).sentence
        return answer

    def page_url(self, fingerprint: str) -> dict[str, str]:
        """Return the URL of the page with a fingerprint (hexadecimal); "" if this process has no record of it."""
        try:
            record = self._pages.record(int(fingerprint, 16))
        except ValueError:
            raise UsageError(f"page_url: {fingerprint!r} is not a fingerprint") from None
        return {"url": "" if record is None else record.url}

    def absence(self, url: str, fingerprint: int) -> explain.UrlVerdict:
        """Return why there is no copy to serve for a URL (in request form). Long queues are not searched for the URL."""
        answer: dict[str, Any] = {}
        steps = self._find_state(answer, url, fingerprint, self._pages.record(fingerprint))
        next(steps, None)
        steps.close()
        return explain.verdict(answer)

    def _find_state(
        self, answer: dict[str, Any], url: str, fingerprint: int, record: PageRecord | None
    ) -> Steps:
        """Add the facts that determine the verdict.

        If the caller stops this generator early, the facts added until then are enough for a verdict.
        """
        answer |= self._facts(url)
        if record is not None:
            answer["record"] = _plain_record(record)
            if (at := LaterTries.of(self._context.config.refresh).next_try(record)) < math.inf:
                answer["later_try"] = iso_time(at)
        if (withdrawn := self._pages.withdrawn(fingerprint, url)) is not None:
            answer["withdrawn"] = self._withdrawal(fingerprint, withdrawn)
        answer["known"] = record is not None or fingerprint in self._due.known_set
        queued = {}
        if answer["known"] and (record is None or record.outcome not in SUCCESSES):
            queued = yield from self._frontier.views.entry(url)
        if record is None or queued:
            now = self._context.clock.now()
            answer |= queued
            answer["waiting"] = waiting = self._frontier.views.explain(url, now)
            if record is None and answer["known"] and not queued and not self._due.waits(fingerprint):
                length = waiting.get("todo", 0) + waiting.get("parked", 0)
                answer["dropped"] = length <= EXPLAINED_MAX  # True only if the whole queue was read
            if self._frontier.pauses.reasons:
                answer["paused"] = list(self._frontier.pauses.reasons)
            _say_times(answer, now)

    def _is_in_outbox(self, owner: str, url: str) -> Generator[None, None, bool]:
        """Return whether a URL waits here to be sent to its owner. Examine at most `OUTBOX_ENTRIES_MAX` entries."""
        for links in islice(self._outbox.spools[owner].waiting(), OUTBOX_ENTRIES_MAX):
            if any(link.url == url and not link.flags & MESSAGE for link in links):
                return True
            yield
        return False

    def _withdrawal(self, fingerprint: int, withdrawn: Withdrawal | Erased) -> dict[str, Any]:
        """Return when and why a URL was withdrawn, and the number of its copies that are kept."""
        copies = sum(1 for _ in self._pages.stored_captures_of(fingerprint))
        said = {"at": iso_time(withdrawn.at), "reason": withdrawn.reason, "copies": copies}
        return said | ({"again": not withdrawn.stops_fetches} if isinstance(withdrawn, Withdrawal) else {})

    def _consent(self, fingerprint: int, record: PageRecord) -> dict[str, Any]:
        """Return the receipt of the newest copy; {} if there is no copy, or it has no receipt."""
        newest = self._pages.newest_capture(fingerprint, record)
        if newest is None:
            return {}
        from crawler.consent.describing import in_plain  # imported here, because `status` does not need it

        return in_plain(self._pages.store, fingerprint, newest)

    def _facts(self, url: str) -> dict[str, Any]:
        """Return the verdicts of the filter and of robots.txt on a URL, given in request form."""
        explanation = self._link_filter.explain(url)
        facts = {"filter": explanation.rule or "accepted", "reason": explanation.reason}
        robots = self._robots_of(url)
        return facts | {"robots": robots} if robots else facts

    def prospect(self, url: str, record: PageRecord | None) -> Ahead:
        """Return whether a URL (in request form) that has this record may be fetched. Long queues are not read."""
        frontier = self._frontier
        waiting = frontier.views.explain(url, self._context.clock.now())
        facts: dict[str, Any] = {
            "record": record,
            "waiting": waiting,
            "paused": list(frontier.pauses.reasons),
        }
        if record is None:
            fingerprint = self._fingerprinter.fingerprint(url)
            entry = queue_entry(self._due, frontier, url, fingerprint)
            facts["dropped"] = entry == {}
            facts |= entry or {}
        return explain.prospect(self._facts(url) | facts)

    def _robots_of(self, url: str) -> dict[str, Any]:
        """Return the verdict of the stored robots.txt of a URL's authority; {} if no robots.txt is stored."""
        copy = self._robots.copy(authority(url))
        if not copy.fetched_at:
            return {}
        line = self._robots.line(authority(url), target(url))
        return {
            "url": f"{authority(url)}/robots.txt",
            "fetched_at": iso_time(copy.fetched_at),
            "line": line or "no rule matches it",
            "denied": bool(self._frontier.views.disallowing_line(url)),
            "withheld": bool(self._frontier.views.withholding_line(url)),
        }

    def _found_on(self, record: PageRecord | None, answer: Mapping[str, Any]) -> str:
        """Return the URL of the page that first linked to a URL; "" if none did, or this process lacks its record."""
        via = record.via if record is not None else int(answer.get("via") or "0", 16)
        page = self._pages.record(via) if via else None
        return page.url if page is not None else ""


def _in_words(known: dict[str, Any]) -> dict[str, Any]:
    """Return what the refresh schedule knows about a page. Times are in ISO 8601."""
    instants = ("crawled_at", "deadline", "host_ready")
    return known | {name: iso_time(known[name]) for name in instants if known.get(name) is not None}


def _say_times(answer: dict[str, Any], now: float) -> None:
    """Convert times to ISO 8601. Drop past times and unknown times."""
    waiting = answer["waiting"]
    for part, name in ((answer, "retry_at"), (waiting, "ready_at"), (waiting, "next_retry_at")):
        if name in part:
            instant = part.pop(name)
            if now < instant < float("inf"):
                part[name] = iso_time(instant)


def _plain_record(record: PageRecord) -> dict[str, Any]:
    plain = {name: getattr(record, name) for name in record.__struct_fields__}
    plain["digest"], plain["content_digest"] = record.digest.hex(), record.content_digest.hex()
    plain["earlier_digest"] = record.earlier_digest.hex()
    plain["receipt"] = record.receipt.hex()
    plain["shown"] = None if record.shown is None else _plain_rendering(record.shown)
    plain["via"] = f"{record.via:016x}"
    plain["flags"] = flag_names(record.flags)
    for name in ("fetched_at", "changed_at"):
        plain[name] = iso_time(plain[name])
    plain["unanswered_at"] = iso_time(record.unanswered_at) if record.unanswered_at else ""
    return plain


def _plain_rendering(facts: RenderingFacts) -> dict[str, Any]:
    return msgspec.structs.asdict(facts) | {"again_at": iso_time(facts.again_at) if facts.again_at else None}


def _plain_capture(capture: Capture) -> dict[str, Any]:
    plain = {name: getattr(capture, name) for name in capture.__struct_fields__}
    plain["fetched_at"] = iso_time(capture.fetched_at)
    return plain | {name: value.hex() for name, value in plain.items() if isinstance(value, bytes)}
