"""Test the stages of a process: opening, closing, and the recovery of lost pages."""

import errno
import shutil
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crawler.clock import VirtualClock
from crawler.config import convert
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.topology import Topology
from crawler.errors import ConfigError, DamageError, DirectoryError, StoreError
from crawler.frontier.refresh import RefreshOutcome
from crawler.frontier.refresh.importance import read_values
from crawler.pages.captures import record_key
from crawler.process.opening.assembly import queued_fingerprints
from crawler.process.opening.environment import Environment
from crawler.process.opening.stages import BALLAST, Stages, _disk_errors, at_rest
from crawler.records import Link, LinkFlag
from crawler.splitter.partition import Partition
from crawler.storage.commit import Change
from crawler.storage.engines import open_store
from crawler.storage.faults import POINTS, reach
from crawler.storage.keys import CLEAN
from crawler.storage.kv import KeyValue
from crawler.upkeep.check import check
from tests.process.support import Fetching, fetch, new_links

URL = "http://a.org/x"


def opened(
    folder: Path,
    *,
    names: tuple[str, ...] = ("p0",),
    seed: bytes = bytes(16),
    tree: dict[str, Any] | None = None,
    **more: Any,
) -> Stages:
    topology = Topology("p0", Partition.equal_ranges(list(names)))
    return Stages(convert(tree or {}), folder / "p0", seed, clock=VirtualClock(), topology=topology, **more)


def fetched(stages: Stages, url: str, content: bytes = b"<html>one page</html>") -> int:
    """Queue, fetch and store a page; return its fingerprint."""
    fetching = Fetching(stages)
    stages.commits.commit_now(new_links(stages, [url]))
    fetching.clock.advance(5.0)
    fetching.page(fetching.fetch_task(), fetch(url, content, began=fetching.clock.now()))
    return fetching.fingerprint(url)


def test_keys_of_each_kind_are_counted(tmp_path: Path) -> None:
    """The keys of each kind are counted, so that a lost record or capture is noticed."""
    with closing(opened(tmp_path)) as stages:
        fingerprint = fetched(stages, URL)
        fetched(stages, "http://a.org/y", b"another")
        assert (stages.point.counters["stored.records"], stages.point.counters["stored.captures"]) == (2, 3)
        assert check(stages) == []
        batch = stages.store.batch()
        batch.delete(record_key(fingerprint))
        stages.store.write(batch)
        assert "store: 1 keys u/, but 2 were written (stored.records)" in check(stages)


def test_a_clean_end_is_known_at_the_next_start_and_at_no_later_one(tmp_path: Path) -> None:
    """A run counts as interrupted until it is closed."""
    with closing(opened(tmp_path)) as stages:
        assert stages.store.get(CLEAN) is None
    stages = opened(tmp_path)
    assert stages.store.get(CLEAN) is None, "it was deleted when the stages opened"
    stages.close(clean=False)
    stages = opened(tmp_path)
    stages.close()
    stages = opened(tmp_path)
    stages.close(clean=False)


@pytest.mark.parametrize("clean", [True, False], ids=["ended cleanly", "died"])
def test_only_the_next_run_changes_how_the_latest_run_ended(tmp_path: Path, clean: bool) -> None:
    """Commands that open the folder between two runs, and close it cleanly or not, leave the verdict as it is."""
    run = opened(tmp_path)
    assert not run.died(), "it still runs"
    run.close(clean=clean)
    for command_clean in (True, False, True):
        command = opened(tmp_path, brief=True)
        assert command.died() is not clean
        command.close(clean=command_clean)
    run = opened(tmp_path)
    assert not run.died()
    run.close()
    command = opened(tmp_path, brief=True)
    assert not command.died()
    command.close()


@pytest.mark.parametrize("runs", [(True, True), (True, False), (False, True), (False, False)])
def test_a_store_from_before_the_last_run_is_refused(tmp_path: Path, runs: tuple[bool, bool]) -> None:
    """The store is refused, however the last run ended.

    Each opening and each clean end changes the state number.
    """
    for clean in runs:
        stages = opened(tmp_path)
        stages.close(clean=clean)
        shutil.copytree(tmp_path / "p0" / "store", tmp_path / f"left in state {stages.state}")
    first = 1 + runs[0]
    assert stages.state == first + 1 + runs[1]
    shutil.rmtree(tmp_path / "p0" / "store")
    (tmp_path / f"left in state {first}").rename(tmp_path / "p0" / "store")
    for _ in range(2):
        with pytest.raises(DamageError, match="older than the last run"):
            opened(tmp_path)
    (tmp_path / "p0.begun").write_bytes(b"")  # the form in which older versions wrote the state number
    opened(tmp_path).close()


