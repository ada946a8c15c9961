"""Test how far validators (ETag, Last-Modified) are trusted.

In the test, `Validators` decides how a client fetches the pages of a simulated web. The web's log then shows
how good the decisions of `Validators` were.
"""

import random
from collections.abc import Callable
from email.utils import formatdate
from hashlib import blake2b

import msgspec
import pytest

from crawler.config import RefreshConfig
from crawler.errors import DamageError
from crawler.frontier.refresh import validators as believing
from crawler.frontier.refresh.validators import ValidatorKind, Validators, pattern_of
from crawler.lab.changing.web import ChangingWeb, HostSpec, WebRequest
from crawler.pages.change_detection import is_unchanged, next_record
from crawler.records import Fetch, FetchTask, Outcome, PageRecord, PageState, TaskKind
from crawler.storage import keys
from crawler.storage.kv import MemoryStore, seal

START = 1_750_000_000.0
HOUR = 3600.0
VISIT = 6 * HOUR  # the time between two requests for a page
PAGE_IN_40 = (("/d1/p13.html", "etag-fixed"),)
DIRECTORY_IN_4 = (("/d1/", "etag-fixed"),)


class Guest:
    """A client that fetches all pages of a host in turn, with the request conditions that `validators` chooses.

    The client keeps the records of the pages.
    """

    def __init__(self, web: ChangingWeb, validators: Validators, store: MemoryStore | None = None) -> None:
        self.web, self.validators = web, validators
        self.store = MemoryStore() if store is None else store
        self.records: dict[int, PageRecord] = {}

    def visit(self, page: int, now: float, *, signalled: bool = False) -> None:
        before = self.records.get(page)
        etag, date = self.validators.conditions(page, 1, before, now, signalled=signalled)
        asked = {"if-none-match": etag, "if-modified-since": date}
        given = self.web.answer(
            0, self.web.path(page), {name: text for name, text in asked.items() if text}, now
        )
        headers = {**given.headers, "Date": formatdate(now, usegmt=True)}
        outcome = Outcome.UNCHANGED if given.status == 304 else Outcome.FETCHED
        digest = blake2b(given.body).digest() if given.body else b""
        fetch = Fetch(
            self.web.url(page),
            outcome,
            status=given.status,
            headers=tuple((name.encode(), value.encode()) for name, value in headers.items()),
        )
        fetch_task = FetchTask(TaskKind.PAGE, 1, "a", fetch.url, page)
        after = next_record(before, fetch, fetch_task, None, payload_digest=digest, digest=digest, now=now)
        changed = not is_unchanged(before, fetch, digest)
        batch = self.store.batch()
        self.validators.answered(page, 1, before, after, changed, now, batch)
        self.store.write(batch)
        self.records[page] = after

    def visit_all(self, rounds: int, first: int = 0) -> None:
        for number in range(first, first + rounds):
            for page in range(len(self.web)):
                self.visit(page, START + VISIT * (number + page / len(self.web)))
            self.validators._check()


class Seen(msgspec.Struct):
    """Statistics of the requests after the tenth round, computed from the web's log.

    The first three fields are shares of the requests. A `repeated` answer is complete, but the client already
    had its content.
    """

    conditional: float
    not_modified: float
    repeated: float
    freshness: float


def seen(web: ChangingWeb, pages: Callable[[int], bool] = lambda page: True, rounds: int = 60) -> Seen:
    """Return the statistics of the pages that `pages` accepts, computed from the log of the web."""
    copies: dict[int, int] = {}
    asked: list[tuple[WebRequest, bool]] = []
    for each in web.log:
        if each.at >= START + 10 * VISIT and pages(each.page):
            asked.append((each, each.status == 200 and copies.get(each.page) == each.version))
        if each.status == 200:
            copies[each.page] = each.version
    return Seen(
        sum(each.conditional for each, _ in asked) / len(asked),
        sum(each.status == 304 for each, _ in asked) / len(asked),
        sum(repeated for _, repeated in asked) / len(asked),
        web.freshness(START + 10 * VISIT, START + rounds * VISIT),
    )


def false_304s(web: ChangingWeb) -> int:
    """Return the number of 304 answers for copies that were not current."""
    copies: dict[int, int] = {}
    false = 0
    for each in web.log:
        if each.status == 200:
            copies[each.page] = each.version
        false += each.status == 304 and copies[each.page] != each.version
    return false


