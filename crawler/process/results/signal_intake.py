"""The intake of change signals: decides about all signals, from any sender, in the order of the commit queue.

    crawler signal, Crawl.signal ──► Commands.signal ─────┐                           kept       S/, for a later run
    POST /signal, IndexNow, WebSub ► LiveServices.signal ─┼─► commit queue ─► decide ► noted      refresh schedule, f/
    another process's outbox ──► PeerExchange ────────────┘        │                   queued     a link like any other
                                                                   │                   sent       the owner's outbox
    dates in a page that is read again ► ResultProcessor ► hear ───┘                   or refused, with the reason

If another process owns the URL, the signal is sent to that process through the outbox, as a link with the
flag SIGNAL. So the signal is durable, and is applied once. The owner decides as if it had received the signal
directly.

The rules, in this order:

    not a URL, or too long                                    refused
    violates a rule that also applies to known pages (`_BIND_ALL`)         out of scope, in every process alike
    owned by another process                                  sent
    redirects, as its record says                             as the target of the redirect (`moved_urls.py`)
    known                                                     noted if it is kept fresh, or may have appeared; in a
                                                              run without refreshes kept for the next one with them;
                                                              queued if it waits for another try after a failure
    rejected by the filter                                    out of scope
    seen, and in no queue                                     retired
    otherwise                                                 queued as a link, at the depth of a seed's links;
                                                              if it becomes a page, it counts as a new page, which
                                                              was published at the time of the signal

If signals were decided outside of the commit queue, URLs could be lost. The links of a page are admitted in
portions, and other work may run between two portions. Suppose that a signal were decided between two portions
of a page, and that the page also links to the URL of the signal. The signal would put the URL into the CLOCK
cache, so the URL would not be among the links committed with the page. If the page were committed, and the
process were killed before the signal was committed, the URL would be lost.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from crawler.change_signals import SOURCES, TOLD_MAX, Fate, Signalled, source_number
from crawler.process.committing.portions import portions
from crawler.process.results.admission import Admission, LinkContext, Pauses
from crawler.process.results.moved_urls import moved_to
from crawler.records import Extracted, FetchTask, Link, LinkFlag, PageRecord
from crawler.splitter.inbox import Received
from crawler.splitter.partition import Partition
from crawler.storage.commit import Change, Making
from crawler.urlfilter import traps
from crawler.urlfilter.link_filter import LinkFilter
from crawler.urlfilter.rule_names import EXCLUDE, PORT, RULES, SCOPE
from crawler.urls.canonical import hostname, resolve

if TYPE_CHECKING:
    from crawler.frontier.refresh.change_intake import ChangeIntake
    from crawler.frontier.refresh.kept_signals import KeptSignals
    from crawler.frontier.refresh.refreshing import Refresh

URL_CHARS_TOLD = 200  # maximum number of characters of an invalid URL that are repeated in the answer
_SIGNAL, _REQUISITE, _NEWS = LinkFlag.SIGNAL, LinkFlag.REQUISITE, LinkFlag.NEWS
_BIND_ALL = frozenset({SCOPE, EXCLUDE, PORT, traps.PATH_SEGMENTS, traps.REPEATED_SEGMENTS})
# maximum number of processes that pass a signal on to the owner of a redirect's target
PASSES_MAX = 5
# A mark for each source, which is combined with the fingerprints of signals from this source. The marks are
# needed because a compaction of the outbox keeps only one link per fingerprint.
_MARKS = tuple(0x5157_0000_0000 + number for number in range(SOURCES))


class _Subject(NamedTuple):
    """The URL for which a signal counts. `record` is None if there is none, or if another process has it."""

    url: str
    fingerprint: int
    rule: str
    owner: str
    record: PageRecord | None


class SignalIntake:
    """Decides what is done with change signals, as the picture in the module docstring shows.

    Args:
        record: returns the record of a page by its fingerprint.
        changes: takes the signals about known pages: the schedule, or `KeptSignals` if no page is refetched.
        refresh: the schedule of known pages; None if no page is refetched.
        is_retired: returns whether a URL (request form) with a fingerprint was dropped by `crawler retire`. It reads a
            queue, which takes at most about 10 ms. So it is called only for the `TOLD_MAX` URLs that the answer to the
            signal names. All other URLs count as queued.
        requisites: whether requisites are fetched, even those out of scope.
        me: the name of this process in the partition.
    """

    def __init__(
        self,
        admission: Admission,
        intake: LinkFilter,
        partition: Partition,
        me: str,
        *,
        record: Callable[[int], PageRecord | None],
        changes: "ChangeIntake | KeptSignals",
        refresh: "Refresh | None",
        is_retired: Callable[[str, int], bool],
        requisites: bool,
        now: Callable[[], float],
    ) -> None:
        self._admission = admission
        self._intake = intake
        self._partition = partition
        self._me = me
        self._record = record
        self._changes = changes
        self._refresh = refresh
        self._is_retired = is_retired
        self._flags = _REQUISITE if requisites else 0
        self._now = now

    def decide(self, raw_urls: Sequence[str], source: str, said: Signalled) -> Making:
        """Build the `Change` for URLs that `source` ("name" or "name:who") reports as changed.

        Record in `said` what was decided about each URL.
        """
        change, counted = Change(), set[int]()
        number, met = source_number(source), set[str]()
        for portion in portions(raw_urls):
            yield from self._decide(change, self._forms(portion, met, said), number, said, counted)
            yield None
        _count(change, said)
        return change

    def received(self, received: Received, links: list[Link]) -> Making:
        """Build the `Change` for `links` from another process: links to follow, and signals about own URLs."""
        signals = [link for link in links if link.flags & _SIGNAL]
        if not signals:
            return (yield from self._admission.received(received, links))
        links = [link for link in links if not link.flags & _SIGNAL]
        change = yield from self._admission.received(received, links)
        change.count("splitter.signals_heard", len(signals))
        said = Signalled()
        told = {link.url: link for link in signals}
        for number in sorted({link.redirects for link in signals}):
            counted = set[int]()
            for portion in portions([link.url for link in signals if link.redirects == number]):
                yield from self._decide(change, portion, min(number, SOURCES - 1), said, counted, told)
                yield None
        _count(change, said)
        return change

    def hear(self, change: Change, fetch_task: FetchTask, extracted: Extracted, now: float) -> None:
        """If a refetched page states dates for other pages of its host, record these dates as change signals.

        This process owns these pages, because it owns the host.
        """
        if self._refresh is None:
            return
        base, encoding = extracted.base, extracted.encoding

        def own(dated: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
            found = ((resolve(base, raw_url, encoding=encoding), at) for raw_url, at in dated)
            return [
                (url, at) for url, at in found if url is not None and hostname(url) == fetch_task.hostname
            ]

        changes, source = self._refresh.changes, extracted.told_by
        changed = own(extracted.dated) + changes.without_copy(own(extracted.first_dated))
        final = dict[str, float]()
        for url, at in changed:
            target = self._moved_on_host(url, source)
            final[target] = max(at, final.get(target, at))
        changes.note_dated(fetch_task.fingerprint, list(final.items()), source, now, change)

    def _moved_on_host(self, url: str, source: str) -> str:
        """Return the URL of the same host for which the date of a URL counts."""
        subject = self._subject(url, ours=True)
        if self._refresh is None or subject.fingerprint in self._refresh:
            return url
        target = self._moved_to(subject, source_number(source))
        return target if target and hostname(target) == hostname(url) else url

    def _forms(self, raw_urls: Sequence[str], met: set[str], said: Signalled) -> list[str]:
        """Return the request forms of valid URLs, each once. `met` holds the forms that earlier calls have returned."""
        forms = []
        for raw_url in raw_urls:
            form, rule = self._intake.form(raw_url)
            if rule:
                said.record(raw_url[:URL_CHARS_TOLD], Fate.REFUSED, rule, RULES[rule])
            elif form not in met:
                met.add(form)
                forms.append(form)
        return forms

    def _decide(
        self,
        change: Change,
        urls: Sequence[str],
        number: int,
        said: Signalled,
        counted: set[int],
        told: Mapping[str, Link] | None = None,
    ) -> Pauses:
        """Decide about URLs (request forms).

        If another process has received the signals, all URLs belong to this process, and `told` holds the signals by
        URL. `counted` holds the fingerprints of the URLs for which earlier URLs of the notification count.
        """
        now = self._now()
        known: list[int] = []
        new: dict[str, float] = {}  # URL -> instant of the signal
        sent: dict[str, list[Link]] = {}
        for url in urls:
            link = told[url] if told is not None else Link(0, url)
            at = min(float(link.via) or now, now)
            subject, passes = self._subject(url, ours=told is not None), link.depth
            target = self._moved_to(subject, number) if passes < PASSES_MAX else ""
            if target:
                if self._changes.has(subject.fingerprint):
                    known.append(subject.fingerprint)
                subject, passes = self._subject(target), passes + 1
            fate, why = self._fate(subject, asks_retired=len(said.urls) < TOLD_MAX)
            said.record(url, fate, why or target, RULES.get(why, ""))
            if subject.fingerprint in counted:
                continue
            counted.add(subject.fingerprint)
            if fate is self._changes.fate:
                known.append(subject.fingerprint)
            elif fate is Fate.SENT:
                mark = subject.fingerprint ^ _MARKS[number]
                signal = Link(mark, subject.url, passes, int(at), redirects=number, flags=_SIGNAL)
                sent.setdefault(subject.owner, []).append(signal)
            elif fate is Fate.QUEUED and subject.record is None:
                new[subject.url] = at
        if known:
            self._changes.take(known, number, now, change)
        if new:
            yield from self._queue(change, new)
        for owner, links in sent.items():
            change.foreign.append((owner, links))
            change.count("splitter.signals_told", len(links))

    def _subject(self, url: str, *, ours: bool = False) -> _Subject:
        """Return what is known of a URL. If `ours`, it counts as a URL of this process."""
        _, fingerprint, rule = self._intake.one(url, self._flags)
        owner = self._me if ours else self._partition.owner(fingerprint)
        is_read = owner == self._me and rule not in _BIND_ALL
        return _Subject(url, fingerprint, rule, owner, self._record(fingerprint) if is_read else None)

    def _moved_to(self, subject: _Subject, number: int) -> str:
        """Return the URL for which a signal about a URL that redirects counts; "" if there is none."""
        if subject.record is None:
            return ""
        return moved_to(
            subject.url, subject.record, number, lambda url: self._record(self._intake.one(url).fingerprint)
        )

    def _fate(self, subject: _Subject, *, asks_retired: bool) -> tuple[Fate, str]:
        """Return the fate of a URL, and the reason that the answer states.

        If `asks_retired` is false, a URL that was retired counts as queued.
        """
        url, fingerprint, rule, owner, record = subject
        if rule in _BIND_ALL:
            return Fate.OUT_OF_SCOPE, rule
        if owner != self._me:
            return Fate.SENT, owner
        if record is not None:
            if self._changes.accepts(fingerprint, record):
                return self._changes.fate, ""
            return Fate.QUEUED if record.queued else Fate.NOT_REFRESHED, ""
        if rule := self._intake.one(url).rule if self._flags else rule:
            return Fate.OUT_OF_SCOPE, rule
        return Fate.RETIRED if asks_retired and self._is_retired(url, fingerprint) else Fate.QUEUED, ""

    def _queue(self, change: Change, told_at: Mapping[str, float]) -> Pauses:
        """Queue URLs that the crawl does not know, given with the instants of the signals.

        If known pages are kept fresh, the URLs count as new pages.
        """
        urls = list(told_at)
        if self._refresh is None:
            yield from self._admission.links(change, urls[0], urls, LinkContext(depth=1))
            return
        before = len(change.links)
        yield from self._admission.links(change, urls[0], urls, LinkContext(depth=1, flags=_NEWS))
        for link in change.links[before:]:
            self._refresh.births.tell(link.fingerprint, told_at.get(link.url, self._now()), change)


def _count(change: Change, said: Signalled) -> None:
    """Count URLs by fate, as `signals.<fate>`. So, even after a crash, the number of accepted signals is known."""
    for fate, n in said.counts().items():
        change.count(f"signals.{fate}", n)
