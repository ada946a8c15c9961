"""Run files: written durably, opened only as they were written, damage named."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from crawler.due.runs import DiskRuns
from crawler.errors import DamageError, StoreError

KEYS = np.array([0, 3, 7, 2**63, 2**64 - 1], np.uint64)


def written(directory: Path, keys: np.ndarray = KEYS):
    return DiskRuns(directory, []).write([keys[:2], keys[2:]], len(keys), step="flush")


def test_a_run_is_its_keys_and_nothing_else(tmp_path: Path) -> None:
    run = written(tmp_path)
    assert (tmp_path / "00000001.run").read_bytes() == KEYS.astype("<u8").tobytes()
    assert run.entry.count == 5 and (run.entry.first, run.entry.last) == (0, 2**64 - 1)
    assert run.problems() == []
    (again,) = DiskRuns(tmp_path, [run.entry]).opened
    assert (again.read(1, 4) == KEYS[1:4]).all() and (again.fences == run.fences).all()


@pytest.mark.parametrize("count", [1, 511, 512, 513, 2_000])
def test_fences_are_the_same_written_and_opened(tmp_path: Path, count: int) -> None:
    keys = np.arange(count, dtype=np.uint64) * np.uint64(10)
    chunks = [keys[start : start + 100] for start in range(0, count, 100)]
    run = DiskRuns(tmp_path, []).write(chunks, count, step="flush")
    (again,) = DiskRuns(tmp_path, [run.entry]).opened
    assert (run.fences == keys[::512]).all() and (again.fences == run.fences).all()


def test_numbers_go_on_and_what_nothing_names_is_removed(tmp_path: Path) -> None:
    first = written(tmp_path)
    (tmp_path / "00000002.run").write_bytes(b"x" * 8)
    (tmp_path / "00000003.run~").write_bytes(b"x")
    (tmp_path / "notes.txt").write_text("not ours")
    runs = DiskRuns(tmp_path, [first.entry])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000001.run", "notes.txt"]
    assert runs.write([KEYS], 5, step="flush").path.name == "00000002.run"


@pytest.mark.parametrize("damage", ["missing", "short", "long", "empty", "first", "last"])
def test_a_run_that_is_not_what_was_written_is_named(tmp_path: Path, damage: str) -> None:
    run = written(tmp_path)
    data = run.path.read_bytes()
    changed = {
        "short": data[:-8],
        "long": data + b"\0" * 8,
        "empty": b"",
        "first": b"\1" + data[1:],
        "last": data[:-1] + b"\0",
    }
    run.path.unlink() if damage == "missing" else run.path.write_bytes(changed[damage])
    with pytest.raises(DamageError, match="00000001.run"):
        DiskRuns(tmp_path, [run.entry])


def test_a_flipped_bit_is_found_by_checking(tmp_path: Path) -> None:
    run = written(tmp_path)
    data = bytearray(run.path.read_bytes())
    data[17] ^= 4
    run.path.write_bytes(data)
    (again,) = DiskRuns(tmp_path, [run.entry]).opened
    assert again.problems() == [f"{run.path}: its checksum is wrong"]


def test_keys_out_of_order_are_found_by_checking(tmp_path: Path) -> None:
    run = DiskRuns(tmp_path, []).write([np.array([1, 9, 4, 10], np.uint64)], 4, step="flush")
    assert run.problems() == [f"{run.path}: its keys do not ascend"]


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_full_disk_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    runs = DiskRuns(tmp_path, [])
    with monkeypatch.context() as patched:
        patched.setattr(Path if call == "rename" else os, call, full)
        with pytest.raises(StoreError, match=r"00000001.run~.*No space"):
            runs.write([KEYS], 5, step="flush")
    assert list(tmp_path.iterdir()) == []
    assert runs.write([KEYS], 5, step="flush").count == 5


def test_a_removed_run_can_still_be_read(tmp_path: Path) -> None:
    """A join that is under way in another thread holds it."""
    runs = DiskRuns(tmp_path, [])
    run = runs.write([KEYS], 5, step="flush")
    runs.remove(run)
    assert list(tmp_path.iterdir()) == [] and (run.read(0, 5) == KEYS).all()


def test_a_run_that_rests_takes_no_memory_and_can_be_read(tmp_path: Path) -> None:
    """8 bytes a URL would be resident after every flush."""

    def resident(path: Path) -> int:
        """KiB of the mapping of `path`."""
        _, _, rest = Path("/proc/self/smaps").read_text().partition(str(path))
        return int(rest.partition("Rss:")[2].split()[0])

    keys = np.arange(1, 1 << 18, dtype=np.uint64)
    run = DiskRuns(tmp_path, []).write([keys], len(keys), step="flush")
    known = np.zeros(len(keys), np.uint8)
    run.join(keys, known)
    assert known.all() and resident(run.path) > 1500
    run.rest()
    assert resident(run.path) < 200
    run.join(keys[::2].copy(), known)
    assert (run.read(0, len(keys)) == keys).all()
    run.close()
    run.rest()
