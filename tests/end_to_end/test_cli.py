"""Test the command line as documented in `cli/README.md`: commands, exit codes, files, and the report."""

import io
import re
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import msgspec
import pyarrow.parquet
import pytest

from crawler.cli.completion import parsers
from tests.end_to_end.web import FAST, Ran, ReceivedRequest, Web, crawl, lines, outcomes, page, redirect, run
from tests.waiting import until

ROOT = Path(__file__).resolve().parent.parent.parent
SITE = {
    "/": page("/a", "/b", "/gone", "/moved"),
    "/a": page("/b", text="a"),
    "/b": page("/a", text="b"),
    "/moved": redirect("/a"),
}


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Web]:
    """Crawl a small site and keep the server of the site running."""
    directory = tmp_path_factory.mktemp("crawled")
    with Web(SITE) as web:
        crawl(directory, web.url(), "--report", directory / "copy.json")
        yield directory, web


def test_the_report_has_its_sections(crawled: tuple[Path, Web]) -> None:
    """The report has the documented sections, and its conservation check holds."""
    report = msgspec.json.decode((crawled[0] / "report.json").read_bytes())
    assert (crawled[0] / "copy.json").read_bytes() == (crawled[0] / "report.json").read_bytes()
    assert report["stopped_by"] == "done" and report["processes"] == 1
    assert report["pages"] == {"fetched": 3, "gone": 1, "redirect": 1}
    assert report["urls"]["links"] == 8 and report["urls"]["done"] == 5
    assert report["bytes"]["wire"] > 0 and report["cpu_seconds"] > 0 and report["peak_rss_bytes"] > 1 << 20
    assert {"version", "started", "ended", "robots", "hosts", "due", "why_slow", "frontier"} <= report.keys()
    assert report["due"]["new"] == 5 and report["frontier"]["todo"] == 0


