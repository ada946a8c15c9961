"""Test a crawl that runs out of file descriptors, at the start and later."""

import os
import resource
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.harness import ROOT, TreeWeb, crawl, end, judge, pids, settings, several, start

PAGES = 400


@pytest.mark.parametrize("processes", [1, 3])
def test_too_few_descriptors_at_the_start_are_reported_in_one_line(tmp_path: Path, processes: int) -> None:
    """No request is sent."""
    flags = settings(*several(processes))
    command = [sys.executable, "-m", "crawler", "crawl", "--dir", str(tmp_path / "crawl"), *flags]
    with TreeWeb(tmp_path, 20) as web:
        limited = ["sh", "-c", 'ulimit -n 200; exec "$@"', "sh", *command, web.seed]
        few = subprocess.run(limited, cwd=ROOT, capture_output=True, text=True, check=False)
        assert few.returncode == 75 and len(few.stderr.splitlines()) == 1, few
        assert "may open only 200 files (ulimit -n), but crawl.concurrency = 32 needs 256" in few.stderr
        assert not web.fetched()
        assert crawl(tmp_path / "crawl", web.seed, *flags).code == 0


@pytest.mark.parametrize("processes", [1, 3])
def test_descriptors_that_run_out_later_lose_no_page(tmp_path: Path, processes: int) -> None:
    """Half of the descriptors in use are taken away. If the crawl stops, it says why, and the next run completes it."""
    directory, flags = tmp_path / "crawl", settings(*several(processes))
    with TreeWeb(tmp_path, PAGES, hosts=60) as web:
        running = start(directory, web.seed, *flags)
        while running.poll() is None and sum(web.fetched().values()) < PAGES // 20:
            time.sleep(0.01)
        for pid in pids(directory):
            with suppress(ProcessLookupError, FileNotFoundError):
                least = len(os.listdir(f"/proc/{pid}/fd")) // 2
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (least, least))
        ended = end(running)
        assert ended.code in (0, 75), ended
        assert "Traceback" not in ended.err, ended.err
        if ended.code:
            assert "Too many open files" in ended.err.splitlines()[-1], ended.err
        assert crawl(directory, *flags).code == 0
        found = judge(web, directory, processes=processes)
    assert found.lost == found.unstored == found.stored_twice == found.torn == 0, found
