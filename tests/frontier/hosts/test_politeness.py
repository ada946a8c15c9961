"""Test each politeness rule. The expected values are from `frontier/README.md`, "Politeness" and "Failures"."""

import pytest

from crawler.config import Override, PolitenessConfig, convert
from crawler.frontier.hosts.politeness import NO_RULE, GapRule, HostPoliteness, backoff, gap
from crawler.frontier.hosts.table import HostFlag, HostTable
from crawler.records import CACHED, Blame, Fetch, Outcome, Rendering

DEFAULTS = PolitenessConfig()
DAY = 86_400.0


def politeness(config: PolitenessConfig = DEFAULTS) -> tuple[HostPoliteness, HostTable]:
    hosts = HostTable()
    hosts.insert(1)
    return HostPoliteness(config, hosts), hosts


def answer(status: int = 200, took: float = 0.01, **fields: float) -> Fetch:
    if status in (429, 503):
        return Fetch("u", Outcome.HOST_BUSY, Blame.HOST, status, took=took, **fields)
    return Fetch("u", Outcome.FETCHED, status=status, took=took, **fields)


def silence(took: float = 0.0) -> Fetch:
    return Fetch("u", Outcome.CONNECT_ERROR, Blame.HOST, took=took)


def wait_after(rules: HostPoliteness, hosts: HostTable, fetch: Fetch, rule: GapRule = NO_RULE) -> float:
    """End a request at instant 0, before which the host had no wait. Return the host's wait."""
    hosts.ready[0] = 0.0
    return rules.finish(0, fetch, 0.0, rule)


@pytest.mark.parametrize(("took", "wait"), [(0.0, 1.0), (0.05, 1.0), (0.2, 2.0), (2.9, 29.0), (50.0, 30.0)])
def test_gap_is_ten_times_the_duration_of_the_answer_within_bounds(took: float, wait: float) -> None:
    rules, _ = politeness()
    assert rules.finish(0, answer(took=took), 100.0) == pytest.approx(100.0 + wait)


def test_a_cached_answer_costs_no_gap_and_shortens_none() -> None:
    rules, hosts = politeness()
    cached = answer(took=2.0)
    cached.connection = CACHED
    assert rules.finish(0, cached, 100.0) == 100.0
    assert rules.finish(0, answer(), 100.0) == 101.0
    assert rules.finish(0, cached, 100.5) == 101.0


def test_after_a_page_in_a_browser_the_host_rests_for_all_of_its_requests() -> None:
    rules, _ = politeness()
    shown = answer(took=0.5)
    shown.rendering = Rendering(dom=b"", host_took=1.5)
    assert rules.finish(0, shown, 100.0) == pytest.approx(100.0 + 20.0)


def test_delay_factor_zero_leaves_the_delay() -> None:
    assert gap(3.0, PolitenessConfig(delay_factor=0.0), Override()) == 1.0
    assert gap(3.0, DEFAULTS, Override(delay=4.0, delay_factor=0.0)) == 4.0
    assert gap(3.0, PolitenessConfig(delay=60.0), Override()) == 60.0


def test_crawl_delay_and_retry_after_only_lengthen() -> None:
    rules, hosts = politeness()
    assert wait_after(rules, hosts, answer(), GapRule(0.2)) == 1.0
    assert wait_after(rules, hosts, answer(), GapRule(77.0)) == 77.0
    assert wait_after(rules, hosts, answer(), GapRule(9 * DAY)) == DAY
    assert wait_after(rules, hosts, answer(301, retry_after=500.0)) == 500.0
    assert wait_after(rules, hosts, answer(301, retry_after=9 * DAY)) == DAY
    assert wait_after(rules, hosts, answer(503, retry_after=7.0)) == 60.0


def test_back_off_doubles_from_a_minute_to_four_hours() -> None:
    rules, hosts = politeness()
    minutes = [(wait_after(rules, hosts, silence())) / 60 for _ in range(11)]
    assert minutes == [1, 2, 4, 8, 16, 32, 64, 128, 240, 240, 240]
    assert hosts.failures[0] == 11
    wait_after(rules, hosts, answer())
    assert wait_after(rules, hosts, silence()) == 60.0


def test_the_failure_count_does_not_overflow() -> None:
    assert backoff(10_000, DEFAULTS, Outcome.RESET) == 14_400
    assert [backoff(n, DEFAULTS, Outcome.TLS_ERROR) for n in (1, 2, 3)] == [60, 86_400, 86_400]
    rules, hosts = politeness()
    for _ in range(300):
        rules.finish(0, silence(), 0.0)
    assert hosts.failures[0] == 255


def test_a_host_is_given_up_after_three_days_without_any_answer() -> None:
    rules, hosts = politeness()
    now = 1e9
    while not hosts.flags[0]:
        began, now = now, rules.finish(0, silence(), now)
    assert 3 * DAY <= began - 1e9 <= 3 * DAY + 4 * 3600
    assert hosts.flags[0] == HostFlag.GIVEN_UP


def test_any_answer_restarts_the_three_days() -> None:
    rules, hosts = politeness()
    for day in range(12):
        rules.finish(0, answer(503) if day % 2 else silence(), 1e9 + day * DAY)
    assert not hosts.flags[0]


def test_each_429_doubles_the_gap_which_recovers_slowly() -> None:
    rules, hosts = politeness(PolitenessConfig(backoff_first=0.0))
    assert [wait_after(rules, hosts, answer(429)) for _ in range(3)] == [2.0, 4.0, 8.0]
    waits = [wait_after(rules, hosts, answer()) for _ in range(200)]
    assert waits == sorted(waits, reverse=True)
    assert waits[33] == pytest.approx(8.0 * 0.98**34, rel=1e-5) and waits[33] > 4.0 > waits[34]
    assert waits[-1] == 1.0