def test_new_file_names_survive_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("crawler.process.opening.stages.sync_directory", synced.append)
    opened(tmp_path).close()
    assert tmp_path / "p0" in synced and tmp_path.absolute() in synced


@pytest.mark.parametrize("mended", ["", "a tail was cut"])
def test_bytes_cut_off_when_a_store_is_opened_are_logged(
    tmp_path: Path, mended: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Mended(Environment):
        def open_store(self, path: Path, config: Any, *, copy: bool = False) -> tuple[KeyValue, str]:
            return super().open_store(path, config, copy=copy)[0], mended

    opened(tmp_path, environment=Mended()).close()
    assert [record.getMessage() for record in caplog.records] == [f"store: {mended}"] * bool(mended)


def test_a_start_that_fails_leaves_no_lock(tmp_path: Path) -> None:
    opened(tmp_path).close()
    for _ in range(2):  # the second opening would fail if the first had kept the lock
        with pytest.raises(DirectoryError, match="bucket table"):
            opened(tmp_path, names=("p0", "p1"))
    opened(tmp_path).close()


def test_another_seed_is_refused(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as stages:
        fetched(stages, URL)
    with pytest.raises(DirectoryError):
        opened(tmp_path, seed=b"x" * 16)


@pytest.mark.parametrize("restore", [True, False])
def test_a_page_whose_segment_is_lost_is_fetched_again(tmp_path: Path, restore: bool) -> None:
    with closing(opened(tmp_path)) as stages:
        fingerprint = fetched(stages, URL)
        record = stages.pages.record(fingerprint)
        assert record is not None and stages.views.problems() == []
    (segment,) = (tmp_path / "p0" / "warc").glob("*.warc.gz*")
    segment.unlink()
    with closing(opened(tmp_path, restore=restore)) as stages:
        assert stages.restored == restore
        assert (stages.pages.record(fingerprint) is None) == restore
        assert stages.views.frontier_counts().todo == restore
        assert stages.views.problems() == []
    assert opened(tmp_path).restored == (not restore)


def test_counts_of_a_crawl_of_one_process_have_no_splitter(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as stages:
        fetched(stages, URL)
        assert stages.views.splitter_counts() is None and stages.views.waiting_for_peers() == {}
        assert (stages.views.due_counts().new, stages.views.due_counts().pending) == (1, 0)
        assert stages.views.frontier_counts().todo == 0 and stages.point.counters["urls.done"] == 1
        stages.point.counters["urls.done"] = 2
        assert stages.views.problems() == ["new = done + todo + parked: 1 != 2"]


def test_a_crawl_of_several_counts_what_waits_for_each_peer(tmp_path: Path) -> None:
    with closing(opened(tmp_path, names=("p0", "p1", "p2"))) as stages:
        change = Change()
        change.foreign.append(("p2", [Link(7, "http://b.org/")]))
        change.count("urls.accepted")
        change.count("urls.to_outbox")
        change.count("splitter.foreign")
        stages.commits.commit(change)
        counts, waiting = stages.views.splitter_counts(), stages.views.waiting_for_peers()
        assert counts is not None and (counts.waiting, counts.sent, counts.local, counts.foreign) == (
            1,
            0,
            0,
            1,
        )
        assert [waiting["p1"].outbox_links, waiting["p2"].outbox_links] == [0, 1]
        assert waiting["p2"].outbox_bytes > 0 and waiting["p2"].connected is None
        assert stages.views.problems() == []


REFRESHING = {"refresh": {"endless": True, "share": 0.5}}


@pytest.mark.parametrize("left", ["begun", "warc/a.warc.gz", "due/1.run"])
def test_a_missing_store_is_not_created_anew(tmp_path: Path, left: str) -> None:
    """An empty folder in place of the store is refused, too.

    But if the whole folder of a process is empty, it starts anew.
    """
    folder = tmp_path / "p0"
    if left == "begun":
        CrawlDirectory(tmp_path).note_state("p0", 0)
    else:
        (folder / left).parent.mkdir(parents=True)
        (folder / left).touch()
    (folder / "store").mkdir(parents=True)
    with pytest.raises(DamageError, match="is missing"):
        opened(tmp_path)
    assert not list((folder / "store").iterdir())


def test_a_folder_that_was_never_opened_starts_anew(tmp_path: Path) -> None:
    (tmp_path / "p0" / "store").mkdir(parents=True)
    (tmp_path / "p0" / "warc").mkdir()
    opened(tmp_path).close()
    opened(tmp_path).close()


def test_known_pages_are_kept_fresh_from_the_start(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as stages:
        fetched(stages, URL)
        assert stages.refresh is None and stages.views.refreshing(stages.clock.now()) == {}
    for _ in range(2):
        with closing(opened(tmp_path, tree=REFRESHING)) as stages:
            said = stages.views.refreshing(stages.clock.now())
            assert said["pages"] == 1 and [row["host"] for row in said["hosts"]] == ["a.org"]
            assert stages.views.refreshing(stages.clock.now(), 0)["hosts"] == []


def test_values_of_pages_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "values"
    path.write_text(f"{URL} 7.5\n# x\n\nHTTP://B.org 2\n")
    tree = {"refresh": {"endless": True, "share": 0.5, "importance_file": str(path)}}
    with closing(opened(tmp_path, tree=tree)) as stages:
        number = stages.fingerprinter.fingerprint
        assert read_values(str(path), number) == {number(URL): 7.5, number("http://b.org/"): 2.0}
    path.unlink()
    with pytest.raises(ConfigError, match=f"refresh.importance_file: {path}: No such file"):
        opened(tmp_path, tree=tree)


def test_a_reader_computes_with_the_importance_and_the_ages_of_the_crawl(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A page that is not in the schedule yet must get the same facts from a reader as from the next run."""
    path, other = tmp_path / "values", "http://a.org/y"
    path.write_text(f"{other} 7.5\n")
    unscheduled: dict[str, Any] = {
        "refresh": {"importance_file": str(path)},
        "override": [{"match": "a.org", "min_age": 7200.0}],
    }
    refreshing = unscheduled | {"refresh": unscheduled["refresh"] | REFRESHING["refresh"]}

    def facts(stages: Stages, now: float = 2e6) -> list[Any]:
        assert stages.views.freshness is not None
        schedule = stages.views.freshness.schedule
        found = []
        for url in (URL, other):
            row = schedule.find(stages.fingerprinter.fingerprint(url))
            importance = schedule.overview.page(row, now).importance
            schedule.peek(now)  # pages beyond their minimum age are then no longer withheld
            schedule.acquire(row, now)
            schedule.record_outcome(row, now, RefreshOutcome.UNCHANGED)
            found.append((importance, schedule.overview.page(row, now).deadline - now))
        stages.close()
        return found

    for url, tree in ((URL, refreshing), (other, unscheduled)):
        with closing(opened(tmp_path, tree=tree)) as stages:
            fetched(stages, url)
    resting = facts(opened(tmp_path, tree=unscheduled, brief=True))
    path.rename(tmp_path / "away")
    assert facts(opened(tmp_path, tree=unscheduled, brief=True))[1][0] == 1.0, "the usual importance"
    assert "importance_file" in caplog.text
    (tmp_path / "away").rename(path)
    assert resting == facts(opened(tmp_path, tree=refreshing))
    assert resting[1] == (pytest.approx(7.5, rel=1e-3), 7200.0), "an importance is stored with few digits"


def test_urls_that_are_done_go_back_into_the_queues(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as stages:
        fingerprints = sorted(fetched(stages, url) for url in (URL, "http://a.org/y"))
        assert stages.point.counters["urls.done"] == 2 and list(queued_fingerprints(stages.store)) == []
        links = [
            Link(fingerprint, f"http://a.org/{fingerprint}", flags=LinkFlag.AGAIN)
            for fingerprint in fingerprints
        ]
        stages.commits.commit(stages.commits.queue_again(links))
        assert stages.point.counters["urls.done"] == 0 and stages.views.frontier_counts().todo == 2
        assert sorted(queued_fingerprints(stages.store)) == fingerprints and stages.views.problems() == []
        assert check(stages) == []


def test_a_merge_of_runs_ends_in_its_own_change(tmp_path: Path) -> None:
    """Without this change, the merged runs would stay in the manifest, or would prevent other merges."""
    with closing(opened(tmp_path)) as stages:
        merges, urls = 0, [f"http://a.org/{n}" for n in range(9)]
        for url in urls:
            stages.commits.commit_now(new_links(stages, [url]))
            if (plan := stages.due.compactor.begin()) is not None:
                plan.run()
                before = len(stages.due.known_set.runs)
                stages.commits.commit(partial(stages.commits.compaction_change, plan))
                assert len(stages.due.known_set.runs) < before
                merges += 1
        assert merges > 1 and stages.due.check() == []
    with closing(opened(tmp_path)) as stages:
        assert all(stages.fingerprinter.fingerprint(url) in stages.due.known_set for url in urls)
        assert check(stages) == []


def test_a_crash_can_be_tried_at_each_step_of_a_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step has a fault point before or after the commit, so a test can crash any step."""
    stages, passed = opened(tmp_path), []
    stages.commits.commit(new_links(stages, ["http://a.org/new"]))
    monkeypatch.setattr(reach, "visited", passed.append)
    plan = stages.due.begin_flush(stages.clock.now())
    assert plan is not None
    plan.run()
    stages.commits.commit(partial(stages.commits.flush_change, plan))
    assert [point for point in passed if point in POINTS] == passed
    assert passed[5:] == [
        "flush ran",
        "record appended",
        "synced",
        "batch written",
        "flush committed",
        "flush finished",
        "flush done",
        "committed",
    ]
    monkeypatch.setattr(reach, "visited", None)
    stages.close()


def test_a_process_starts_with_its_equal_share_of_the_rate(tmp_path: Path) -> None:
    """Four processes together stay within the rate of the crawl, even before they know of one another."""
    tree = {"crawl": {"rate": 8.0}, "refresh": {"endless": True}}
    with closing(opened(tmp_path, tree=tree, names=("p0", "p1", "p2", "p3"))) as stages:
        assert stages.refresh is not None and stages.refresh.schedule.pace.rate == 2.0


def test_missing_parent_folders_are_created(tmp_path: Path) -> None:
    opened(tmp_path / "crawls" / "one").close()
    assert (tmp_path / "crawls" / "one" / "p0" / "store").is_dir()


@pytest.mark.parametrize(("size", "expected"), [(0, None), (4096, 4096)])
def test_ballast_has_the_size_that_is_configured(tmp_path: Path, size: int, expected: int | None) -> None:
    with closing(opened(tmp_path, tree={"store": {"ballast_bytes": size}})) as stages:
        ballast = tmp_path / "p0" / BALLAST
        for _ in range(2):
            stages.reserve_ballast()
            assert (ballast.stat().st_size if ballast.exists() else None) == expected
        if size:
            before = ballast.stat().st_mtime_ns
            stages.reserve_ballast()
            assert ballast.stat().st_mtime_ns == before, "the ballast exists already"
            ballast.write_bytes(b"short")
            stages.reserve_ballast()
            assert ballast.stat().st_size == size


@pytest.mark.parametrize("fails", [True, False])
def test_stages_at_rest_end_cleanly_unless_the_work_failed(tmp_path: Path, fails: bool) -> None:
    directory = CrawlDirectory(tmp_path)
    directory.create(bytes(16))
    config = convert({"crawl": {"trace": True}})
    clock = VirtualClock()
    with at_rest(config, directory, "p0", clock=clock) as stages:
        assert stages.trace is None, "nothing is crawled"
    try:
        with at_rest(config, directory, "p0", clock=clock):
            if fails:
                raise ValueError
    except ValueError:
        pass
    store = open_store(tmp_path / "p0" / "store")
    assert (store.get(CLEAN) is None) == fails
    store.close()


def test_a_full_disk_is_reported_whatever_detects_it() -> None:
    """Once, the exit code was wrong if a full disk prevented the creation of the crawl directory."""

    def caused(number: int) -> DirectoryError:
        error = DirectoryError("cannot be made")
        error.__cause__ = OSError(number, "why")
        return error

    for error, expected in (
        (OSError(errno.ENOSPC, "full"), StoreError),
        (caused(errno.ENOSPC), StoreError),
        (caused(errno.EIO), StoreError),
        (caused(errno.EACCES), DirectoryError),
        (DirectoryError("refused"), DirectoryError),
        (OSError(errno.EACCES, "not yours"), OSError),
    ):
        with pytest.raises(expected) as raised, _disk_errors(Path("p0")):
            raise error
        assert (raised.value is error) == (expected is not StoreError)


@pytest.mark.parametrize(
    ("tree", "refreshes"),
    [({}, False), ({"share": 0.5}, True), ({"share": 0.0, "endless": True}, True), ({"share": 0.0}, False)],
)
def test_pages_are_refreshed_by_a_share_of_the_rate_or_without_an_end(
    tmp_path: Path, tree: dict[str, Any], refreshes: bool
) -> None:
    with closing(opened(tmp_path, tree={"refresh": tree})) as stages:
        assert (stages.refresh is not None) is refreshes


@pytest.mark.parametrize(("durability", "outlasts"), [("power", True), ("process", False)])
def test_a_setting_decides_whether_commits_survive_a_power_cut(
    tmp_path: Path, durability: str, outlasts: bool
) -> None:
    with closing(opened(tmp_path, tree={"store": {"durability": durability}})) as stages:
        assert stages.context.outlasts_power_cut is outlasts
