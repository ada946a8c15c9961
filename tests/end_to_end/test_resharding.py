"""Test `crawler reshard` on real crawls: nothing is lost, fetched again or unreachable."""

import shutil
import signal
from pathlib import Path

import msgspec

from crawler.cli import main
from crawler.cli.access import at_rest
from crawler.crawl.directory import CrawlDirectory
from crawler.storage.kv import scan_prefix
from tests.end_to_end.test_many_processes import QUICK, command, report_of
from tests.end_to_end.web import ReceivedRequest, Web
from tests.faults.harness import TreeWeb, crawl, end, settings, start

PAGES = 400


def stored(directory: Path) -> list[str]:
    """Return the paths of all pages that have a readable copy in any process."""
    paths = []
    crawl_directory = CrawlDirectory(directory)
    for name in crawl_directory.process_names():
        with at_rest(crawl_directory, name) as stages:
            for _, capture in stages.pages.newest_captures():
                assert stages.pages.read(capture).payload
                paths.append("/" + capture.url.rsplit("/", 1)[1])
    return paths


def reshard(directory: Path, to: str) -> None:
    assert main(["reshard", "--to", to, "--dir", str(directory), "-q"]) == 0
    assert main(["check", "--dir", str(directory)]) == 0


def finish_and_compare(web: TreeWeb, directory: Path) -> None:
    """Crawl to the end. Assert that every page was fetched once and stored once."""
    ended = crawl(directory, *settings(*QUICK))
    assert ended.code == 0, ended
    fetched = web.fetched()
    assert len(fetched) == fetched.total() == PAGES
    assert sorted(stored(directory)) == sorted(fetched)
    assert report_of(directory)["conservation"] == "holds"


def begin(web: TreeWeb, directory: Path, processes: int) -> None:
    """Start a crawl and stop it when it has fetched a part of the web."""
    flags = ("--processes", str(processes), "--max-pages", "100", *QUICK)
    ended = crawl(directory, web.seed, *settings(*flags, "--concurrency", "8"))
    assert ended.code == 0, ended
    assert web.fetched().total() < PAGES


def test_a_crawl_continues_with_other_processes(tmp_path: Path) -> None:
    directory = tmp_path / "crawl"
    with TreeWeb(tmp_path, PAGES, "--fanout", "3", "--delay", "0.05") as web:
        begin(web, directory, 1)
        reshard(directory, "3")
        assert CrawlDirectory(directory).process_names() == ["p0", "p1", "p2"]
        ended = crawl(directory, *settings("--max-pages", "50", *QUICK, "--concurrency", "8"))
        assert ended.code == 0, ended
        reshard(directory, "2")
        finish_and_compare(web, directory)


def test_a_table_file_assigns_buckets_to_processes(tmp_path: Path) -> None:
    directory, table = tmp_path / "crawl", tmp_path / "table.json"
    ranges = [["p1", 0, 10_000], ["p0", 10_000, 30_000], ["p1", 30_000, 1 << 16]]
    with TreeWeb(tmp_path, PAGES, "--fanout", "3", "--delay", "0.05") as web:
        begin(web, directory, 1)
        table.write_bytes(msgspec.json.encode({"epoch": 1, "ranges": ranges}))
        refused = command(directory, "reshard", "--to", str(table))
        assert refused.code == 2 and "epoch" in refused.err
        table.write_bytes(msgspec.json.encode({"epoch": 7, "ranges": ranges}))
        reshard(directory, str(table))
        finish_and_compare(web, directory)


def content(directory: Path) -> tuple[list[str], list[bytes], int]:
    """Return the stored paths, the keys of queued URLs, and the number of known URLs of all processes together."""
    todo, known = [], 0
    crawl_directory = CrawlDirectory(directory)
    for name in crawl_directory.process_names():
        with at_rest(crawl_directory, name) as stages:
            todo += [key for key, _ in scan_prefix(stages.store, b"t/")]
            known += stages.due.new
    return sorted(stored(directory)), sorted(todo), known


def test_a_running_crawl_is_not_resharded(tmp_path: Path) -> None:
    directory = tmp_path / "crawl"
    with TreeWeb(tmp_path, PAGES, "--fanout", "3", "--delay", "0.2") as web:
        process = start(directory, web.seed, *settings("--processes", "2", *QUICK, "--concurrency", "2"))
        while web.fetched().total() < 5:
            assert process.poll() is None
        refused = command(directory, "reshard", "--to", "3")
        assert refused.code == 75 and "in use" in refused.err
        process.send_signal(signal.SIGTERM)
        assert end(process).code == 0


def copies() -> Web:
    """Return a web that has a site at each address.

    The root of each site links to the root of the next site, and to a page that is equal on all sites.
    """

    def root(asked: ReceivedRequest) -> str:
        number = int(asked.host.rpartition(".")[2])
        return (
            f'<a href="/same.html">{number}</a><a href="http://127.2.0.{number % 8 + 1}:{web.port}/">on</a>'
        )

    same = "the same everywhere, without a link"
    web = Web({"/": root, "/same.html": same}, address="0.0.0.0")
    return web


def test_revisits_find_their_response_in_another_process(tmp_path: Path) -> None:
    """Content is stored once, in the process that fetched it first. Later copies are stored as revisit records."""
    directory = tmp_path / "crawl"
    with copies() as web:
        ended = crawl(directory, f"http://127.2.0.1:{web.port}/", *settings())
        assert ended.code == 0, ended
    for to in ("4", "2", "3"):
        reshard(directory, to)
        assert sorted(stored(directory)) == sorted(["/"] * 8 + ["/same.html"] * 8)


def test_a_store_is_rebuilt_though_its_archive_has_a_response_of_another_process(tmp_path: Path) -> None:
    """Once, the rebuilt store counted the response as a page of its own, and no repair could remove it.

    The response is stored in both processes, because a revisit record refers to it.
    """
    directory = tmp_path / "crawl"
    with copies() as web:
        assert crawl(directory, f"http://127.2.0.1:{web.port}/", *settings()).code == 0
        reshard(directory, "3")
        everywhere = sorted(stored(directory))
        # a process that owns none of the eight hosts may have no archive to rebuild its store from
        names = [name for name in ("p0", "p1", "p2") if any((directory / name).glob("warc/*.warc.gz"))]
        assert len(names) >= 2
        for name in names:
            shutil.rmtree(directory / name / "store")
            repaired = command(directory, "check", "--repair")
            assert repaired.code == 0, repaired
            assert "queued to be fetched again" not in repaired.out, repaired
        assert command(directory, "check").code == 0
        assert sorted(stored(directory)) == everywhere
