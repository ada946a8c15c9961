"""Test that `check --repair` repairs everything even if it is killed before any write and repeated."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from crawler import cli
from crawler.crawl.journal import JOURNAL
from crawler.frontier.discovery.entries import decode
from crawler.pages.captures import unpack_record
from crawler.records import PageState
from crawler.storage.engines import open_store
from crawler.storage.keys import CAPTURE, PAGE, PARKED, TODO
from crawler.storage.kv import scan_prefix
from crawler.upkeep.repair import LOST_FILE, WAITING_LINKS
from tests.faults.every_write import in_turn, run
from tests.faults.harness import TreeWeb, crawl, finish, judge, settings

PAGES = 400
SMALL = ("--set", "pages.segment_bytes=20000")


class Site(NamedTuple):
    """A web, and a crawl that was killed halfway, while links waited in its links log."""

    web: TreeWeb
    directory: Path
    known: set[int]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with TreeWeb(folder, PAGES, "--fanout", "3") as web:
        ended = crawl(folder / "crawl", web.seed, *settings(*SMALL), fault="links synced:9")
        assert ended.code == -signal.SIGKILL, ended
        (folder / "crawl" / "p0" / "control.sock").unlink()
        # Read the known URLs from a copy, because opening a store changes it.
        copy = Path(shutil.copytree(folder / "crawl", folder / "copy"))
        yield Site(web, folder / "crawl", run_to_end(copy, known, copy)[0])


@pytest.fixture(scope="module")
def of_three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a complete crawl by three processes."""
    folder = tmp_path_factory.mktemp("three")
    with TreeWeb(folder, PAGES, "--fanout", "3") as web:
        ended = crawl(folder / "crawl", web.seed, *settings(*SMALL), "--processes", "3")
    assert ended.code == 0, ended
    return folder / "crawl"


def no_manifest(directory: Path, name: str = "p0") -> None:
    """Delete the manifest. The engine can rebuild the store from its tables."""
    max(directory.glob(f"{name}/store/MANIFEST-*")).unlink()
    (directory / name / "store" / "CURRENT").unlink()


def no_store(directory: Path, name: str = "p0") -> None:
    shutil.rmtree(directory / name / "store")