def played(rounds: int = 60, *, conditional: bool = True, **spec: object) -> Guest:
    """Return a client that has visited 40 pages in four directories.

    On average, a page changes once per two visits.
    """
    values = {"pages": 40, "directories": 4, "rate": 0.5 / VISIT, "lastmod": "none", "spread": 0.5} | spec
    host = msgspec.convert({"name": "a", **values}, HostSpec)
    web = ChangingWeb([host], horizon=(rounds + 1) * VISIT, start=START, seed=3)
    guest = Guest(web, Validators(RefreshConfig(conditional=conditional)))
    guest.visit_all(rounds)
    return guest


def test_requests_are_conditional_where_validators_are_right() -> None:
    right = seen(played().web)
    assert right.conditional > 0.95 and right.repeated < 0.03
    assert right.freshness == pytest.approx(seen(played(conditional=False).web).freshness, abs=0.003)


@pytest.mark.parametrize(("exceptions", "found_out_after"), [(PAGE_IN_40, 20), (DIRECTORY_IN_4, 5)])
def test_lying_pages_do_not_harm_honest_pages_of_their_host(
    exceptions: tuple[tuple[str, str], ...], found_out_after: int
) -> None:
    """A page with false validators is detected by one check, a directory of such pages by two or three checks."""
    guest = played(exceptions=exceptions)
    lying = {page for page in range(40) if guest.web.validators_of(page) != "right"}
    honest = seen(guest.web, lambda page: page not in lying)
    assert honest.conditional > 0.9 and honest.repeated < 0.05
    plain = seen(played(conditional=False).web).freshness
    assert honest.freshness > plain - 0.01
    assert false_304s(guest.web) / len(lying) <= found_out_after


@pytest.mark.parametrize("validators", ["always-304", "bare-304", "etag-fixed", "date-fixed"])
def test_a_host_that_always_lies_costs_bodies_but_no_freshness(validators: str) -> None:
    lying = seen(played(validators=validators).web)
    assert lying.freshness > seen(played(conditional=False).web).freshness - 0.02


def test_a_lying_directory_among_honest_ones_gets_plain_requests() -> None:
    guest = played(exceptions=(("/d1/", "bare-304"),))
    assert seen(guest.web, lambda page: guest.web.path(page).startswith("/d1/")).conditional < 0.3


def test_of_two_validators_only_the_correct_one_is_sent() -> None:
    """If the date is wrong, only If-None-Match is sent.

    If the server does not recognize its own ETags, only the date is sent.
    """
    for kind, sent in (("date-fixed", (True, False)), ("etag-unknown", (False, True))):
        guest = played(validators=kind)
        now = START + 61 * VISIT
        pairs = [guest.validators.conditions(page, 1, guest.records[page], now) for page in range(40)]
        forms = [(bool(etag), bool(date)) for etag, date in pairs if etag or date]
        assert set(forms) == {sent} and len(forms) > 30, kind
        assert seen(guest.web).not_modified > 0.3, kind


def test_tags_that_are_new_each_time_are_harmless() -> None:
    guest = played(validators="etag-new")
    assert seen(guest.web).conditional > 0.95
    assert guest.validators.lies == 0


def test_a_change_of_what_a_browser_shows_accuses_no_validator() -> None:
    """The ETag belongs to the static answer. The answer stays the same, although its scripts show new content."""
    record = PageRecord("http://a.org/", PageState.STORED, Outcome.FETCHED, etag='"1"', rendered=True)
    validators, store = Validators(RefreshConfig()), MemoryStore()
    for before, after in ((True, True), (False, True), (True, False)):
        batch = store.batch()
        records = [msgspec.structs.replace(record, rendered=rendered) for rendered in (before, after)]
        assert not validators.answered(1, 1, *records, True, START, batch)
    assert validators.lies == 0
    assert validators.answered(
        1, 1, *[msgspec.structs.replace(record, rendered=False)] * 2, True, START, batch
    )


def test_a_304_with_validators_unlike_those_of_the_copy_is_checked_at_once() -> None:
    guest = played(rounds=1, validators="always-304")
    page = next(page for page in range(1, 40) if guest.web.changes[page])
    later = guest.web.changes[page][-1] + HOUR
    guest.visit(page, later)
    assert guest.web.log[-1].status == 304
    guest.visit(page, later + VISIT)
    assert not guest.web.log[-1].conditional
    assert guest.validators.lies == 1
    for number in range(10):
        guest.visit(page, later + (2 + number) * VISIT)
        assert not guest.web.log[-1].conditional, "no conditions are sent for a while"