@pytest.mark.parametrize("words", [("export", "--format", "jsonl"), ("get",), ("report", "--format", "json")])
def test_the_output_dash_is_standard_output(
    crawled: tuple[Path, Web], words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, `export -o -` wrote a file named `-`."""
    directory, web = crawled
    monkeypatch.chdir(tmp_path)
    words = (*words, web.url("/a")) if words[0] == "get" else words
    plain, dash = (run(*words, "--dir", directory, *more) for more in ((), ("-o", "-")))
    assert dash.code == plain.code == 0 and dash.out == plain.out and not list(tmp_path.iterdir())
    refused = run("export", "--format", "parquet", "--dir", directory, "-o", "-")
    assert refused.code == 2 and "-o" in refused.err and not list(tmp_path.iterdir())


def test_the_files_of_a_crawl_directory(crawled: tuple[Path, Web]) -> None:
    directory = crawled[0]
    assert (directory / "seed").stat().st_mode & 0o777 == 0o600
    assert {"crawl.toml", "report.json", "pages.jsonl"} <= {path.name for path in directory.iterdir()}
    assert {"warc", "store", "due", "links"} <= {path.name for path in (directory / "p0").iterdir()}
    assert outcomes(directory) == {
        "/": "fetched",
        "/a": "fetched",
        "/b": "fetched",
        "/gone": "gone",
        "/moved": "redirect",
    }
    assert all(
        {"id", "url", "ts", "status", "mime", "took", "depth"} <= line.keys() for line in lines(directory)
    )


def test_commands_that_read_a_directory_at_rest(crawled: tuple[Path, Web]) -> None:
    directory, web = crawled
    at = ("--dir", directory)
    short = run("status", *at).text.splitlines()
    assert (
        "pages:    fetched 3, gone 1, redirect 1" in short
        and "known:    5 URLs of 8 links, 0 filtered" in short
    )
    assert len(short) <= 12
    assert "expected_collisions" in run("status", *at, "-v").text
    assert msgspec.json.decode(run("status", *at, "--json").out)["pages"]["fetched"] == 3
    why = msgspec.json.decode(run("why", web.url("/gone"), *at, "--json").out)
    assert why["record"]["state"] == "gone" and why["filter"] == "accepted"
    assert "scope" in run("why", "http://elsewhere.localhost/", *at).text
    assert run("get", web.url("/a"), *at).text == SITE["/a"]
    headers = run("get", web.url("/a"), *at, "--headers").text
    assert headers.startswith("HTTP 200") and "\nX-Crawled-At: 20" in headers
    moved = run("get", web.url("/moved"), *at)
    assert (
        moved.err == f"crawler: {web.url('/moved')} redirects to /a\n"
        and not run("get", web.url("/a"), *at).err
    )
    gone = run("get", web.url("/gone"), *at)
    assert gone.err == f"crawler: {web.url('/gone')} is not a page: its server answered 404 Not Found\n"
    assert run("check", *at).text.endswith("no problems found\n")
    assert run("config", "show", *at).code == 0
    assert run("config", "check", directory / "crawl.toml").code == 0


def test_every_export_format_works(crawled: tuple[Path, Web], tmp_path: Path) -> None:
    directory, web = crawled
    made = {
        form: run("export", "--dir", directory, "--format", form).out
        for form in ("warc", "cdxj", "jsonl", "links")
    }
    assert made["warc"].startswith(b"\x1f\x8b") and made["cdxj"].count(b"\n") >= 4
    assert {msgspec.json.decode(line)["url"] for line in made["jsonl"].splitlines()} >= {web.url("/a")}
    assert f"{web.url('/a')}\t{web.url('/b')}".encode() in made["links"].splitlines()
    assert run("export", "--dir", directory, "--format", "mirror", "-o", tmp_path / "mirror").code == 0
    (copy,) = (tmp_path / "mirror").rglob("a.html")
    assert copy.read_text() == SITE["/a"].replace('"/b"', '"b.html"')
    text = run("export", "--dir", directory, "--format", "text").out.splitlines()
    texts = {row["url"]: row["text"] for row in map(msgspec.json.decode, text)}
    assert texts[web.url("/a")] == "a/b" and web.url("/b") in texts
    table = tmp_path / "pages.parquet"
    assert run("export", "--dir", directory, "--format", "parquet", "-o", table).code == 0
    assert {web.url("/a"), web.url("/gone")} <= set(pyarrow.parquet.read_table(table)["url"].to_pylist())
    assert run("export", "--dir", directory, "--format", "wacz", "-o", tmp_path / "all.wacz").code == 0
    assert "datapackage.json" in zipfile.ZipFile(tmp_path / "all.wacz").namelist()


def test_other_tools_read_the_archive(crawled: tuple[Path, Web]) -> None:
    """The archive passes warcio's check. FastWARC and a look-up in the CDXJ index both find the page's bytes."""
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    directory, web = crawled
    (segment,) = (directory / "p0" / "warc").glob("*.warc.gz*")
    checked = subprocess.run(
        [sys.executable, "-c", "from warcio.cli import main; main()", "check", str(segment)],
        check=False,
        capture_output=True,
    )
    assert checked.returncode == 0, checked
    with segment.open("rb") as file:
        found = {
            record.headers["WARC-Target-URI"]: record.reader.read()
            for record in ArchiveIterator(file, record_types=WarcRecordType.response)
        }
    assert found[web.url("/a")].decode() == SITE["/a"]
    rows = run("export", "--dir", directory, "--format", "cdxj").text.splitlines()
    row = msgspec.json.decode(next(row for row in rows if web.url("/a") in row).split(" ", 2)[2])
    data = segment.read_bytes()[int(row["offset"]) : int(row["offset"]) + int(row["length"])]
    assert [record.reader.read().decode() for record in ArchiveIterator(io.BytesIO(data))] == [SITE["/a"]]


def test_a_live_crawl_answers_on_its_socket(tmp_path: Path) -> None:
    """The commands status, why, get, export, seed, block, unblock and retire work during the crawl.

    At the end, a signal stops the crawl.
    """
    held = threading.Event()

    def slow(_: ReceivedRequest) -> str:
        held.wait(30)
        return page(text="slow")

    with Web(
        {"/": page("/a", "/slow", "/never/1", "/never/2"), "/a": page(), "/slow": slow, "/seeded": page()}
    ) as web:
        at = ("--dir", tmp_path)
        crawling = subprocess.Popen(
            [sys.executable, "-m", "crawler", "crawl", web.url(), "--dir", str(tmp_path), *FAST],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            until(lambda: "/slow" in web.paths(), crawling)
            until(lambda: _status(tmp_path)["pages"].get("fetched") == 2, crawling)  # / and /a
            assert _status(tmp_path)["frontier"]["in_flight"] == 1
            assert "in_flight" in run("why", web.url("/slow"), *at).text
            assert run("get", web.url("/a"), *at).text == page()
            assert web.url("/a") in run("export", *at, "--format", "cdxj").text
            again = _asked_again(run("seed", web.url("/seeded", "b.localhost"), *at))
            assert run("seed", web.url("/seeded", "b.localhost"), *at, *again).text == "1 queued\n"
            dropped = "2 waiting URLs dropped; stored pages are kept and refreshed as before\n"
            assert run("retire", "/never/", *at).text == dropped
            assert run("block", "b.localhost", *at).code == 0
            assert run("unblock", "b.localhost", *at).code == 0
            assert run("get", web.url("/nothing"), *at).code == 4
            assert run("crawl", *at).code == 75  # the running crawl holds the lock
            until(lambda: "/seeded" in web.paths("b.localhost"), crawling)
            crawling.send_signal(signal.SIGINT)
            until(lambda: "stopping" in crawling.stderr.readline(), crawling)
        finally:
            held.set()
        out, _ = crawling.communicate(timeout=60)
        assert crawling.returncode == 0 and out.startswith("signal after"), out
        assert not [path for path in web.paths() if path.startswith("/never")]


def _status(directory: Path) -> dict:
    return msgspec.json.decode(run("status", "--dir", directory, "--json").out)


def test_limits_end_a_run_and_the_next_run_continues(tmp_path: Path) -> None:
    """--max-pages, --max-bytes and --max-time end a run cleanly.

    The same command continues the crawl where the run stopped.
    """
    with Web(
        {"/": page(*(f"/{n}" for n in range(20)))} | {f"/{n}": page(text=str(n) * 2000) for n in range(20)}
    ) as web:
        assert crawl(tmp_path, web.url(), "--max-pages", "5")["stopped_by"] == "max_pages"
        assert len(web.paths()) == 5
        assert crawl(tmp_path, "--max-pages", "5")["stopped_by"] == "max_pages"
        assert len(web.paths()) == 10
        by_bytes = crawl(tmp_path, "--max-bytes", "1 kB", "--rate", "5", code=14)
        assert by_bytes["stopped_by"] == "max_bytes"
        by_time = crawl(tmp_path, "--max-time", "500 ms", "--rate", "2", code=15)
        assert by_time["stopped_by"] == "max_time"
        assert crawl(tmp_path, "--rate", "0")["stopped_by"] == "done"
        assert sorted(web.paths()) == sorted(["/", *(f"/{n}" for n in range(20))])
        assert crawl(tmp_path, "--max-time", "1 h", "--max-bytes", "1 GB")["run"]["pages"] == {}


def test_urls_beyond_the_depth_are_parked_until_it_is_raised(tmp_path: Path) -> None:
    with Web({f"/{n}": page(f"/{n + 1}") for n in range(6)}) as web:
        parked = crawl(tmp_path, web.url("/0"), "--depth", "2")
        assert web.paths() == ["/0", "/1", "/2"] and parked["frontier"]["parked"] == 1
        assert (
            "queue: parked\nparked_by: depth\ndepth: 3" in run("why", web.url("/3"), "--dir", tmp_path).text
        )
        raised = crawl(tmp_path, "--depth", "4")
        assert web.paths() == ["/0", "/1", "/2", "/3", "/4"] and raised["frontier"]["parked"] == 1


def test_include_and_exclude_patterns_and_seeds_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Web({"/": page("/keep/1", "/keep/2", "/drop")}) as web:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"# seeds\n\n{web.url()}\n".encode())))
        report = crawl(tmp_path, "--seeds", "-", "--include", "/keep/", "--exclude", "2$")
        assert web.paths() == ["/", "/keep/1"]
    assert report["urls"]["filtered"] == {"exclude": 1, "include": 1}


def _asked_again(ran: Ran) -> list[str]:
    """Return the settings that an error message asks the user to repeat, as command-line arguments."""
    assert ran.code == 2 and ran.err.count("\n") == 1, ran
    found = re.search(r"give them again for this seed too \((.*?)\), or give other values", ran.err)
    assert found is not None, ran
    return found[1].split()


@pytest.mark.parametrize(("processes", "way"), [("1", "argument"), ("1", "file"), ("2", "seed")])
def test_relaxed_settings_do_not_apply_to_another_site(tmp_path: Path, processes: str, way: str) -> None:
    """The default directory is ./crawl, so a second site once silently got the `--delay 0` of the first one."""
    with Web({"/": page("/a"), "/a": page()}) as web:
        other, at = web.url("/", "b.localhost"), ("--dir", tmp_path / "crawl", "--progress", "none")
        crawl(tmp_path / "crawl", web.url(), "--processes", processes)
        assert run("crawl", web.url("/a"), *at).code == 0, (
            "a seed on the same host needs no repeated settings"
        )
        (tmp_path / "list").write_text(f"{web.url('/a')}\n{other}\n")
        words = {
            "argument": ("crawl", other),
            "file": ("crawl", "--seeds", tmp_path / "list"),
            "seed": ("seed", other),
        }[way]
        at = at if way != "seed" else at[:2]
        again = _asked_again(run(*words, *at))
        delay = "--set politeness.delay=0" if way == "seed" else "--delay 0"
        assert delay in " ".join(again) and not web.paths("b.localhost")
        stricter = ("--delay", "0.01", *again[2:]) if way == "argument" else again
        assert run(*words, *stricter, *at).code == 0
        assert run("crawl", *at).code == 0
        assert sorted(web.paths("b.localhost")) == ["/", "/a"]
        assert run(*words, *at).code == 0, "the other site is known now"


def test_changes_to_a_crawl_at_rest(tmp_path: Path) -> None:
    """If seeds are added, hosts blocked or URLs retired between two runs, the next run applies these changes."""
    with Web({"/": page("/x", "/y")}) as web:
        crawl(tmp_path, web.url(), "--max-pages", "1")
        seeds = (web.url("/", "b.localhost"), "no url")
        again = _asked_again(run("seed", *seeds, "--dir", tmp_path))
        assert run("seed", *seeds, "--dir", tmp_path, *again).text.startswith("1 queued\nrefused")
        assert (
            run("block", "b.localhost", "--dir", tmp_path).text
            == "b.localhost: blocked: no new request is sent to this host\n"
        )
        assert run("retire", "/y$", "--dir", tmp_path).text.startswith("1 waiting URL dropped;")
        crawl(tmp_path)
        assert web.paths() == ["/", "/x"]
        run("unblock", "b.localhost", "--dir", tmp_path)
        crawl(tmp_path)
        assert web.paths("b.localhost") == [
            "/",
            "/x",
            "/y",
        ]  # `retire` dropped only the URLs that were queued at that time


def test_urls_retired_at_rest_are_not_fetched_by_any_process(tmp_path: Path) -> None:
    """Seeds that one process has received for the others wait in its outbox."""
    hosts = [f"h{n}.localhost" for n in range(9)]
    with Web({}, other=page()) as web:
        crawl(tmp_path, *(web.url("/", host) for host in hosts), "--processes", 3)
        asked = {name: [web.url(f"/{name}", host) for host in hosts] for name in ("kept", "retired")}
        assert run("seed", *asked["retired"], *asked["kept"], "--dir", tmp_path).text == "18 queued\n"
        said = run("retire", "/retired$", "--dir", tmp_path).text
        assert said.startswith("9 waiting URLs dropped;"), said
        report = crawl(tmp_path, "--processes", 3)
        assert report["conservation"] == "holds" and report["frontier"]["todo"] == 0
        assert sorted(web.paths()) == sorted([*["/"] * 9, *["/kept"] * 9])
        for url in asked["retired"][:3]:
            assert "`crawler retire` removed it" in run("why", url, "--dir", tmp_path).text


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (2, ("nonsense",)),
        (2, ("crawl",)),
        (2, ("crawl", "--nonsense")),
        (2, ("crawl", "http://localhost/", "--set", "crawl.nonsense=1")),
        (2, ("crawl", "http://localhost/", "--set", "nonsense")),
        (2, ("crawl", "http://localhost/", "--max-time", "3 parsecs")),
        (2, ("crawl", "http://localhost/", "--max-pages", "many")),
        (2, ("crawl", "http://localhost/", "--max-pages", "-1")),
        (2, ("crawl", "http://localhost/", "--concurrency", "0")),
        (2, ("crawl", "http://localhost/", "--scope", "galaxy")),
        (2, ("crawl", "http://localhost/", "--robots", "maybe")),
        (2, ("crawl", "http://localhost/", "--set", "cache.bits=77")),
        (2, ("crawl", "http://localhost/", "--set", "fetch.total_timeout=nan")),
        (2, ("crawl", "http://localhost/", "--include", "(")),
        (2, ("crawl", "http://localhost/", "--header", "nonsense")),
        (2, ("crawl", "http://localhost/", "--proxy", "nonsense")),
        (2, ("crawl", "http://localhost/", "--allow-network", "nonsense")),
        (2, ("crawl", "http://localhost/", "--token", "a b")),
        (2, ("crawl", "http://localhost/", "--config", "/nonexistent")),
        (2, ("crawl", "http://localhost/", "--report", "/nonexistent/report")),
        (2, ("crawl", "http://localhost/", "--set", 'network.dns_servers=["x"]')),
        (2, ("crawl", "--seeds", "/nonexistent")),
        (2, ("crawl", "http://example.org/", "--scope", "any")),
        (2, ("export",)),
        (2, ("why",)),
        (2, ("config", "check", "/nonexistent")),
        (2, ("bench", "nonsense")),
        (2, ("lab", "nonsense")),
        (3, ("status",)),
        (3, ("check",)),
        (3, ("seed", "http://localhost/")),
        (2, ("crawl", "ftp://localhost/")),
        (4, ("crawl", "http://127.0.0.1:8/")),
    ],
)  # fmt: skip
def test_a_mistake_gives_one_line_and_an_exit_code(
    tmp_path: Path, code: int, arguments: tuple[str, ...]
) -> None:
    more = (
        ("--dir", tmp_path / "d", "--progress", "none")
        if arguments[0] == "crawl"
        else ("--dir", tmp_path / "d")
    )
    if arguments[0] in ("nonsense", "bench", "lab"):
        more = ()
    ran = run(*arguments, *more)
    assert ran.code == code, ran
    assert ran.err.splitlines()[-1].startswith("crawler: ") and len(ran.err.splitlines()) <= 2, ran
    assert "Traceback" not in ran.err and ran.out == b""


@pytest.mark.parametrize("processes", [1, 2])
def test_a_crawl_of_the_scope_any_cannot_become_narrower(tmp_path: Path, processes: int) -> None:
    """A crawl of a narrower scope would drop the waiting URLs of the first seed's host."""
    started = ("crawl", "--dir", tmp_path, *FAST, "--patience", "0", "--processes", processes)
    assert run(*started, "http://127.0.0.1:8/", "--scope", "any").code == 4
    ran = run(*started, "http://127.0.0.2:8/", "--scope", "host")
    assert ran.code == 2 and "this crawl started with scope any; it cannot become host" in ran.err, ran


def test_commands_on_a_directory_whose_crawl_never_began(tmp_path: Path) -> None:
    """If Ctrl-C is pressed during the start, the directory contains only the seed file."""
    (tmp_path / "seed").write_text("00" * 16 + "\n")
    for command in (
        ("status",),
        ("why", "http://x/"),
        ("seed", "http://x/"),
        ("retire", "x"),
        ("get", "http://x/"),
    ):
        ran = run(*command, "--dir", tmp_path)
        assert ran.code == 3 and "nothing was crawled here yet" in ran.err, ran


def test_arguments_that_are_not_utf_8(crawled: tuple[Path, Web]) -> None:
    """If bytes of the command line are not UTF-8, Python turns them into lone surrogates."""
    assert run("why", "http://x/\udcff", "--dir", crawled[0]).code == 0
    ran = run("seed", "\udcff", "--dir", crawled[0])
    assert ran.err == "crawler: '%FF' is not an http(s) URL\n" and ran.code == 2


@pytest.mark.parametrize("command", [("crawl", "http://localhost:1/"), ("demo",)])
def test_a_directory_that_is_not_utf_8_is_refused_before_it_is_created(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    ran = run(*command, "--dir", tmp_path / "na\udcffme")
    assert ran.code == 3 and "the path is not UTF-8" in ran.err and not list(tmp_path.iterdir()), ran


@pytest.mark.parametrize("way", ["argument", "file", "standard input", "seed"])
def test_a_byte_that_is_not_utf_8_names_one_page_on_every_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A byte of a path once became `?` as an argument and on standard input, and U+FFFD in a seeds file."""
    with Web({"/": page()}) as web:
        url = web.url("/\udcfc")
        line = url.encode("utf-8", "surrogateescape") + b"\n"
        (tmp_path / "seeds").write_bytes(line)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(line), "utf-8", "strict"))
        if way == "seed":
            crawl(tmp_path, web.url())
            assert run("seed", url, "--dir", tmp_path).code == 0
        seeds = {
            "argument": [url],
            "file": ["--seeds", tmp_path / "seeds"],
            "standard input": ["--seeds", "-"],
        }
        run("crawl", *seeds.get(way, []), "--dir", tmp_path, *FAST)
        assert web.paths()[-1] == "/%FC"
        assert run("why", url, "--dir", tmp_path).text.startswith("Gone: 404")


# the commands that read URLs of pages, with the arguments before the URL
READ_URLS = {
    "crawl": (), "node": ("--name", "p0", "--peer", "p0=127.0.0.1:0"), "seed": (), "signal": (), "withdraw": (),
    "withdraw --prefix": ("--prefix",), "why": (), "get": (), "shell": (), "crawl --login": ("http://x/", "--login"),
}  # fmt: skip
NO_URLS = (
    "",
    "word",
    "/a/path",
    "two words",
    "http://",
    "http://a b/",
    "ftp://x.org/",
    "mailto:me@x.org",
    "me@x.org",
)


@pytest.mark.parametrize("command", READ_URLS)
def test_a_text_that_is_no_url_is_refused_by_each_command(crawled: tuple[Path, Web], command: str) -> None:
    """`why` and `signal` once ended with exit code 0, and `seed` printed two lines."""
    for text in NO_URLS:
        ran = run(command.partition(" ")[0], *READ_URLS[command], text, "--dir", crawled[0])
        assert (ran.code, ran.text, ran.err.count("\n")) == (2, "", 1), (text, ran)
        assert any(
            said in ran.err
            for said in ("is not an http(s) URL", "is not a URL", "is not supported", "the value is empty;")
        ), ran


def test_the_commands_that_read_urls_are_all_tested() -> None:
    """Flags for the URL of a proxy or of an object storage do not count, because no page is meant."""
    found = {
        " ".join([command, *action.option_strings])
        for command, parser in parsers()
        for action in parser._actions
        if action.metavar == "URL" and action.dest not in ("fetch.proxy", "to")
    }
    assert found == READ_URLS.keys()


def test_an_invalid_seeds_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "seeds").write_bytes(bytes(range(256)) * 200)
    ran = run("crawl", "--seeds", tmp_path / "seeds", "--dir", tmp_path / "crawl", "--progress", "none")
    assert ran.code == 2 and len(ran.err.splitlines()) == 1, ran
    (tmp_path / "seeds").write_text("\n".join(f"word{n}" for n in range(200)))
    ran = run("crawl", "--seeds", tmp_path / "seeds", "--dir", tmp_path / "crawl", "--progress", "none")
    assert ran.code == 4 and len(ran.err.splitlines()) <= 12, ran
    assert "200 seeds are refused" in ran.err.splitlines()[-1]


def test_a_directory_with_another_seed_is_refused(crawled: tuple[Path, Web], tmp_path: Path) -> None:
    """The seed is the key of the fingerprints. If the seed is lost or changed, nothing in the store can be found."""
    copy = tmp_path / "copy"
    shutil.copytree(crawled[0], copy)
    (copy / "seed").write_text("00" * 16 + "\n")
    assert run("status", "--dir", copy).code == 3
    (copy / "seed").write_text("nonsense")
    assert run("crawl", "--dir", copy).code == 3


def test_every_command_has_help() -> None:
    from crawler.cli.command_table import COMMANDS

    assert all(f"  {name} " in run("--help").text for name in COMMANDS)
    for name in COMMANDS:
        assert run(name, "--help").text.startswith("usage: crawler"), name
