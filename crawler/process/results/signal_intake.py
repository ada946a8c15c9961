"""The intake of change signals: decides about all signals, from any sender, in the order of the commit queue.

    crawler signal, Crawl.signal ──► Commands.signal ─────┐
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
    known                                                     noted if it is kept fresh, or may have appeared;
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
from typing import TYPE_CHECKING

from crawler.change_signals import SOURCES, TOLD_MAX, Fate, Signalled, source_number
from crawler.process.committing.portions import portions
from crawler.process.results.admission import Admission, LinkContext, Pauses
from crawler.records import Extracted, FetchTask, Link, LinkFlag, PageRecord
from crawler.splitter.inbox import Received
from crawler.splitter.partition import Partition
from crawler.storage.commit import Change, Making
from crawler.urlfilter import traps
from crawler.urlfilter.link_filter import LinkFilter
from crawler.urlfilter.rule_names import EXCLUDE, PORT, SCOPE
from crawler.urls.canonical import hostname, resolve

if TYPE_CHECKING:
    from crawler.frontier.refresh.refreshing import Refresh

URL_CHARS_TOLD = 200  # maximum number of characters of an invalid URL that are repeated in the answer
_SIGNAL, _REQUISITE, _NEWS = LinkFlag.SIGNAL, LinkFlag.REQUISITE, LinkFlag.NEWS
_BIND_ALL = frozenset({SCOPE, EXCLUDE, PORT, traps.PATH_SEGMENTS, traps.REPEATED_SEGMENTS})
# A mark for each source, which is combined with the fingerprints of signals from this source. The marks are
# needed because a compaction of the outbox keeps only one link per fingerprint.
_MARKS = tuple(0x5157_0000_0000 + number for number in range(SOURCES))


class SignalIntake:
    """Decides what is done with change signals, as the picture in the module docstring shows.

    Args:
        record: returns the record of a page by its fingerprint.
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
        self._refresh = refresh
        self._is_retired = is_retired
        self._flags = _REQUISITE if requisites else 0
        self._now = now

    def decide(self, raw_urls: Sequence[str], source: str, said: Signalled) -> Making:
        """Build the `Change` for URLs that `source` ("name" or "name:who") reports as changed.

        Record in `said` what was decided about each URL.
        """
        change = Change()
        number, met = source_number(source), set[str]()
        for portion in portions(raw_urls):
            yield from self._decide(change, self._forms(portion, met, said), number, said)
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
        told_at = {link.url: float(link.via) for link in signals}
        for number in sorted({link.redirects for link in signals}):
            for portion in portions([link.url for link in signals if link.redirects == number]):
                yield from self._decide(change, portion, min(number, SOURCES - 1), said, told_at)
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
        changes.note_dated(fetch_task.fingerprint, changed, source, now, change)

    def _forms(self, raw_urls: Sequence[str], met: set[str], said: Signalled) -> list[str]:
        """Return the request forms of valid URLs, each once. `met` holds the forms that earlier calls have returned."""
        forms = []
        for raw_url in raw_urls:
            form, rule = self._intake.form(raw_url)
            if rule:
                said.record(raw_url[:URL_CHARS_TOLD], Fate.REFUSED, rule)
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
        told_at: Mapping[str, float] | None = None,
    ) -> Pauses:
        """Decide about URLs (request forms).

        If another process has received the signals, all URLs belong to this process, and `told_at` holds the instants of
        the signals.
        """
        now = self._now()
        known: list[int] = []
        new: list[str] = []
        sent: dict[str, list[Link]] = {}
        for url in urls:
            _, fingerprint, rule = self._intake.one(url, self._flags)
            if rule in _BIND_ALL:
                said.record(url, Fate.OUT_OF_SCOPE, rule)
            elif told_at is None and (owner := self._partition.owner(fingerprint)) != self._me:
                mark = fingerprint ^ _MARKS[number]
                sent.setdefault(owner, []).append(
                    Link(mark, url, via=int(now), redirects=number, flags=_SIGNAL)
                )
                said.record(url, Fate.SENT, owner)
            elif (record := self._record(fingerprint)) is not None:
                if self._refresh is not None and self._refresh.changes.accepts(fingerprint, record):
                    known.append(fingerprint)
                    said.record(url, Fate.NOTED)
                elif record.queued:
                    said.record(url, Fate.QUEUED)
                else:
                    said.record(url, Fate.NOT_REFRESHED)
            elif rule := self._intake.one(url).rule if self._flags else rule:
                said.record(url, Fate.OUT_OF_SCOPE, rule)
            elif len(said.urls) < TOLD_MAX and self._is_retired(url, fingerprint):
                said.record(url, Fate.RETIRED)
            else:
                new.append(url)
                said.record(url, Fate.QUEUED)
        if known and self._refresh is not None:
            self._refresh.changes.admit(known, now, change)
            self._refresh.changes.note_changes(known, number, now)
            self._refresh.changes.stage(change)
        if new:
            yield from self._queue(change, new, told_at or {}, now)
        for owner, links in sent.items():
            change.foreign.append((owner, links))
            change.count("splitter.signals_told", len(links))

    def _queue(self, change: Change, urls: Sequence[str], told_at: Mapping[str, float], now: float) -> Pauses:
        """Queue URLs that the crawl does not know. If known pages are kept fresh, they count as new pages."""
        if self._refresh is None:
            yield from self._admission.links(change, urls[0], urls, LinkContext(depth=1))
            return
        before = len(change.links)
        yield from self._admission.links(change, urls[0], urls, LinkContext(depth=1, flags=_NEWS))
        for link in change.links[before:]:
            born = min(told_at.get(link.url) or now, now)
            self._refresh.births.tell(link.fingerprint, born, change)


def _count(change: Change, said: Signalled) -> None:
    """Count URLs by fate, as `signals.<fate>`. So, even after a crash, the number of accepted signals is known."""
    for fate, n in said.counts().items():
        change.count(f"signals.{fate}", n)
