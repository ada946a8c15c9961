"""Test that a number that appears in several places is the same there, in a crawl of three processes that refreshes.

The places are `status`, `status --json`, the dashboard's /status, /metrics, the line of progress, `report.json`,
`pages.jsonl`, and the requests that the crawled web received.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from tests.end_to_end.test_live import Running, ask
from tests.end_to_end.web import ReceivedRequest, Web, crawl, page, run

HOSTS = [f"127.22.0.{n}" for n in range(1, 7)]
OFF = ("/gone", "/error", "/moved", "/denied")
LABELLED = (  # metric -> its section in a status, and its label
    ("crawler_pages_total", "pages", "outcome"), ("crawler_links_total", "urls", "fate"),
    ("crawler_connections_total", "connections", "how"), ("crawler_robots_total", "robots", "outcome"),
)  # fmt: skip
SINGLE = (
    ("crawler_received_bytes_total", ("bytes", "wire")), ("crawler_urls_todo", ("frontier", "todo")),
    ("crawler_due_new_total", ("due", "new")), ("crawler_refresh_pages", ("refreshing", "pages")),
    ("crawler_splitter_sent_total", ("splitter", "sent")), ("crawler_serve_requests_total", ("serve", "requests")),
)  # fmt: skip
COUNTED = ("pages", "urls", "bytes", "refresh", "connections", "robots", "splitter", "due", "serve")


def answer(asked: ReceivedRequest) -> Any:
    """Answer with a page of a small site; every other page is different at each request."""
    match asked.path:
        case "/robots.txt":
            return 200, {"Content-Type": "text/plain"}, "User-agent: *\nDisallow: /denied\n"
        case "/gone":
            return 404, {}, "gone"
        case "/error":
            return 500, {}, "error"
        case "/moved":
            return 302, {"Location": "/1"}, ""
    number = int(asked.path[1:] or 0)
    answer.number += 1
    changing = str(answer.number) if number % 2 else ""
    links = [f"/{n}" for n in (number + 1, 2 * number + 1) if n < 8]
    port = asked.headers["Host"].rpartition(":")[2]
    links += [f"http://{host}:{port}/{number}" for host in HOSTS]
    return page(*links, *OFF, text=f"{asked.host} {number} {changing}")


answer.number = 0


def metrics(text: str) -> dict[str, Counter[str]]:
    """Return each metric as a sum over the processes; its key is the value of its other label, or ""."""
    found: dict[str, Counter[str]] = {}
    for name, labels, value in re.findall(r"^(\w+)\{(.*?)\} (\S+)$", text, re.MULTILINE):
        others = [part for part in labels.split(",") if not part.startswith("process=")]
        key = others[0].split("=")[1].strip('"') if others else ""
        found.setdefault(name, Counter())[key] += float(value)
    return found


def nonzero(counts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in counts.items() if value}


def test_the_same_number_is_the_same_everywhere(tmp_path: Path) -> None:
    directory = tmp_path / "crawl"
    with Web({}, address="0.0.0.0", other=answer) as web:
        crawl(directory, *(web.url("/", host) for host in HOSTS), "--processes", 3, "--scope", "any")
        flags = ("--processes", "3", "--rate", "40", "--set", "refresh.min_age=0", "--progress", "plain")
        with Running(tmp_path, [], *flags, command="refresh") as running:
            running.until(lambda: running.status().get("refresh", {}).get("done", 0) > 60)
            assert run("pause", "--dir", directory).code == 0
            running.until(lambda: running.status()["frontier"]["in_flight"] == 0)
            for host in HOSTS:
                assert ask(running.serve, f"/page?url={web.url('/1', host)}")[0] == 200
            live, asked = json.loads(run("status", "--json", "--dir", directory).out), len(web.asked)
            told = running.status()
            assert {name: live[name] for name in COUNTED} == {name: told[name] for name in COUNTED}
            summed = metrics(ask(running.admin, "/metrics")[2].decode())
            for name, section, _ in LABELLED:
                assert nonzero(live[section]) == nonzero(summed[name]), name
            for name, (section, key) in SINGLE:
                assert live[section][key] == summed[name][""], name
            assert live["serve"]["requests"] == sum(live["serve"]["answers"].values()) == len(HOSTS)
            assert asked == sum(live["connections"].values()), "each request is counted once"
            text = run("status", "--dir", directory).text
            assert run("stop", "--wait", "--dir", directory).code == 0
            line = b"".join(running.process.communicate(timeout=30)).decode()
        assert len(web.asked) == asked
    report = json.loads((directory / "report.json").read_bytes())
    at_rest = json.loads(run("status", "--json", "--dir", directory).out)
    for name in set(COUNTED) - {"serve"}:
        assert live[name] == at_rest[name] and live[name].items() <= report[name].items(), name
    lines = [json.loads(each) for each in (directory / "pages.jsonl").read_text().splitlines()]
    assert asked == sum(each["outcome"] != "robots_denied" for each in lines) + live["robots"]["fetched"]
    fetched, again = live["pages"]["fetched"], live["refresh"]["done"]
    assert f"fetched {fetched}," in text and f"done {again}," in text, text
    assert (
        f"{again:,} pages fetched again" in line
        and f"{live['refresh']['content_changed']:,} had changed" in line
    ), line
