"""Test wrong clocks in real processes: while known pages are refreshed, and after a disk was lost.

`tests/faults/around.py` tests wrong clocks during a crawl. The clock of a run is shifted by `tests/faults/planted.py`.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.end_to_end.test_many_processes import command, stored_by
from tests.end_to_end.test_nodes import CONFIRMED, Nodes
from tests.end_to_end.web import FAST, ReceivedRequest, Web, page, run
from tests.faults.harness import ROOT, Ended, TreeWeb, end

YEAR = 365 * 86_400
HOSTS = ("a.localhost", "b.localhost", "c.localhost")
PATHS = ("/", "/1", "/2", "/3")
PROMPT = 30.0  # seconds within which every page must be fetched again
REFRESH = (
    "--allow-network", "127.0.0.0/8", "--delay", "0", "--delay-factor", "0", "--progress", "none",
    "--rate", "20", "--set", "refresh.min_age=0.1", "--set", "refresh.speed=86400",
    "--set", "politeness.address_delay_share=0", "--set", "splitter.heartbeat=0.2",
)  # fmt: skip


def begin(directory: Path, word: str, *arguments: str, clock: str = "") -> "subprocess.Popen[str]":
    """Start a command. `clock` names the planted clock of the process, such as `clock+60`."""
    module = ("tests.faults.planted", clock) if clock else ("crawler",)
    return subprocess.Popen(
        [sys.executable, "-m", *module, word, *arguments, "--dir", str(directory)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def fetch_all_again(
    web: Web, directory: Path, processes: int, times: int = 1, *, clock: str = "", how: int = signal.SIGTERM
) -> Ended:
    """Refresh until each page was fetched again `times` times. Then end the run with the signal `how`."""
    before = len(web.asked)
    flags = (*REFRESH, "--processes", str(processes))
    process = begin(directory, "refresh", *flags, clock=clock)
    give_up = time.monotonic() + PROMPT
    wanted = {(host, path) for host in HOSTS for path in PATHS}
    counts = Counter[tuple[str, str]]()
    while process.poll() is None and time.monotonic() < give_up:
        counts = Counter((asked.host, asked.path) for asked in web.asked[before:])
        if all(counts[each] >= times for each in wanted):
            break
        time.sleep(0.05)
    process.send_signal(how)
    ended = end(process, timeout=60)
    assert all(counts[each] >= times for each in wanted), (clock, counts, ended)
    return ended


@pytest.mark.parametrize(
    ("shift", "how", "processes"),
    [
        (f"clock+{YEAR}", signal.SIGTERM, 1),
        (f"clock+{YEAR}", signal.SIGKILL, 3),
        (f"clock-{YEAR}", signal.SIGTERM, 3),
        ("clock+7200", signal.SIGTERM, 1),
    ],
)
def test_a_wrong_clock_during_a_refresh_freezes_no_page(
    tmp_path: Path, shift: str, how: int, processes: int
) -> None:
    """After a run with a wrong clock, every page is soon fetched again, and its newest copy is shown."""
    versions = Counter[str]()

    def changing(asked: ReceivedRequest) -> str:
        versions[asked.host + asked.path] += 1
        return page(*PATHS, text=f"version {versions[asked.host + asked.path]} ")

    directory = tmp_path / "crawl"
    with Web({path: changing for path in PATHS}) as web:
        seeds = [web.url("/", host) for host in HOSTS]
        crawled = end(begin(directory, "crawl", *seeds, *FAST, "--processes", str(processes)))
        assert crawled.code == 0, crawled
        fetch_all_again(web, directory, processes, clock=shift, how=how)
        ended = fetch_all_again(web, directory, processes, 2)
        assert ended.code == 0 and "Traceback" not in ended.err, ended
        assert ("the clock was ahead in an earlier run" in ended.err) == ("+" in shift), ended
        for host in HOSTS:
            for path in PATHS:
                shown = run("get", web.url(path, host), "--dir", directory)
                newest = versions[host + path]
                # the last answer may have been in flight when the run was stopped
                texts = [f"version {n} " for n in (newest, newest - 1)]
                assert any(text in shown.text for text in texts), (shown, newest)
    checked = run("check", "--dir", directory)
    assert checked.code == 0, checked


@pytest.mark.parametrize("shift", [f"clock-{YEAR}", f"clock+{YEAR}"])
def test_a_node_that_lost_its_disk_and_starts_with_a_wrong_clock(tmp_path: Path, shift: str) -> None:
    """A node that had lost its disk was started while its clock was behind.

    Once, its peers believed that its folder was a copy of another, and refused it forever.
    """
    nodes, pages = Nodes(tmp_path, "abc"), 240
    with TreeWeb(tmp_path, pages, "--fanout", "3") as web:
        first = [nodes.start(name, web.seed, "--max-pages", "80") for name in "abc"]
        assert [end(node, timeout=60).code for node in first] == [0, 0, 0]
        shutil.rmtree(tmp_path / "a")
        # each peer refuses `a` until the peer has recovered the links that were lost by `a`
        for _ in range(3):
            started = {name: nodes.start(name, web.seed, clock=shift * (name == "a")) for name in "abc"}
            lost = end(started["a"], timeout=60)
            if lost.code:
                for name in "bc":
                    started[name].terminate()
            ended = [lost, *(end(started[name], timeout=60) for name in "bc")]
            if not lost.code:
                break
            last = lost.err.splitlines()[-1]
            assert lost.code == 3 and CONFIRMED in last and "Traceback" not in lost.err, ended
            peer = last.partition("because ")[2][:1]
            recovered = command(tmp_path / peer, "recover", "a")
            assert recovered.code == 0, recovered
        assert [each.code for each in ended] == [0, 0, 0], ended
        again = [nodes.start(name, web.seed) for name in "abc"]  # now, the clock of `a` is right
        ended = [end(node, timeout=60) for node in again]
        assert [each.code for each in ended] == [0, 0, 0], ended
        stored = set().union(*(stored_by(tmp_path / name / name) for name in "abc"))
        assert len(stored) == pages
