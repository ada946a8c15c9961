"""Test how statuses and reports of several processes are merged into one: sums, lists and other values."""

from typing import Any

import pytest

from crawler.admin.process_metrics import LastMinute
from crawler.admin.report import Report
from crawler.admin.status import Status, group, merge, nested
from crawler.frontier.refresh.delays import delay_within
from crawler.records import DueCounts, FrontierCounts, HostStatus, PeerStatus, SplitterCounts


def status(name: str, now: float, **more: Any) -> Status:
    return Status(name=name, now=now, **more)


def test_merging_adds_counts_but_not_times_and_peers() -> None:
    one = status(
        "p0", 7.0, counters={"urls.done": 1}, frontier=FrontierCounts(todo=3), splitter=SplitterCounts(sent=4),
        peers={"p0": {"p1": PeerStatus(4, 40, connected=True)}},
    )  # fmt: skip
    other = status(
        "p1", 5.0, counters={"urls.done": 2, "urls.new": 3}, frontier=FrontierCounts(todo=4), due=DueCounts(known=2),
        splitter=SplitterCounts(sent=1), peers={"p1": {"p0": PeerStatus(2, 20)}},
    )  # fmt: skip
    both = merge([one, other])
    assert (both.name, both.now, both.counters) == ("p0", 7.0, {"urls.done": 3, "urls.new": 3})
    assert both.frontier.todo == 7 and both.due.known == 2
    assert both.splitter == SplitterCounts(sent=5)
    assert both.peers == one.peers | other.peers
    assert merge([one]) == one


def test_an_empty_status_adds_nothing() -> None:
    told = status("p1", 5.0, counters={"pages.fetched": 2}, splitter=SplitterCounts(sent=1))
    assert merge([Status(), told]) == told == merge([told, Status()])


def test_plain_dictionaries_are_merged_by_the_same_rules() -> None:
    parts = [status("p0", 7.0, counters={"a.b": 1}), status("p1", 5.0, counters={"a.b": 2, "a.c": 3})]
    assert merge([part.plain() for part in parts]) == merge(parts).plain()


@pytest.mark.parametrize("splitter", [None, SplitterCounts(sent=1)])
def test_a_status_is_unchanged_after_json(splitter: SplitterCounts | None) -> None:
    whole = status("p0", 1.0, counters={"urls.filtered.scope": 2, "urls.done": 1}, splitter=splitter)
    whole.peers = {"p0": {"p1": PeerStatus(1, 10, connected=False, last_ending="reset", address="a:1")}}
    assert Status.of(whole.plain()) == whole


def test_counters_are_grouped_by_prefix() -> None:
    counters = {"pages.fetched": 1, "urls.filtered.scope": 2, "urls.done": 3}
    assert nested(counters) == {"pages": {"fetched": 1}, "urls": {"done": 3, "filtered": {"scope": 2}}}
    assert group(counters, "urls") == {"filtered.scope": 2, "done": 3}
    assert group(counters, "url") == {}


def report(**more: Any) -> Report:
    nothing: dict[str, Any] = {
        "crawl_id": "c", "started": 0.0, "ended": 1.0, "stopped_by": "done", "counters": {}, "run_counters": {},
        "frontier": FrontierCounts(), "hosts": [], "due": DueCounts(), "splitter": None, "why_slow": {},
        "cpu_seconds": 1.0, "peak_rss_bytes": 1, "problems": [],
    }  # fmt: skip
    return Report(**(nothing | more))


def test_a_merged_report_covers_all_times_and_averages_shares() -> None:
    one = report(
        started=5.0, ended=9.0, counters={"pages.fetched": 3}, why_slow={"host": 0.5}, problems=["a"]
    )
    other = report(started=4.0, ended=8.0, counters={"pages.gone": 1}, why_slow={"host": 1.0, "rate": 1.0})
    both = merge([one, other])
    assert (both.started, both.ended, both.processes) == (4.0, 9.0, 2)
    assert both.counters == {"pages.fetched": 3, "pages.gone": 1}
    assert both.why_slow == {"host": 0.75, "rate": 0.5}
    assert both.problems == ["a"] and both.cpu_seconds == 2.0


def test_a_report_has_conservation_and_the_share_of_local_links() -> None:
    plain = report(splitter=SplitterCounts(local=3, foreign=1)).plain()
    assert plain["conservation"] == "holds" and plain["splitter"]["local_share"] == 0.75
    assert plain["pages"] == {} and plain["run"]["urls"] == {} and plain["seconds"] == 1.0
    alone = report(problems=["x"]).plain()
    assert alone["conservation"] == ["x"] and "splitter" not in alone


