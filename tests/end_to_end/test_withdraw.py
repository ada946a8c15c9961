"""Test `crawler withdraw` over real sockets, for every output, at rest and live, with one and three processes."""

import asyncio
import io
import json
import shutil
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from fastwarc.warc import ArchiveIterator, WarcRecordType

import crawler as api
from tests.end_to_end.test_live import Running, ask, serving, tree  # noqa: F401 (a fixture)
from tests.end_to_end.web import Web, crawl, page, run

FORMATS = ("warc", "cdxj", "jsonl", "links", "text", "crawl-log")
FILES = ("wacz", "mirror", "parquet")


@pytest.fixture
def crawled(tmp_path: Path) -> Iterator[tuple[Web, Path]]:
    """Crawl six pages, and return the web and the crawl directory. `/one` and `/copy` have the same content."""
    routes = {
        "/": page("/one", "/copy", "/private/a", "/private/b", "/late"),
        "/one": page(text="secret words"),
        "/copy": page(text="secret words"),
        "/private/a": page(text="private a"),
        "/private/b": page("/hidden", text="private b"),
        "/late": page(text="late"),
    }
    with Web(routes) as web:
        crawl(tmp_path / "crawl", web.url())
        yield web, tmp_path / "crawl"


def exported(directory: Path, form: str) -> bytes:
    done = run("export", "--dir", directory, "--format", form)
    assert done.code == 0, done
    return done.out


def records_of(directory: Path, form: str) -> set[tuple[str, str, str, bytes]]:
    """Return the records of a `warc` or `wacz` export, as (type, URL, URL of the earlier capture or "", content)."""
    if form == "wacz":
        output = directory.parent / "exported.wacz"
        output.unlink(missing_ok=True)
        assert run("export", "--dir", directory, "--format", form, "-o", output).code == 0
        with zipfile.ZipFile(output) as archive:
            data = b"".join(archive.read(name) for name in archive.namelist() if name.endswith(".warc.gz"))
    else:
        data = exported(directory, form)
    return {
        (
            record.headers["WARC-Type"],
            record.headers.get("WARC-Target-URI", ""),
            record.headers.get("WARC-Refers-To-Target-URI", ""),
            record.reader.read() if record.record_type is WarcRecordType.response else b"",
        )
        for record in ArchiveIterator(io.BytesIO(data), parse_http=False)
    }


def pages_of(directory: Path, form: str) -> set[str]:
    """Return the URLs of the pages in an export, which is a file or a folder."""
    output = directory.parent / f"exported-{form}"
    shutil.rmtree(output, ignore_errors=True)
    output.unlink(missing_ok=True)
    done = run("export", "--dir", directory, "--format", form, "-o", output)
    assert done.code == 0, done
    if form == "parquet":
        return set(pyarrow.parquet.read_table(output).column("url").to_pylist())
    if form == "wacz":
        with zipfile.ZipFile(output) as archive:
            lines = archive.read("pages/pages.jsonl").splitlines()[1:]
        return {json.loads(line)["url"] for line in lines}
    paths = (path.relative_to(output).as_posix() for path in output.rglob("*.html"))
    return {f"http://{path.removesuffix('.html').replace('_', ':', 1)}" for path in paths}


def test_withdrawn_pages_are_hidden_until_undone(crawled: tuple[Web, Path]) -> None:
    """Before `withdraw` existed, `retire` printed "0 URLs retired", and the stored page was still served."""
    web, directory = crawled
    url = web.url("/one")
    before = {form: exported(directory, form) for form in FORMATS}
    done = run("withdraw", url, "--reason", "asked for", "--dir", directory)
    assert done.code == 0 and "1 page (1 copy, " in done.text and "not fetched again" in done.text
    got = run("get", url, "--dir", directory)
    assert got.code == 4 and "Withdrawn by the operator" in got.err and "asked for" in got.err
    assert b"secret words" in run("get", web.url("/copy"), "--dir", directory).out
    why = run("why", url, "--dir", directory).text
    assert "Withdrawn by the operator" in why and "asked for" in why and "1 copy is kept" in why
    assert url not in run("report", "--format", "json", "--dir", directory).text
    for form in FORMATS:
        now = exported(directory, form)
        assert len(now) < len(before[form]) or form in ("links", "warc"), form
        assert f"{url}\n".encode() not in now.replace(f"\t{url}\n".encode(), b""), form
        assert f'"url":"{url}"'.encode() not in now, form
    for form in FILES:
        assert url not in pages_of(directory, form) and web.url("/copy") in pages_of(directory, form), form
    assert "url " + url in run("withdraw", "--list", "--dir", directory).text
    assert "shown again" in run("withdraw", url, "--undo", "--dir", directory).text
    assert b"secret words" in run("get", url, "--dir", directory).out
    assert {form: exported(directory, form) for form in FORMATS if form != "warc"} == {
        form: data for form, data in before.items() if form != "warc"
    }
    assert run("check", "--dir", directory).code == 0


