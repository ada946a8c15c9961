"""Test that all views of a running crawl agree: `status`, `why`, `top`, the dashboard, metrics, the ledger.

The tests use crawls of one process and of three. Then one of the three processes is killed, and the views are
compared again. Before the process is killed, the supervisor is stopped, because it would restart the process.
"""

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler import Crawl
from crawler.admin import metrics
from crawler.admin.server import AdminServer
from crawler.admin.status_source import SiblingProcesses
from crawler.config import Config
from crawler.serve.listening_socket import listen
from tests.end_to_end.test_live import Running, ask
from tests.end_to_end.web import Web, endless
from tests.waiting import WAIT_MAX

HOSTS = 9
SILENT = "silent.localhost"  # name of the host whose robots.txt cannot be fetched


@pytest.fixture
def web() -> Iterator[Web]:
    """Serve small endless sites and a host whose robots.txt answers 500."""
    with Web({f"{SILENT}/robots.txt": (500, {}, "no")}, other=endless) as web:
        yield web


def _started(folder: Path, web: Web, processes: int) -> Running:
    """Start a crawl, and wait until it has fetched from all hosts except one.

    For this host, the crawl waits for the robots.txt, which it does not request again during the test.
    """
    seeds = [web.url("/", f"h{n}.localhost") for n in range(HOSTS)] + [web.url("/", SILENT)]
    flags = ("--delay", "0.05", "--processes", str(processes), "--set", "robots.unreachable_delays=[86400]")
    running = Running(folder, seeds, *flags)
    running.until(
        lambda: (
            running.fetched() > 5 * HOSTS
            and SILENT in {host["host"] for host in _waiting(running)}
            and running.status()["outlook"]["brings"] is not None
        )
    )
    return running


def _pause(running: Running) -> None:
    """Pause a crawl, and wait until two successive samples show no fetch in flight and the same numbers.

    The processes answer one after the other. So in one sample, a process may have answered before a fetch ended, and
    another one after it.
    """
    assert running.command("pause").returncode == 0
    samples = [running.status()]

    def is_settled() -> bool:
        before, status = samples[-1], running.status()
        if status["now"] < before["now"] + 0.5:  # a busy machine may take as long to process a page
            return False
        samples.append(status)
        return _is_still(before) and _is_still(status) and _numbers(before) == _numbers(status)

    running.until(is_settled)


def _is_still(status: dict[str, Any]) -> bool:
    """Return whether a paused crawl has no more fetches in flight."""
    splitter = status["splitter"]
    crossing = splitter and (splitter["waiting"] or splitter["sent"] != splitter["applied"])
    return not (status["frontier"]["in_flight"] or status["due"]["pending"] or crossing)


def _waiting(running: Running) -> list[dict[str, Any]]:
    return [host for host in running.status()["waiting"] if host["state"] == "waits_for_robots"]


def _by_command(running: Running) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(running.command("status", "--json", "--hosts", "50").stdout)
    return found


