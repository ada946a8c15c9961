"""Makes requests conditional on validators that can be trusted (RFC 9110 13.1), because some servers lie.

A known page is requested with the unchanged ETag and Last-Modified of its copy. An answer of 304 saves the
transfer of the body. But after a false 304, a stale copy is kept. So validators are trusted only as far as they
have proved correct. Trust is learned for each combination of a host, a kind of validator and a path pattern
(`frontier/refresh/README.md`, "Conditional requests"), for example `/docs/*.html` or `/*?id`. A host has up to
`PATTERNS_MAX` patterns; all others share one. Each combination has these counts of answers to refetches:

    shown     the content changed, and a condition with this validator was answered 200
    lies      the content changed, but the validator stayed the same, or a 304 came in between
    saved     304
    wasted    200 to a condition, with the known content

The share of lies of a pattern is estimated from its own lies and proofs (`shown`) and a prior of `WEIGHT`
pseudo counts. The mean of this prior is the mean share of lies over the host's patterns. The estimate for the
host in turn has the mean share over all hosts as its prior. A pattern is still trusted after one lie, but not
after two lies without any proof.

    share > LIES_MAX             the validator is sent in only one request of `TRIAL_EVERY`: a false 304
                                 costs a refresh, an unnecessary 200 only a body
    a page's own lie             it is requested without the validator `check_every` times and for at least
                                 `distrust` seconds, four times as often after each further lie; until
                                 then the page does not affect the counts of its pattern
    ETag wasted, date present    only the date is sent (the tags differ in each answer, or a
                                 compressing server does not recognize them)
    both trusted                 both are sent: the server uses the ETag (RFC 9110 13.2.2)

If the content changed but only one of two validators did, only the unchanged validator is charged with the
lie. Assume that a plain request (see below) finds a change and new validators after n answers of 304. If the
change happened before the last 304, that 304 was a lie. The probability that the last 304 was a lie is
q / (q + (1-q) L), where q is the share of lies and L the likelihood that an honest server gives the same
answers. L is 1/(n+1): the n answers of 304 and the plain request end n+1 intervals, and if the server is
honest, the change came in the last of them. For a pattern that never showed a change, L is at most
2/((m+1)(m+2)), where m is the number of 304 answers for the pattern. If the Last-Modified of the new answer
is older than the last 304, a tenth of L is used. If this Last-Modified is newer than the last 304, the 304
was honest.

To find lies, some requests are *plain*, that is, without conditions. If the share of lies is `LIES_USUAL`,
the request after `same_answers_max` answers of 304 in a row is plain. With a smaller share of lies, the
number of answers of 304 before a plain request grows, up to fourfold; with a larger share, the number
shrinks. After a change signal for a page, only 1 to 4 answers of 304 come before a plain request, depending
on the share of lies. A 304 with validators that differ from those of the copy is followed by a plain request.
As long as no page of a path pattern has shown a change, the requests for the pattern are counted, and each
request whose number is `check_every` times a power of two is plain, too.

Counts are stored by host (`b/`) and survive a restart, which matters for crawls that run once a day.
"""

from collections.abc import Iterable
from enum import IntEnum

import msgspec

from crawler import http_dates
from crawler.config import RefreshConfig
from crawler.errors import DamageError
from crawler.records import UNDECODABLE, Outcome, PageRecord, PageState
from crawler.storage import keys
from crawler.storage.kv import Batch, KeyValue, scan_prefix, seal, unseal

PATTERNS_MAX = 32  # number of patterns per host
# Number of hosts in memory, about 300 bytes each; above this number, the least recently requested hosts are
# dropped.
HOSTS_MAX, CELLS_MAX = (50_000, 100_000)
# maximum number of pages that are remembered because one of their validators lied or is in doubt
PAGES_MAX = 100_000
# maximum of `shown` + `lies`, and of `saved` + `wasted`; if a sum is greater, both counts are halved, so that
# old counts decay
COUNT_MAX = 64.0
# The weight of a prior, in pseudo counts. It also limits what the counts of one pattern add to the counts of
# the crawl.
WEIGHT = 10.0
CRAWL_WEIGHT = 100.0  # weight, in pseudo counts, of the prior for the whole crawl
LIES_USUAL = 0.05  # assumed share of wrong 304 answers, before anything is learned
# If a larger share of the 304 answers are wrong, missed refreshes cost more than omitted bodies save.
LIES_MAX = 0.2
TRUST_MAX = 4.0  # if few 304 answers are wrong, `same_answers_max` is multiplied by up to this factor
TRIAL_EVERY = 16
WASTED_MAX = 0.7
PARAMETERS_MAX, PATTERN_CHARS_MAX = 3, 64
DATE_SLACK = 2.0  # seconds of tolerance, because dates are in whole seconds
# If the new content's Last-Modified is older than the last 304, that 304 may have been wrong. In this case,
# the likelihood of an honest 304 is multiplied by this factor. The factor is not 0, because the
# date may be wrong: the clocks of servers differ, and a file that is moved keeps its old date.
DATE_DOUBT = 0.1
ANY = "*"  # the pattern that stands for all patterns beyond `PATTERNS_MAX`