@pytest.mark.parametrize("form", ["warc", "wacz"])
def test_no_record_of_an_export_is_or_names_a_withdrawn_page(form: str, crawled: tuple[Web, Path]) -> None:
    """A page with the same content may be stored as a revisit of the withdrawn page.

    The export then contains the complete content of the revisit.
    """
    web, directory = crawled
    one, copy = web.url("/one"), web.url("/copy")
    before = records_of(directory, form)
    assert {one, copy} <= {url for _, url, _, _ in before}, "without a withdrawal, both pages are exported"
    run("withdraw", one, "--dir", directory)
    records = records_of(directory, form)
    assert one not in {each for _, url, earlier, _ in records for each in (url, earlier)}
    (body,) = [body for kind, url, _, body in records if kind == "response" and url == copy]
    assert b"secret words" in body
    run("withdraw", one, "--undo", "--dir", directory)
    assert records_of(directory, form) == before


def test_a_dry_run_counts_and_changes_nothing(crawled: tuple[Web, Path]) -> None:
    web, directory = crawled
    prefix = web.url("/private")
    counted = json.loads(run("withdraw", "--prefix", prefix, "--dry-run", "--json", "--dir", directory).out)[
        0
    ]
    assert (counted["done"], counted["pages"], counted["copies"]) == ("counted", 2, 2)
    assert 1000 < counted["bytes"] < 10_000
    assert run("withdraw", "--list", "--dir", directory).text == "nothing is withdrawn\n"
    assert run("get", web.url("/private/a"), "--dir", directory).code == 0
    everything = json.loads(
        run("withdraw", "--before", "2090-01-01", "--dry-run", "--json", "--dir", directory).out
    )[0]
    assert everything["pages"] == 8, "the counts include /hidden and robots.txt"


def test_withdrawn_urls_are_not_fetched_again(crawled: tuple[Web, Path]) -> None:
    """Withdrawn URLs are not fetched as seeds, as links or by a refresh.

    A rule with a date does not prevent fetches.
    """
    web, directory = crawled
    run("withdraw", "--prefix", web.url("/private/"), "--dir", directory)
    run("withdraw", web.url("/never"), "--dir", directory)
    run("withdraw", "--before", "2090-01-01", "--dir", directory)
    assert run("get", web.url("/late"), "--dir", directory).code == 4
    refused = run("seed", web.url("/never"), "--dir", directory)
    assert "0 queued" in refused.text and "withdrawn by the operator" in refused.text
    web.asked.clear()
    web.routes["/"] = page("/one", "/late", "/never", "/new")
    crawl(directory, "--timestamping")
    assert set(web.paths()) == {"/", "/one", "/copy", "/late", "/hidden", "/new"}
    assert run("check", "--dir", directory).code == 0
    undone = run("withdraw", "--before", "2090-01-01", "--undo", "--dir", directory)
    assert undone.code == 0
    assert run("get", web.url("/late"), "--dir", directory).code == 0


def test_retire_points_to_withdraw(crawled: tuple[Web, Path]) -> None:
    web, directory = crawled
    assert "crawler withdraw" in run("retire", "/one$", "--dir", directory).text
    assert "crawler withdraw" not in run("retire", "/nothing$", "--dir", directory).text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--host", "a.example", "--prefix", "http://a.example/x"), "name only one of"),
        (("--before", "soon"), "soon"),
        (("ftp://a.example/",), "ftp://a.example/"),
        (("--host", "a.example", "--undo"), "no such withdrawal is in force"),
        *((flags, "--host HOST, --prefix URL or --before DATE") for flags in ((), ("--undo",), ("--erase",))),
    ],
)
def test_errors_are_one_line(crawled: tuple[Web, Path], words: tuple[str, ...], said: str) -> None:
    failed = run("withdraw", *words, "--dir", crawled[1])
    assert failed.code == 2 and failed.err.count("\n") == 1 and said in failed.err, failed