def test_a_report_without_pages_explains_why() -> None:
    nothing = report(run_counters={"pages.dns_error": 2, "pages.retried": 4})
    assert (
        not nothing.any_success
        and nothing.why_nothing(1) == "1 seed is refused; no answer from DNS 2 (see `crawler why URL`)"
    )
    assert "no URL is left" in report(counters={"urls.seeds": 1}).why_nothing(0)
    limited = FrontierCounts(parked=3, parked_depth=1, parked_pages_per_host=2)
    parked = report(counters={"urls.seeds": 3}, frontier=limited).why_nothing(0)
    assert parked.startswith("3 URLs are parked: it is deeper than crawl.depth allows (1), ")
    assert "crawl.pages_per_host (2); raise the limit" in parked
    again = report(counters={"urls.seeds": 1, "pages.client_error": 1, "pages.retried": 2}).why_nothing(0)
    assert "in earlier runs: request refused 1. To request" in again and "crawl.timestamping=true" in again
    refused = HostStatus(
        host="a", state="waiting", cause="connect_error", ready_at=0.0, wait=0.0, next_retry_at=0.0, gap=1.0,
        failures=1, refusals=0, slowdown=1.0, todo=1, parked=0, known=1,
    )  # fmt: skip
    said = report(hosts=[refused], run_counters={"robots.connect_error": 1}).why_nothing(0)
    assert said == "a: connection refused or timed out", "the cause is stated once"
    assert report().why_nothing(0) == "no seeds were given"
    assert "network.allow_ports" in report(run_counters={"urls.filtered.port": 1}).why_nothing(0)
    assert report(counters={"pages.empty": 1}).any_success


def test_merging_adds_growth_but_not_its_time_span() -> None:
    one, other = {"span": 60.0, "done": 10, "hosts": 2}, {"span": 55.0, "done": 5, "hosts": 1}
    both = merge([status("p0", 7.0, recent=one), status("p1", 7.0, recent=other), Status()])
    assert both.recent == {"span": 60.0, "done": 15, "hosts": 3}


def test_older_samples_do_not_count_for_the_last_minute() -> None:
    minute = LastMinute()
    assert minute.plain() == {}
    for look in range(0, 301, 5):
        minute.sample({"done": look * look}, float(look))
    assert minute.plain() == {"span": 60.0, "done": 300 * 300 - 240 * 240}


def refreshed(pages: int, **more: Any) -> dict[str, Any]:
    """Return the section about refreshes in the status of one process."""
    section: dict[str, Any] = {
        "pages": pages, "importance": 2.0 * pages,
        "expected_freshness": 0.5, "level": 10.0, "rate": 1.0, "more_rate": {}, "ages": {}, "results": {},
        "calibration": [], "arms": [], "in_flight": 1, "ahead": 0, "share": 0.5, "busy": 1.0, "hosts": [],
    }  # fmt: skip
    return section | more


def test_refresh_figures_are_weighted_by_pages_or_their_importance() -> None:
    row = {"decile": 2, "refreshes": 10, "predicted": 0.2, "found": 0.1}
    arm = {
        "policy": "ncis",
        "pages": 10,
        "refreshes": 10,
        "changed": 2,
        "seen": 0.5,
        "seen_error": 0.1,
        "spans": 5.0,
    }
    one = refreshed(100, importance=900.0, expected_freshness=0.9, level=8.0,
                    ages={"median": 10.0, "p90": 20.0, "oldest": 30.0},
                    calibration=[row], arms=[arm], more_rate={"share": 0.1, "gain": 0.01},
                    hosts=[{"host": "a", "pages": 1, "fresh": 1.0}])  # fmt: skip
    two = refreshed(300, ages={"median": 20.0, "p90": 30.0, "oldest": 90.0},
                    calibration=[row | {"refreshes": 30, "found": 0.5}],
                    arms=[arm | {"refreshes": 30, "seen": 0.7, "spans": 15.0}], importance=300.0,
                    more_rate={"share": 0.1, "gain": 0.05},
                    hosts=[{"host": "b", "pages": 9, "fresh": 1.0}])  # fmt: skip
    nothing: dict[str, Any] = {}
    said = merge([Status(refreshing=one), Status(refreshing=nothing), Status(refreshing=two)]).refreshing
    assert said["pages"] == 400 and said["expected_freshness"] == 0.8 and said["level"] == 9.5
    assert said["more_rate"] == {"share": 0.1, "gain": 0.02}
    assert said["share"] == 1.0 and said["in_flight"] == 2 and said["levels"] == [8.0, 10.0]
    assert said["ages"] == {"median": 17.5, "p90": 27.5, "oldest": 90.0}
    assert said["calibration"] == [{"decile": 2, "refreshes": 40, "predicted": 0.2, "found": 0.4}]
    assert said["arms"][0] == {
        "policy": "ncis", "pages": 20, "refreshes": 40, "changed": 4, "spans": 20.0, "seen": 0.65, "seen_error": 0.0791,
    }  # fmt: skip
    assert [host["host"] for host in said["hosts"]] == ["b", "a"]
    assert merge([Status(), Status(refreshing=one)]).refreshing == one
    assert merge([Status(), Status()]).refreshing == {}