class ValidatorKind(IntEnum):
    """The kind of a validator."""

    STRONG = 0
    WEAK = 1
    MODIFIED = 2


class Trust(msgspec.Struct, gc=False, array_like=True):
    """Counts of the answers for a validator; see the module docstring."""

    shown: float = 0.0
    lies: float = 0.0
    saved: float = 0.0
    wasted: float = 0.0
    asked: int = 0  # number of requests made before the pattern first showed a change

    def __post_init__(self) -> None:
        counts = (self.shown, self.lies, self.saved, self.wasted)
        if not all(0.0 <= count <= 2.0 * COUNT_MAX for count in counts):
            raise ValueError(f"{self}: counts are out of bounds")

    def judge(self, *, shown: float = 0.0, lies: float = 0.0) -> None:
        self.shown, self.lies = _faded(self.shown + shown, self.lies + lies)

    def spend(self, *, saved: float = 0.0, wasted: float = 0.0) -> None:
        self.saved, self.wasted = _faded(self.saved + saved, self.wasted + wasted)

    def lie_share(self, prior: float) -> float:
        return (self.lies + WEIGHT * prior) / (self.shown + self.lies + WEIGHT)

    @property
    def wasted_share(self) -> float:
        return (self.wasted + 1.0) / (self.saved + self.wasted + 2.0)


Cells = dict[tuple[ValidatorKind, str], Trust]


class _Host(msgspec.Struct):
    """The counts of a host, and the number of requests to it since distrusted validators were last tried."""

    cells: Cells
    untried: int = 0


class _Page(msgspec.Struct, gc=False):
    """The state of a page whose validators lied, that is, hid a change.

    `times` is the number of lies. `kinds` are the kinds of validators that are not sent. This applies to the
    next `left` requests, and to all requests before `until`. `doubted` is set if the last answers were 304
    with validators that differ from those of the page's copy. `doubted` holds the validators of the copy.
    """

    kinds: int = 0
    times: int = 0
    left: int = 0
    until: float = 0.0
    doubted: tuple[str, str] = ("", "")


