"""Test crawls of one and of three processes, with page server and dashboard, started on the command line."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest

from crawler.cli.loopback import free_port
from crawler.storage.engines import open_store
from crawler.storage.keys import ASKED
from crawler.storage.kv import scan_prefix
from tests.end_to_end import tree_server
from tests.end_to_end.web import Web, crawl, page
from tests.waiting import WAIT_MAX

CRAWLER = [sys.executable, "-m", "crawler"]


def ask(
    port: int, target: str, method: str = "GET", body: Any = None, **fields: str
) -> tuple[int, dict[str, str], bytes]:
    """Send a request. Return the status, header fields and body of the answer."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_MAX)
    data = None if body is None else json.dumps(body)
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    try:
        link.request(method, target, data, headers)
        answer = link.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        link.close()


class Running:
    """A crawl in a separate process, with the ports of its page server and admin server."""

    def __init__(
        self,
        folder: Path,
        seeds: list[str],
        *flags: str,
        command: str = "crawl",
        serve: int = 0,
        admin: int = 0,
    ) -> None:
        self.folder = folder / "crawl"
        self.serve, self.admin = serve or free_port(), admin or free_port()
        listening = ["--serve", f"127.0.0.1:{self.serve}", "--admin", f"127.0.0.1:{self.admin}"]
        program = [*CRAWLER, command, *seeds, "--dir", str(self.folder), "--progress", "none", *listening]
        program += ["--allow-network", "127.0.0.0/8", "--delay-factor", "0", *flags]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(program, stderr=pipe, stdout=pipe, start_new_session=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def until(self, found: Any) -> Any:
        """Repeat a call until it returns a true value; the call may raise an error meanwhile. Return this value.

        The pauses grow with the duration of the call, so that the calls leave the CPU to the crawl.
        """
        give_up = time.monotonic() + WAIT_MAX
        while (begun := time.monotonic()) < give_up:
            assert self.process.poll() is None, self.process.communicate()
            with suppress(OSError, http.client.HTTPException):
                if value := found():
                    return value
            time.sleep(max(0.05, 4 * (time.monotonic() - begun)))
        raise AssertionError(f"not within {WAIT_MAX:g} s; status {self.status()}")

    def status(self) -> dict[str, Any]:
        return json.loads(ask(self.admin, "/status")[2])

    def fetched(self) -> int:
        return self.status().get("pages", {}).get("fetched", 0)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*CRAWLER, *words, "--dir", str(self.folder)],
            capture_output=True,
            text=True,
            timeout=WAIT_MAX,
            check=False,
        )

    def token(self) -> str:
        return (self.folder / "admin-token").read_text().strip()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise


@contextmanager
def serving(directory: Path, *flags: str) -> Iterator[int]:
    """Run `crawler serve` for a crawl at rest. Yield the port of the server."""
    words = [*CRAWLER, "serve", "--dir", str(directory), "127.0.0.1:0", *flags]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"serving .*:(\d+)/", process.stdout.readline())
        assert found is not None
        yield int(found[1])
    finally:
        process.terminate()
        process.communicate(timeout=30)


PAGES, HOSTS = 100_000, 6


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[list[str]]:
    """Serve six hosts with more pages than any test crawls. Yield the URL of each host's first page."""
    words = ["--pages", str(PAGES), "--hosts", str(HOSTS), "--log", str(tmp_path / "log")]
    program = [sys.executable, "-m", "tests.end_to_end.tree_server", *words]
    process = subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield [tree_server.url(page, HOSTS, port) for page in range(HOSTS)]
    finally:
        process.kill()
        process.communicate()


