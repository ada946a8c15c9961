"""Test that commands that only read a crawl work while a page server or a crawl runs, and on a read-only disk."""

import json
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

import crawler as api
from crawler.cli.loopback import free_port
from tests.end_to_end.test_live import CRAWLER, Running, ask, tree  # noqa: F401 (a fixture)
from tests.end_to_end.test_withdraw import serving
from tests.end_to_end.web import Web, crawl, page, run
from tests.engines import ENGINES
from tests.waiting import until

ROUTES = {"/": page("/one", "/two"), "/one": page(text="one"), "/two": page(text="two")}
PATIENCE = 25.0  # maximum number of seconds for a command; once, a command waited 30 s for a lock
# Make the directory $1 read-only for the rest of the script, then run the command that follows.
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" "$1" || exit 99; shift; exec "$@"'


@pytest.mark.parametrize(
    ("engine", "processes"),
    [pytest.param(*engine.values, n, marks=engine.marks) for engine, n in zip(ENGINES, (3, 1), strict=True)],
)
def test_commands_work_next_to_a_page_server(tmp_path: Path, engine: str, processes: int) -> None:
    """Once, `status`, `check` and a second page server ended with exit code 75. For `check`, this took 30 s."""
    directory = tmp_path / "crawl"
    with Web(ROUTES) as web:
        crawl(directory, web.url(), "--processes", processes, "--set", f"store.engine={engine}")
        with serving(directory) as port, serving(directory) as second:
            for words in (("status",), ("why", web.url("/one")), ("get", web.url("/one")), ("check",)):
                began = time.monotonic()
                done = run(*words, "--dir", directory)
                assert done.code == 0 and time.monotonic() - began < PATIENCE, done
            assert json.loads(run("status", "--json", "--dir", directory).out)["pages"]["fetched"] == 3
            assert len(list(api.Crawl(directory=directory).stored())) == 3
            for at in (port, second):
                assert ask(at, f"/page?url={web.url('/one')}")[0] == 200
            assert run("withdraw", web.url("/one"), "--dir", directory).code == 0
            assert ask(port, f"/page?url={web.url('/one')}")[0] == 451
            until(lambda: ask(second, f"/page?url={web.url('/one')}")[0] == 451)
            if processes == 1:
                refused = run("crawl", web.url(), "--dir", directory)
                assert refused.code == 75 and "in use by" in refused.err
    assert not list(directory.glob("p*/snapshot-*"))


def test_commands_next_to_a_running_crawl(tmp_path: Path, tree: list[str]) -> None:  # noqa: F811
    """A page server shows the pages that were stored when it started. `check` reports that a process is crawling."""
    with Running(tmp_path, tree, "--delay", "0.02", "--scope", "host") as running:
        running.until(lambda: running.fetched() > 20)
        with serving(running.folder) as port:
            running.until(lambda: ask(port, f"/page?url={tree[0]}")[0] == 200)
        checked = running.command("check")
        assert checked.returncode == 75 and "is crawling" in checked.stderr, checked
    assert run("check", "--dir", running.folder).code == 0


def test_commands_work_on_a_read_only_file_system(tmp_path: Path) -> None:
    """Once, each command ended on such a file system with "cannot lock: Read-only file system"."""
    directory, port = tmp_path / "crawl", free_port()
    with Web(ROUTES) as web:
        crawl(directory, web.url())
        url = web.url("/one")
    mount = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(directory)]
    if subprocess.run([*mount, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount")
    for words in (("status",), ("get", url), ("why", url), ("check",), ("report",)):
        done = subprocess.run(
            [*mount, *CRAWLER, *words, "--dir", str(directory)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 and "Read-only" not in done.stderr, done
    served = subprocess.Popen(
        [*mount, *CRAWLER, "serve", "--dir", str(directory), f"127.0.0.1:{port}"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert served.stdout is not None and "serving" in served.stdout.readline()
        assert ask(port, f"/page?url={url}")[0] == 200
    finally:
        served.terminate()
        served.communicate(timeout=30)
    refused = subprocess.run(
        [*mount, *CRAWLER, "block", "a.example", "--dir", str(directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 75 and "Read-only file system" in refused.stderr


def test_a_page_server_says_early_where_it_listens(tmp_path: Path) -> None:
    """On a busy machine, `serve` once printed nothing for 8 s. A link to an IPv6 address needs brackets."""
    directory = tmp_path / "crawl"
    with Web(ROUTES) as web:
        crawl(directory, web.url())
    words = [*CRAWLER, "serve", "--dir", str(directory), "[::1]:0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            early = process.stderr.readline()
            origin = early.split()[-1]
            assert early == f"opening {directory}, to be served on {origin}\n"
            link = f"{origin}/page?url={web.url('/one')}"  # this client waits until the crawl is open
            with urllib.request.urlopen(link, timeout=30) as answer:
                assert answer.status == 200 and b"one" in answer.read()
            assert process.stdout.readline() == f"serving {directory} on {origin}/page?url=URL\n"
            second = run("serve", "--dir", directory, origin.removeprefix("http://"))
            assert second.code == 2
            assert f"cannot listen on {origin.removeprefix('http://')}: Address already in use" in second.err
        finally:
            process.terminate()