class Validators:
    """Decides about conditional requests. For each refetch, call `conditions`, then `answered`."""

    def __init__(self, config: RefreshConfig) -> None:
        self._config = config
        self._distrust = config.distrust / config.speed
        self._hosts: dict[int, _Host] = {}
        self._pages: dict[int, _Page] = {}
        self._crawl = [[0.0, 0.0] for _ in ValidatorKind]  # kind -> [`shown`, `lies`] of the whole crawl
        self._cells = 0
        self._under_way: dict[int, tuple[ValidatorKind, ...]] = {}  # fingerprint -> the kinds that were sent
        self.lies = 0

    def open(self, store: KeyValue) -> None:
        """Load the stored counts.

        Raises:
            DamageError: a record is damaged.
        """
        for key, value in scan_prefix(store, keys.VALIDATORS):
            try:
                rows = msgspec.msgpack.decode(unseal(key, value), type=list[tuple[ValidatorKind, str, Trust]])
            except UNDECODABLE as error:
                raise DamageError(f"store: validators record {key!r}: {error}") from error
            host = self._host(int.from_bytes(key[2:], "big"))
            for kind, pattern, trust in rows[: PATTERNS_MAX * len(ValidatorKind)]:
                self._put(host, kind, pattern, trust)
                self._tell_crawl(kind, trust, trust.shown, trust.lies)

    # -- asking

    def conditions(
        self,
        fingerprint: int,
        host_key: int,
        record: PageRecord | None,
        now: float,
        *,
        signalled: bool = False,
    ) -> tuple[str, str]:
        """Return the (ETag, Last-Modified) to send. A value is "" if there is none, or if it must not be sent."""
        self._under_way.pop(fingerprint, None)
        if not self._config.conditional or record is None or record.state is not PageState.STORED:
            return "", ""
        sent = self._chosen(fingerprint, host_key, record, now, signalled) if _kinds(record) else ()
        if not sent:
            return "", ""
        self._under_way[fingerprint] = sent
        return (
            record.etag if sent[0] is not ValidatorKind.MODIFIED else "",
            record.last_modified if sent[-1] is ValidatorKind.MODIFIED else "",
        )

    def _chosen(
        self, fingerprint: int, host_key: int, record: PageRecord, now: float, signalled: bool
    ) -> tuple[ValidatorKind, ...]:
        """Return those validators of a page that are to be sent."""
        host, page, pattern = self._host(host_key), self._pages.get(fingerprint), pattern_of(record.url)
        barred = _barred(page, now)
        if page is not None:
            page.left = max(page.left - 1, 0)
        kinds = tuple(kind for kind in _kinds(record) if not barred >> kind & 1)
        shares = {kind: self._lie_share(host, kind, pattern) for kind in kinds}
        believed = tuple(kind for kind in kinds if shares[kind] <= LIES_MAX)
        if kinds and not believed:
            return kinds if self._is_trial(host, record) else ()
        chosen = self._without_waste(host, believed, pattern)
        if not chosen:
            return ()
        cell, share = self._trust(host, chosen[0], pattern), max(shares[kind] for kind in chosen)
        if self._is_checked(cell, share, record.not_modified, _doubt(page, chosen), signalled):
            return ()
        return chosen

    @staticmethod
    def _is_trial(host: _Host, record: PageRecord) -> bool:
        """Return whether it is time to try distrusted validators again."""
        host.untried += 1
        if record.not_modified or host.untried < TRIAL_EVERY:
            return False
        host.untried = 0
        return True

    def _without_waste(
        self, host: _Host, kinds: tuple[ValidatorKind, ...], pattern: str
    ) -> tuple[ValidatorKind, ...]:
        """Leave out the ETag if it hardly ever leads to a 304 and Last-Modified does so more often."""
        if len(kinds) < 2:
            return kinds
        tag, date = (self._trust(host, kind, pattern).wasted_share for kind in kinds)
        return kinds[1:] if tag > WASTED_MAX and date < tag else kinds

    def _is_checked(
        self, cell: Trust, share: float, not_modified: int, doubted: bool, signalled: bool
    ) -> bool:
        """Return whether to send a plain request to check validators that are trusted."""
        answers = self._config.same_answers_max * min(LIES_USUAL / share, TRUST_MAX)
        if signalled:
            answers /= self._config.same_answers_max
        if not_modified >= (1.0 if doubted else max(answers, 1.0)):
            return True
        if cell.shown:
            return False
        cell.asked += 1
        turn, left = divmod(cell.asked, self._config.check_every)
        return not left and turn & (turn - 1) == 0

    # -- learning

    def answered(
        self,
        fingerprint: int,
        host_key: int,
        before: PageRecord | None,
        after: PageRecord,
        changed: bool,
        now: float,
        batch: Batch,
    ) -> bool:
        """Update the counts after a request, and return whether the request has shown that a validator lied."""
        sent = self._under_way.pop(fingerprint, ())
        if before is None or before.state is not PageState.STORED or after.state is not PageState.STORED:
            return False
        if after.outcome not in _JUDGED or not _kinds(before):
            return False
        if before.rendered or after.rendered:  # validators say nothing about what a browser shows
            return False
        host, pattern = self._host(host_key), pattern_of(before.url)
        if after.outcome is Outcome.UNCHANGED:
            self._hear_304(fingerprint, host, pattern, before, after, sent)
            return False
        page = self._pages.get(fingerprint)
        if page is not None and any(page.doubted):
            before = msgspec.structs.replace(before, etag=page.doubted[0], last_modified=page.doubted[1])
        lied: tuple[ValidatorKind, ...] = ()
        if changed:
            lied = self._judge(host, pattern, before, after, sent, _barred(page, now))
        elif sent:
            self._trust(host, sent[0], pattern).spend(wasted=1.0)
        if page is not None:
            self._forgive(fingerprint, page, sent if changed else ())
        if lied:
            self._bar(fingerprint, lied, now)
        if changed or sent:
            self._stage(host_key, host, batch)
        return bool(lied)

    def _hear_304(
        self,
        fingerprint: int,
        host: _Host,
        pattern: str,
        before: PageRecord,
        after: PageRecord,
        sent: tuple[ValidatorKind, ...],
    ) -> None:
        """Count the body that a 304 saved.

        If the validators of the 304 and of the copy differ, it is doubted that the copy is current (RFC 9111
        4.3.4).
        """
        if sent:
            self._trust(host, sent[0], pattern).spend(saved=1.0)
        if any(_value(before, kind) != _value(after, kind) for kind in _kinds(before)):
            page = self._page(fingerprint)
            if not any(page.doubted):
                page.doubted = (before.etag, before.last_modified)

    def _judge(
        self,
        host: _Host,
        pattern: str,
        before: PageRecord,
        after: PageRecord,
        sent: tuple[ValidatorKind, ...],
        barred: int,
    ) -> tuple[ValidatorKind, ...]:
        """Update the counts after a change, and return the validators that have probably lied."""
        kinds = tuple(kind for kind in _kinds(before) if not barred >> kind & 1)
        same = tuple(kind for kind in kinds if _value(before, kind) == _value(after, kind))
        if same or sent:
            for kind in same:
                self._note(host, kind, pattern, lies=1.0)
            for kind in set(sent) - set(same):
                self._note(host, kind, pattern, shown=1.0)
            return same
        lied = []
        for kind in kinds if before.not_modified else ():
            chance = self._lie_chance(host, kind, pattern, before, after)
            self._note(host, kind, pattern, lies=chance)
            if chance > 0.5:
                lied.append(kind)
        return tuple(lied)

    def _lie_chance(
        self, host: _Host, kind: ValidatorKind, pattern: str, before: PageRecord, after: PageRecord
    ) -> float:
        """Return the probability that a change found by a plain request happened before the last 304."""
        share, cell = self._lie_share(host, kind, pattern), self._trust(host, kind, pattern)
        honest = 1.0 / (before.not_modified + 1.0)
        if not cell.shown:
            honest = min(honest, 2.0 / ((cell.saved + 1.0) * (cell.saved + 2.0)))
        changed_at = http_dates.instant(after.last_modified)
        if changed_at is not None:
            if changed_at > before.fetched_at:
                return 0.0
            if changed_at + DATE_SLACK < before.fetched_at:
                honest *= DATE_DOUBT
        return share / (share + (1.0 - share) * honest)

    def _note(
        self, host: _Host, kind: ValidatorKind, pattern: str, *, shown: float = 0.0, lies: float = 0.0
    ) -> None:
        trust = self._trust(host, kind, pattern)
        trust.judge(shown=shown, lies=lies)
        if trust.shown + trust.lies <= WEIGHT:
            self._tell_crawl(kind, trust, shown, lies)

    def _tell_crawl(self, kind: ValidatorKind, trust: Trust, shown: float, lies: float) -> None:
        """Add counts of a pattern to the crawl's prior, in total at most `WEIGHT` for each pattern."""
        part = min(1.0, WEIGHT / max(trust.shown + trust.lies, WEIGHT))
        self._crawl[kind][0] += part * shown
        self._crawl[kind][1] += part * lies

    def _bar(self, fingerprint: int, kinds: Iterable[ValidatorKind], now: float) -> None:
        """Do not send these validators of a page for a while, because they lied."""
        self.lies += 1
        page = self._page(fingerprint)
        for kind in kinds:
            page.kinds |= 1 << kind
        page.left = self._config.check_every * 4 ** min(page.times, 8)
        page.until = now + self._distrust
        page.times += 1

    def _forgive(self, fingerprint: int, page: _Page, shown: Iterable[ValidatorKind]) -> None:
        """Record a full answer: the page is no longer in doubt, and validators that showed a change are allowed again."""
        page.doubted = ("", "")
        for kind in shown:
            page.kinds &= ~(1 << kind)
        if not page.kinds:
            del self._pages[fingerprint]

    # -- stored state

    def _lie_share(self, host: _Host, kind: ValidatorKind, pattern: str) -> float:
        """Return the expected share of changes that the validator hides."""
        shown, lies = self._crawl[kind]
        crawl = (lies + CRAWL_WEIGHT * LIES_USUAL) / (shown + lies + CRAWL_WEIGHT)
        own = [(cell, cell.shown + cell.lies) for (each, _), cell in host.cells.items() if each is kind]
        weights = [n / (n + WEIGHT) for _, n in own]
        means = [cell.lie_share(crawl) for cell, _ in own]
        site = (WEIGHT * crawl + sum(w * m for w, m in zip(weights, means, strict=True))) / (
            WEIGHT + sum(weights)
        )
        cell = host.cells.get((kind, pattern)) or host.cells.get((kind, ANY))
        return site if cell is None else cell.lie_share(site)

    def _trust(self, host: _Host, kind: ValidatorKind, pattern: str) -> Trust:
        """Return the counts of a (kind, pattern); add new counts if there is room."""
        found = host.cells.get((kind, pattern))
        if found is None and sum(each is kind for each, _ in host.cells) >= PATTERNS_MAX - 1:
            pattern = ANY
            found = host.cells.get((kind, pattern))
        return found or self._put(host, kind, pattern, Trust())

    def _put(self, host: _Host, kind: ValidatorKind, pattern: str, trust: Trust) -> Trust:
        self._cells += (kind, pattern) not in host.cells
        host.cells[kind, pattern] = trust
        self._make_room()
        return trust

    def _make_room(self) -> None:
        """Drop the least recently requested hosts if there are too many."""
        while (self._cells > CELLS_MAX and len(self._hosts) > 1) or len(self._hosts) > HOSTS_MAX:
            oldest = self._hosts.pop(next(iter(self._hosts)))
            self._cells -= len(oldest.cells)

    def _host(self, key: int) -> _Host:
        """Return a host, and mark it as the most recently requested."""
        host = self._hosts.pop(key, None) or _Host({})
        self._hosts[key] = host
        self._make_room()
        return host

    def _page(self, fingerprint: int) -> _Page:
        page = self._pages.pop(fingerprint, None) or _Page()
        if len(self._pages) >= PAGES_MAX:
            del self._pages[next(iter(self._pages))]
        self._pages[fingerprint] = page
        return page

    @staticmethod
    def _stage(key: int, host: _Host, batch: Batch) -> None:
        rows = [(kind, pattern, trust) for (kind, pattern), trust in host.cells.items()]
        batch.put(keys.VALIDATORS + key.to_bytes(8, "big"), seal(msgspec.msgpack.encode(rows)))

    def _check(self) -> None:
        """Assert the invariants that hold between any two calls."""
        assert self._cells == sum(len(host.cells) for host in self._hosts.values())
        assert len(self._pages) <= PAGES_MAX
        for host in self._hosts.values():
            assert len(host.cells) <= PATTERNS_MAX * len(ValidatorKind)

    def __repr__(self) -> str:
        return f"Validators({len(self._hosts)} hosts, {self._cells} cells, {self.lies} lies)"


