"""Conditional requests, and which validators can be believed (RFC 9110 13.1; servers lie).

A known page is asked with the ETag and Last-Modified of its copy, unchanged. A 304 saves the
body; a false one keeps a stale copy. So validators are believed as far as they have proven
right, by three things that go with the program behind a URL:

    host
    kind      strong ETag, weak ETag, Last-Modified
    pattern   first directory, suffix and parameter names: `/docs/*.html`, `/*?id`; up to
              `PATTERNS_MAX` a host, further ones are one

Each (host, kind, pattern) counts, of answers to known pages:

    shown     the content changed, and a condition with this validator was answered 200
    lies      the content changed behind this validator: it stayed the same, or a 304 came in between
    saved     304
    wasted    200 to a condition, with the content that is known

The share of lies is a Beta posterior in three levels: lies and proofs of the pattern, with `WEIGHT` pseudo
counts at the mean of the host's patterns, and that at the mean of all hosts. One lie leaves a pattern
believed; two without any proof do not.

    share > LIES_MAX             the validator is not sent, but in one request of `TRIAL_EVERY`: a
                                 false 304 costs a refresh, a 200 that says nothing new only a body
    a page's own lie             it is asked without the validator `check_every` times and at least for
                                 `distrust` seconds, four times as often after each further lie; until
                                 then the page says nothing more of its pattern
    ETag wasted, a date at hand  the date is asked alone (tags that differ in each answer, or that
                                 a compressing server does not know again)
    both believed                both are sent: the server takes the ETag (RFC 9110 13.2.2)

Of two validators sent, the one that stayed the same explains a false 304, and the other keeps its name.
Where both moved, a change found after n answers 304 was there at the last of them with probability
q / (q + (1-q) L), where q is the share of lies and L how likely honest answers look like that: 1/(n+1), for the
change may have come since; 2/((m+1)(m+2)) after m answers 304 of a pattern that never showed a change; a
tenth if the new answer's date is older than the 304, 0 if it is younger.

Some requests are *plain*, to find lies: the one after `same_answers_max` answers 304 in a row, at
the usual share of lies; after up to four times as many as proofs come, after fewer as lies do. A signal
divides that number by `same_answers_max`. A 304 that carries other validators than the copy's is
followed by a plain request. Where a pattern has never shown a change, its requests number `check_every`, twice
as many, four times as many and so on are plain.

Counts are stored by host (`b/`) and outlast a restart, for crawls that run once a day; what a
single page did is forgotten then, and found again by its next check.
"""

from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from enum import IntEnum
from urllib.parse import urlsplit

import msgspec

from crawler.config import RefreshConfig
from crawler.errors import DamageError
from crawler.records import UNDECODABLE, Outcome, PageRecord, PageState
from crawler.storage import keys
from crawler.storage.kv import Batch, KeyValue, scan_prefix, seal, unseal

PATTERNS_MAX = 32  # of a host
HOSTS_MAX, CELLS_MAX = (
    50_000,
    100_000,
)  # in memory, some 300 bytes each; beyond, hosts asked longest ago are met anew
PAGES_MAX = 100_000  # pages that lied or are doubted
COUNT_MAX = 64.0  # of shown and lies, and of saved and wasted: beyond it both halve, so that the past fades
WEIGHT = 10.0  # pseudo counts of a prior; so many counts of a pattern are told to the crawl
CRAWL_WEIGHT = 100.0  # of the crawl's own prior
LIES_USUAL = 0.05  # of changes, before anything is known
LIES_MAX = 0.2  # above it a 304 costs more refreshes than it saves bodies
TRUST_MAX = 4.0  # most that proofs make of `same_answers_max`
TRIAL_EVERY = 16
WASTED_MAX = 0.7
PARAMETERS_MAX, PATTERN_CHARS_MAX = 3, 64
DATE_SLACK = 2.0  # seconds: dates are whole ones
DATE_DOUBT = 0.1  # how likely a date before an honest 304 is: clocks differ, files keep their times when they are moved
ANY = "*"  # the pattern of all that are beyond the bound


