"""The way of the seeds: one change a piece; among several processes each takes its own, and the scope all."""

from functools import partial
from pathlib import Path

import pytest

from crawler.clock import VirtualClock
from crawler.config import convert
from crawler.crawl.topology import Topology
from crawler.process.seeding import seed_changes
from crawler.process.stages import Stages
from crawler.splitter.partition import Partition

PIECES = [[f"http://h{n}.org/" for n in range(at, at + 4)] for at in (0, 4, 8)]
ALL = sum(PIECES, [])


def process(folder: Path, name: str, names: list[str], scope: str = "host") -> Stages:
    topology = Topology(name, Partition.equal_ranges(names))
    config = convert({"crawl": {"scope": scope}})
    return Stages(config, folder / name, bytes(16), clock=VirtualClock(), name=name, topology=topology)


def seeded(stages: Stages, *, shared: bool) -> int:
    """Feed the seeds; how many changes they were."""
    changes = list(seed_changes(stages, PIECES, shared=shared))
    for change in changes:
        stages.commit(change)
    while (plan := stages.flush_begin(dry=True)) is not None:
        plan.run()
        stages.commit(partial(stages.flush_change, plan))
    return len(changes)


def test_alone_every_seed_reaches_the_frontier(tmp_path: Path) -> None:
    stages = process(tmp_path, "p0", ["p0"])
    assert seeded(stages, shared=False) == len(PIECES)
    assert stages.frontier_counts().todo == len(ALL) and stages.problems() == []
    stages.close()


@pytest.mark.parametrize("scope", ["host", "any"])
def test_of_shared_seeds_each_process_takes_its_own(tmp_path: Path, scope: str) -> None:
    names = ["p0", "p1", "p2"]
    todo = 0
    for name in names:
        stages = process(tmp_path, name, names, scope)
        seeded(stages, shared=True)
        counts = stages.splitter_counts()
        assert counts is not None and (counts.waiting, counts.scope_told) == (0, 0), "nobody need be told"
        assert stages.problems() == []
        todo += stages.frontier_counts().todo
        assert all(stages.intake.explain(f"{url}page").rule == "" for url in ALL), "the scope spans all"
        stages.close()
    assert todo == len(ALL)


def test_the_scope_spans_all_shared_seeds_before_any_is_queued(tmp_path: Path) -> None:
    """Else a link that a sibling sends meanwhile would be dropped."""
    stages = process(tmp_path, "p0", ["p0", "p1"])
    stages.commit(next(seed_changes(stages, PIECES, shared=True)))
    assert all(stages.intake.explain(f"{url}page").rule == "" for url in ALL)
    assert stages.point.counters["urls.seeds"] == 0
    stages.close()


def test_of_seeds_for_one_node_those_of_others_go_to_their_owners(tmp_path: Path) -> None:
    stages = process(tmp_path, "p0", ["p0", "p1"])
    seeded(stages, shared=False)
    counts = stages.splitter_counts()
    assert counts is not None and counts.waiting > 0 and counts.scope_told == len(ALL)
    assert stages.frontier_counts().todo + counts.waiting - counts.scope_told == len(ALL)
    stages.close()