def test_new_pages_found_by_hubs_add_up_over_processes() -> None:
    news = {"found": 3, "per_day": 1.5, "by_kind": {"page": 2, "feed": 1}, "dated": 1, "delays": {"30": 1},
            "delay_median": 260.0, "delay_p90": 260.0, "hubs": 2, "unfound": 1.5}  # fmt: skip
    more = news | {"dated": 4, "by_kind": {"page": 3}, "delays": {"10": 3, "30": 1}, "per_day": None}
    parts = [refreshed(100, news=news, known_share=0.2), refreshed(300, news=more, known_share=0.6)]
    said = merge([Status(refreshing=part) for part in (*parts, refreshed(9))]).refreshing
    assert said["known_share"] == 0.5
    assert said["news"] == {
        "found": 6, "per_day": 1.5, "by_kind": {"page": 5, "feed": 1}, "dated": 5, "delays": {"30": 2, "10": 3},
        "delay_median": delay_within({10: 1}, 1.0), "delay_p90": delay_within({30: 1}, 1.0), "hubs": 4, "unfound": 3.0,
    }  # fmt: skip


def test_an_empty_status_has_zero_time_and_counts() -> None:
    plain = Status().plain()
    assert plain["now"] == 0.0 and plain["frontier"]["todo"] == 0 and plain["splitter"] == {}


def test_refresh_figures_of_processes_without_pages() -> None:
    aged = {"median": 10.0, "p90": 20.0, "oldest": 30.0}
    one, two = (
        refreshed(0, ages=aged, level=None),
        refreshed(0, more_rate={"share": 0.2, "gain": 0.5, "importance": 1}),
    )
    said = merge([Status(refreshing=one), Status(refreshing=two)]).refreshing
    assert said["ages"] == {"median": 0.0, "p90": 0.0, "oldest": 30.0}
    assert said["level"] is None and said["expected_freshness"] is None and said["levels"] == [None, 10.0]
    assert said["more_rate"] == {"share": 0.2, "gain": 0.5} and said["arms"] == []


def test_an_arm_without_a_standard_error() -> None:
    arm = {"policy": "ncis", "pages": 10, "refreshes": 10, "changed": 2, "expected": 0.5, "importance": 1.0}
    parts = [Status(refreshing=refreshed(1, arms=[arm])) for _ in range(2)]
    (said,) = merge(parts).refreshing["arms"]
    assert (said["expected"], said["expected_error"]) == (0.5, 0.0) and "seen" not in said


def test_merging_missing_values_and_texts() -> None:
    parts = [{"a": None, "b": "", "c": True}, {"a": None, "b": "x", "c": False}, {"b": "y", "d": 2.5}]
    assert merge(parts) == {"a": None, "b": "x", "c": True, "d": 2.5}
    assert merge([{"c": False}, {"c": False}]) == {"c": False}


def test_the_wait_for_known_pages_is_the_shortest_of_the_processes_that_have_some() -> None:
    def wait(until: float) -> dict[str, object]:
        return {"until": until, "reason": "refresh.min_age"} if until else {}

    def merged(*waits: float | None) -> object:
        parts = [
            Status(refreshing=refreshed(int(until is not None), wait=wait(until or 0.0))) for until in waits
        ]
        return merge(parts).refreshing["wait"]

    assert merged(5.0, 3.0, None) == wait(3.0)
    assert merged(5.0, 0.0) == {} == merged(None, None)
