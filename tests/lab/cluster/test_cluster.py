"""Test processes in the virtual world: faults break no rule, and equal seeds yield equal runs.

`python -m tests.lab.cluster.planted` searches for every planted bug. The tests here run one cheap seed for
each bug.
"""

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.lab import __main__ as lab
from crawler.lab.cluster import cluster, curves, fault_plan
from crawler.lab.cluster.cluster import Cluster, memory_folder
from crawler.lab.cluster.cluster_settings import ClusterSettings
from crawler.lab.cluster.fault_plan import Fault
from crawler.lab.cluster.judge import judge
from crawler.lab.cluster.population import Population
from crawler.lab.cluster.synthetic_web import WebSpec
from crawler.process.opening.stages import Stages
from tests.faults.planted import OWN
from tests.lab.cluster.planted import PLANTS, judged, planted, run, settings_of

# With heartbeats each second, half of the CPU time would be spent on messages that change nothing.
RARE_BEATS: dict[str, Any] = {"splitter": {"heartbeat": 5.0}}
TINY = ClusterSettings(web=WebSpec(hosts=8, pages=60), count=6, within=40.0, tree=RARE_BEATS)


def shorter(settings: ClusterSettings) -> ClusterSettings:
    """Return the settings of a refresh run with a third of its length; return other settings unchanged."""
    if not settings.length:
        return settings
    return msgspec.structs.replace(settings, length=settings.length / 3, within=settings.within / 3)


def test_faults_break_no_rule_at_a_rate() -> None:
    verdict = run(msgspec.structs.replace(TINY, seed=3, rate=4.0))
    assert verdict.flawless, verdict.examples
    assert verdict.pages >= 55


def test_faults_break_no_rule_in_a_web_that_needs_a_browser() -> None:
    verdict = run(msgspec.structs.replace(TINY, seed=3, web=WebSpec(hosts=8, pages=60, scripted=True)))
    assert verdict.flawless, verdict.examples
    assert verdict.pages >= 55 and verdict.kills


def test_acts_of_the_operator_break_no_rule() -> None:
    web = WebSpec(hosts=8, pages=60, broken=True)
    acting = msgspec.structs.replace(TINY, web=web, faults=(*fault_plan.ACTS, "kill", "power"), count=12)
    verdict = run(msgspec.structs.replace(acting, seed=2))
    assert verdict.flawless, verdict.examples


@pytest.mark.parametrize("refresh", [False, True])
def test_reshards_break_no_rule(refresh: bool) -> None:
    changes = shorter(settings_of(PLANTS["wrong-original"], 1)) if refresh else TINY
    settings = msgspec.structs.replace(
        changes, seed=2, count=6, faults=("reshard", "kill", "power", "limits")
    )
    world, verdict = judged(settings)
    assert verdict.flawless, verdict.examples
    assert world.observed.resharded


def test_no_start_that_was_planned_before_a_power_cut_comes_before_the_machine_has_booted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next process cannot know when the host's answer to the last request ends."""
    plan = [
        Fault(10.0, "kill", (0,), 12.0),  # plans a start at 22 s
        Fault(12.0, "rerun", (0,), 1.0),  # starts the process already at 13 s
        Fault(20.0, "power", (0,), 30.0),
    ]
    monkeypatch.setattr(fault_plan, "draw", lambda *_, **__: plan)
    world, verdict = judged(TINY)
    assert verdict.flawless, verdict.examples
    begun = sorted(at for at in world.observed.begun.values() if at > 12.0)
    assert begun[0] == pytest.approx(13.0)
    assert begun[-1] == pytest.approx(20.0 + fault_plan.BOOT), begun


def test_signals_to_any_process_lead_to_a_fetch() -> None:
    settings = shorter(settings_of(PLANTS["foreign-signals-ignored"], 1))
    world, verdict = judged(settings)
    assert verdict.flawless, verdict.examples
    assert sum(act.kind == "signal" for act in world.observed.acts) > 4


def test_known_pages_are_refetched_also_by_a_single_process() -> None:
    refreshing = msgspec.structs.replace(
        TINY,
        processes=1,
        web=WebSpec(hosts=5, pages=20, change_rate=1 / 600.0),
        faults=("kill",),
        count=2,
        length=1000.0,
        rate=0.5,
        refresh=True,
    )
    verdict = run(refreshing)
    assert verdict.flawless, verdict.examples
    assert verdict.requests > 100 and 0.5 < verdict.freshness <= 1.0


def test_the_same_seed_reproduces_a_run_to_the_byte() -> None:
    """A run in a new interpreter is equal, although string hashes and object addresses differ."""
    program = (
        "from tests.lab.cluster.test_cluster import TINY; from tests.lab.cluster.planted import run; "
        "import msgspec; print(run(msgspec.structs.replace(TINY, seed=5)).digest)"
    )
    other = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    verdict = run(msgspec.structs.replace(TINY, seed=5))
    assert verdict.digest == other
    assert verdict.flawless, verdict.examples
    assert verdict.pages >= 55


# For each bug, a seed that finds it in little time.
CHEAP = {"tail-trusted": 6, "share-forgotten": 1, "blocks-in-memory": 1}
# These bugs are found in a web of 30 pages, too.
CHEAP_IN_A_SMALL_WEB = {
    "results-dropped": 1,
    "gap-taken": 2,
    "journal-unread": 7,
    "loss-not-told": 1,
    "budget-not-counted": 1,
    "wrong-original": 1,
    "shown-links-ignored": 1,
    "foreign-signals-ignored": 3,
    "empty-disk-accepted": 1,
    "notices-ignored": 2,
    "warc-not-synced": 1,
    "outbox-in-memory": 1,
    "foreign-kept": 4,
    "counters-in-memory": 1,
    "applied-twice": 17,
    "sent-is-gone": 3,
    "parked-for-good": 3,
    "parked-stay-behind": 2,
    "known-stay-behind": 1,
    "in-transit-stay-behind": 2,
    "segments-shared": 3,
    "depth-of-the-page": 1,
    "one-try": 1,
    "erasure-is-small": 1,
    "withdrawn-is-fetched": 4,
    "wrong-place": 1,
    "subresources-dropped": 1,
    "visit-not-counted": 1,
}