def _numbers(status: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of a status on which all views of a paused crawl must agree."""
    return {
        "pages": status["pages"],
        "bytes": status["bytes"],
        "urls": status["urls"],
        "todo": status["frontier"]["todo"],
        "hosts": status["frontier"]["hosts"],
        "due": status["due"] | {"runs": 0},  # the runs of the DUE are merged even during a pause
        "members": sorted((each["name"], each["state"]) for each in status["members"]),
    }


def _sums(metrics: str) -> dict[str, float]:
    """Return the sum of each metric over processes and labels."""
    sums: dict[str, float] = {}
    for name, value in re.findall(r"^(\w+)(?:\{[^}]*\})? (\S+)$", metrics, re.MULTILINE):
        sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def _check_metrics(shown: bytes, status: dict[str, Any]) -> None:
    sums = _sums(shown.decode())
    assert sums["crawler_pages_total"] == sum(status["pages"].values())
    assert sums["crawler_urls_todo"] == status["frontier"]["todo"]
    assert sums["crawler_process_up"] == len([m for m in status["members"] if m["state"] == "running"])
    for name, key in (("left_seconds", "seconds"), ("left_urls", "left")):
        assert (f"crawler_{name}" in sums) == (status["outlook"][key] is not None), name


def _check_figures(running: Running, status: dict[str, Any], told: dict[str, Any]) -> None:
    """Assert that every figure of `status -v` is also in JSON, on the dashboard and in the metrics."""
    sums, shown = _sums(ask(running.admin, "/metrics")[2].decode()), running.command("status", "-v").stdout
    lines = {line.partition(":")[0]: line for line in shown.splitlines()}
    for section in ("pages", "urls", "bytes", "frontier", "due", "splitter"):
        assert status[section].keys() == told[section].keys() == _event(running)[section].keys(), section
        for name, value in told[section].items():
            if isinstance(value, int) and name != "runs":
                assert f"{name} {value:,}" in lines[section] and status[section][name] == value, (
                    section,
                    name,
                )
            else:
                assert f"{name} " in lines[section], (section, name)
    for metric, path, _ in metrics.NUMBERS:
        found: Any = status
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, int | float):
            assert f"crawler_{metric}" in sums, metric
            if isinstance(found, int) and path[0] in ("pages", "urls", "splitter"):
                assert sums[f"crawler_{metric}"] == found, metric
    assert not status["splitter"] or "local_share" in status["splitter"]


def _check_host(running: Running, web: Web) -> None:
    """Assert that a host's page, the list of hosts, `why` and the ledger agree about the host and its robots.txt."""
    (listed,) = _waiting(running)
    facts = json.loads(ask(running.admin, f"/hosts/{SILENT}")[2])
    assert {name: facts[name] for name in listed if name != "wait"} == {
        name: listed[name] for name in listed if name != "wait"
    }
    assert 80_000 < facts["wait"] <= listed["wait"]
    why = json.loads(ask(running.admin, f"/why?url={web.url('/', SILENT)}")[2])
    told = json.loads(running.command("why", web.url("/", SILENT), "--json").stdout)
    assert why["waiting"]["state"] == told["waiting"]["state"] == facts["state"] == "waits_for_robots"
    assert why["waiting"]["cause"] == told["waiting"]["cause"] == facts["cause"] != ""
    (copy,) = facts["robots"]
    assert copy["of"] == f"http://{SILENT}:{web.port}" and copy["status"] == 500 and copy["failures"] >= 1
    assert copy.pop("said") == "server error"
    assert json.loads(ask(running.admin, f"/bot/ledger?host={SILENT}")[2])["robots"] == facts["robots"]
    good = json.loads(ask(running.admin, "/hosts/h0.localhost")[2])["robots"]
    assert [(each["of"], each["status"]) for each in good] == [(f"http://h0.localhost:{web.port}", 404)]


def _check_eta(running: Running) -> None:
    """Assert that every view reports that the crawl grows, and that no view predicts an end.

    The crawl must be running, because the views use only the pages of the last minute.
    """
    status = running.status()
    assert status["outlook"]["brings"] > 0.95 and status["outlook"]["seconds"] is None
    words = r"about [\d,]+ URLs wait and the crawl grows: each page adds \d\.\d new ones"
    assert re.fullmatch(words, status["outlook"]["said"])
    assert re.search(words, running.command("status").stdout)
    shown = running.until(lambda: (found := _event(running)["outlook"])["brings"] is not None and found)
    assert shown["seconds"] is None and re.fullmatch(words, shown["said"])


def _event(running: Running) -> dict[str, Any]:
    """Return the status in the next event for the dashboard."""

    async def first() -> dict[str, Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.admin, limit=1 << 20)
        writer.write(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{running.admin}\r\n\r\n".encode())
        while not (line := await reader.readline()).startswith(b"data: "):
            pass
        writer.close()
        found: dict[str, Any] = json.loads(line[6:])["status"]
        return found

    return asyncio.run(asyncio.wait_for(first(), WAIT_MAX))


@pytest.mark.parametrize("processes", [1, 3])
def test_all_views_agree(tmp_path: Path, web: Web, processes: int) -> None:
    running = _started(tmp_path, web, processes)
    try:
        _check_eta(running)
        _pause(running)
        status, told = running.status(), _by_command(running)
        assert _numbers(status) == _numbers(told)
        running.until(lambda: _numbers(_event(running)) == _numbers(status))
        assert {each["state"] for each in status["members"]} == {"running"}
        assert len(status["members"]) == processes
        _check_metrics(ask(running.admin, "/metrics")[2], status)
        _check_figures(running, status, told)
        _check_host(running, web)
        assert told["crawl"] == status["crawl"]
        shown = f"{status['pages']['fetched']:,} pages fetched ("
        assert running.command("top", "--count", "1").stdout.startswith(shown)
    finally:
        running.end()
    at_rest = _by_command(running)
    for section in ("pages", "urls", "bytes", "frontier", "due", "splitter"):
        assert at_rest[section].keys() == status[section].keys(), section
    if processes == 1:
        assert _figures_by_python(running.folder)["frontier"].keys() == status["frontier"].keys()


def _figures_by_python(directory: Path) -> dict[str, Any]:
    async def figures() -> dict[str, Any]:
        async with Crawl(directory=directory) as crawl:
            return crawl.status().plain()

    return asyncio.run(figures())


def test_all_views_report_a_killed_process(tmp_path: Path, web: Web) -> None:
    """A killed process once silently disappeared from the dashboard, and the totals decreased."""
    running = _started(tmp_path, web, 3)
    supervisor = running.process.pid
    try:
        _pause(running)
        before = running.status()
        pid = next(each["pid"] for each in before["members"] if each["name"] == "p1")

        async def look_beside() -> tuple[dict[str, Any], bytes, int]:
            """Return answers from an admin server that the test runs.

            The crawl's own admin server cannot answer, because it is in the stopped supervisor.
            """
            folders = {f"p{n}": running.folder / f"p{n}" for n in range(3)}
            server = AdminServer(SiblingProcesses(folders), Config(), running.folder, lambda: before["now"])
            await server.start_on(listen("127.0.0.1", 0, "admin.address"))
            port = server.listener.address[1]
            await asyncio.to_thread(ask, port, "/status")
            os.kill(supervisor, signal.SIGSTOP)
            os.kill(pid, signal.SIGKILL)
            try:
                status = json.loads((await asyncio.to_thread(ask, port, "/status"))[2])
                figures = (await asyncio.to_thread(ask, port, "/metrics"))[2]
                return status, figures, (await asyncio.to_thread(ask, port, "/readyz"))[0]
            finally:
                await server.close()

        after, figures, ready = asyncio.run(look_beside())
        expected = _numbers(before) | {"members": [("p0", "running"), ("p1", "missing"), ("p2", "running")]}
        assert _numbers(after) == _numbers(_by_command(running)) == expected
        _check_metrics(figures, after)
        assert ready == 503
        assert "p1 is not running" in running.command("status").stdout
        assert "p1 is not running" in running.command("top", "--count", "1").stdout
        assert running.command("block", "h0.localhost").returncode != 0, (
            "a command that changes the crawl must fail"
        )
    finally:
        os.kill(supervisor, signal.SIGCONT)
        running.end()