_JUDGED = (Outcome.FETCHED, Outcome.EMPTY, Outcome.UNCHANGED)


def pattern_of(url: str) -> str:
    """Return the pattern of a canonical URL, such as `/docs/*.html` or `/*?id`. Often, one program serves a pattern."""
    path, _, query = url.partition("://")[2].partition("/")[2].partition("?")
    folders, _, name = f"/{path}".rpartition("/")
    first = folders.split("/", 2)[1] + "/" if folders else ""
    _, dot, suffix = name.rpartition(".")
    suffix = f".{suffix}" if dot and suffix.isalnum() and len(suffix) <= 5 else ""
    names = [part.partition("=")[0] for part in query.split("&")[:PARAMETERS_MAX]]
    shown = f"?{'&'.join(names)}" if query else ""
    return f"/{first}*{suffix}{shown}"[:PATTERN_CHARS_MAX]


def _faded(one: float, other: float) -> tuple[float, float]:
    return (one, other) if one + other <= COUNT_MAX else (one / 2.0, other / 2.0)


def _kinds(record: PageRecord) -> tuple[ValidatorKind, ...]:
    """Return the kinds of validators that a copy has, in order of precedence."""
    found: tuple[ValidatorKind, ...] = ()
    if record.etag:
        found = (ValidatorKind.WEAK if record.etag.startswith("W/") else ValidatorKind.STRONG,)
    return (*found, ValidatorKind.MODIFIED) if record.last_modified else found


def _barred(page: _Page | None, now: float) -> int:
    """Return the kinds that are not sent for a page at present, as bits."""
    return page.kinds if page is not None and (page.left or now < page.until) else 0


def _doubt(page: _Page | None, kinds: tuple[ValidatorKind, ...]) -> bool:
    """Return whether a 304 for the page must be followed by a plain request."""
    return page is not None and (any(page.doubted) or any(page.kinds >> kind & 1 for kind in kinds))


def _value(record: PageRecord, kind: ValidatorKind) -> str:
    return record.last_modified if kind is ValidatorKind.MODIFIED else record.etag