def test_a_crawl_of_one_process_serves_and_obeys(tmp_path: Path, tree: list[str]) -> None:
    """Pages are served during the crawl.

    Settings can be changed, and the crawl paused and stopped, by commands and over HTTP.
    """
    with Running(tmp_path, tree, "--delay", "0.02") as running:
        # the fetch of a seed may take long on a busy machine, even if other pages have been fetched
        for seed in tree[:2]:
            running.until(lambda: ask(running.serve, f"/page?url={seed}")[0] == 200)  # noqa: B023 (called at once)
        status, fields, body = ask(running.serve, f"/page?url={tree[0]}")
        assert status == 200 and body and "X-Crawled-At" in fields
        assert ask(running.serve, "/page?url=http://nowhere.example/")[0] == 404
        assert ask(running.admin, "/readyz")[0] == ask(running.admin, "/healthz")[0] == 200
        assert b"crawler_commit_seconds_count" in ask(running.admin, "/metrics")[2]
        assert running.command("pause").returncode == 0
        running.until(lambda: running.status()["paused"] == ["user"])
        assert running.command("set", "politeness.delay=0.5").stdout == "politeness.delay = 0.5\n"
        assert "delay = 0.5" in (running.folder / "crawl.toml").read_text()
        refused = running.command("set", "pages.prefix=x")
        assert refused.returncode == 2 and "cannot change" in refused.stderr
        assert (
            ask(running.admin, "/do", "POST", {"command": "resume"}, Content_Type="application/json")[0]
            == 401
        )
        done = ask(
            running.admin, "/do", "POST", {"command": "resume"},
            Content_Type="application/json", X_Admin_Token=running.token(),
        )  # fmt: skip
        assert done[0] == 200
        running.until(lambda: running.status()["paused"] == [])
        assert running.command("top", "--count", "1").stdout.count("pages fetched (") == 1
        assert ask(running.serve, f"/page?url={tree[1]}")[0] == 200
        settings = running.folder / "crawl.toml"
        kept = settings.read_bytes()
        settings.write_bytes(kept[:1000])
        assert running.command("stop").returncode == 0  # `stop` works even if the configuration is damaged
        assert running.process.wait(120) == 0
        settings.write_bytes(kept)
    with closing(open_store(running.folder / "p0" / "store")) as store:
        assert len(list(scan_prefix(store, ASKED))) == 3, (
            "the last requests count too, and those for pages not here"
        )
    rest = running.command("set", "politeness.delay=0.25")
    assert rest.stdout == "politeness.delay = 0.25 from the next run on\n"
    assert running.command("pause").returncode == 2


def test_a_crawl_of_three_processes_serves_and_obeys(tmp_path: Path, tree: list[str]) -> None:
    """Each process serves every page. The supervisor shows and controls all processes."""
    seeds = tree
    with Running(tmp_path, seeds, "--delay", "0.05", "--processes", "3", "--scope", "host") as running:
        running.until(lambda: len(running.status().get("processes", [])) == 3 and running.fetched() > 30)
        for seed in seeds:
            running.until(lambda: ask(running.serve, f"/page?url={seed}")[0] == 200)  # noqa: B023 (called at once)
            # the kernel may assign each of these new connections to any of the three processes
            for _ in range(6):
                status, _, body = ask(running.serve, f"/page?url={seed}")
                assert status == 200 and body, (seed, status)
        assert ask(running.admin, "/readyz")[0] == 200
        metrics = ask(running.admin, "/metrics")[2]
        assert all(b'crawler_urls_todo{process="p%d"}' % n in metrics for n in range(3))
        why = json.loads(ask(running.admin, f"/why?url={seeds[0]}")[2])
        assert why["owner"] == why["process"]
        done = ask(
            running.admin, "/do", "POST", {"command": "stop"},
            Content_Type="application/json", X_Admin_Token=running.token(),
        )  # fmt: skip
        assert done[0] == 200
        assert running.process.wait(120) == 0


def test_a_crawl_that_waits_prepares_the_first_visits_of_its_pages(tmp_path: Path) -> None:
    with Web({"/": page(text="word " * 2000)}) as web:
        crawl(tmp_path / "crawl", web.url())
        with Running(tmp_path, [], "--set", "refresh.min_age=100000000", command="refresh") as running:
            running.until(lambda: running.status()["serve"]["disk_bytes"])
            assert ask(running.serve, f"/page?url={web.url()}")[0] == 200
            served = running.status()["serve"]
            assert (served["ready_misses"], served["requests"]) == (0, 1)


@pytest.mark.parametrize(
    ("processes", "ends"),
    [(1, ("all killed", "stopped")), (3, ("all killed", "supervisor killed", "stopped"))],
)
def test_status_tells_a_crawl_that_died_from_one_that_ended(
    tmp_path: Path, tree: list[str], processes: int, ends: tuple[str, ...]
) -> None:
    """SIGINT lets all processes end cleanly. After SIGKILL, status names the processes that did not.

    If only the supervisor is killed, its processes store their data, but the crawl has died.
    """
    for end in ends:
        running = Running(tmp_path, tree, "--processes", str(processes))
        running.until(
            lambda run=running: len(run.status().get("processes", [])) == processes and run.fetched()
        )
        if end == "stopped":
            running.end()
        else:
            children = [each["pid"] for each in running.status()["processes"]] if end == "all killed" else []
            for pid in {running.process.pid, *children}:
                os.kill(pid, signal.SIGKILL)
            running.process.communicate(timeout=30)
        assert running.command("check").returncode == 0  # this command opens and closes the stores cleanly
        said = running.command("status").stdout
        verdict = json.loads(running.command("status", "--json").stdout)["health"]
        names = ", ".join(f"p{n}" for n in range(processes))
        text = (
            "at rest"
            if end == "stopped"
            else f"died: {names} did not end cleanly: killed, or stopped by an error"
        )
        assert text in said and verdict["said"].startswith(text), (end, said)
