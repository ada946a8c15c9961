"""Test that every interface of a crawl withholds the same pages, both while the crawl runs and while it does not.

A webmaster can demand in three ways that a page is not shown: by a request to the operator (`withdraw`), by
`noarchive`, or by a robots.txt that forbids the page (`serve.on_disallow = "withhold"`). The crawl has three
processes.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import crawler as api
from tests.end_to_end.test_live import Running, ask
from tests.end_to_end.test_withdraw import do, serving
from tests.end_to_end.web import FAST, ReceivedRequest, Web, page, run

HOSTS = [f"127.20.0.{n}" for n in range(1, 7)]  # each process owns at least one of these hosts
ENDLESS = "127.20.0.99"  # an endless host that keeps the crawl running
PATHS = ("/open", "/noarchive", "/later", "/private", "/taken")
FLAGS = (*FAST, "--processes", "3", "--set", "serve.on_disallow=withhold", "--set", "robots.copy_max_age=1")
ROBOTS = (200, {"Content-Type": "text/plain"}, "User-agent: *\nAllow: /\n")
NOARCHIVE = {"X-Robots-Tag": "noarchive"}


def endless(asked: ReceivedRequest) -> Any:
    if asked.host != ENDLESS or not asked.path[1:].isdigit():
        return 404, {}, ""
    return page(f"/{int(asked.path[1:]) + 1}", text=asked.path)


@pytest.fixture
def web() -> Iterator[Web]:
    """Serve six hosts. After the first crawl, `/later` says noarchive, and robots.txt forbids `/private`."""
    routes: dict[str, Any] = {path: page(text=f"text of {path}") for path in PATHS}
    routes |= {"/": page(*PATHS), "/robots.txt": ROBOTS, f"{ENDLESS}/": page("/1")}
    routes["/noarchive"] = (200, NOARCHIVE, page(text="text"))
    with Web(routes, address="0.0.0.0", other=endless) as web:
        yield web


def urls(web: Web, path: str) -> list[str]:
    return [web.url(path, host) for host in HOSTS]


def change(web: Web) -> None:
    web.routes["/later"] = (200, NOARCHIVE, web.routes["/later"])
    web.routes["/robots.txt"] = (*ROBOTS[:2], "User-agent: *\nDisallow: /private\n")


def shown(directory: Path, known: set[str], port: int, admin: int) -> dict[str, set[str]]:
    """Return, for each interface, which of the `known` URLs it shows. `admin` is 0 if the crawl is not running."""
    records = [json.loads(line) for line in exported(directory, "jsonl").splitlines()]
    archived = [json.loads(line.split(" ", 2)[2]) for line in exported(directory, "cdxj").splitlines()[1:]]
    stored = api.Crawl(directory=directory).stored
    views: dict[str, set[str]] = {
        "export jsonl": {each["url"] for each in records if each["warc_file"]},
        "export text": {json.loads(line)["url"] for line in exported(directory, "text").splitlines()},
        "export cdxj": {each["url"] for each in archived},
        "Python, newest": {each.url for each in stored()},
        "Python, all copies": {each.url for each in stored(newest=False)},
    }
    views["get"] = {url for url in known if run("get", url, "--dir", directory).code == 0}
    for name, path in (("page", "/page?url="), ("list of copies", "/timemap/link/"), ("gate", "/timegate/")):
        views[name] = {url for url in known if ask(port, path + url)[0] in (200, 302)}
    why = {url: why_of(directory, url) for url in known}
    if admin:
        views["admin why"] = {
            url for url in known if not json.loads(ask(admin, f"/why?url={url}")[2])["withheld"]
        }
    views["why"] = {url for url, facts in why.items() if not facts["withheld"]}
    views["verdict"] = {url for url, facts in why.items() if not is_withheld(facts["verdict"])}
    return {name: found & known for name, found in views.items()}


def is_withheld(verdict: str) -> bool:
    return "kept but not served" in verdict or "kept, but not served" in verdict


def exported(directory: Path, form: str) -> str:
    done = run("export", "--dir", directory, "--format", form)
    assert done.code == 0, done
    return done.text


def why_of(directory: Path, url: str) -> dict[str, Any]:
    return json.loads(run("why", url, "--json", "--dir", directory).out)


def test_all_entrances_withhold_the_same_pages(tmp_path: Path, web: Web) -> None:
    directory = tmp_path / "crawl"
    seeds, known = urls(web, "/"), {url for path in PATHS for url in urls(web, path)}
    assert run("crawl", *seeds, "--dir", directory, *FLAGS, "--scope", "host").code == 0
    change(web)
    time.sleep(1)  # each copy of robots.txt is then older than `copy_max_age`
    running = Running(tmp_path, [*seeds, web.url("/", ENDLESS)], *FLAGS, "--timestamping", "--scope", "host")
    try:
        running.until(lambda: all(web.paths(host).count("/later") == 2 for host in HOSTS))
        changed = (*urls(web, "/later"), *urls(web, "/private"))
        running.until(lambda: all(why_of(directory, url)["withheld"] for url in changed))
        taken = urls(web, "/taken")
        results = [json.loads(running.command("withdraw", url, "--json").stdout)[0] for url in taken[:3]]
        results += [do(running, url=url)[1]["answers"][0] for url in taken[3:]]
        assert [{**each, "at": "", "url": ""} for each in results] == [
            {"done": "withdrawn", "at": "", "url": "", "pages": 1, "copies": 2, "bytes": each["bytes"]}
            for each in results
        ]
        views = shown(directory, known, running.serve, running.admin)
        assert views == dict.fromkeys(views, set(urls(web, "/open")))
    finally:
        running.end()
    with serving(directory) as port:
        views = shown(directory, known, port, 0)
        assert views == dict.fromkeys(views, set(urls(web, "/open")))