def no_segment(directory: Path, name: str = "p0") -> None:
    """Delete one segment, and damage a record of another segment."""
    first, second = sorted(directory.glob(f"{name}/warc/*.gz*"))[:2]
    first.unlink()
    data = bytearray(second.read_bytes())
    data[len(data) // 2] ^= 0xFF
    second.write_bytes(data)


def check(directory: Path, *flags: str) -> int:
    return cli.main(["check", "--dir", str(directory), "-q", "--processes", "1", *flags])


def repair(directory: Path) -> int:
    return check(directory, "--repair")


def run_to_end(folder: Path, command: Callable[..., Any], *arguments: Any) -> Any:
    ran = run(folder, command, *arguments)
    assert ran is not None
    return ran.result


def known(directory: Path) -> tuple[set[int], set[int]]:
    """Return the fingerprints of known URLs, and those of stored pages that have neither a copy nor a queue entry."""
    found = [_known(store) for store in directory.glob("p*/store")]
    return set().union(*(urls for urls, _ in found)), set().union(*(bare for _, bare in found))


def finishing(directory: Path) -> list[Callable[[], Any]]:
    """Return the calls that repeat a repair, read what is known afterwards, and check the crawl."""
    return [partial(call, directory) for call in (repair, known, check)]


def _known(path: Path) -> tuple[set[int], set[int]]:
    with closing(open_store(path)) as store:
        queued = {
            decode(key, value).fingerprint
            for prefix in (TODO, PARKED)
            for key, value in scan_prefix(store, prefix)
        }
        copies = {int.from_bytes(key[2:10], "big") for key, _ in scan_prefix(store, CAPTURE)}
        records = {
            int.from_bytes(key[2:], "big"): unpack_record(key, value)
            for key, value in scan_prefix(store, PAGE)
        }
    bare = {
        fingerprint
        for fingerprint, record in records.items()
        if record.state is PageState.STORED and fingerprint not in copies
    }
    return queued | records.keys(), bare - queued


@pytest.mark.parametrize("damage", [no_manifest, no_store, no_segment], ids=lambda damage: damage.__name__)
def test_a_killed_repair_is_completed(site: Site, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """The repeated repair finds every URL that an undisturbed repair finds, many of them only in the links log.

    In the end, no page record without a copy and no file of the repair is left. With `CRAWLER_KILLS=N`, a
    kill is tried before every Nth write; by default, only before a few writes.
    """
    directory = Path(shutil.copytree(site.directory, tmp_path / "crawl"))
    damage(directory)
    alone = run(directory, repair, directory)
    assert alone is not None and alone.result == 0 and alone.writes > 30
    whole, _ = run_to_end(directory, known, directory)
    assert not site.known - whole
    step = int(os.environ.get("CRAWLER_KILLS", alone.writes // 4))
    for kill_at in range(step // 2 + 1, alone.writes + 1, step):
        shutil.rmtree(directory)
        shutil.copytree(site.directory, directory)
        damage(directory)
        assert run(directory, repair, directory, kill_at=kill_at) is None, kill_at
        repaired, (found, bare), checked = run_to_end(directory, in_turn, *finishing(directory))
        assert repaired == checked == 0, kill_at
        assert not whole - found, (kill_at, len(whole - found))
        assert not bare, (kill_at, len(bare))
        left = {JOURNAL, LOST_FILE, WAITING_LINKS} & {path.name for path in directory.glob("**/*")}
        assert not left, (kill_at, left)


@pytest.mark.parametrize("damage", [no_manifest, no_store, no_segment], ids=lambda damage: damage.__name__)
def test_a_killed_repair_of_one_of_three_processes_is_completed(
    of_three: Path, tmp_path: Path, damage: Callable[[Path, str], None]
) -> None:
    """The peers of the process still have the links that they sent to it.

    The repeated repair reads these links from their archives.
    """
    directory = Path(shutil.copytree(of_three, tmp_path / "crawl"))
    damage(directory, "p1")
    alone = run(directory, repair, directory)
    assert alone is not None and alone.result == 0
    whole, _ = run_to_end(directory, known, directory)
    assert len(whole) == PAGES
    for kill_at in (alone.writes // 4, 3 * alone.writes // 4):
        shutil.rmtree(directory)
        shutil.copytree(of_three, directory)
        damage(directory, "p1")
        assert run(directory, repair, directory, kill_at=kill_at) is None, kill_at
        results = run_to_end(directory, in_turn, *finishing(directory))
        assert results == [0, (whole, set()), 0], kill_at


@pytest.mark.parametrize("kill_at", [12, 30])
def test_the_crawl_continues_after_a_killed_repair(site: Site, tmp_path: Path, kill_at: int) -> None:
    """Until the repair is complete, a crawl is refused. Afterwards, the crawl fetches all missing pages."""
    directory = Path(shutil.copytree(site.directory, tmp_path / "crawl"))
    no_manifest(directory)
    assert run(directory, repair, directory, kill_at=kill_at) is None
    refused = crawl(directory, site.web.seed, *settings(*SMALL))
    assert refused.code == 3 and "check --repair` continues it" in refused.err, refused
    assert run_to_end(directory, repair, directory) == 0
    finish(site.web, directory, *SMALL)
    found = judge(site.web, directory)
    assert found.lost == found.unstored == found.stored_twice == 0, found


def content(directory: Path) -> dict[str, bytes]:
    """Return the content of the crawl's files, without locks and files that only repairs write."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in files
        if path.suffix != ".lock" and path.name not in ("ballast", "LOCK", "journal.json~")
    }


@pytest.mark.parametrize("damage", [lambda directory: None, no_segment], ids=["whole", "no_segment"])
def test_no_crawl_runs_after_a_repair_was_killed(
    site: Site, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """The journal must exist from the first change of a repair to its end.

    A repair that was killed during its examination once left no journal. A crawl then ran on the damaged
    store, and one page was stored twice.
    """
    directory = tmp_path / "crawl"
    shutil.copytree(site.directory, directory)
    damage(directory)
    before = content(directory)
    alone = run(directory, repair, directory)
    assert alone is not None and alone.result == 0
    noted = 0
    steps = [*range(1, 9), *range(9, alone.writes, max(1, alone.writes // 8)), alone.writes - 1]
    for kill_at in steps:
        shutil.rmtree(directory)
        shutil.copytree(site.directory, directory)
        damage(directory)
        assert run(directory, repair, directory, kill_at=kill_at) is None, kill_at
        if (directory / JOURNAL).exists():
            noted += 1
        else:
            assert content(directory) == before or kill_at == alone.writes - 1, kill_at
    assert noted > len(steps) // 2
    refused = crawl(directory, site.web.seed, *settings(*SMALL))
    assert refused.code == 3 or not (directory / JOURNAL).exists(), refused
