"""Test that a program that starts warm receives and returns the same as a program that a new interpreter runs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm_start

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or bool(os.environ.get("CRAWLER_TEST_COLD")), reason="programs start cold"
)
PROBE = [sys.executable, "-m", "tests.probe"]


def both(monkeypatch: pytest.MonkeyPatch, *words: str, **options: Any) -> tuple[Any, Any]:
    """Run the probe warm and cold. For each run, return what the probe was given, its exit code and its errors."""
    found = []
    for warm in (True, False):
        with monkeypatch.context() as patch:
            if not warm:
                patch.setattr(subprocess, "_fork_exec", warm_start._cold)
            done = subprocess.run([*PROBE, *words], check=False, capture_output=True, text=True, **options)
        given = json.loads(done.stdout)
        # readline, which pytest imports, sets these variables without os.environ
        for name in ("LINES", "COLUMNS"):
            given["environ"].pop(name, None)
        given |= {f"variable {name}": value for name, value in given.pop("environ").items()}
        assert given.pop("warm") is warm and given.pop("process")
        assert given["parent"] == os.getpid()
        found.append((given, done.returncode, [line for line in done.stderr.splitlines() if line[:1] != " "]))
    return found[0], found[1]


def different(warm: Any, cold: Any) -> dict[str, Any]:
    """Return the values that differ between what a warm and a cold program were given."""
    return {
        name: (warm[0].get(name), cold[0].get(name))
        for name in {*warm[0], *cold[0]}
        if warm[0].get(name) != cold[0].get(name)
    }


@pytest.fixture
def pipe() -> Iterator[int]:
    ends = os.pipe()
    yield ends[0]
    for end in ends:
        os.close(end)


def test_a_warm_program_is_given_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pipe: int) -> None:
    """Arguments, environment, folder, group, session, umask, open files, streams and ignored signals are equal."""
    root = str(warm_start.ROOT)
    for options in (
        {"input": "text", "cwd": root},
        {"stdin": subprocess.DEVNULL, "cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": root, "A": "ä\n"}},
        {"input": "", "cwd": root, "start_new_session": True, "pass_fds": (pipe,)},
    ):
        warm, cold = both(monkeypatch, "exit", "0", "ö", **options)
        assert different(warm, cold) == {} and warm[1:] == cold[1:]
    warm_start._end_server()  # the next server starts while these settings are in force
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN), os.umask(0o077)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1,))
    try:
        warm, cold = both(monkeypatch, "exit", "0", stdin=subprocess.DEVNULL, cwd=root)
    finally:
        signal.signal(signal.SIGHUP, before[0])
        os.umask(before[1])
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    assert different(warm, cold) == {} and signal.SIGHUP in warm[0]["ignored"] and warm[0]["umask"] == 0o077
    assert signal.SIGUSR1 in warm[0]["blocked"]
    warm, cold = both(monkeypatch, "exit", "0", stdin=subprocess.DEVNULL, cwd=root)
    assert different(warm, cold) == {} and not {signal.SIGHUP, signal.SIGUSR1} & {
        *warm[0]["ignored"],
        *warm[0]["blocked"],
    }


def test_a_warm_program_uses_its_own_temporary_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The data that the server reads for `export` includes a package that asks for the temporary folder."""
    options = {
        "stdin": subprocess.DEVNULL,
        "cwd": warm_start.ROOT,
        "env": {**os.environ, "TMPDIR": str(tmp_path)},
    }
    for words in (["exit", "0", "export"], ["exit", "0"]):
        warm, cold = both(monkeypatch, *words, **options)
        assert different(warm, cold) == {} and warm[0]["temporary"] == str(tmp_path)


@pytest.mark.parametrize(
    ("words", "code"), [(["exit", "7"], 7), (["raise"], 1), (["interrupt"], -2), (["kill"], -9)]
)
def test_a_warm_program_ends_the_same(monkeypatch: pytest.MonkeyPatch, words: list[str], code: int) -> None:
    warm, cold = both(monkeypatch, *words, stdin=subprocess.DEVNULL, cwd=warm_start.ROOT)
    assert different(warm, cold) == {} and warm[1:] == cold[1:] and warm[1] == code


def test_a_warm_program_is_a_child_that_can_be_polled_and_killed_at_once() -> None:
    """If the program were not yet a child of this process, a poll would report that the program had ended."""
    for _ in range(20):
        with subprocess.Popen(PROBE, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as running:
            assert running.poll() is None
            running.kill()
            assert running.wait() == -signal.SIGKILL


def test_a_child_that_a_warm_supervisor_starts_again_is_warm() -> None:
    done = subprocess.run(
        [*PROBE, "crawl", "--processes"],
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        cwd=warm_start.ROOT,
    )
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["warm"] and second["warm"] and done.returncode == 7, done.stderr
    assert second["parent"] == first["process"] and second["files"] == [0, 1, 2]


@pytest.mark.parametrize(
    ("words", "variables", "folder"),
    [
        (["-c", "pass"], {}, ""),
        (["-m", "json.tool"], {}, ""),
        (["-m", "crawler"], {"PYTHONHASHSEED": "1"}, ""),
        (["-m", "crawler"], {"CRAWLER_INTERPRETED": "1"}, ""),
        (["-m", "crawler"], {"PYTHONPATH": "/elsewhere"}, ""),
        (["-m", "crawler"], {}, "missing"),
        (["-m", "crawler"], {}, "copy"),
    ],
)
def test_other_programs_start_cold(
    tmp_path: Path, words: list[str], variables: dict[str, str], folder: str
) -> None:
    (tmp_path / "copy" / "crawler").mkdir(parents=True)
    place = str(tmp_path / folder) if folder else str(warm_start.ROOT)
    assert not warm_start._can_be_warm([sys.executable, *words], {**os.environ, **variables}, place)
    assert warm_start._can_be_warm([sys.executable, "-m", "crawler"], os.environ, str(warm_start.ROOT))
