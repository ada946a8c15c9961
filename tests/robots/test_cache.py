"""Test the cache of robots.txt files, over time and across restarts."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.config import ByteCount, RobotsConfig
from crawler.records import Outcome
from crawler.robots.cache import (
    ALLOWED,
    DENIED,
    FETCH,
    RobotsCache,
    RobotsCopy,
    RobotsResult,
    Verdict,
    VerdictKind,
    result_of,
)
from crawler.storage.kv import MemoryStore

HOST = "https://h.example"
RULES = b"user-agent: *\ndisallow: /no\ncrawl-delay: 7\nsitemap: https://h.example/s.xml\n"
NOW = 1_000_000.0
DAY = 86_400.0


def _cache(store: MemoryStore | None = None, entries_max: int = 8, **config: object) -> RobotsCache:
    return RobotsCache(store or MemoryStore(), RobotsConfig(**config), "me", entries_max)


def _good(cache: RobotsCache, now: float, body: bytes = RULES, host: str = HOST) -> RobotsResult:
    return cache.record(host, status=200, outcome=Outcome.FETCHED, body=body, complete=True, now=now)


def _down(
    cache: RobotsCache, now: float, status: int = 503, outcome: Outcome = Outcome.HOST_BUSY
) -> RobotsResult:
    return cache.record(HOST, status=status, outcome=outcome, body=b"", complete=True, now=now)


@pytest.mark.parametrize(
    ("status", "outcome", "complete", "result"),
    [
        (200, Outcome.FETCHED, True, RobotsResult.RULES),
        (203, Outcome.FETCHED, True, RobotsResult.RULES),
        (204, Outcome.EMPTY, True, RobotsResult.RULES),
        (200, Outcome.TRUNCATED, False, RobotsResult.UNREACHABLE),
        (200, Outcome.FETCHED, False, RobotsResult.UNREACHABLE),
        (206, Outcome.UNEXPECTED_STATUS, True, RobotsResult.UNREACHABLE),
        (301, Outcome.REDIRECT, True, RobotsResult.UNAVAILABLE),
        (302, Outcome.BAD_REDIRECT, True, RobotsResult.UNAVAILABLE),
        (400, Outcome.CLIENT_ERROR, True, RobotsResult.UNAVAILABLE),
        (401, Outcome.CLIENT_ERROR, True, RobotsResult.UNAVAILABLE),
        (404, Outcome.GONE, True, RobotsResult.UNAVAILABLE),
        (408, Outcome.TEMPORARY, True, RobotsResult.UNAVAILABLE),
        (429, Outcome.HOST_BUSY, True, RobotsResult.UNREACHABLE),
        (500, Outcome.TEMPORARY, True, RobotsResult.UNREACHABLE),
        (503, Outcome.HOST_BUSY, True, RobotsResult.UNREACHABLE),
        (599, Outcome.TEMPORARY, True, RobotsResult.UNREACHABLE),
        (700, Outcome.BAD_STATUS, True, RobotsResult.UNREACHABLE),
        (99, Outcome.BAD_STATUS, True, RobotsResult.UNREACHABLE),
        (101, Outcome.UNEXPECTED_STATUS, True, RobotsResult.UNREACHABLE),
        (0, Outcome.DNS_ERROR, True, RobotsResult.UNREACHABLE),
        (0, Outcome.DNS_NOT_FOUND, True, RobotsResult.UNREACHABLE),
        (0, Outcome.CONNECT_ERROR, True, RobotsResult.UNREACHABLE),
        (0, Outcome.TLS_ERROR, True, RobotsResult.UNREACHABLE),
        (0, Outcome.RESET, True, RobotsResult.UNREACHABLE),
        (0, Outcome.HEADER_TIMEOUT, True, RobotsResult.UNREACHABLE),
        (0, Outcome.ADDRESS_DENIED, True, RobotsResult.UNREACHABLE),
    ],
)
def test_the_meaning_of_each_answer(
    status: int, outcome: Outcome, complete: bool, result: RobotsResult
) -> None:
    """Check the results against the table in `robots/README.md`, "Answers"."""
    assert result_of(status, outcome, complete=complete) is result


def test_the_file_is_fetched_first_then_its_rules_apply() -> None:
    cache = _cache()
    assert cache.verdict(HOST, "/x", NOW) is FETCH
    _good(cache, NOW)
    assert cache.verdict(HOST, "/x", NOW) is ALLOWED
    assert cache.verdict(HOST, "/no/x", NOW) is DENIED
    assert cache.verdict("http://h.example", "/x", NOW) is FETCH  # each scheme has its own robots.txt
    assert cache.crawl_delay(HOST) == 7.0
    assert cache.rules(HOST).sitemaps == ("https://h.example/s.xml",)
    assert cache.crawl_delay("http://h.example") is None and cache.rules("http://h.example").sitemaps == ()


def test_a_copy_is_used_for_a_day() -> None:
    cache = _cache()
    _good(cache, NOW)
    assert cache.verdict(HOST, "/", NOW + DAY - 1) is ALLOWED
    assert cache.verdict(HOST, "/", NOW + DAY) is FETCH


def test_unavailable_allows_all_and_its_body_is_ignored() -> None:
    cache = _cache()
    cache.record(HOST, status=404, outcome=Outcome.GONE, body=RULES, complete=True, now=NOW)
    assert cache.verdict(HOST, "/no", NOW) is ALLOWED and cache.crawl_delay(HOST) is None
    assert cache.verdict(HOST, "/no", NOW + DAY) is FETCH


def test_unreachable_schedule() -> None:
    """An unreachable file is retried after 1, 5 and 30 minutes, and then hourly. Meanwhile, nothing is requested."""
    cache = _cache()
    now = NOW
    for delay in (60.0, 300.0, 1800.0, 3600.0, 3600.0):
        assert _down(cache, now) is RobotsResult.UNREACHABLE
        assert cache.verdict(HOST, "/", now) == Verdict(VerdictKind.WAIT, now + delay, "host_busy")
        assert cache.verdict(HOST, "/", now + delay - 0.1) == Verdict(
            VerdictKind.WAIT, now + delay, "host_busy"
        )
        now += delay
        assert cache.verdict(HOST, "/", now) is FETCH
    _good(cache, now)
    assert cache.verdict(HOST, "/", now) is ALLOWED
    _down(cache, now + DAY)  # the schedule starts again
    assert cache.verdict(HOST, "/", now + DAY) == Verdict(VerdictKind.WAIT, now + DAY + 60, "host_busy")


def test_an_invalid_certificate_is_retried_once_and_then_daily() -> None:
    """The robots.txt is retried as pages are (`frontier/hosts/politeness.py`), instead of hourly for 30 days."""
    cache, now = _cache(), NOW
    for delay in (60.0, DAY, DAY):
        cache.record(HOST, status=0, outcome=Outcome.TLS_ERROR, body=b"", complete=True, now=now)
        assert cache.verdict(HOST, "/", now) == Verdict(VerdictKind.WAIT, now + delay, "tls_error")
        now += delay
        assert cache.verdict(HOST, "/", now) is FETCH


def test_the_last_good_copy_applies_until_it_expires() -> None:
    cache = _cache()
    _good(cache, NOW)
    _down(cache, NOW + 100)
    assert cache.verdict(HOST, "/", NOW + 101) is ALLOWED and cache.verdict(HOST, "/no", NOW + 101) is DENIED
    _down(cache, NOW + DAY)
    assert cache.verdict(HOST, "/", NOW + DAY).kind is VerdictKind.WAIT
    assert cache.crawl_delay(HOST) == 7.0  # the last good copy applies


@pytest.mark.parametrize(("seconds", "days"), [(7, 1), (40_000, 1), (DAY, 2), (5 * DAY, 2)])
def test_a_copy_outlasts_the_crawl_delay_that_it_states(seconds: float, days: int) -> None:
    """The first page is requested a Crawl-delay after robots.txt, so the copy must not be too old by then."""
    cache = _cache()
    _good(cache, NOW, b"user-agent: *\ncrawl-delay: %d\n" % seconds)
    assert cache.verdict(HOST, "/", NOW + days * DAY - 1) is ALLOWED
    assert cache.verdict(HOST, "/", NOW + days * DAY) is FETCH


def test_after_thirty_days_all_is_allowed() -> None:
    cache = _cache()
    _down(cache, NOW)
    for day in range(1, 30):
        _down(cache, NOW + day * DAY)
        assert cache.verdict(HOST, "/", NOW + day * DAY + 1).kind is VerdictKind.WAIT
    _down(cache, NOW + 30 * DAY)
    assert cache.verdict(HOST, "/", NOW + 30 * DAY + 1) is ALLOWED
    assert cache.verdict(HOST, "/", NOW + 31 * DAY) is FETCH  # the file is requested again once a day
    _good(cache, NOW + 31 * DAY)
    assert cache.verdict(HOST, "/no", NOW + 31 * DAY) is DENIED


def test_a_clock_set_back_stalls_no_host() -> None:
    cache = _cache()
    _down(cache, NOW + 300 * DAY)
    assert cache.verdict(HOST, "/", NOW) is FETCH
    _good(cache, NOW + 300 * DAY)
    assert cache.verdict(HOST, "/", NOW) is FETCH


def test_a_clock_set_back_by_an_hour_delays_no_try_by_an_hour() -> None:
    """The first retry is due after a minute, so a stored `retry_at` that is much later is ignored."""
    cache = _cache()
    _down(cache, NOW)
    assert cache.verdict(HOST, "/", NOW - 3000.0) is FETCH
    for n in range(1, 4):
        _down(cache, NOW + n)
    # after the fourth failure, the cache waits for an hour
    assert cache.verdict(HOST, "/", NOW + 2.5).kind is VerdictKind.WAIT
    assert cache.verdict(HOST, "/", NOW - 10.0) is FETCH


def test_unreachable_since_the_future_counts_from_now() -> None:
    """The thirty days were once counted from a time that was stored while the clock was a year ahead."""
    cache = _cache()
    _down(cache, NOW + 365 * DAY)
    for day in range(31):
        _down(cache, NOW + day * DAY)
    assert cache.verdict(HOST, "/", NOW + 30 * DAY + 1) is ALLOWED


def test_policy_ignore() -> None:
    cache = _cache()
    assert cache.verdict(HOST, "/", NOW, policy="ignore") is ALLOWED
    ignoring = _cache(policy="ignore")
    assert ignoring.verdict(HOST, "/no", NOW) is ALLOWED
    assert ignoring.verdict(HOST, "/no", NOW, policy="obey") is FETCH


def test_only_the_first_bytes_are_read_and_a_cut_line_is_dropped() -> None:
    cache = _cache(bytes_max=ByteCount(len(RULES)))
    body = RULES + b"disallow: /more\n"
    cache.record(HOST, status=200, outcome=Outcome.TRUNCATED, body=body, complete=False, now=NOW)
    assert cache.verdict(HOST, "/more", NOW) is ALLOWED and cache.verdict(HOST, "/no", NOW) is DENIED
    cut = RULES.removesuffix(b"\n") + b"xy\n"  # the limit cuts off the last octet of the line
    cache.record(HOST, status=200, outcome=Outcome.FETCHED, body=cut, complete=True, now=NOW)
    assert cache.rules(HOST).sitemaps == ()
    cache.record(HOST, status=200, outcome=Outcome.FETCHED, body=RULES, complete=True, now=NOW)
    # the file is exactly as long as the limit, so the line is complete
    assert len(cache.rules(HOST).sitemaps) == 1


def test_copies_survive_a_restart() -> None:
    store = MemoryStore()
    cache = _cache(store)
    _good(cache, NOW)
    batch = store.batch()
    cache.stage(batch)
    store.write(batch)
    cache.committed()
    again = _cache(store)
    assert again.verdict(HOST, "/no", NOW) is DENIED and again.crawl_delay(HOST) == 7.0
    assert len(store.get(b"r/" + HOST.encode()) or b"") < 200


def test_uncommitted_copies_can_be_read() -> None:
    """A copy is known even if it was evicted from memory before its group was committed."""
    store = MemoryStore()
    cache = _cache(store, entries_max=1)
    _good(cache, NOW)
    _good(cache, NOW, host="https://other.example")
    assert cache.verdict(HOST, "/no", NOW) is DENIED
    batch = store.batch()
    cache.stage(batch)
    cache.committed()  # this call belongs to an earlier group
    _good(cache, NOW, host="https://third.example")
    assert cache.verdict(HOST, "/no", NOW) is DENIED
    store.write(batch)
    cache.committed()
    assert cache.verdict(HOST, "/no", NOW) is DENIED and len(cache._unsaved) == 1


@pytest.mark.parametrize("value", [b"", b"\x01garbage", b"\x01\0\0\0\0", b"\x02"])
def test_a_damaged_copy_is_fetched_again(value: bytes) -> None:
    store = MemoryStore({b"r/" + HOST.encode(): value})
    assert _cache(store).verdict(HOST, "/", NOW) is FETCH


def test_memory_is_bounded_by_bytes_too() -> None:
    """A huge file must not take the room of thousands of small files in the cache."""
    huge = b"user-agent: *\n" + b"".join(b"disallow: /%d\n" % number for number in range(3000))
    cache = _cache(entries_max=16)
    for number in range(40):
        _good(cache, NOW, huge if number % 4 == 0 else RULES, f"https://h{number}.example")
        cache._check()
    assert len(cache._entries) <= 16
    assert "entries=" in repr(cache)


OPERATIONS = st.lists(
    st.tuples(
        st.integers(0, 4),  # authority
        st.sampled_from(["good", "gone", "down", "ask", "stage", "write"]),
        # seconds that pass before the operation
        st.sampled_from([0.0, 59.0, 60.0, 400.0, 3600.0, DAY, 20 * DAY]),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(OPERATIONS, st.integers(1, 3))
def test_eviction_and_restarts_change_no_verdict(
    operations: list[tuple[int, str, float]], entries_max: int
) -> None:
    """Memory has room for 1 to 3 files. The verdicts are those of an unbounded cache."""
    store = MemoryStore()
    small, model = _cache(store, entries_max), _cache(entries_max=1000)
    now = NOW
    for number, operation, passed in operations:
        host, now = f"https://h{number}", now + passed
        for cache in (small, model):
            if operation == "good":
                _good(cache, now, host=host)
            elif operation in ("gone", "down"):
                status = 404 if operation == "gone" else 500
                cache.record(host, status=status, outcome=Outcome.GONE, body=b"", complete=True, now=now)
        if operation in ("stage", "write"):
            batch = store.batch()
            small.stage(batch)
            store.write(batch)
            if operation == "write":
                small.committed()
        small._check()
        for target in ("/", "/no"):
            assert small.verdict(host, target, now) == model.verdict(host, target, now)


def test_the_stored_form() -> None:
    """A change of this form changes the format of the store, so it must be deliberate."""
    encoded = msgspec.msgpack.encode(RobotsCopy(None, 1.0, 2, 3.0, 4.0, 5, "x"))
    assert msgspec.msgpack.decode(encoded) == [None, 1.0, 2, 3.0, 4.0, 5, "x", None]


def test_copies_of_a_host_by_authority() -> None:
    """Copies for any port of the host are returned, up to a given number, even if they are not stored yet."""
    store = MemoryStore()
    cache = RobotsCache(store, RobotsConfig(), "me", 10)
    authorities = [
        "http://a.org",
        "http://a.org:8080",
        "https://a.org:444",
        "http://a.org.b",
        "http://aa.org:1",
    ]
    for n, authority in enumerate(authorities):
        answer = {"status": 404, "outcome": Outcome.GONE, "body": b"", "complete": True, "now": float(n)}
        if n:
            batch = store.batch()
            cache.record(authority, batch=batch, **answer)
            store.write(batch)
        else:
            cache.record(authority, **answer)
    again = RobotsCache(store, RobotsConfig(), "me", 10)
    # an authority that was asked about, but that has no copy
    assert again.copy("https://a.org") == RobotsCopy()
    assert [(of, copy.fetched_at) for of, copy in cache.copies("a.org", 9)] == [
        ("http://a.org", 0.0), ("http://a.org:8080", 1.0), ("https://a.org:444", 2.0)
    ]  # fmt: skip
    assert [of for of, _ in again.copies("a.org", 1)] == ["http://a.org:8080"]
    assert cache.copies("b.org", 9) == []
