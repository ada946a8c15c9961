"""Test that forked workers run each test once and report what pytest itself would report."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SUITE = """
import os, pytest
RUNS = {folder!r}

@pytest.fixture(scope="module")
def made():
    name = f"{{RUNS}}/made-{{os.getpid()}}"
    assert not os.path.exists(name)
    open(name, "x").close()
    yield name
    os.rename(name, name + "-ended")

@pytest.mark.parametrize("number", range(12))
def test_number(number, made, tmp_path, capfd):
    print("number", number)
    (tmp_path / "own").write_text("")
    open(f"{{RUNS}}/ran-{{number}}", "x").close()
    assert capfd.readouterr().out == f"number {{number}}\\n"

def test_fails():
    print("said before")
    assert 1 == 2

@pytest.mark.skip
def test_skipped(): ...

@pytest.fixture
def broken():
    yield
    raise ValueError("at the end")

def test_error(broken): ...
"""


def run(folder: Path, suite: str, *words: str) -> "subprocess.CompletedProcess[str]":
    (folder / "test_suite.py").write_text(suite)
    arguments = [
        "-p",
        "tests.forked_workers",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir",
        str(folder),
    ]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, *words, str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # plugins would take half of the CPU time
    )  # fmt: skip


@pytest.mark.parametrize("count", [3, 30])
def test_each_test_runs_once_and_is_reported(tmp_path: Path, count: int) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    done = run(tmp_path, SUITE.format(folder=str(runs)), "--forked-workers", str(count))
    assert done.returncode == 1 and "1 failed, 13 passed, 1 skipped, 1 error" in done.stdout, done.stdout
    assert "said before" in done.stdout and "ValueError: at the end" in done.stdout
    assert len(list(runs.glob("ran-*"))) == 12
    assert 1 <= len(list(runs.glob("made-*-ended"))) == len(list(runs.glob("made-*"))) <= count


def test_a_worker_that_dies_fails_its_test_only(tmp_path: Path) -> None:
    suite = "import os, pytest\n@pytest.mark.parametrize('n', range(20))\ndef test_it(n):\n    n == 7 and os._exit(3)"
    done = run(tmp_path, suite, "--forked-workers", "2")
    assert "1 failed, 19 passed" in done.stdout and done.returncode == 1, done.stdout
    assert re.search(r"worker \d ended with status 3", done.stdout)


def test_the_first_failure_may_end_the_run(tmp_path: Path) -> None:
    suite = "import pytest\n@pytest.mark.parametrize('n', range(400))\ndef test_it(n): assert n"
    done = run(tmp_path, suite, "--forked-workers", "2", "-x")
    assert done.returncode == 1 and "stopping after 1 failures" in done.stdout, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is None or int(passed[1]) < 399


def test_failed_tests_are_known_to_the_next_run(tmp_path: Path) -> None:
    suite = "import pytest\n@pytest.mark.parametrize('n', range(9))\ndef test_it(n): assert n % 4"
    words = ["-p", "cacheprovider", "--forked-workers", "2"]
    assert "3 failed, 6 passed" in run(tmp_path, suite, *words).stdout
    again = run(tmp_path, suite, *words, "--last-failed").stdout
    assert "3 failed" in again and "passed" not in again