def test_signals_make_a_304_doubtful_until_the_host_has_proven_right() -> None:
    new = played(rounds=2, rate=1e-12)
    plain = 0
    for page in range(40):
        record = new.records[page]
        if record.not_modified:
            plain += not any(new.validators.conditions(page, 1, record, START + 3 * VISIT, signalled=True))
    assert plain == sum(record.not_modified > 0 for record in new.records.values()) > 0
    proven = played(rounds=60)
    once = [page for page in range(40) if proven.records[page].not_modified == 1]
    asked = [
        proven.validators.conditions(page, 1, proven.records[page], START + 61 * VISIT, signalled=True)
        for page in once
    ]
    assert asked and all(any(pair) for pair in asked)


def test_learned_counts_survive_a_restart() -> None:
    guest = played(exceptions=DIRECTORY_IN_4)
    anew = Validators(RefreshConfig())
    anew.open(guest.store)
    anew._check()
    again = Guest(guest.web, anew, guest.store)
    again.records = guest.records
    lying = {page for page in range(40) if guest.web.path(page).startswith("/d1/")}
    now = START + 60.5 * VISIT
    asked = {page: any(anew.conditions(page, 1, guest.records[page], now)) for page in range(40)}
    assert sum(asked[page] for page in lying) <= 1, (
        "at most one lying page is requested conditionally, as a trial"
    )
    assert sum(asked[page] for page in asked if page not in lying) >= 27


@pytest.mark.parametrize(
    "value", [b"no seal", seal(b"\xc1"), seal(b"\x91\x93\x00\xa1*\x94\xcb" + b"\xff" * 32)]
)
def test_damaged_records_are_reported(value: bytes) -> None:
    with pytest.raises(DamageError):
        Validators(RefreshConfig()).open(MemoryStore({keys.VALIDATORS + b"12345678": value}))


@pytest.mark.parametrize(
    ("url", "pattern"),
    [
        ("http://a.org/", "/*"),
        ("http://a.org", "/*"),
        ("http://a.org/index.html", "/*.html"),
        ("http://a.org/docs/api/x.html", "/docs/*.html"),
        ("http://a.org/docs/api/", "/docs/*"),
        ("http://a.org/show.php?id=3&page=4&sort=up&more=1", "/*.php?id&page&sort"),
        ("http://a.org/v1.2.x-y", "/*"),
        ("http://a.org/a/b?x=1", "/a/*?x"),
    ],
)
def test_url_patterns_follow_the_program_that_serves_them(url: str, pattern: str) -> None:
    assert pattern_of(url) == pattern


def test_long_urls_have_short_patterns() -> None:
    assert len(pattern_of(f"http://a.org/{'x' * 5000}/?{'y' * 5000}")) == believing.PATTERN_CHARS_MAX


def test_counts_and_bounds_hold_for_any_order_of_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers are from more hosts, patterns and pages than are kept; some have no request or no record."""
    for name, most in (("HOSTS_MAX", 4), ("CELLS_MAX", 20), ("PATTERNS_MAX", 3), ("PAGES_MAX", 5)):
        monkeypatch.setattr(believing, name, most)
    rng = random.Random(7)
    store = MemoryStore()
    validators = Validators(RefreshConfig())
    states: dict[int, PageRecord] = {}
    for step in range(5000):
        page = rng.randrange(60)
        host = page % 9
        url = f"http://h{host}/d{page % 7}/p{page}"
        now = START + step * HOUR
        before = states.get(page)
        if rng.random() < 0.9:
            validators.conditions(page, host, before, now, signalled=rng.random() < 0.2)
        outcome = rng.choice([Outcome.FETCHED, Outcome.UNCHANGED, Outcome.GONE, Outcome.RESET])
        headers = [(b"ETag", rng.choice([b'"1"', b'W/"1"', b'"2"'])), (b"Last-Modified", b"yesterday")]
        fetch = Fetch(url, outcome, status=200, headers=tuple(headers[: rng.randrange(3)]))
        digest = b"%d" % rng.randrange(3)
        after = next_record(
            before,
            fetch,
            FetchTask(TaskKind.PAGE, host, "", url),
            None,
            payload_digest=digest,
            digest=digest,
            now=now,
        )
        batch = store.batch()
        validators.answered(page, host, before, after, rng.random() < 0.5, now, batch)
        store.write(batch)
        states[page] = after
        if rng.random() < 0.05:
            states.pop(page)
        validators._check()
    assert validators.lies > 0
    Validators(RefreshConfig()).open(store)


def test_weak_tags_are_a_kind_of_their_own() -> None:
    record = PageRecord("http://a/", "stored", Outcome.FETCHED, etag='W/"1"', last_modified="x")  # type: ignore[arg-type]
    assert believing._kinds(record) == (ValidatorKind.WEAK, ValidatorKind.MODIFIED)
