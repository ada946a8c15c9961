"""Test links between processes whose connections break. Each link is applied once by its owner, and the crawl ends.

The judge finds lost links. If a link is applied twice or never, the crawl does not end.
"""

from functools import cache

import msgspec
import pytest

from crawler.lab.cluster import fault_plan, virtual_network
from crawler.lab.cluster.cluster_settings import START, ClusterSettings
from crawler.lab.cluster.fault_plan import Fault
from crawler.lab.cluster.synthetic_web import WebSpec
from tests.lab.cluster.planted import judged

WEB = WebSpec(hosts=10, pages=60, down=0.0, traps=0.0, flaws=False)
QUIET = ClusterSettings(web=WEB, faults=(), count=0)
ONE_WINDOW = {"splitter": {"window_bytes": 1000, "entry_bytes": 200, "spool_bytes_max": 600}}


@cache
def end_without_faults(patience: float, seed: int = QUIET.seed) -> float:
    """Return when a crawl with this patience ends if nothing disturbs it."""
    cluster, _ = judged(msgspec.structs.replace(QUIET, seed=seed, tree={"crawl": {"patience": patience}}))
    assert cluster.observed.ended
    return cluster.observed.elapsed


def planned(monkeypatch: pytest.MonkeyPatch, *faults: Fault) -> None:
    monkeypatch.setattr(fault_plan, "draw", lambda *_, **__: list(faults))


@pytest.mark.parametrize("processes", [1, 4])
def test_a_crawl_without_faults_ends_by_itself_with_every_page_fetched_once(processes: int) -> None:
    _, verdict = judged(msgspec.structs.replace(QUIET, processes=processes))
    assert verdict.flawless, verdict.examples
    assert (verdict.pages, verdict.refetched) == (60, 0)


@pytest.mark.parametrize("seed", [3, 5, 10])
def test_broken_connections_and_processes_lose_nothing_and_apply_nothing_twice(seed: int) -> None:
    """The window of unconfirmed entries is small, and queues are compacted constantly.

    When the other processes find that no work is left, one process is dead or cut off. It ends, too.
    """
    faults = ("reset", "partition", "loss", "kill", "power", "slow-disk")
    cluster, verdict = judged(
        msgspec.structs.replace(QUIET, seed=seed, faults=faults, count=20, within=60.0, tree=ONE_WINDOW)
    )
    assert verdict.flawless, verdict.examples
    assert verdict.pages == 60 and cluster.observed.elapsed < 300.0


@pytest.mark.parametrize(
    ("seed", "faults"),
    [
        (0, ("reset", "slow-disk")),  # this run reveals the bug that a repeated entry is applied twice
        # this run reveals the bug that entries are acknowledged before the commit
        (0, ("kill", "power", "slow-disk")),
        (6, ("partition",)),  # this run reveals the bug that a compacted queue lacks a link
    ],
)
def test_many_faults_of_few_kinds_break_no_rule(seed: int, faults: tuple[str, ...]) -> None:
    """A web with twice as many pages as usual is hit by faults of few kinds.

    The comment beside each seed names the planted bug that this seed would reveal.
    """
    web = msgspec.structs.replace(WEB, pages=120, hosts=12)
    settings = msgspec.structs.replace(QUIET, web=web, seed=seed, faults=faults, count=24, within=60.0)
    _, verdict = judged(msgspec.structs.replace(settings, tree=ONE_WINDOW))
    assert verdict.flawless, verdict.examples
    assert verdict.pages == 120


def test_an_end_known_under_other_limits_is_not_recalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once all processes know that the crawl has ended, the power fails and the limits are raised.

    One process starts again only after `silence_max`.
    """
    web = msgspec.structs.replace(WEB, hosts=4, pages=40, zipf=2.0, sitemaps=0.0)
    tree = {"crawl": {"pages_per_host": 6, "depth": 6}}
    monkeypatch.setattr(fault_plan, "first_limit", lambda seed, plan: 6)
    settings = msgspec.structs.replace(QUIET, web=web, seed=2, tree=tree)
    planned(monkeypatch)
    short, _ = judged(settings)
    raised = Fault(short.observed.elapsed - 1.0, "limits", (2,), length=150.0, point=fault_plan.POWER_CUT)
    planned(monkeypatch, raised)
    cluster, verdict = judged(settings)
    assert verdict.flawless, verdict.examples
    assert short.observed.ended and verdict.pages == 40 and cluster.observed.elapsed < 400.0
    assert sum(life.killed for life in cluster.observed.lives) == 3, (
        "all three knew the end when they were killed"
    )


@pytest.mark.parametrize("cut_off", [(0, 1, 2), (1, 0, 2)])
def test_a_returning_process_informs_one_that_missed_the_end(
    cut_off: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the crawl, a process is cut off for longer than the other processes wait.

    After that, one of the two other processes is restarted.
    """
    settings = msgspec.structs.replace(QUIET, tree={"crawl": {"patience": 60.0}})
    end = end_without_faults(60.0)
    planned(monkeypatch, Fault(end - 3.3, "partition", cut_off, length=300.0))
    cluster, verdict = judged(settings)
    assert verdict.flawless, verdict.examples
    last = cluster.observed.lives[-1]
    assert (last.machine, last.how) == (f"p{cut_off[0]}", "done")
    assert len(cluster.observed.visits) == 1 and last.at < cluster.observed.visits[0] + 90.0


