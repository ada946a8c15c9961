"""Test the progress line and the screen of a running crawl: their counts, and why the crawl waits."""

import io

import pytest
from rich.console import Console

from crawler.admin.health import MemberStatus
from crawler.admin.status import Status
from crawler.cli import top
from crawler.cli.inspect import _summary
from crawler.cli.progress import WAIT_INTERVAL, WAIT_INTERVAL_MAX, NewLines, Rates, line, screen, waiting_for
from crawler.records import FrontierCounts, HostStatus

RATES = {"pages": 0.0, "bytes": 0.0}


def host(**values: object) -> HostStatus:
    plain = dict(
        host="a.test", state="waiting", cause="", ready_at=0.0, wait=0.0, next_retry_at=0.0, gap=1.0,
        failures=0, refusals=0, slowdown=1.0, todo=1, parked=0, known=1,
    )  # fmt: skip
    return HostStatus(**(plain | values))  # type: ignore[arg-type]


def status(*hosts: HostStatus, in_flight: int = 0) -> Status:
    counters = {
        "pages.fetched": 3,
        "pages.gone": 2,
        "pages.retried": 1,
        "pages.temporary": 1,
        "pages.robots_denied": 4,
    }
    frontier = FrontierCounts(todo=1, hosts=1, in_flight=in_flight)
    return Status(now=1000.0, counters=counters, frontier=frontier, waiting=list(hosts))


def test_the_numbers_of_pages_are_those_of_the_status() -> None:
    assert line(status(), RATES).startswith("3 pages fetched (0.0/s)")
    again = status()
    again.counters["refresh.done"] = 2
    assert line(again, RATES).startswith("3 pages fetched, 2 fetched again (0.0/s)")


def test_bytes_of_a_large_file_count_while_it_arrives() -> None:
    """A file of 1 GB once arrived in silence: `0 pages fetched (0.0/s), 0.0 MB (0.00 MB/s)`."""
    before, during, after = status(in_flight=1), status(in_flight=1), status()
    during.run = {"arriving_bytes": 400_000_000}
    after.counters["bytes.wire"] = 399_000_000
    rates = Rates(before)
    assert rates.sample(during)["bytes"] > 0.0
    assert ", 400.0 MB (" in line(during, RATES)
    assert rates.sample(after)["bytes"] == 0.0, "a resumed file may count less after its commit"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"ready_at": 1060.0, "failures": 2},
            "waits until 00:17:40 UTC (60 s) for a.test: failed 2 times in a row",
        ),
        ({"ready_at": 1060.0, "failures": 1, "slowdown": 2.0}, "slowed by 429 or 503"),
        ({"ready_at": 1060.0, "cause": "address_denied"}, "address denied"),
        (
            {"ready_at": 1030.0, "state": "retries", "cause": "temporary"},
            "until 00:17:10 UTC (30 s) for a.test: a URL is tried again (server error)",
        ),
        ({"ready_at": 1030.0, "state": "waits_for_robots"}, "a.test: its robots.txt could not be fetched"),
        ({"ready_at": 1010.0, "gap": 30.0}, "its gap of 30 s between requests"),
    ],
)
def test_the_reason_for_waiting_is_shown(values: dict[str, object], said: str) -> None:
    assert said in waiting_for(status(host(**values)))


def test_while_the_crawl_waits_equal_lines_are_left_out() -> None:
    """Once, a wait of two minutes printed a line every five seconds into a file or a pipe."""
    lines, waits = NewLines(), status(host(ready_at=1120.0))
    assert lines.is_new(waits)
    waits.now = 1005.0
    assert not lines.is_new(waits)
    waits.now = 1000.0 + WAIT_INTERVAL
    assert lines.is_new(waits) and not lines.is_new(waits)
    waits.waiting = [host(ready_at=1180.0)]
    assert lines.is_new(waits) and not lines.is_new(waits)
    waits.counters["pages.fetched"] += 1
    assert lines.is_new(waits)
    fetching = status(in_flight=1)
    assert lines.is_new(fetching) and lines.is_new(fetching)


def test_the_longer_nothing_is_fetched_the_fewer_lines_are_printed() -> None:
    """A crawl with 16 requests a day, or a paused one, once printed 17,000 equal lines a day."""
    for idle in (status(), status(host(ready_at=1e6))):
        lines, printed = NewLines(), []
        for second in range(0, 86_400, 5):
            idle.now = float(second)
            if lines.is_new(idle):
                printed.append(second)
        assert printed[:5] == [0, 30, 90, 210, 450] and printed[-1] - printed[-2] == WAIT_INTERVAL_MAX
        idle.counters["pages.fetched"] += 1
        assert lines.is_new(idle) and not lines.is_new(idle)


