"""The stages of a process: what they open in, how they close, what a lost page becomes."""

import errno
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crawler.clock import VirtualClock
from crawler.config import convert
from crawler.crawl.topology import Topology
from crawler.errors import DirectoryError, StoreError
from crawler.pages.captures import record_key
from crawler.process.stages import Stages, _disk_errors
from crawler.records import Errand, Fetch, Link, Outcome, Task
from crawler.splitter.partition import Partition
from crawler.storage.commit import Change
from crawler.storage.keys import CLEAN
from crawler.upkeep.check import check

URL = "http://a.org/x"


def opened(folder: Path, *, names: tuple[str, ...] = ("p0",), seed: bytes = bytes(16), **more: Any) -> Stages:
    topology = Topology("p0", Partition.equal_ranges(list(names)))
    return Stages(convert({}), folder / "p0", seed, clock=VirtualClock(), topology=topology, **more)


def fetched(stages: Stages, url: str, content: bytes = b"<html>one page</html>") -> int:
    """Let a page be to do, fetched and stored; its fingerprint."""
    change = Change()
    fingerprint = stages.fingerprinter.fingerprint(url)
    stages.due.admit(stages.fingerprinter.fingerprints([url]))
    change.links.append(Link(fingerprint, url))
    change.count("urls.accepted")
    change.count("urls.to_due")
    stages.commit_now(change)
    stages.clock.advance(10.0)  # type: ignore[attr-defined]
    stages.frontier.allow(1)
    errand = next_page(stages)
    fetch = Fetch(
        url=url,
        outcome=Outcome.FETCHED,
        status=200,
        body=content,
        content=content,
        headers=((b"Content-Type", b"text/html"),),
        content_type="text/html",
        began=stages.clock.now(),
    )
    stages.commit(lambda: stages.harvest.page(errand, fetch, None, stages.clock.now()))
    return fingerprint


def next_page(stages: Stages) -> Errand:
    """The errand of the next page; robots.txt is not there, names resolve."""
    while True:
        errand = stages.frontier.take(stages.clock.now())
        assert errand is not None, stages.frontier
        if errand.task is Task.PAGE:
            return errand
        now = stages.clock.now()
        if errand.task is Task.RESOLVE:
            stages.frontier.resolved(errand, ("127.0.0.1",), now + 1000.0, now)
        else:
            absent = Fetch(url=errand.url, outcome=Outcome.GONE, status=404, began=now)
            stages.commit(partial(stages.harvest.robots, errand, absent, now))
        stages.clock.advance(10.0)  # type: ignore[attr-defined]
        stages.frontier.allow(1)


def test_keys_of_each_kind_are_counted(tmp_path: Path) -> None:
    """A record or capture that is gone without any word is missed; a crawl begun before the counters is not refused."""
    stages = opened(tmp_path)
    fingerprint = fetched(stages, URL)
    fetched(stages, "http://a.org/y", b"another")
    assert (stages.point.counters["stored.records"], stages.point.counters["stored.captures"]) == (2, 3)
    assert check(stages) == []
    batch = stages.store.batch()
    batch.delete(record_key(fingerprint))
    stages.store.write(batch)
    assert "store: 1 keys u/, 2 were written (stored.records)" in check(stages)
    stages.point.counters = Counter({n: c for n, c in stages.point.counters.items() if "stored" not in n})
    stages.commit(Change())
    stages.close()
    stages = opened(tmp_path)
    assert stages.point.counters["stored.records"] == 1
    stages.close()


def test_a_clean_end_is_known_at_the_next_start_and_at_no_later_one(tmp_path: Path) -> None:
    """Until it is closed again, a run counts as one that was cut off."""
    stages = opened(tmp_path)
    assert stages.store.get(CLEAN) is None
    stages.close()
    stages = opened(tmp_path)
    assert stages.store.get(CLEAN) is None, "it was taken when the stages opened"
    stages.close(clean=False)
    stages = opened(tmp_path)
    stages.close()
    stages = opened(tmp_path)
    stages.close(clean=False)