@pytest.mark.parametrize(("seed", "owns"), [(3, "p2"), (0, "p0")])
def test_a_process_that_sends_its_seed_again_informs_one_that_was_killed_at_the_end(
    seed: int, owns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Process p2 is killed before it has stored the end, and returns after its peers have ended.

    Then p0 is started again with its seed, which `owns` owns. Once, p2 counted the seed as work, so that p0 and
    p2 waited for p1.
    """
    settings = msgspec.structs.replace(QUIET, seed=seed, tree={"crawl": {"patience": 60.0}})
    end = end_without_faults(60.0, seed)
    planned(monkeypatch, Fault(end - 4.0, "kill", (2,), length=300.0, point="stopping", visits=1))
    cluster, _ = judged(settings)
    assert cluster.observed.ended
    ends = [(life.machine, life.how) for life in cluster.observed.lives]
    assert ends[0] == ("p2", "kill at stopping")
    assert sorted(ends[1:3]) == [("p0", "done"), ("p1", "done")]
    assert ends[3:] == [("p0", "done"), ("p2", "done")], "p1 was not needed"
    assert len(cluster.observed.visits) == 1


@pytest.mark.parametrize("kind", ["partition", "one-way"])
def test_processes_end_by_themselves_after_a_cut_at_the_last_page(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the last page, p2 is cut off.

    Process p2 leaves after `crawl.patience`, before the others can learn of the end.

    The others end when the machine of p2 has refused connections for five times `crawl.patience`.
    """
    patience, length = 30.0, 100.0
    settings = msgspec.structs.replace(QUIET, tree={"crawl": {"patience": patience}})
    end = end_without_faults(patience)
    planned(monkeypatch, Fault(end - 3.3, kind, (2, 0, 1), length=length))
    cluster, verdict = judged(settings)
    assert verdict.flawless, verdict.examples
    assert not cluster.observed.visits
    ends = {life.machine: life.at - end for life in cluster.observed.lives}
    assert ends["p2"] < length < 5 * patience < max(ends.values()) < length + 7 * patience, ends


def test_a_missing_process_delays_the_end_but_not_the_crawl(monkeypatch: pytest.MonkeyPatch) -> None:
    planned(monkeypatch, Fault(5.0, "power", (1,), length=300.0))
    cluster, verdict = judged(QUIET)
    assert verdict.flawless, verdict.examples
    assert cluster.observed.elapsed > 305.0
    others = [row.at - START for row in cluster.log.rows if row.machine != "p1"]
    assert sum(15.0 < at < 300.0 for at in others) > 5


def test_a_suspended_process_does_not_slow_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connections of the suspended process stay open but silent; the others communicate normally."""
    web = msgspec.structs.replace(WEB, pages=90)
    planned(monkeypatch, Fault(10.0, "stop", (2,), length=25.0))
    stopped, verdict = judged(msgspec.structs.replace(QUIET, web=web))
    assert verdict.flawless, verdict.examples
    planned(monkeypatch)
    free, _ = judged(msgspec.structs.replace(QUIET, web=web))
    asked = [
        sum(10.0 < row.at - START < 35.0 and row.machine != "p2" for row in each.log.rows)
        for each in (stopped, free)
    ]
    # only requests for links that p2 would have found are missing
    assert asked[1] > 10 and asked[0] > 0.6 * asked[1], asked
    assert not any(10.0 < row.at - START < 35.0 for row in stopped.log.rows if row.machine == "p2")


@pytest.mark.parametrize("seed", range(2))
def test_the_end_is_never_announced_too_early(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages between four processes are delayed at random, and any process may be the last that has work."""
    monkeypatch.setattr(virtual_network, "LATENCY", (0.0005, 2.0))
    _, verdict = judged(msgspec.structs.replace(QUIET, seed=100 + seed, processes=4))
    assert verdict.flawless, verdict.examples
    assert verdict.pages == 60
