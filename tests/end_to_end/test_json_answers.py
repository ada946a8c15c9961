"""Test that JSON of commands, answers over HTTP and Python objects have the same names, units and values."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import crawler as api
from tests.end_to_end.test_entrances import endless
from tests.end_to_end.test_live import Running, ask
from tests.end_to_end.web import FAST, Web, page, run

HOST, ENDLESS, SILENT = "127.20.0.1", "127.20.0.99", "127.20.0.98"
# times that pass while the answers are compared
MOVING = {"now", "at", "wait", "took", "at_rest_for"}


@pytest.fixture
def web() -> Iterator[Web]:
    routes = {"/": page("/open", "/gone"), "/open": page(), f"{ENDLESS}/": page("/1")}
    allows = (200, {"Content-Type": "text/plain"}, "User-agent: *\nContent-Usage: train-ai=n\nAllow: /\n")
    routes |= {f"{HOST}/robots.txt": allows, f"{SILENT}/robots.txt": (500, {}, "no")}
    with Web(routes, other=endless, address="0.0.0.0") as web:
        yield web


def plain(value: Any) -> Any:
    """Return an answer without the times that pass."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if name not in MOVING}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def told(*words: object) -> Any:
    done = run(*words)
    assert done.code == 0, done
    return json.loads(done.out)


def over_http(port: int, target: str) -> Any:
    status, _, body = ask(port, target)
    assert status == 200, (target, body)
    return json.loads(body)


def test_answers_of_a_running_crawl(tmp_path: Path, web: Web) -> None:
    seeds = [web.url("/", host) for host in (HOST, ENDLESS, SILENT)]
    flags = (*FAST, "--set", "crawl.rate=10", "--scope", "host", "--set", "robots.unreachable_delays=[86400]")
    with Running(tmp_path, seeds, *flags) as running:
        at = ("--dir", running.folder)
        running.until(lambda: {"/open", "/gone"} <= {*web.paths(HOST)})
        assert running.command("pause").returncode == 0
        running.until(lambda: not running.status()["frontier"]["in_flight"])
        running.until(lambda: running.status()["pages"].get("gone"))
        consent = over_http(running.admin, "/consent?format=json")
        report = told("report", "--consent", "--format", "json", *at)
        assert report | {"missing": []} == consent and report["all"]["train_ai"]["n"] >= 2
        status = over_http(running.admin, "/status")
        assert {SILENT, ENDLESS} <= {row["host"] for row in status["waiting"]}
        assert plain(told("status", "--json", *at)["waiting"]) == plain(status["waiting"])
        listed = {row["host"]: row for row in over_http(running.admin, "/hosts")["rows"]}
        for row in status["waiting"]:
            found = listed[row["host"]]
            assert {name: found[name] for name in row if name not in MOVING} == plain(row)
            page_of_host = plain(over_http(running.admin, f"/hosts/{row['host']}"))
            assert {name: page_of_host[name] for name in row if name not in MOVING} == plain(row)
        for path in ("/", "/open", "/gone", "/never"):
            url = web.url(path, HOST)
            shown = over_http(running.admin, f"/why?url={url}")
            assert shown.pop("page_server") == f"127.0.0.1:{running.serve}"
            assert plain(told("why", url, "--json", *at)) == plain(shown), url
        sent = ask(running.serve, "/signal", "POST", {"urls": [web.url("/open", HOST), "http://a.example/"]})
        assert told("signal", web.url("/open", HOST), "http://a.example/", "--json", *at) == json.loads(
            sent[2]
        )


def test_answers_of_a_crawl_at_rest(tmp_path: Path, web: Web) -> None:
    directory = tmp_path / "crawl"
    assert run("crawl", web.url("/", HOST), "--dir", directory, *FAST, "--scope", "host").code == 0
    at, url = ("--dir", directory), web.url("/open", HOST)
    facts = {
        path: told("why", web.url(path, HOST), "--json", *at) for path in ("/", "/open", "/gone", "/never")
    }
    rows = [json.loads(line) for line in run("export", "--format", "jsonl", *at).out.splitlines()]

    async def by_python() -> None:
        async with api.Crawl(directory=directory) as crawl:
            mine = crawl.status().plain()
            for name in ("pages", "urls", "bytes", "frontier", "due", "splitter", "waiting", "traps"):
                assert plain(mine[name]) == plain(status[name]), name
            assert mine.keys() | {"crawl"} == status.keys()
            assert await crawl.command({"command": "signals"}) == signals
            for path, found in facts.items():
                answer = await crawl.command({"command": "why", "url": web.url(path, HOST)})
                assert plain(json.loads(json.dumps(answer))) == plain(found), path
            pages = {page.url: page for page in crawl.stored()}
            for row in rows:
                if row["warc_file"]:
                    page = pages[row["url"]]
                    assert (page.status, page.consent["train_ai"]) == (row["status"], row["consent_train_ai"])
            said = crawl.signal([url, "http://a.example/"])
            counted = await crawl.withdraw(url, dry_run=True)
            assert plain(told_later["withdraw"]) == [plain(counted)] and told_later["signal"] == said

    told_later = {
        "signal": told("signal", url, "http://a.example/", "--json", *at),
        "withdraw": told("withdraw", url, "--dry-run", "--json", *at),
    }
    status, signals = told("status", "--json", *at), told("status", "--signals", "--json", *at)
    asyncio.run(by_python())
