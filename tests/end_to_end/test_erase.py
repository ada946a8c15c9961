"""Test that `crawler withdraw --erase` deletes pages from the WARC files, and that no other page loses its copy."""

import io
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from crawler.bench import meters
from tests.end_to_end.test_live import Running, ask, serving
from tests.end_to_end.test_withdraw import do
from tests.end_to_end.web import Answer, ReceivedRequest, Web, crawl, page, run
from tests.faults.test_withdraw_killed import HOSTS, PAGES, holder, host, records_of, shown, tree_page


@pytest.fixture
def web() -> Iterator[Web]:
    """Yield a tree of pages on six hosts. All leaves have the same content."""
    with Web({}) as made:
        made.routes = {f"{host(n)}/{n}": tree_page(made, n) for n in range(PAGES)}
        yield made


def crawled(web: Web, directory: Path, *flags: object) -> dict[str, bytes]:
    """Crawl the tree; return the pages that readers see."""
    crawl(directory, web.url("/0", host(0)), "--scope", "any", "--set", "pages.segment_bytes=20000", *flags)
    return shown(directory)


def without(pages: dict[str, bytes], name: str) -> dict[str, bytes]:
    return {url: content for url, content in pages.items() if f"//{name}:" not in url}


def is_erased(directory: Path, name: str) -> bool:
    """Return whether the files contain no record of a host. Check that another program can read the files."""
    for path in directory.glob("*/warc/*.warc.gz*"):
        for record in ArchiveIterator(io.BytesIO(path.read_bytes()), check_digests="raise"):
            record.content_stream().read()
    return records_of(directory, name) == 0


def test_all_hosts_can_be_erased_one_by_one(web: Web, tmp_path: Path) -> None:
    """Pages with equal content are stored once.

    So an erasure may affect a response to which pages of other hosts refer.
    """
    left = crawled(web, tmp_path / "crawl")
    for number in range(HOSTS):
        done = run("withdraw", "--host", host(number), "--erase", "--dir", tmp_path / "crawl")
        assert done.code == 0 and " erased" in done.text and "not erased: backups" in done.text
        left = without(left, host(number))
        assert shown(tmp_path / "crawl") == left, number
        assert is_erased(tmp_path / "crawl", host(number))
        assert run("check", "--dir", tmp_path / "crawl").code == 0
    assert not left
    assert run("withdraw", "--list", "--dir", tmp_path / "crawl").text.count(", erased\n") == HOSTS
    refused = run("withdraw", "--host", host(0), "--undo", "--dir", tmp_path / "crawl")
    assert refused.code == 2 and "cannot be undone" in refused.err


def test_erasing_from_segments_that_processes_share(web: Web, tmp_path: Path) -> None:
    """A reshard links the same segment into the folders of several processes.

    So a revisit record may refer to a response that another process stored.
    """
    directory = tmp_path / "crawl"
    before = crawled(web, directory)
    name = holder(directory)
    assert run("reshard", "--to", "3", "--dir", directory).code == 0
    assert run("withdraw", "--host", name, "--erase", "--dir", directory).code == 0
    assert shown(directory) == without(before, name)
    assert is_erased(directory, name)
    assert run("check", "--dir", directory).code == 0
    assert run("reshard", "--to", "2", "--dir", directory).code == 0
    assert (
        "Withdrawn" in run("why", next(url for url in before if f"//{name}:" in url), "--dir", directory).text
    ), "tombstones move too"


