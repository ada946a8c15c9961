"""Test the later tries of a finite crawl, with the real frontier and store, on a virtual clock."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crawler.frontier.later_tries import LaterTries
from crawler.process.opening.assembly import queued_fingerprints
from crawler.process.results import due_tries
from crawler.process.results.due_tries import PROBES
from crawler.records import Blame, LinkFlag, Outcome, PageState
from tests.process.support import Joint, fetch

HOME = "http://a.org/"
HOUR = 3600.0
FAILURE: dict[str, Any] = {"status": 500, "outcome": Outcome.TEMPORARY, "blame": Blame.URL}
Open = Callable[..., Joint]


@pytest.fixture
def joint(open_joint: Open) -> Iterator[Joint]:
    """Open a crawl that refreshes no pages."""
    joint = open_joint()
    yield joint
    assert joint.stages.views.problems() == []


def fail(joint: Joint, *urls: str) -> None:
    """Crawl URLs whose tries all fail."""
    joint.seeds(*urls)
    while joint.stages.views.frontier_counts().todo:
        answer(joint, **FAILURE)


def answer(joint: Joint, **values: Any) -> str:
    """Answer the next request for a page, and return its URL."""
    task = joint.fetch_task()
    joint.page(task, fetch(task.url, task.url.encode(), began=joint.clock.now(), **values))
    return task.url


def next_run(joint: Joint, placed: tuple[str, ...] = ()) -> int:
    """Begin another run; return the number of URLs in its queues."""
    joint.reopen()
    stages = joint.stages
    known = {joint.fingerprint(url) for url in placed}
    making = stages.decisions.due_tries.changes(
        stages.pages.all_records,
        known.__contains__,
        lambda: queued_fingerprints(stages.store),
        joint.clock.now(),
    )
    for maker in making:
        joint.commit(maker())
    return stages.views.frontier_counts().todo


def test_the_next_run_tries_a_failed_url_once_more(joint: Joint) -> None:
    fail(joint, HOME)
    assert joint.record(HOME).attempts == 3 and next_run(joint) == 0, "an hour has not passed"
    joint.clock.advance(1.1 * HOUR)
    assert next_run(joint) == 1
    assert answer(joint, **FAILURE) == HOME
    assert joint.stages.views.frontier_counts().todo == 0 and joint.record(HOME).attempts == 4
    joint.clock.advance(1.1 * HOUR)
    assert next_run(joint) == 0, "the second wait is longer"
    joint.clock.advance(1.3 * HOUR)
    assert next_run(joint) == 1
    answer(joint)
    record = joint.record(HOME)
    assert record.state is PageState.STORED and not record.flags & LinkFlag.AGAIN
    joint.clock.advance(1000 * HOUR)
    assert next_run(joint) == 0


def test_a_url_is_tried_for_thirty_days(joint: Joint) -> None:
    fail(joint, HOME)
    tries, waits = 0, LaterTries.of(joint.stages.config.refresh)
    while True:
        joint.clock.advance(waits.wait(joint.record(HOME)) + 1.0)
        if not next_run(joint):
            break
        answer(joint, **FAILURE)
        tries += 1
    assert tries == 7


def test_a_url_that_waits_already_is_not_queued_twice(joint: Joint) -> None:
    fail(joint, HOME)
    joint.clock.advance(2 * HOUR)
    assert next_run(joint, placed=(HOME,)) == 0
    assert next_run(joint) == next_run(joint) == 1, "its run was killed before the try"


def test_a_host_that_is_still_down_gets_few_requests(joint: Joint) -> None:
    """All URLs of one host failed. The other host is not affected."""
    urls = [f"http://a.org/{n}" for n in range(5 * PROBES)]
    fail(joint, *urls, "http://b.org/")
    joint.clock.advance(2 * HOUR)
    assert next_run(joint) == PROBES + 1
    while joint.stages.views.frontier_counts().todo:
        answer(joint, **FAILURE)
    assert sum(joint.record(url).attempts == 4 for url in urls) == PROBES
    assert next_run(joint) == PROBES, "the others are still due"
    answer(joint)
    assert joint.stages.views.frontier_counts().todo == 2 * PROBES - 1
    while joint.stages.views.frontier_counts().todo:
        answer(joint)
    stored = [url for url in urls if joint.record(url).state is PageState.STORED]
    assert len(stored) == 4 * PROBES, "all that were due"


def test_a_first_copy_releases_no_urls_of_other_hosts(joint: Joint) -> None:
    fail(joint, *[f"http://a.org/{n}" for n in range(PROBES + 1)], "http://b.org/")
    joint.clock.advance(2 * HOUR)
    assert next_run(joint) == PROBES + 1
    while joint.stages.views.frontier_counts().todo:
        task = joint.fetch_task()
        failure = FAILURE if task.hostname == "a.org" else {}
        joint.page(task, fetch(task.url, began=joint.clock.now(), **failure))
    assert repr(joint.stages.decisions.due_tries) == "DueTries(1 held)"


def test_few_urls_are_held_in_memory(joint: Joint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_tries, "HELD_MAX", 2)
    fail(joint, *[f"http://a.org/{n}" for n in range(PROBES + 5)])
    joint.clock.advance(2 * HOUR)
    assert next_run(joint) == PROBES
    done = 0
    while joint.stages.views.frontier_counts().todo:
        answer(joint)
        done += 1
    assert done == PROBES + 2
    assert repr(joint.stages.decisions.due_tries) == "DueTries(0 held)"


def test_records_are_examined_in_portions(joint: Joint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_tries, "RECORDS_AT_ONCE", 1)
    fail(joint, HOME, HOME + "1")
    joint.clock.advance(2 * HOUR)
    stages = joint.stages
    making = stages.decisions.due_tries.changes(
        stages.pages.all_records, lambda _: False, lambda: [joint.fingerprint(HOME)], joint.clock.now()
    )
    assert sorted(len(joint.commit(maker()).counts) for maker in making) == [0, 1]