def test_a_page_server_at_rest_applies_withdrawals_immediately(crawled: tuple[Web, Path]) -> None:
    """The page server has the crawl open and caches answers in memory.

    A withdrawal must apply to these answers, too.
    """
    web, directory = crawled
    url = web.url("/one")
    with serving(directory) as port:
        for _ in range(2):
            assert ask(port, f"/page?url={url}")[0] == 200
        assert run("withdraw", url, "--reason", "asked for", "--dir", directory).code == 0
        for target in (f"/page?url={url}", f"/timemap/link/{url}", f"/page?url={url}&refresh=1"):
            status, _, body = ask(port, target)
            assert status == 451 and b"asked for" in body, target
        assert ask(port, f"/page?url={web.url('/copy')}")[0] == 200
        assert "in use by `crawler serve`; `kill " in run("block", "a.example", "--dir", directory).err
        assert run("withdraw", url, "--undo", "--dir", directory).code == 0
        assert ask(port, f"/page?url={url}")[0] == 200
    assert run("check", "--dir", directory).code == 0


def do(running: Running, **command: Any) -> tuple[int, Any]:
    status, _, body = ask(
        running.admin, "/do", "POST", {"command": "withdraw", **command},
        Content_Type="application/json", X_Admin_Token=running.token(),
    )  # fmt: skip
    return status, json.loads(body)


def test_a_running_crawl_withdraws_at_once(tmp_path: Path, tree: list[str]) -> None:  # noqa: F811
    """Every process gets the rules. The host is no longer fetched, whichever process owns it."""
    processes = 3
    flags = ("--delay", "0.02", "--processes", str(processes), "--scope", "host")
    with Running(tmp_path, tree, *flags) as running:
        running.until(
            lambda: len(running.status().get("processes", [])) == processes and running.fetched() > 60
        )
        hosts = [url.split("/")[2].partition(":")[0] for url in tree]
        done = running.command("withdraw", "--host", hosts[0], "--reason", "asked for")
        assert done.returncode == 0 and " withdrawn" in done.stdout, done
        assert do(running, url=tree[1])[1]["answers"][0]["pages"] == 1
        assert do(running, host="")[0] == 400 and do(running, planet="x")[0] == 400
        for url, status in ((tree[0], 451), (tree[1], 451), (tree[2], 200)):
            for _ in range(2 * processes):
                assert ask(running.serve, f"/page?url={url}")[0] == status, url
        fetched = _requests(tmp_path, hosts[0])
        others = running.fetched()
        running.until(lambda: running.fetched() > others + 60)
        assert _requests(tmp_path, hosts[0]) <= fetched + 2, "requests in flight at that instant may end"
        assert do(running, host=hosts[0], undo=True)[0] == 200
        assert ask(running.serve, f"/page?url={tree[0]}")[0] == 200
    assert running.command("check").returncode == 0
    assert "Withdrawn" in running.command("why", tree[1]).stdout


def _requests(folder: Path, host: str) -> int:
    """Return the number of page requests to a host, as counted in the crawler's own fetch log."""
    lines = (folder / "crawl" / "pages.jsonl").read_text().splitlines()
    fetches = [json.loads(line) for line in lines]
    return sum(f"//{host}:" in each["url"] and each["outcome"] != "withdrawn" for each in fetches)


