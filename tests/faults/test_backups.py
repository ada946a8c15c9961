"""Test processes that are replaced by a backup.

The peers of a replaced process know which links the process confirmed, so no link is lost silently.
"""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from crawler.storage.commit import load_counters
from crawler.storage.engines import open_store
from crawler.storage.keys import OUTBOX, OUTBOX_STATE
from tests.end_to_end.test_many_processes import QUICK, command, report_of, stored_by
from tests.end_to_end.test_nodes import CONFIRMED, Nodes
from tests.engines import ENGINES
from tests.faults.harness import Ended, TreeWeb, crawl, end, settings

PAGES = 120


def put_back(backup: Path, folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(backup, folder, ignore=shutil.ignore_patterns("*.sock"))


@pytest.mark.parametrize(
    ("kept", "engine"),
    [
        pytest.param(kept, *engine.values, marks=engine.marks)
        for kept, engines in (
            ("state known", ENGINES[:1]),
            ("state put back", ENGINES[:1]),
            ("store only", ENGINES[-1:]),
        )
        for engine in engines
    ],
)
def test_a_process_replaced_by_a_backup_loses_no_page(tmp_path: Path, kept: str, engine: str) -> None:
    """A backup replaces the folder of one of three processes.

    The test runs with and without the state number, because this number alone would reveal the replacement.
    """
    directory, backup = tmp_path / "crawl", tmp_path / "backup"
    flags = settings("--processes", "3", *QUICK, "--set", f"store.engine={engine}")
    with TreeWeb(tmp_path, PAGES, "--fanout", "3") as web:
        assert crawl(directory, web.seed, *flags, "--max-pages", "40").code == 0
        shutil.copytree(directory, backup, ignore=shutil.ignore_patterns("*.sock"))
        assert crawl(directory, web.seed, *flags).code == 0
        inside = "p1/store" if kept == "store only" else "p1"
        put_back(backup / inside, directory / inside)
        if kept == "state put back":
            shutil.copy(backup / "p1.begun", directory)
        refused = crawl(directory, web.seed, *flags)
        assert refused.code == 3 and "`crawler check --repair`" in refused.err, refused
        checked = command(directory, "check")
        assert checked.code == 3, checked
        assert kept != "state put back" or CONFIRMED in checked.out, checked
        repaired = command(directory, "check", "--repair")
        assert repaired.code == 0 and CONFIRMED in repaired.out and "queued for it" in repaired.out, repaired
        assert command(directory, "check").code == 0
        assert crawl(directory, web.seed, *flags).code == 0
        stored = set().union(*(stored_by(directory / name) for name in ("p0", "p1", "p2")))
        assert len(stored) == PAGES
    assert command(directory, "check").code == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_a_store_rebuilt_after_damage_recovers_the_links_of_its_peers(tmp_path: Path, engine: str) -> None:
    """The crawl was not complete, so the links that the peers had sent were only in the lost store."""
    directory = tmp_path / "crawl"
    flags = settings("--processes", "3", *QUICK, "--set", f"store.engine={engine}")
    with TreeWeb(tmp_path, PAGES, "--fanout", "3") as web:
        assert crawl(directory, web.seed, *flags, "--max-pages", "40").code == 0
        shutil.rmtree(directory / "p1" / "store")
        repaired = command(directory, "check", "--repair")
        assert repaired.code == 0, repaired
        assert crawl(directory, web.seed, *flags).code == 0
        stored = set().union(*(stored_by(directory / name) for name in ("p0", "p1", "p2")))
        assert len(stored) == PAGES
    assert command(directory, "check").code == 0


def test_a_rebuilt_store_that_lost_its_outbox_but_not_its_counters(tmp_path: Path) -> None:
    """Once, the counters contradicted the outbox after the repair, and `check` and `reshard` refused the crawl."""
    directory = tmp_path / "crawl"
    flags = settings("--processes", "3", *QUICK)
    with TreeWeb(tmp_path, PAGES, "--fanout", "3") as web:
        assert crawl(directory, web.seed, *flags, "--max-pages", "40").code == 0
        with closing(open_store(directory / "p1" / "store")) as store:
            assert load_counters(store)["urls.to_outbox"] > 0
            batch = store.batch()
            for prefix in (OUTBOX, OUTBOX_STATE):
                for key, _ in list(store.scan(prefix, prefix[:-1] + b"0")):
                    batch.delete(key)
            store.write(batch)
        (directory / "p1" / "store" / "CURRENT").unlink()  # so the store is rebuilt
        repaired = command(directory, "check", "--repair")
        assert repaired.code == 0, repaired
        assert command(directory, "check").code == 0
        assert command(directory, "reshard", "--to", "2").code == 0
        assert crawl(directory, web.seed, *settings("--processes", "2", *QUICK)).code == 0
        assert len(set().union(*(stored_by(directory / name) for name in ("p0", "p1")))) == PAGES


def test_the_equations_hold_after_a_disk_was_lost(tmp_path: Path) -> None:
    """Once, the report of each later run said that sent links had not been applied."""
    directory = tmp_path / "crawl"
    flags = settings("--processes", "3", *QUICK)
    with TreeWeb(tmp_path, PAGES, "--fanout", "3") as web:
        assert crawl(directory, web.seed, *flags, "--max-pages", "40").code == 0
        shutil.rmtree(directory / "p1")
        assert command(directory, "recover", "p1").code == 0
        assert crawl(directory, web.seed, *flags).code == 0
        assert report_of(directory)["conservation"] == "holds"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    yield Nodes(tmp_path, "abc")


def run_all(nodes: Nodes, seed: str, *arguments: str) -> dict[str, Ended]:
    """Run all nodes until they end. If one node is refused, stop the others, which would wait for it."""
    started = {name: nodes.start(name, seed, *arguments) for name in "abc"}
    first = end(started["a"], timeout=60)
    if first.code:
        for name in "bc":
            started[name].terminate()
    return {"a": first} | {name: end(started[name], timeout=60) for name in "bc"}


def test_a_node_with_a_replaced_directory_is_refused_until_recovered(nodes: Nodes, tmp_path: Path) -> None:
    """The directory of the node does not show that a backup replaced it. Only the other nodes know this."""
    with TreeWeb(tmp_path, PAGES, "--fanout", "3") as web:
        ended = run_all(nodes, web.seed, "--max-pages", "40")
        assert {each.code for each in ended.values()} == {0}, ended
        shutil.copytree(tmp_path / "a", tmp_path / "backup", ignore=shutil.ignore_patterns("*.sock"))
        ended = run_all(nodes, web.seed)
        assert {each.code for each in ended.values()} == {0}, ended
        put_back(tmp_path / "backup", tmp_path / "a")
        # each peer refuses `a` until the peer has recovered the links that were lost by `a`
        for _ in range(3):
            ended = run_all(nodes, web.seed)
            last = ended["a"].err.splitlines()[-1] if ended["a"].err else ""
            if ended["a"].code == 0:
                break
            assert ended["a"].code == 3 and CONFIRMED in last and "Traceback" not in ended["a"].err, ended
            peer = last.partition("because ")[2][:1]
            assert "`crawler recover a` in its directory" in last and peer in "bc", last
            assert command(tmp_path / peer, "recover", "a").code == 0
        assert {each.code for each in ended.values()} == {0}, ended
        stored = set().union(*(stored_by(tmp_path / name / name) for name in "abc"))
        assert len(stored) == PAGES
