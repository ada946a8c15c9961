"""Test crawls of two and three processes: they fetch each page once, and answer commands as one crawl."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastwarc.warc import ArchiveIterator, WarcRecordType

from crawler.api import Crawl
from crawler.errors import DamageError
from tests.end_to_end.test_live import Running
from tests.end_to_end.web import FAST, Web, page
from tests.faults.harness import ROOT, Ended, TreeWeb, crawl, end, judge, settings, start

PAGES = 200
QUICK = ("--set", "splitter.heartbeat=0.2", "--set", "splitter.backoff_max=0.3")


def report_of(directory: Path) -> dict[str, Any]:
    return msgspec.json.decode((directory / "report.json").read_bytes())


def stored_by(folder: Path) -> set[str]:
    """Return the URLs whose responses are in the archive of a process."""
    urls = set()
    for segment in folder.glob("warc/*.warc.gz*"):
        with segment.open("rb") as file:
            for record in ArchiveIterator(file, record_types=WarcRecordType.response):
                urls.add(record.headers["WARC-Target-URI"])
    return urls


def command(directory: Path, name: str, *arguments: str) -> Ended:
    """Run another command on a crawl directory."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "crawler", name, *arguments, "--dir", str(directory)]
    done = subprocess.run(
        line, env=environ, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def test_a_crawl_without_a_page_says_why(tmp_path: Path) -> None:
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("mailto:a@b.example\nhttp://127.0.0.1:8/\n")
    ended = command(tmp_path / "crawl", "crawl", "--seeds", str(seeds), "--processes", "2", "-q")
    assert ended.code == 4, ended
    assert ended.err.splitlines()[-1] == (
        "crawler: no page could be fetched: 1 seed is refused; "
        "127.0.0.1: address denied (--allow-network 127.0.0.0/8 allows it)"
    )


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_share_a_crawl(tmp_path: Path, processes: int) -> None:
    directory = tmp_path / "crawl"
    with TreeWeb(tmp_path, PAGES, "--fanout", "3") as web:
        ended = crawl(directory, web.seed, *settings("--processes", str(processes), *QUICK))
        assert ended.code == 0, ended
        found = judge(web, directory)
        url = web.url(17)
    assert found == type(found)(0, 0, 0, 0, 0, 0)
    shares = [stored_by(directory / f"p{n}") for n in range(processes)]
    assert all(shares) and sum(map(len, shares)) == PAGES
    report = report_of(directory)
    splitter = report["splitter"]
    assert report["conservation"] == "holds" and report["stopped_by"] == "done"
    assert report["processes"] == processes and report["pages"]["fetched"] == PAGES
    assert splitter["sent"] == splitter["applied"] == splitter["foreign"] > 0
    assert len((directory / "pages.jsonl").read_text().splitlines()) == PAGES
    why = msgspec.json.decode(command(directory, "why", url, "--json").out)
    assert why["process"] == why["owner"] and url in stored_by(directory / why["owner"])
    assert command(directory, "check").code == 0
    for lost in ("p1/store", "p1"):  # an export once left out the pages of a lost process, with exit code 0
        shutil.rmtree(directory / lost)
        for words in (("export", "--format", "cdxj", "-o", "/dev/null"), ("report",), ("status",)):
            refused = command(directory, *words)
            assert refused.code == 3 and "p1/store is missing" in refused.err, refused
        with pytest.raises(DamageError, match="p1/store is missing"):
            list(Crawl(directory=directory).stored())


def test_a_different_number_of_processes_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "crawl"
    with TreeWeb(tmp_path, 20, "--fanout", "3") as web:
        assert crawl(directory, web.seed, *settings("--processes", "2", *QUICK)).code == 0
        for other in ("1", "3"):
            ended = crawl(directory, web.seed, *settings("--processes", other))
            assert ended.code == 2 and "crawler reshard" in ended.err, ended
        again = crawl(directory, *settings(*QUICK))  # the number of processes is saved with the crawl
        assert again.code == 0, again
    assert report_of(directory)["processes"] == 2


def test_the_page_limit_applies_to_all_processes_together(tmp_path: Path) -> None:
    """The limit is exceeded at most by what the second process may begin (`splitter/README.md`)."""
    directory = tmp_path / "crawl"
    with TreeWeb(tmp_path, 3000, "--fanout", "3", "--delay", "0.05") as web:
        ended = crawl(directory, web.seed, *settings("--processes", "2", "--max-pages", "100", *QUICK))
        assert ended.code == 0, ended
        fetched = web.fetched().total()
    report = report_of(directory)
    assert report["stopped_by"] == "max_pages" and report["conservation"] == "holds"
    assert 100 <= fetched <= 200


def test_a_signal_stops_all_processes_cleanly_and_the_next_run_continues(tmp_path: Path) -> None:
    directory = tmp_path / "crawl"
    with TreeWeb(tmp_path, PAGES, "--fanout", "3", "--delay", "0.1") as web:
        process = start(directory, web.seed, *settings("--processes", "2", *QUICK, "--concurrency", "4"))
        while web.fetched().total() < 50:
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        stopped = end(process)
        assert stopped.code == 0, stopped
        assert report_of(directory)["stopped_by"] == "signal"
        assert web.fetched().total() < PAGES
        ended = crawl(directory, *settings(*QUICK, "--concurrency", "32"))
        assert ended.code == 0, ended
        assert judge(web, directory).flawless
        assert judge(web, directory).refetched == 0


@pytest.mark.parametrize("live", [False, True])
def test_only_the_owner_of_a_host_blocks_it(tmp_path: Path, live: bool) -> None:
    """`block` once wrote to the stores of all processes.

    Then `check` reported that a store contained a host that another process owns.
    """
    directory = tmp_path / "crawl"
    flags = ("--processes", "2", *QUICK, "--set", "refresh.min_age=100000000", "--set", "refresh.explore=0")
    with TreeWeb(tmp_path, 12, "--fanout", "3", hosts=4) as web:
        ended = crawl(directory, web.seed, *settings(*flags))
        assert ended.code == 0, ended
        hosts = [web.url(page).split("/")[2].partition(":")[0] for page in range(4)] + ["new.example"]
        running = Running(tmp_path, [], *flags, command="refresh") if live else None
        try:
            if running is not None:
                running.until(lambda: running.status().get("refreshing", {}).get("pages") == 12)
            for host in hosts:
                said = f"{host}: blocked: no new request is sent to this host\n"
                assert command(directory, "block", host).out == said
            for host in hosts[1:]:
                assert command(directory, "unblock", host).out == f"{host}: unblocked\n"
        finally:
            if running is not None:
                running.end()
        checked = command(directory, "check")
        assert checked.code == 0, checked
        refused = msgspec.json.decode(command(directory, "status", "--json", "--hosts", "9").out)
        assert refused["frontier"]["hosts_blocked"] == 1


@pytest.mark.parametrize("processes", [1, 3])
def test_a_sitemap_may_list_urls_of_hosts_whose_robots_txt_names_it(tmp_path: Path, processes: int) -> None:
    """Once, the robots.txt counted only if the process that fetched the sitemap had read it before.

    So the pages depended on the number of processes, and in a crawl of one process on the order of fetches. The last
    host does not name the sitemap.
    """
    hosts = [f"127.20.0.{n}" for n in range(1, 9)]
    directory = tmp_path / "crawl"
    with Web({}, address="0.0.0.0") as web:
        first, last = hosts[0], hosts[-1]
        for host in hosts:
            named = "" if host == last else f"Sitemap: {web.url('/map.xml', first)}\n"
            web.routes[f"{host}/robots.txt"] = (
                200,
                {"Content-Type": "text/plain"},
                f"User-agent: *\nAllow: /\n{named}",
            )
            web.routes[f"{host}/"] = web.routes[f"{host}/listed"] = page()
        locs = "".join(f"<url><loc>{web.url('/listed', host)}</loc></url>" for host in hosts)
        web.routes[f"{first}/map.xml"] = (200, {"Content-Type": "text/xml"}, f"<urlset>{locs}</urlset>")
        seeds = [web.url("/", host) for host in hosts]
        ended = crawl(directory, *seeds, *FAST, "--processes", str(processes), *QUICK)
        assert ended.code == 0, ended
        assert [web.paths(host).count("/listed") for host in hosts] == [1] * 7 + [0]
    assert command(directory, "check").code == 0
