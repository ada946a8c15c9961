"""Test that run files are durable when they are written, and that errors about damage name the file."""

import errno
import os
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest

from crawler.due.merging import merge
from crawler.due.run_layout import FENCE_STEP
from crawler.due.runs import DiskRuns
from crawler.errors import DamageError, StoreError
from tests.due.arrays import spread

KEYS = np.array([0, 3, 7, 2**63, 2**64 - 1], np.uint64)


def written(directory: Path, keys: np.ndarray = KEYS):
    return DiskRuns(directory, []).write([keys[:2], keys[2:]], len(keys), step="flush")


def test_a_run_has_the_expected_bytes_and_entry(tmp_path: Path) -> None:
    """The 5 keys have low parts of 61 bits each.

    Together with the high parts 0 0 0 4 7, which take 15 bits, they fill 5 words. The run has one fence and
    one checksum.
    """
    run = written(tmp_path)
    data = (tmp_path / "00000001.run").read_bytes()
    assert data[:8] == b"due-run1" and data[48:56] == bytes(8) and len(data) == 64
    assert zlib.crc32(data[8:48]).to_bytes(4, "little") == data[56:60] and run.entry.coding == 1
    assert run.entry.crc32 == zlib.crc32(data[48:])
    assert run.entry.count == 5 and (run.entry.first, run.entry.last) == (0, 2**64 - 1)
    assert run.problems() == []
    (again,) = DiskRuns(tmp_path, [run.entry]).opened
    assert (again.read(1, 4) == KEYS[1:4]).all() and (again.fences == run.fences).all()


CODED_FILE = (
    "6475652d72756e31"  # due-run1
    "8708000000000000"  # the high parts 0 0 0 4 7 set the bits 0 1 2 7 11; five low parts of 61 bits follow
    "000c000000000000"
    "8003000000000000"
    "0000000000000000"
    "feffffffffffff3f"
    "0000000000000000"  # the fence
    "5974a2a400000000"  # its checksum
)


def test_the_file_format_does_not_change(tmp_path: Path) -> None:
    """The golden value is the file of five keys, byte by byte."""
    run = written(tmp_path)
    assert run.path.read_bytes().hex() == CODED_FILE
    again = DiskRuns(tmp_path, [run.entry]).opened[0]
    assert again.read(0, 5).tolist() == KEYS.tolist()


@pytest.mark.parametrize("count", [1, 511, 512, 513, 2_000])
def test_fences_are_the_same_written_and_opened(tmp_path: Path, count: int) -> None:
    keys = np.arange(count, dtype=np.uint64) * np.uint64(10)
    chunks = [keys[start : start + 100] for start in range(0, count, 100)]
    run = DiskRuns(tmp_path, []).write(chunks, count, step="flush")
    (again,) = DiskRuns(tmp_path, [run.entry]).opened
    assert (run.fences == keys[::512]).all() and (again.fences == run.fences).all()


def test_run_numbers_continue_and_unlisted_files_are_removed(tmp_path: Path) -> None:
    first = written(tmp_path)
    (tmp_path / "00000002.run").write_bytes(b"x" * 8)
    (tmp_path / "00000003.run~").write_bytes(b"x")
    (tmp_path / "notes.txt").write_text("not ours")
    runs = DiskRuns(tmp_path, [first.entry])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000001.run", "notes.txt"]
    assert runs.write([KEYS], 5, step="flush").path.name == "00000002.run"


@pytest.mark.parametrize("damage", ["missing", "short", "long", "empty", "magic", "fence", "checksum"])
def test_a_damaged_run_is_named(tmp_path: Path, damage: str) -> None:
    run = written(tmp_path)
    data = run.path.read_bytes()
    changed = {
        "short": data[:-8],
        "long": data + b"\0" * 8,
        "empty": b"",
        "magic": b"\1" + data[1:],
        "fence": data[:-16] + b"\1" + data[-15:],
        "checksum": data[:-8] + bytes([data[-8] ^ 1]) + data[-7:],
    }
    if damage == "missing":
        run.path.unlink()
    else:
        run.path.write_bytes(changed[damage])
    with pytest.raises(DamageError, match="00000001.run"):
        DiskRuns(tmp_path, [run.entry])


