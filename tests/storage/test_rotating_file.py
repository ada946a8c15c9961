"""Test rotated logs: size, age, the number of files that are kept, several writers, and rotation by another program."""

import gzip
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from crawler.storage.rotating_file import RotatingFile, generations, open_generation

DAY = 86_400.0
START = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def line(text: str = "x", instant: str = "2026-01-01T00:00:00Z") -> bytes:
    return f"{instant} {text}\n".encode()


def content(path: Path) -> list[bytes]:
    return [each for file in generations(path) for each in file.read_bytes().splitlines(keepends=True)]


@pytest.mark.parametrize("seed", range(5))
def test_several_writers_neither_lose_nor_repeat_lines(tmp_path: Path, seed: int) -> None:
    """The lines of each writer are complete and in order, whichever writer rotates the file.

    No file exceeds the size.
    """
    rng, path = random.Random(seed), tmp_path / "log"
    writers = [RotatingFile(path, bytes_max=200) for _ in range(3)]
    written: list[list[bytes]] = [[], [], []]
    for number in range(200):
        who = rng.randrange(3)
        entry = line(f"{who} {number} {'y' * rng.randrange(30)}")
        writers[who].write(entry, START)
        written[who].append(entry)
    found = content(path)
    for who in range(3):
        assert [each for each in found if each.split()[1] == b"%d" % who] == written[who]
    assert max(file.stat().st_size for file in generations(path)) <= 200
    assert len(generations(path)) > 20


def test_a_line_longer_than_the_limit_is_kept_whole(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "log", bytes_max=10)
    for _ in range(2):
        file.write(line("z" * 50), START)
    assert content(tmp_path / "log") == [line("z" * 50)] * 2


@pytest.mark.parametrize(("kept", "left"), [(0, 5), (2, 3)])
def test_the_number_of_former_files_is_limited(tmp_path: Path, kept: int, left: int) -> None:
    """`kept` former files remain besides the current file.

    If `kept` is 0, all files remain. The newest files have the lowest numbers.
    """
    file = RotatingFile(tmp_path / "log", bytes_max=1, kept=kept)
    for number in range(5):
        file.write(line(str(number)), START)
    assert content(tmp_path / "log") == [line(str(number)) for number in range(5 - left, 5)]
    assert (tmp_path / "log.1").read_bytes() == line("3")


def test_the_age_of_a_file_is_that_of_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    RotatingFile(path, age_max=DAY).write(line("first"), START)
    file = RotatingFile(path, age_max=DAY)
    file.write(line("second"), START + DAY)
    assert len(generations(path)) == 1
    file.write(line("third"), START + DAY + 1.0)
    assert (path.read_bytes(), (tmp_path / "log.1").read_bytes()) == (
        line("third"),
        line("first") + line("second"),
    )


def test_lines_without_a_time_are_as_old_as_the_process(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "log", age_max=DAY)
    for later in (0.0, 1.0, DAY + 2.0):
        file.write(b"no instant\n", START + later)
    assert len(generations(tmp_path / "log")) == 2


def test_a_rotation_by_another_program_is_followed(tmp_path: Path) -> None:
    """Regression: after logrotate had renamed the file, lines were appended to the renamed file until the next start."""
    path = tmp_path / "log"
    file = RotatingFile(path)
    file.write(line("before"), START)
    os.rename(path, tmp_path / "log-20260101")
    file.write(line("after"), START)
    assert path.read_bytes() == line("after")
    path.unlink()
    file.write(line("again"), START)
    assert path.read_bytes() == line("again")


def test_files_that_logrotate_compressed_are_read(tmp_path: Path) -> None:
    """The crawl does not rename these files itself."""
    path = tmp_path / "log"
    for name, line in (("log.3.gz", b"1\n"), ("log.2.gz", b"2\n"), ("log.1", b"3\n"), ("log", b"4\n")):
        data = gzip.compress(line) if name.endswith(".gz") else line
        (tmp_path / name).write_bytes(data)
    files = generations(path)
    assert [file.name for file in files] == ["log.3.gz", "log.2.gz", "log.1", "log"]
    read = []
    for file in files:
        with open_generation(file) as lines:
            read += list(lines)
    assert read == [b"1\n", b"2\n", b"3\n", b"4\n"]


def test_other_files_are_not_counted_as_former_files(tmp_path: Path) -> None:
    for name in ("log.1", "log.02", "log.1.bz2", "log.old", "log.10", "log", "other.1"):
        (tmp_path / name).touch()
    assert [file.name for file in generations(tmp_path / "log")] == ["log.10", "log.1", "log"]


def test_a_closed_file_opens_again(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "log")
    file.close()
    file.close()
    file.write(line(), START)
    assert content(tmp_path / "log") == [line()]


def test_a_renamed_file_is_reopened_when_the_signal_comes(tmp_path: Path) -> None:
    """At SIGUSR1, a process opens a new file in place of the renamed file, even if it writes nothing."""
    program = """
import os, signal, sys, time
from pathlib import Path
from crawler import early_signals
from crawler.storage.rotating_file import RotatingFile, reopen_on
early_signals.install()
path = Path(sys.argv[1])
file = RotatingFile(path)
file.write(b"one\\n", 0.0)
reopen_on(early_signals.REOPEN)
path.rename(path.with_name("log.1"))
os.kill(os.getpid(), signal.SIGUSR1)
while not path.exists():
    time.sleep(0.002)
file.write(b"two\\n", 0.0)
file.close()
file.reopen()
assert file.closed
"""
    path = tmp_path / "log"
    subprocess.run([sys.executable, "-c", program, path], check=True, timeout=60)
    assert (path.read_bytes(), (tmp_path / "log.1").read_bytes()) == (b"two\n", b"one\n")