def test_an_unclean_end_writes_nothing(tmp_path: Path) -> None:
    stages = opened(tmp_path)
    stages.close(clean=False)
    stages = opened(tmp_path)
    assert stages.store.get(CLEAN) is None
    stages.close()


def test_a_folder_is_opened_once(tmp_path: Path) -> None:
    stages = opened(tmp_path)
    with pytest.raises(DirectoryError, match="p0"):
        opened(tmp_path)
    stages.close()
    opened(tmp_path).close()


def test_a_start_that_fails_leaves_no_lock(tmp_path: Path) -> None:
    opened(tmp_path).close()
    for _ in range(2):  # the second one would fail at the lock
        with pytest.raises(DirectoryError, match="buckets"):
            opened(tmp_path, names=("p0", "p1"))
    opened(tmp_path).close()


def test_another_seed_is_refused(tmp_path: Path) -> None:
    stages = opened(tmp_path)
    fetched(stages, URL)
    stages.close()
    with pytest.raises(DirectoryError):
        opened(tmp_path, seed=b"x" * 16)


@pytest.mark.parametrize("restore", [True, False])
def test_a_page_whose_segment_is_gone_is_to_be_fetched_again(tmp_path: Path, restore: bool) -> None:
    stages = opened(tmp_path)
    fingerprint = fetched(stages, URL)
    record = stages.pages.record(fingerprint)
    assert record is not None and stages.problems() == []
    stages.close()
    (segment,) = (tmp_path / "p0" / "warc").glob("*.warc.gz*")
    segment.unlink()
    stages = opened(tmp_path, restore=restore)
    assert stages.restored == restore
    assert (stages.pages.record(fingerprint) is None) == restore
    assert stages.frontier_counts().todo == restore
    assert stages.problems() == []
    stages.close()
    assert opened(tmp_path).restored == (not restore)


def test_counts_of_a_crawl_of_one_process_have_no_splitter(tmp_path: Path) -> None:
    stages = opened(tmp_path)
    fetched(stages, URL)
    assert stages.splitter_counts() is None and stages.waiting_for_peers() == {}
    assert (stages.due_counts().new, stages.due_counts().pending) == (1, 0)
    assert stages.frontier_counts().todo == 0 and stages.point.counters["urls.done"] == 1
    stages.point.counters["urls.done"] = 2
    assert stages.problems() == ["new = done + todo + parked: 1 != 2"]
    stages.close()


def test_a_crawl_of_several_counts_what_waits_for_each_peer(tmp_path: Path) -> None:
    stages = opened(tmp_path, names=("p0", "p1", "p2"))
    change = Change()
    change.foreign.append(("p2", [Link(7, "http://b.org/")]))
    change.count("urls.accepted")
    change.count("urls.to_outbox")
    change.count("splitter.foreign")
    stages.commit(change)
    counts, waiting = stages.splitter_counts(), stages.waiting_for_peers()
    assert counts is not None and (counts.waiting, counts.sent, counts.local, counts.foreign) == (1, 0, 0, 1)
    assert [waiting["p1"].outbox_links, waiting["p2"].outbox_links] == [0, 1]
    assert waiting["p2"].outbox_bytes > 0 and waiting["p2"].connected is None
    assert stages.problems() == []
    stages.close()


@pytest.mark.parametrize(
    ("number", "failed"), [(errno.ENOSPC, True), (errno.EIO, True), (errno.EACCES, False)]
)
def test_a_full_disk_that_the_opening_meets_is_a_store_error(
    tmp_path: Path, number: int, failed: bool
) -> None:
    """It may be met as an error of the directory, which would end in another exit code and no new try."""
    with pytest.raises(StoreError if failed else DirectoryError) as met, _disk_errors(tmp_path):
        raise DirectoryError("cannot be made") from OSError(number, "why")
    assert isinstance(met.value, StoreError) is failed