def test_a_paused_crawl_says_so() -> None:
    shown = status(host(ready_at=1060.0))
    shown.paused = ["user"]
    assert waiting_for(shown) == "; paused (user)"


def test_no_reason_is_shown_for_short_waits_or_during_fetches() -> None:
    assert waiting_for(status(host(ready_at=1001.0))) == ""
    assert waiting_for(status(host(ready_at=1060.0), in_flight=1)) == ""


def test_a_crawl_whose_known_pages_are_all_withheld_says_until_when() -> None:
    """`crawler refresh` right after a crawl printed `0.0/s` for an hour, without the reason."""
    waits = status()
    waits.frontier.todo = 0
    waits.refreshing = {"pages": 3, "in_flight": 0, "wait": {"until": 1060.0, "reason": "refresh.min_age"}}
    said = "waits until 00:17:40 UTC (60 s) for the next refresh: refresh.min_age"
    assert waiting_for(waits) == f"; {said}"
    assert f"waiting:  {said.removeprefix('waits ')}" not in "\n".join(_summary(waits))
    waits.processes = [{"name": "p0", "pid": 1, "started": 900.0}]
    assert f"waiting:  {said.removeprefix('waits ')}" in "\n".join(_summary(waits))
    waits.frontier.todo = 1
    waits.waiting = [host(ready_at=1030.0)]
    assert "until 00:17:10 UTC (30 s) for a.test" in waiting_for(waits)
    waits.waiting = [host(ready_at=1090.0)]
    assert "for the next refresh" in waiting_for(waits)
    waits.refreshing["in_flight"] = 1
    assert waiting_for(waits) == ""


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_screen_fits_the_terminal(width: int) -> None:
    out = io.StringIO()
    hosts = [
        host(host=f"{n}.a-long-name-of-a-host.example.org", ready_at=1060.0, wait=60.0) for n in range(20)
    ]
    Console(file=out, width=width).print(screen(status(*hosts), RATES, 12.0))
    shown = out.getvalue().splitlines()
    assert max(map(len, shown)) <= width and len(shown) <= 22
    assert "to do" in out.getvalue() and "60.0 s" in out.getvalue()


def test_the_screen_shows_the_verdict_if_the_crawl_is_not_healthy() -> None:
    def shown(*states: str) -> str:
        seen = status(host())
        seen.members = [MemberStatus(f"p{n}", state) for n, state in enumerate(states)]
        out = io.StringIO()
        Console(file=out, width=120).print(screen(seen, RATES, 12.0))
        return out.getvalue()

    assert "unhealthy: p1 is not running" in shown("running", "missing")
    assert "healthy" not in shown("running", "running")


def at_rest(state: str) -> Status:
    stopped = status()
    stopped.members = [MemberStatus("p0", state)]
    return stopped


@pytest.mark.parametrize(
    ("state", "said"),
    [("at_rest", "; at rest"), ("died", "; died: p0 did not end cleanly: killed, or stopped by")],
)
def test_top_says_once_that_a_crawl_does_not_run(
    capsys: pytest.CaptureFixture[str], state: str, said: str
) -> None:
    """It once repeated a line every second, as for a crawl that runs and fetches nothing."""
    looks = [(at_rest(state), RATES, 0.0)] * 3
    top._plain(iter(looks), every=False)
    (only,) = capsys.readouterr().out.splitlines()
    assert said in only
    top._plain(iter(looks), every=True)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_top_says_that_the_crawl_has_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    running = at_rest("running")
    top._plain(iter([(each, RATES, 0.0) for each in (running, running, at_rest("at_rest"))]), every=False)
    assert ["at rest" in each for each in capsys.readouterr().out.splitlines()] == [False, True]


def test_the_screen_shows_the_verdict_instead_of_rates_that_are_always_zero() -> None:
    file = io.StringIO()
    stopped = at_rest("at_rest")
    Console(file=file, width=80).print(screen(stopped, RATES, 0.0, top._stopped(stopped)))
    assert file.getvalue().splitlines()[0].strip() == "at rest" and "pages/s" not in file.getvalue()