def test_a_429_slows_down_a_crawl_without_delay() -> None:
    rules, hosts = politeness(PolitenessConfig(delay=0.0, delay_factor=0.0, backoff_first=0.0))
    assert [wait_after(rules, hosts, answer(429)) for _ in range(3)] == [0.5, 1.5, 3.5]
    for _ in range(40):
        wait_after(rules, hosts, answer(429))
    assert wait_after(rules, hosts, answer(429)) == 0.5 * 63


def test_twenty_refusals_in_a_row_hold_the_host() -> None:
    rules, hosts = politeness()
    for status in [401, 403, 406, 451] * 4 + [403] * 3 + [404] + [403] * 19:
        rules.finish(0, answer(status), 0.0)
        assert not hosts.flags[0]
    rules.finish(0, answer(403), 0.0)
    assert hosts.flags[0] == HostFlag.REFUSED


def test_a_hop_never_shortens_a_wait() -> None:
    rules, hosts = politeness()
    rules.finish(0, answer(), 0.0, GapRule(50.0))
    rules.hop(0, answer(), 5.0)
    assert (hosts.ready[0], hosts.gap[0]) == (50.0, 45.0)
    rules.hop(0, answer(301, retry_after=90.0), 5.0)
    assert (hosts.ready[0], hosts.gap[0]) == (95.0, 90.0)


def test_the_end_of_a_task_never_shortens_the_wait_after_a_hop() -> None:
    rules, hosts = politeness()
    rules.hop(0, answer(301, retry_after=90.0), 0.0)
    assert rules.finish(0, answer(), 5.0) == 90.0
    assert rules.finish_elsewhere(0, 6.0, GapRule()) == 90.0
    assert rules.finish_elsewhere(0, 80.0, GapRule(25.0)) == 105.0
    assert rules.finish_elsewhere(0, 104.0, GapRule(override=Override(delay=7.0))) == 111.0
    assert hosts.gap[0] == 7.0


@pytest.mark.parametrize(
    ("rule", "wait"),
    [
        (GapRule(override=Override(delay=5.0)), 5.0),
        (GapRule(override=Override(delay=0.0, delay_factor=2.0)), 0.8),
        (GapRule(9.0), 9.0),
    ],
)
def test_override_and_crawl_delay_apply_to_hops(rule: GapRule, wait: float) -> None:
    for end in ("hop", "pause", "finish"):
        rules, hosts = politeness()
        getattr(rules, end)(0, answer(took=0.4), 100.0, rule)
        assert hosts.ready[0] == pytest.approx(100.0 + wait), end


def test_busy_and_good_answers_to_hops_count_as_for_pages() -> None:
    pages, by_page = politeness()
    hops, by_hop = politeness()
    for at, status in enumerate([200, 429, 503, 200, 404, 200, 429]):
        now = 1e6 * at
        pages.finish(0, answer(status), now)
        hops.hop(0, answer(status), now)
        for column in ("ready", "gap", "failures", "slowdown", "cause"):
            assert getattr(by_page, column)[0] == getattr(by_hop, column)[0], (at, column)


def test_refusals_and_missing_answers_of_hops_are_not_charged_to_the_host() -> None:
    rules, hosts = politeness()
    for n in range(40):
        rules.hop(0, answer(403), 10.0 * n)
        rules.hop(0, silence(), 10.0 * n + 5.0)
    assert (hosts.flags[0], hosts.refusals[0], hosts.failures[0], hosts.silent_since[0]) == (0, 0, 0, 0)
    assert hosts.ready[0] == 396.0


def test_a_cached_answer_to_a_hop_changes_nothing() -> None:
    rules, hosts = politeness()
    cached = answer(503, took=2.0)
    cached.connection = CACHED
    rules.hop(0, cached, 100.0)
    assert (hosts.ready[0], hosts.failures[0]) == (0.0, 0)


def test_requests_of_a_page_in_a_browser_need_a_wait_only_after_a_429_or_503() -> None:
    rules, hosts = politeness()
    rules.count_answer(0, answer(took=2.0), 100.0)
    assert hosts.ready[0] == 0.0
    rules.count_answer(0, answer(429, retry_after=400.0), 100.0)
    assert (hosts.ready[0], hosts.slowdown[0]) == (500.0, 2.0)
    rules.count_answer(0, answer(took=2.0), 110.0)
    assert (hosts.ready[0], hosts.slowdown[0]) == (500.0, pytest.approx(1.96))


def test_overrides_match_host_domain_and_prefix() -> None:
    from crawler.config import Overrides

    tables = [
        {"match": "*.a.org", "delay": 2, "pages": 5},
        {"match": "www.a.org", "delay": 3},
        {"match": "https://www.a.org/slow/", "delay": "1 min", "robots": "ignore"},
    ]
    overrides = Overrides(convert({"override": tables}).override)
    assert overrides and not Overrides(())

    def of(url: str, name: str) -> tuple[float | None, int | None, str | None]:
        found = overrides.for_url(url, name)
        return found.delay, found.pages, found.robots

    assert of("https://b.org/", "b.org") == (None, None, None)
    assert of("https://a.org/", "a.org") == (2, 5, None)
    assert of("https://xa.org/", "xa.org") == (None, None, None)
    assert of("https://x.y.a.org/", "x.y.a.org") == (2, 5, None)
    assert of("https://www.a.org/", "www.a.org") == (3, 5, None)
    assert of("https://www.a.org/slow/x", "www.a.org") == (60, 5, "ignore")
