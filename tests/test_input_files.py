"""Test that files which a user names are read within limits, and that commands report an endless file in one line."""

import io
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from crawler.input_files import lines_of, read_bytes
from tests.faults.harness import ROOT

MEMORY = 1 << 30  # address space of a command; without a limit on what it reads, it needs all of this


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert read_bytes(path, 100) == b"x" * 100
    with pytest.raises(OSError, match="longer than 0 MiB"):
        read_bytes(path, 99)


def test_lines_are_those_of_the_file() -> None:
    text = "a\n\nbcd\r\nlast"
    assert list(lines_of(io.StringIO(text), 6)) == list(io.StringIO(text))
    assert list(lines_of(io.StringIO("12345\n"), 6)) == ["12345\n"]
    assert list(lines_of(io.StringIO(""))) == []


def test_a_line_that_is_too_long_is_named() -> None:
    lines = lines_of(io.StringIO("short\nlonger"), 6)
    assert next(lines) == "short\n"
    with pytest.raises(OSError, match="line 2 is longer than 6 characters"):
        next(lines)


URL = "http://127.0.0.1:1/"


@pytest.mark.parametrize(
    "arguments",
    [
        ("config", "check", "/dev/zero"),
        ("crawl", URL, "--config", "/dev/zero"),
        ("crawl", URL, "--load-cookies", "/dev/zero"),
        ("crawl", "--seeds", "/dev/zero"),
        ("crawl", URL, "--set", "refresh.importance_file=/dev/zero"),
        ("crawl", URL, "--set", "order.name=words", "--set", "order.file=/dev/zero"),
        ("node", URL, "--table", "/dev/zero"),
        ("plan", "--pages", "1e6", "--units", "/dev/zero"),
        ("lab", "trace", "import", "/dev/zero", "trace"),
        ("lab", "refresh", "rates", "--pages", "/dev/zero", "--rate", "1"),
    ],
    ids=" ".join,
)
def test_an_endless_file_is_a_usage_error(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """The message is one line, and the memory of the command is bounded."""
    ended = subprocess.run(
        [sys.executable, "-m", "crawler", *arguments],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_AS, (MEMORY, MEMORY)),
        timeout=120,
    )
    assert ended.returncode == 2, ended
    assert len(ended.stderr.splitlines()) == 1 and "/dev/zero" in ended.stderr, ended.stderr
    assert "longer than" in ended.stderr or "null bytes" in ended.stderr, ended.stderr