def test_old_copies_are_erased_and_confirmed_ones_stay(tmp_path: Path) -> None:
    """An erasure up to a date deletes older copies.

    If a 304 answer after this date confirmed a copy, the response of the copy is kept, with the later date.
    """

    def confirming(asked: ReceivedRequest) -> Answer:
        if "If-None-Match" in asked.headers:
            return 304, {"ETag": '"1"'}, ""
        return 200, {"ETag": '"1"'}, page(text="unchanged")

    directory = tmp_path / "crawl"
    with Web({"/": page("/same", "/once"), "/same": confirming, "/once": page(text="once")}) as web:
        crawl(directory, web.url())
        web.routes["/once"] = (404, {}, "")
        crawl(directory, "--timestamping")
        copies = json.loads(run("why", web.url("/same"), "--json", "--dir", directory).out)["captures"]
        assert [each["kind"] for each in copies] == ["revisit", "response"]
        done = run("withdraw", "--before", copies[0]["fetched_at"], "--erase", "--json", "--dir", directory)
        assert json.loads(done.out)[0]["copies"] >= 3
        left = json.loads(run("why", web.url("/same"), "--json", "--dir", directory).out)["captures"]
        assert [(each["kind"], each["status"]) for each in left] == [("response", 200)]
        assert b"unchanged" in run("get", web.url("/same"), "--dir", directory).out
        assert run("check", "--dir", directory).code == 0
        web.routes["/once"] = page(text="here again")
        crawl(directory, "--timestamping")
        assert b"here again" in run("get", web.url("/once"), "--dir", directory).out
        assert run("check", "--dir", directory).code == 0


def test_a_running_crawl_erases(web: Web, tmp_path: Path) -> None:
    """An erasure over HTTP works during the crawl. The page server never shows a broken page meanwhile."""
    processes = 3
    before = crawled(web, tmp_path / "crawl", "--processes", processes)
    name = holder(tmp_path / "crawl")
    flags = ("--scope", "any", "--set", "refresh.min_age=100000000", "--set", "refresh.explore=0")
    with Running(tmp_path, [], *flags, "--processes", str(processes), command="refresh") as running:
        running.until(lambda: len(running.status().get("processes", [])) == processes)
        running.until(lambda: (running.status().get("refreshing") or {}).get("pages") == PAGES)
        status, answer = do(running, host=name, erase=True, reason="asked for")
        assert status == 200 and answer["answers"][0]["done"] == "erased", answer
        for url in before:
            expected = 451 if f"//{name}:" in url else 200
            assert ask(running.serve, f"/page?url={url}")[0] == expected, url
        assert do(running, host=name, undo=True)[0] == 400
    assert shown(tmp_path / "crawl") == without(before, name)
    assert is_erased(tmp_path / "crawl", name)
    assert run("check", "--dir", tmp_path / "crawl").code == 0


def disk_caches(directory: Path) -> bytes:
    """Return the content of the nameless files of a directory that child processes of this test hold open."""
    programs = meters.children(os.getpid())
    found = b""
    for pid in (*programs, *(child for program in programs for child in meters.children(program))):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                path = str(file.readlink())
                if path.startswith(str(directory)) and path.endswith(" (deleted)"):
                    found += file.read_bytes()
    return found


@pytest.mark.parametrize(("live", "processes"), [(True, 3), (False, 1)], ids=["live", "at rest"])
def test_an_erasure_empties_the_cache_on_disk(tmp_path: Path, live: bool, processes: int) -> None:
    """Inflated pages are in a file of the page server. When the command has ended, that file has no erased page."""
    names = [f"h{number}.localhost" for number in range(12)]
    directory = tmp_path / "crawl"
    with Web({f"{name}/": page(text=f"only at {name} " * 300) for name in names}) as web:
        urls = [web.url("/", name) for name in names]
        crawl(directory, *urls, "--processes", processes)
        settings = ("--set", "serve.ready_bytes_max=0")
        flags = (
            "--processes",
            str(processes),
            "--set",
            "refresh.min_age=100000000",
            "--set",
            "refresh.explore=0",
        )
        with ExitStack() as stack:
            if live:
                running = Running(tmp_path, [], *flags, *settings, command="refresh")
                stack.callback(running.end)
                running.until(lambda: (running.status().get("refreshing") or {}).get("pages") == len(names))
                port = running.serve
            else:
                port = stack.enter_context(serving(directory, *settings))
            for url in urls:
                assert ask(port, f"/page?url={url}")[0] == 200
            assert all(f"only at {name} ".encode() in disk_caches(directory) for name in names)
            assert run("withdraw", "--host", names[0], "--erase", "--dir", directory).code == 0
            assert b"only at" not in disk_caches(directory), (
                "all pages leave, and are read from the segments again"
            )
            expected = [451] + [200] * (len(urls) - 1)
            assert [ask(port, f"/page?url={url}")[0] for url in urls] == expected
            assert names[0].encode() not in disk_caches(directory) and names[1].encode() in disk_caches(
                directory
            )