@pytest.mark.parametrize("read", ["join", "read", "merge", "check"])
def test_a_flipped_bit_is_found_when_its_block_is_read(tmp_path: Path, read: str) -> None:
    """Opening the run does not find a flipped bit, because it reads no block. The other blocks remain readable."""
    keys = np.arange(1, 3 * FENCE_STEP, dtype=np.uint64) << np.uint64(40)
    run = DiskRuns(tmp_path, []).write([keys], len(keys), step="flush")
    data = bytearray(run.path.read_bytes())
    data[len(data) // 2] ^= 4
    run.path.write_bytes(data)
    (again,) = DiskRuns(tmp_path, [run.entry]).opened
    known = np.zeros(2, np.uint8)  # there are fewer queries than blocks, so that not all blocks are read
    again.join(keys[:2], known)
    assert known.all() and (again.read(2 * FENCE_STEP, len(keys)) == keys[2 * FENCE_STEP :]).all()
    message = f"{run.path}: the checksum of block 1 is wrong"
    if read == "check":
        assert again.problems() == [message]
        return
    with pytest.raises(DamageError, match=message):
        if read == "join":
            again.join(keys[FENCE_STEP : FENCE_STEP + 2], np.zeros_like(known))
        elif read == "read":
            again.read(FENCE_STEP + 3, FENCE_STEP + 4)
        else:
            list(merge([again], 1 << 16))


def test_every_flipped_bit_of_a_run_is_found(tmp_path: Path) -> None:
    run = written(tmp_path)
    data = run.path.read_bytes()
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit >> 3] ^= 1 << (bit & 7)
        run.path.write_bytes(changed)
        try:
            (again,) = DiskRuns(tmp_path, [run.entry]).opened
        except DamageError:
            continue
        assert again.problems(), bit


@pytest.mark.parametrize("coding", [0, 2])
def test_a_run_of_another_coding_is_refused(tmp_path: Path, coding: int) -> None:
    entry = msgspec.structs.replace(written(tmp_path).entry, coding=coding)
    with pytest.raises(DamageError, match=rf"00000001.run: unknown coding {coding}"):
        DiskRuns(tmp_path, [entry])


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_full_disk_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    runs = DiskRuns(tmp_path, [])
    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        with pytest.raises(StoreError, match=r"00000001.run: cannot write: No space"):
            runs.write([KEYS], 5, step="flush")
    assert list(tmp_path.iterdir()) == []
    assert runs.write([KEYS], 5, step="flush").count == 5


def test_a_removed_run_can_still_be_read(tmp_path: Path) -> None:
    """A join in another thread may still be reading the removed run."""
    runs = DiskRuns(tmp_path, [])
    run = runs.write([KEYS], 5, step="flush")
    runs.remove(run)
    assert list(tmp_path.iterdir()) == [] and (run.read(0, 5) == KEYS).all()


def test_an_idle_run_takes_no_memory_and_can_be_read(tmp_path: Path) -> None:
    """If the memory pages of idle runs stayed mapped, 5 bytes per URL would be resident after every flush."""

    def resident(path: Path) -> int:
        """Return the resident size of the mapping of `path` in KiB."""
        _, _, rest = Path("/proc/self/smaps").read_text().partition(str(path))
        return int(rest.partition("Rss:")[2].split()[0])

    keys = np.unique(np.random.default_rng(1).integers(0, 2**64, 1 << 18, dtype=np.uint64))
    run = DiskRuns(tmp_path, []).write([keys], len(keys), step="flush")
    known = np.zeros(len(keys), np.uint8)
    run.join(keys, known)
    assert known.all() and resident(run.path) > 1200
    run.rest()
    assert resident(run.path) < 200
    run.join(keys[::2].copy(), known[::2].copy())
    assert (run.read(0, len(keys)) == keys).all()
    run.close()
    run.rest()


@pytest.mark.parametrize("count", [1, 512, 513, 140_000])
def test_written_keys_are_read_back(count: int, form: str, tmp_path: Path) -> None:
    keys = spread(count, count, "half in one")
    run = DiskRuns(tmp_path, []).write([keys[: count // 3], keys[count // 3 :]], len(keys), step="flush")
    assert (run.fences == keys[::512]).all()
    for start, stop in ((0, 0), (0, count), (count // 3, count // 2)):
        assert (run.read(start, stop) == keys[start:stop]).all()
    queries = np.unique(np.concatenate([keys[::3], keys[:300] + np.uint64(1), keys[-300:] - np.uint64(1)]))
    known = np.zeros(len(queries), np.uint8)
    run.join(queries, known)
    assert (known.astype(bool) == np.isin(queries, keys)).all()
    assert run.problems() == []


def test_check_finds_keys_that_do_not_ascend(tmp_path: Path) -> None:
    run = DiskRuns(tmp_path, []).write([np.array([1, 5, 5], np.uint64)], 3, step="flush")
    assert "do not ascend" in run.problems()[0]
