"""Test how seeds are queued: each list of seeds is one change.

A process queues only the seeds that it owns, but its scope covers all seeds. Known pages are queued again in
the same way: each page that was tried is queued once.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from crawler.clock import VirtualClock
from crawler.config import convert
from crawler.crawl.topology import Topology
from crawler.process.opening.stages import Stages
from crawler.process.results import seed_intake
from crawler.process.results.seed_intake import known_changes, own_seeds, seed_changes
from crawler.records import Link, LinkFlag, Outcome, PageRecord, PageState
from crawler.splitter.partition import Partition
from tests.process.support import made

PIECES = [[f"http://h{n}.org/" for n in range(at, at + 4)] for at in (0, 4, 8)]
ALL = sum(PIECES, [])


def process(folder: Path, name: str, names: list[str], scope: str = "host") -> Stages:
    topology = Topology(name, Partition.equal_ranges(names))
    config = convert({"crawl": {"scope": scope}})
    return Stages(config, folder / name, bytes(16), clock=VirtualClock(), name=name, topology=topology)


def seeds_of(stages: Stages, *, shared: bool) -> Iterator[Any]:
    own = partial(own_seeds, stages.fingerprinter, stages.topology.partition, stages.name)
    scope = stages.config.crawl.scope
    return seed_changes(
        PIECES,
        stages.decisions.admission,
        stages.decisions.knowledge,
        scope=scope,
        own=own if shared else None,
    )


def seeded(stages: Stages, *, shared: bool) -> int:
    """Commit all changes that queue the seeds; return the number of changes."""
    changes = list(seeds_of(stages, shared=shared))
    for change in changes:
        stages.commits.commit(change)
    while (plan := stages.commits.flush_begin(dry=True)) is not None:
        plan.run()
        stages.commits.commit(partial(stages.commits.flush_change, plan))
    return len(changes)


def test_alone_every_seed_reaches_the_frontier(tmp_path: Path) -> None:
    """New seeds are counted apart from links, because the ETA is computed from the links (`admin/eta.py`)."""
    with closing(process(tmp_path, "p0", ["p0"])) as stages:
        for _ in range(2):
            assert seeded(stages, shared=False) == len(PIECES)
            assert stages.views.frontier_counts().todo == len(ALL) and stages.views.problems() == []
            assert stages.point.counters["urls.new_seeds"] == stages.views.due_counts().new == len(ALL)


@pytest.mark.parametrize("scope", ["host", "any"])
def test_each_process_takes_its_own_part_of_shared_seeds(tmp_path: Path, scope: str) -> None:
    names = ["p0", "p1", "p2"]
    todo = 0
    for name in names:
        with closing(process(tmp_path, name, names, scope)) as stages:
            seeded(stages, shared=True)
            counts = stages.views.splitter_counts()
            assert counts is not None and (counts.waiting, counts.scope_told) == (0, 0), (
                "no peer needs a notice"
            )
            assert stages.views.problems() == []
            todo += stages.views.frontier_counts().todo
            assert all(stages.intake.explain(f"{url}page").rule == "" for url in ALL), (
                "the scope includes all seeds"
            )
    assert todo == len(ALL)


def test_the_scope_spans_all_shared_seeds_before_any_is_queued(tmp_path: Path) -> None:
    """If the scope grew seed by seed, a link that another process sends meanwhile would be dropped."""
    with closing(process(tmp_path, "p0", ["p0", "p1"])) as stages:
        stages.commits.commit(next(seeds_of(stages, shared=True)))
        assert all(stages.intake.explain(f"{url}page").rule == "" for url in ALL)
        assert stages.point.counters["urls.seeds"] == 0


def test_seeds_given_to_one_node_are_sent_to_their_owners(tmp_path: Path) -> None:
    with closing(process(tmp_path, "p0", ["p0", "p1"])) as stages:
        seeded(stages, shared=False)
        counts = stages.views.splitter_counts()
        assert counts is not None and counts.waiting > 0 and counts.scope_told == len(ALL)
        assert stages.views.frontier_counts().todo + counts.waiting - counts.scope_told == len(ALL)


def test_the_scope_is_spanned_piece_by_piece(tmp_path: Path) -> None:
    """Adding millions of seeds to the scope in one step would block the event loop."""
    with closing(process(tmp_path, "p0", ["p0", "p1"])) as stages:
        _, pauses = made(next(seeds_of(stages, shared=True))())
        assert pauses == len(PIECES)


def record(url: str, state: PageState = PageState.STORED, **values: Any) -> PageRecord:
    return PageRecord(url, state, Outcome.FETCHED, **values)


def asked_again(records: list[PageRecord], queued: Sequence[int] = ()) -> list[list[Link]]:
    """Queue known pages again, with the numbers 10, 20, 30, ...; return a list of links for each change."""
    again: Any = lambda links: links  # noqa: E731
    numbered = lambda: ((10 * n, each) for n, each in enumerate(records, 1))  # noqa: E731
    return [cast(Any, maker()) for maker in known_changes(lambda: queued, numbered, again)]


def test_a_page_that_was_tried_is_queued_again_as_the_same_link() -> None:
    page = record("http://a.org/", depth=3, via=7, redirects=2, flags=LinkFlag.SEED)
    assert asked_again([page]) == [[Link(10, "http://a.org/", 3, 7, 2, LinkFlag.SEED | LinkFlag.AGAIN)]]


@pytest.mark.parametrize("state", PageState)
def test_pages_that_may_not_be_fetched_are_not_queued_again(state: PageState) -> None:
    denied = state is PageState.DENIED
    assert asked_again([record("http://a.org/", state)]) == (
        [] if denied else asked_again([record("http://a.org/")])
    )


def test_a_page_of_a_users_own_request_is_not_queued_again() -> None:
    flags = LinkFlag.OWN_REQUEST | LinkFlag.SEED
    assert asked_again([record("http://a.org/", flags=flags)]) == []


@pytest.mark.parametrize(
    ("queued", "chunks"),
    [
        ([], [[10, 20], [30, 40], [50]]),
        ([5, 10, 25, 40, 99], [[20], [30], [50]]),
        ([9, 10, 20, 60], [[30, 40], [50]]),
        ([50], [[10, 20], [30, 40]]),
        ([10, 50], [[20], [30, 40]]),
        ([11], [[10, 20], [30, 40], [50]]),
    ],
)
def test_known_pages_are_queued_in_portions_except_those_that_wait_already(
    monkeypatch: pytest.MonkeyPatch, queued: list[int], chunks: list[list[int]]
) -> None:
    monkeypatch.setattr(seed_intake, "KNOWN_AT_ONCE", 2)
    found = asked_again([record(f"http://a.org/{n}") for n in range(5)], queued)
    assert [[link.fingerprint for link in chunk] for chunk in found] == chunks