def test_every_bug_can_be_planted() -> None:
    """Each patch replaces an attribute that exists; otherwise the search for the bug could find nothing."""
    for bug in PLANTS:
        with planted(bug):
            pass
    for patches in OWN.values():
        for where, name, _ in patches():
            assert hasattr(where, name), (where, name)


@pytest.mark.parametrize("bug", [*CHEAP, *CHEAP_IN_A_SMALL_WEB])
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some bugs prevent the end of the crawl. Five virtual minutes show this; two hours are usual."""
    monkeypatch.setattr(cluster, "ENDING_MAX", 300.0)
    if bug in CHEAP:
        settings = shorter(settings_of(PLANTS[bug], CHEAP[bug]))
    else:
        settings = settings_of(PLANTS[bug], CHEAP_IN_A_SMALL_WEB[bug])
        web = msgspec.structs.replace(settings.web, hosts=6, pages=30)
        settings = shorter(msgspec.structs.replace(settings, web=web))
    settings = msgspec.structs.replace(settings, tree=RARE_BEATS | settings.tree)
    with planted(bug):
        assert not run(settings).flawless


def test_no_file_of_a_world_stays_open_even_if_referenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory maps and files of a killed process are closed when it ends, even if references to them remain."""
    kept, bury = [], Population.bury

    def bury_all_but_stages(self: Population) -> None:
        kept.extend(self.opened.values())
        bury(self)

    monkeypatch.setattr(Population, "bury", bury_all_but_stages)
    calls = os.write, os.fsync, os.open
    with memory_folder() as folder:
        world = Cluster(msgspec.structs.replace(TINY, seed=1), Path(folder))
        world.run()
        assert judge(world).flawless
        left = {
            os.readlink(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd") if _is_open(each)
        }
        assert not any(folder in name for name in left)
    assert kept
    assert calls == (os.write, os.fsync, os.open)


def test_no_object_of_a_world_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of runs share an interpreter. In each run, processes are killed at any step."""
    made: list[weakref.ref[Stages]] = []

    class Noted(Stages):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            made.append(weakref.ref(self))

    monkeypatch.setattr("crawler.lab.cluster.population.Stages", Noted)
    settings = msgspec.structs.replace(TINY, faults=("kill",), count=12)
    verdict = run(settings)
    assert verdict.kills > 2 and len(made) > 5
    gc.collect()
    assert [ref() for ref in made if ref() is not None] == []


def _is_open(descriptor: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{descriptor}")


def test_the_command_shows_a_table_and_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs.csv"
    words = "cluster --pages 20 --hosts 4 --faults kill --count 1 --out"
    assert lab.main("lab", [*words.split(), str(out)]) == 0
    assert "flawless" in capsys.readouterr().out
    assert out.read_text().splitlines()[-1].startswith("1,20,")


def test_a_table_has_a_row_for_each_kind_of_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fault_plan, "KINDS", {"kill": "", "clone": ""})
    monkeypatch.setattr(fault_plan, "USUAL", ("kill",))
    monkeypatch.setattr(fault_plan, "ACTS", {"term": ""})
    out = tmp_path / "faults.csv"
    words = "cluster --table --seeds 1 --processes 2 --pages 10 --hosts 3 --count 1"
    assert lab.main("lab", [*words.split(), "--out", str(out)]) == 0
    kinds = [line.split(",")[0] for line in out.read_text().splitlines()[2:]]
    assert kinds == ["kill", "clone", "all but copies", "all", "term", "acts and faults"]
    assert capsys.readouterr().out.count("1 of 1") == 6


def test_a_curve_has_rows_with_and_without_a_slow_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "REFRESHED", 1200.0)
    monkeypatch.setattr(curves, "SCALES", {1: curves.Scale(1.0, 30.0, 12)})
    one, two, slow = curves.rows([1, 2], seed=1, pages=8, hosts=3)
    assert (one.slow, two.slow, slow.slow) == (False, False, True)
    assert one.freshness == one.freshness_of_one and (one.level_low, one.level_high) == (1.0, 1.0)
    assert two.refreshed == 24 and 0.0 < two.level_low <= two.level_high
    assert abs(two.freshness - two.freshness_of_one) < 0.2
    assert one.flawless and two.flawless
    assert (one.pages, two.pages) == (8, 16)
    assert (one.connections, one.own_links, one.link_bytes_a_page, one.beat_bytes_a_second) == (
        0,
        1.0,
        0.0,
        0.0,
    )
    assert two.connections == 2 and two.own_links < 1.0 and two.link_bytes_a_page > 0.0
    assert two.beat_bytes_a_second == pytest.approx(2 * two.beat_bytes / two.beat, rel=0.3)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--faults", "rain"],
        ["--points", "nowhere"],
        ["--processes", "0"],
        ["--pages", "5", "--hosts", "9"],
        ["--days", "-1"],
    ],
)
def test_bad_arguments_are_rejected_in_one_line(arguments: list[str]) -> None:
    from crawler.errors import UsageError

    with pytest.raises(UsageError):
        lab.main("lab", ["cluster", *arguments])