@pytest.mark.parametrize("kept", [True, False], ids=["keep", "withhold"])
def test_a_robots_txt_that_forbids_a_stored_page_later(tmp_path: Path, kept: bool) -> None:
    """`why` once did not report that robots.txt now forbids a stored page, nor whether the page's copy is shown."""
    directory = tmp_path / "crawl"
    robots = (200, {"Content-Type": "text/plain"}, "User-agent: *\nAllow: /\n")
    with Web({"/": page("/open", "/private/a"), "/open": page(), "/private/a": page(text="the copy")}) as web:
        web.routes["/robots.txt"] = robots
        crawl(directory, web.url(), "--set", f"serve.on_disallow={'keep' if kept else 'withhold'}")
        url = web.url("/private/a")
        for format_ in ("cdxj", "links"):
            assert len(exported(directory, format_)) > 0
        assert run("get", url, "--dir", directory).code == 0
        web.routes["/robots.txt"] = (*robots[:2], "User-agent: *\nDisallow: /private/\n")
        web.asked.clear()
        old = time.monotonic() + 1.0
        while time.monotonic() < old:  # wait until the stored robots.txt is older than copy_max_age
            run("why", url, "--dir", directory)
        crawl(directory, "--timestamping", "--set", "robots.copy_max_age=1")
        assert "/private/a" not in web.paths() and "/open" in web.paths()
        why = run("why", url, "--dir", directory).text.splitlines()[0]
        assert "`Disallow: /private/`" in why and "is kept" in why
        assert ("kept and served" in why) == kept and ("on_disallow = withhold" in why) == (not kept)
        assert run("get", url, "--dir", directory).code == (0 if kept else 4)
        assert (url.encode() in exported(directory, "cdxj")) == kept
        with serving(directory) as port:
            status, fields, body = ask(port, f"/page?url={url}")
            assert status == (200 if kept else 451) and ("X-Note" in fields) == kept
            assert b"Disallow: /private/" in body or kept
            assert ask(port, f"/page?url={web.url('/open')}")[0] == 200


ENTRANCES = ("command", "HTTP", "Python")


@pytest.mark.parametrize(("live", "processes"), [(True, 1), (True, 3), (False, 3)])
def test_all_entrances_withdraw_alike(tmp_path: Path, live: bool, processes: int) -> None:
    """The command, the dashboard's endpoint and Python give the same result for each step of a withdrawal.

    Each entrance works on a host of its own. The hosts have the same pages, and all processes own hosts.
    """
    names = [f"h{number}.localhost" for number in range(12)]
    routes = {
        f"{name}/{path}": page("/1", "/2", text=f"{name} {path}") for name in names for path in ("", "1", "2")
    }
    directory = tmp_path / "crawl"
    entrances = ENTRANCES if live else ("command", "Python")
    with Web(routes) as web:
        crawl(directory, *(web.url("/", name) for name in names), "--processes", processes)
        flags = ("--set", "refresh.min_age=100000000", "--set", "refresh.explore=0")
        with ExitStack() as stack:
            if live:
                running = Running(tmp_path, [], *flags, "--processes", str(processes), command="refresh")
                stack.callback(running.end)
                running.until(lambda: (running.status().get("refreshing") or {}).get("pages") == len(routes))

            def said(entrance: str, **order: Any) -> dict[str, Any]:
                if entrance == "HTTP":
                    return do(running, **order)[1]["answers"][0]
                if entrance == "Python":
                    return asyncio.run(api.Crawl(directory=directory).withdraw(**order))
                words = [word for name, value in order.items() for word in _flag(name, value)]
                return json.loads(run("withdraw", *words, "--json", "--dir", directory).out)[0]

            for step in ({"dry_run": True}, {"reason": "asked for"}, {"undo": True}, {"erase": True}):
                for round_ in range(len(names) // len(ENTRANCES)):
                    found = []
                    for number, entrance in enumerate(entrances):
                        host = names[round_ * len(ENTRANCES) + number]
                        result = said(entrance, host=host, **step)
                        assert result.pop("host") == host
                        found.append(
                            {name: value for name, value in result.items() if name not in ("at", "bytes")}
                        )
                    assert found == [found[0]] * len(found), step
                    assert found[0]["pages"] == 4, "three pages and robots.txt"
            left = {each.url for each in api.Crawl(directory=directory).stored()}
            erased = [name for number, name in enumerate(names) if number % len(ENTRANCES) < len(entrances)]
            assert {name for name in names if web.url("/", name) in left} == {*names} - {*erased}
        assert run("check", "--dir", directory).code == 0


def _flag(name: str, value: Any) -> tuple[str, ...]:
    flag = "--" + name.replace("_", "-")
    return (flag,) if value is True else (flag, value)
