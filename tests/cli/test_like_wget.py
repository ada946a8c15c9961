"""Test options that work as in wget: spider, file types, rate limit, timestamping, cookies."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.cli import crawl as crawl_command
from crawler.config import Config, convert
from crawler.crawl.directory import CrawlDirectory
from tests.end_to_end.web import FAST, Answer, ReceivedRequest, Web, crawl, page, run

PNG = (200, {"Content-Type": "image/png"}, b"\x89PNG")
PDF = (200, {"Content-Type": "application/pdf"}, b"%PDF")


def stored(directory: Path, web: Web) -> set[str]:
    rows = run("export", "--dir", directory, "--format", "cdxj", "--quiet").out.splitlines()
    urls = {msgspec.json.decode(row.partition(b" {")[2].join([b"{", b""]))["url"] for row in rows if row}
    return {url.removeprefix(web.url("")) for url in urls}


def test_spider_follows_all_and_stores_nothing(tmp_path: Path) -> None:
    """The report lists all pages that were found. The directory is intact and can be continued as a normal crawl."""
    routes = {"/": page("/a", "/dead"), "/a": page("/b"), "/b": page()}
    with Web(routes) as web:
        report = crawl(tmp_path, web.url(), "--spider")
        assert report["pages"] == {"fetched": 3, "gone": 1}
        assert crawl(tmp_path)["pages"] == report["pages"]
        found = msgspec.json.decode(run("report", "--dir", tmp_path, "--format", "json").out)
        (dead,) = found["sections"]["dead_links"]["listed"]
        assert (dead["subject"], dead["others"]) == (web.url("/dead"), [web.url("/")])
        assert not found["sections"].get("missing_titles")
    assert not list(tmp_path.glob("p0/warc/*"))
    assert run("check", "--dir", tmp_path).code == 0


@pytest.mark.parametrize("flag", ["--spider", "--check-external"])
def test_hosts_that_are_down_do_not_delay_a_report(flag: str) -> None:
    """They are tried three times, and the next wait exceeds the patience."""
    waits = crawl_command._waits(crawl_command._parse(["http://a.test/", flag]))
    delays = waits["robots.unreachable_delays"]
    assert sum(delays[:2]) <= 15.0 and max(delays[:2]) <= waits["crawl.patience"] < delays[2]
    assert crawl_command._waits(crawl_command._parse(["http://a.test/"])) == {}


@pytest.mark.parametrize(
    ("flag", "given", "patience", "processes"),
    [
        ("--spider", (), 40, 2),
        ("--spider", ("--set", "crawl.patience=7"), 7, 1),
        ("--check-external", (), 40, 1),
    ],
)
def test_the_waits_that_a_flag_implies_are_not_saved(
    tmp_path: Path, flag: str, given: tuple[str, ...], patience: int, processes: int
) -> None:
    """A later run has the waits that were set before `--spider` or `--check-external`.

    The relaxed settings of these flags are not saved, so a later run may have seeds on other sites.
    """
    quick = ("--delay", "0", "--delay-factor", "0", "--progress", "none", "--processes", str(processes))
    local = ("--allow-network", "127.0.0.0/8")
    settings = CrawlDirectory(tmp_path).settings
    with Web({}, other=page()) as web:
        for flags in (("--patience", "40"), (flag, *given)):
            assert run("crawl", web.url(), "--dir", tmp_path, *quick, *local, *flags).code == 0
        saved, defaults = convert(settings.load()), Config()
        assert (saved.crawl.patience, saved.pages.store) == (patience, "raw")
        assert saved.politeness.backoff_first == defaults.politeness.backoff_first
        assert (saved.frontier, saved.robots) == (defaults.frontier, defaults.robots)
        more = run("crawl", web.url(host="a.localhost"), "--dir", tmp_path, *quick, *local)
        assert more.code == 0, more


@pytest.mark.parametrize(
    ("flags", "asked", "kept"),
    [
        (["--accept", "pdf"], {"/", "/list", "/a.pdf"}, {"/a.pdf"}),
        (["--accept", "image/*"], {"/", "/list", "/b.png"}, {"/b.png"}),
        (["--reject", "image/*,zip"], {"/", "/list", "/a.pdf"}, {"/", "/list", "/a.pdf"}),
        (["--reject-regex", "[.]p"], {"/", "/list", "/c.zip"}, {"/", "/list", "/c.zip"}),
        (["--accept-regex", "list|zip"], {"/", "/list", "/c.zip"}, {"/", "/list", "/c.zip"}),
    ],
)
def test_accept_selects_file_types(tmp_path: Path, flags: list[str], asked: set[str], kept: set[str]) -> None:
    routes: dict[str, Any] = {
        "/": page("/list", "/c.zip", "/b.png"), "/list": page("/a.pdf", text="list"),
        "/a.pdf": PDF, "/b.png": PNG, "/c.zip": "zip", "/robots.txt": (404, {}, ""),
    }  # fmt: skip
    with Web(routes) as web:
        crawl(tmp_path, web.url(), *flags)
        assert set(web.paths()) == asked
        assert stored(tmp_path, web) - {"/robots.txt"} == kept


def test_timestamping_requests_known_pages_again(tmp_path: Path) -> None:
    """Known pages are requested conditionally, and stored if they changed. Each queued URL is requested once."""
    version = {"/a": 1}

    def dated(asked: ReceivedRequest) -> Answer:
        tag = f'"{version.get(asked.path, 0)}"'
        if asked.headers.get("If-None-Match") == tag:
            return 304, {"ETag": tag}, ""
        links = ("/a", "/b") if asked.path == "/" else ("/new",) if version.get(asked.path) == 2 else ()
        return 200, {"ETag": tag}, page(*links, text=asked.path + tag)

    with Web(dict.fromkeys(("/", "/a", "/b", "/new"), dated)) as web:
        flags = ("--pages-per-host", "4")
        crawl(tmp_path, web.url(), *flags)
        assert sorted(web.paths()) == ["/", "/a", "/b"]
        version["/a"] = 2
        web.asked.clear()
        report = crawl(tmp_path, "--timestamping", *flags)
        assert sorted(web.paths()) == ["/", "/a", "/b", "/new"]
        done = report["run"]["refresh"]
        assert (done["done"], done["unchanged"], done["content_changed"]) == (3, 2, 1)
        assert report["run"]["pages"] == {"fetched": 1}
        web.asked.clear()
        assert crawl(tmp_path, *flags)["run"]["pages"] == {} and web.paths() == []
    assert run("check", "--dir", tmp_path).code == 0


def test_a_stopped_timestamping_run_can_be_continued(tmp_path: Path) -> None:
    with Web(
        {"/": page(*(f"/{n}" for n in range(9)))} | {f"/{n}": page(text=str(n)) for n in range(9)}
    ) as web:
        crawl(tmp_path, web.url())
        web.asked.clear()
        report = crawl(tmp_path, "--timestamping", "--max-pages", "3")
        assert report["stopped_by"] == "max_pages" and report["frontier"]["todo"] == 7
        crawl(tmp_path)
        assert sorted(web.paths()) == sorted(["/", *(f"/{n}" for n in range(9))])
        crawl(tmp_path, "--timestamping")  # nothing is queued, so all known pages are requested again
        assert len(web.paths()) == 20


def test_cookies_of_a_file_are_sent_and_kept_by_name_only(tmp_path: Path) -> None:
    cookies = tmp_path / "cookies.txt"
    cookies.write_text("localhost\tFALSE\t/\tFALSE\t0\tsid\tSesame\n")

    def private(asked: ReceivedRequest) -> Answer:
        known = asked.headers.get("Cookie") == "sid=Sesame"
        return page("/more" if asked.path == "/" else "/") if known else (403, {}, "")

    with Web({"/": private, "/more": private}) as web:
        report = crawl(tmp_path / "c", web.url(), "--load-cookies", cookies)
        assert report["pages"] == {"fetched": 2}
    assert all(b"Sesame" not in path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file())
    ran = run("crawl", web.url(), "--dir", tmp_path / "d", *FAST, "--load-cookies", tmp_path / "none")
    assert ran.code == 2 and "No such file" in ran.err


def test_a_byte_rate_limit_is_saved_with_the_crawl(tmp_path: Path) -> None:
    with Web({"/": "x" * 5000}) as web:
        crawl(tmp_path, web.url(), "--limit-rate", "500k")
    assert "bytes_per_second = 512000" in (tmp_path / "crawl.toml").read_text()


def test_a_dry_run_lists_the_next_urls_and_stores_nothing(tmp_path: Path) -> None:
    """A dry run prints the URLs that would be requested next.

    For a new crawl, it requests the seeds; for an existing crawl, it requests nothing.
    """
    with Web(
        {"/": page("/a", "/b", "http://other.localhost/"), "/a": page("/c"), "/b": "b", "/c": "c"}
    ) as web:
        ran = run("crawl", web.url(), "--dir", tmp_path / "c", "--dry-run", *FAST)
        urls = [web.url(path) for path in ("/", "/a", "/b")]
        assert ran.code == 0 and ran.text.splitlines() == urls and web.paths() == ["/"], ran
        assert "1 fetched now, 2 would be fetched next" in ran.err and "scope 1" in ran.err
        assert not (tmp_path / "c").exists()
        crawl(tmp_path / "c", web.url(), "--max-pages", "1")
        web.asked.clear()
        ran = run("crawl", "--dir", tmp_path / "c", "--dry-run", *FAST)
        assert ran.code == 0 and ran.text.splitlines() == urls[1:] and not web.asked, ran
        assert crawl(tmp_path / "c")["stopped_by"] == "done"
        ran = run("crawl", web.url("/none"), "--dir", tmp_path / "d", "--dry-run", *FAST)
        assert ran.code in (0, 4) and not (tmp_path / "d").exists()


LONG = (200, {"Content-Type": "application/pdf"}, b"%PDF" + b"x" * 50_000)
SHORT = (200, {"Content-Type": "application/pdf", "Content-Length": "9000"}, b"%PDF")


@pytest.mark.parametrize(
    ("file", "flags", "code", "said"),
    [
        (PDF, ["--accept", "pdf"], 0, ""),
        (LONG, [], 0, "stored incomplete: 1 longer than fetch.body_bytes_max"),
        (LONG, ["--accept", "pdf"], 16, "stored incomplete: 1 longer than fetch.body_bytes_max"),
        (LONG, ["--mirror"], 16, "stored incomplete: 1 longer than fetch.body_bytes_max"),
        (LONG, ["--spider"], 0, ""),
        (SHORT, ["--mirror"], 16, "stored incomplete: 1 broken off by the server"),
    ],
)
def test_incomplete_files_are_reported_even_if_quiet(
    tmp_path: Path, file: Any, flags: list[str], code: int, said: str
) -> None:
    """Once, a body that was cut at a limit, or was still incomplete after the last try, was stored silently."""
    tries = ["--set", "frontier.tries=1"] if file is SHORT else []
    with Web({"/": page("/a.pdf"), "/a.pdf": file, "/robots.txt": (404, {}, "")}) as web:
        limits = ["--set", "fetch.body_bytes_max=20000", "--set", "fetch.file_bytes_max=20000", *tries]
        ran = run("crawl", web.url(), "--dir", tmp_path, *FAST, *limits, *flags, "-q")
    assert (ran.code, said in ran.err, bool(ran.err)) == (code, True, bool(said)), ran
    assert said in (tmp_path / "crawler.log").read_text()


def test_accepted_types_that_were_not_found_are_reported(tmp_path: Path) -> None:
    with Web({"/": page("/a.pdf"), "/a.pdf": PDF, "/robots.txt": (404, {}, "")}) as web:
        ran = run("crawl", web.url(), "--dir", tmp_path, *FAST, "--accept", "png", "-q")
    assert ran.code == 0 and "no file matches --accept: png" in ran.err, ran