class ValidatorKind(IntEnum):
    """Of a validator."""

    STRONG = 0
    WEAK = 1
    MODIFIED = 2


class Trust(msgspec.Struct, gc=False, array_like=True):
    """What answers have shown of a validator; see the module."""

    shown: float = 0.0
    lies: float = 0.0
    saved: float = 0.0
    wasted: float = 0.0
    asked: int = 0  # while nothing was shown

    def __post_init__(self) -> None:
        counts = (self.shown, self.lies, self.saved, self.wasted)
        if not all(0.0 <= count <= 2.0 * COUNT_MAX for count in counts):
            raise ValueError(f"{self}: counts out of bounds")

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
    """A host's cells, and its requests since a trial."""

    cells: Cells
    untried: int = 0


class _Page(msgspec.Struct, gc=False):
    """A page that lied `times`: the kinds, and the requests and the instant until which they are not sent.

    `doubted`: its last answers were 304 with other validators than those of its copy, which are these.
    """

    kinds: int = 0
    times: int = 0
    left: int = 0
    until: float = 0.0
    doubted: tuple[str, str] = ("", "")


class Validators:
    """Decides how known pages are asked; `conditions`, then `answered` for each."""

    def __init__(self, config: RefreshConfig) -> None:
        self._config = config
        self._distrust = config.distrust / config.speed
        self._hosts: dict[int, _Host] = {}
        self._pages: dict[int, _Page] = {}
        self._crawl = [[0.0, 0.0] for _ in ValidatorKind]  # shown and lies
        self._cells = 0
        self._under_way: dict[
            int, tuple[ValidatorKind, ...]
        ] = {}  # by fingerprint: the kinds it was asked with
        self.lies = 0

    def open(self, store: KeyValue) -> None:
        """Take up what is stored.

        Raises:
            DamageError: a record is not whole.
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
        """(ETag, Last-Modified) to ask with; "" where there is none, or it is not to be sent."""
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
        """The validators of a page to ask it with."""
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
        """Whether validators that are not believed are tried once more."""
        host.untried += 1
        if record.not_modified or host.untried < TRIAL_EVERY:
            return False
        host.untried = 0
        return True

    def _without_waste(
        self, host: _Host, kinds: tuple[ValidatorKind, ...], pattern: str
    ) -> tuple[ValidatorKind, ...]:
        """Leave the ETag out where it brings no 304 and a date may."""
        if len(kinds) < 2:
            return kinds
        tag, date = (self._trust(host, kind, pattern).wasted_share for kind in kinds)
        return kinds[1:] if tag > WASTED_MAX and date < tag else kinds

    def _is_checked(
        self, cell: Trust, share: float, not_modified: int, doubted: bool, signalled: bool
    ) -> bool:
        """Whether a page that could be asked with conditions is asked without, to see if they are right."""
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
        """Learn from the end of a request; whether it has caught a validator at a lie."""
        sent = self._under_way.pop(fingerprint, ())
        if before is None or before.state is not PageState.STORED or after.state is not PageState.STORED:
            return False
        if after.outcome not in _JUDGED or not _kinds(before):
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
        """Count a body saved; doubt the page if the answer has other validators than its copy (RFC 9111 4.3.4)."""
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
        """Count what a change says of the validators; those that have more probably lied than not."""
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
        """The probability that a change, found by a plain request after answers 304, was there at the last of them."""
        share, cell = self._lie_share(host, kind, pattern), self._trust(host, kind, pattern)
        honest = 1.0 / (before.not_modified + 1.0)
        if not cell.shown:
            honest = min(honest, 2.0 / ((cell.saved + 1.0) * (cell.saved + 2.0)))
        changed_at = _instant(after.last_modified)
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
        """Let the crawl know of counts of a cell, of which it hears `WEIGHT` at most."""
        part = min(1.0, WEIGHT / max(trust.shown + trust.lies, WEIGHT))
        self._crawl[kind][0] += part * shown
        self._crawl[kind][1] += part * lies

    def _bar(self, fingerprint: int, kinds: Iterable[ValidatorKind], now: float) -> None:
        """Let a page be asked without the validators that lied."""
        self.lies += 1
        page = self._page(fingerprint)
        for kind in kinds:
            page.kinds |= 1 << kind
        page.left = self._config.check_every * 4 ** min(page.times, 8)
        page.until = now + self._distrust
        page.times += 1

    def _forgive(self, fingerprint: int, page: _Page, shown: Iterable[ValidatorKind]) -> None:
        """A whole answer settles a doubt, and a change that a validator has shown its lies."""
        page.doubted = ("", "")
        for kind in shown:
            page.kinds &= ~(1 << kind)
        if not page.kinds:
            del self._pages[fingerprint]

    # -- what is kept

    def _lie_share(self, host: _Host, kind: ValidatorKind, pattern: str) -> float:
        """The expected share of changes that the validator hides."""
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
        """The counts of a cell, made if there is room."""
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
        """Forget the hosts asked longest ago, if there are too many."""
        while (self._cells > CELLS_MAX and len(self._hosts) > 1) or len(self._hosts) > HOSTS_MAX:
            oldest = self._hosts.pop(next(iter(self._hosts)))
            self._cells -= len(oldest.cells)

    def _host(self, key: int) -> _Host:
        """A host, as the one asked last."""
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
        """Assert what holds between any two calls."""
        assert self._cells == sum(len(host.cells) for host in self._hosts.values())
        assert len(self._pages) <= PAGES_MAX
        for host in self._hosts.values():
            assert len(host.cells) <= PATTERNS_MAX * len(ValidatorKind)

    def __repr__(self) -> str:
        return f"Validators({len(self._hosts)} hosts, {self._cells} cells, {self.lies} lies)"


_JUDGED = (Outcome.FETCHED, Outcome.EMPTY, Outcome.UNCHANGED)


def pattern_of(url: str) -> str:
    """The shape of a URL that goes with the program behind it, as `/docs/*.html` or `/*?id`."""
    parts = urlsplit(url)
    folders, _, name = parts.path.rpartition("/")
    first = folders.split("/", 2)[1] + "/" if folders else ""
    _, dot, suffix = name.rpartition(".")
    suffix = f".{suffix}" if dot and suffix.isalnum() and len(suffix) <= 5 else ""
    names = [part.partition("=")[0] for part in parts.query.split("&")[:PARAMETERS_MAX]]
    query = f"?{'&'.join(names)}" if parts.query else ""
    return f"/{first}*{suffix}{query}"[:PATTERN_CHARS_MAX]


def _faded(one: float, other: float) -> tuple[float, float]:
    return (one, other) if one + other <= COUNT_MAX else (one / 2.0, other / 2.0)


def _kinds(record: PageRecord) -> tuple[ValidatorKind, ...]:
    """The validators that a copy has, in the order of their precedence."""
    found: tuple[ValidatorKind, ...] = ()
    if record.etag:
        found = (ValidatorKind.WEAK if record.etag.startswith("W/") else ValidatorKind.STRONG,)
    return (*found, ValidatorKind.MODIFIED) if record.last_modified else found


def _barred(page: _Page | None, now: float) -> int:
    """The kinds that a page is not asked with now, as bits."""
    return page.kinds if page is not None and (page.left or now < page.until) else 0


def _doubt(page: _Page | None, kinds: tuple[ValidatorKind, ...]) -> bool:
    """Whether a page has given reason to check its next 304 at once."""
    return page is not None and (any(page.doubted) or any(page.kinds >> kind & 1 for kind in kinds))


def _value(record: PageRecord, kind: ValidatorKind) -> str:
    return record.last_modified if kind is ValidatorKind.MODIFIED else record.etag


def _instant(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
