"""Test that a torn tail of LevelDB's newest log is cut, and that damage before acknowledged records is refused."""

import contextlib
import itertools
import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from crawler.errors import DamageError
from crawler.storage.engines import open_store
from crawler.storage.log_format import BLOCK_BYTES, crc32c, fragment_at, fragments
from crawler.storage.snapshot import snapshot
from crawler.storage.torn_log import cut_torn_tail, ends_whole, mend_logs

RECORDS = 40
HEADER_BYTES = 7


def crashed(tmp_path: Path, engine: str, sizes: Iterable[int]) -> tuple[Path, dict[bytes, bytes]]:
    """Return the path and the content of a store as a kill leaves it, after a synced batch of each size in bytes."""
    store = open_store(tmp_path / "store", engine)
    for number, size in enumerate(sizes):
        batch = store.batch(sync=True)
        batch.put(b"k%03d" % number, random.Random(number).randbytes(size))
        store.write(batch)
    snapshot(tmp_path / "store", tmp_path / "crashed")  # closing RocksDB would empty the log
    held = dict(store.scan(b"k"))
    store.close()
    return tmp_path / "crashed", held


@pytest.fixture
def path(tmp_path: Path, engine: str) -> Path:
    """Return the path of a store with 40 synced batches of up to 9 kB, some of which cross the end of a block."""
    return crashed(tmp_path, engine, range(100, 100 + RECORDS * 220, 220))[0]


def newest_log(path: Path) -> Path:
    return max(path.glob("*.log"))


def keys(path: Path) -> tuple[int, str]:
    store = open_store(path)
    found, mended = len(list(store.scan(b"k"))), store.mended
    store.close()
    return found, mended


def test_crc32c_check_value() -> None:
    """RFC 3720, B.4, states the CRC of 32 zero bytes."""
    assert crc32c(bytes(32)) == 0x8A9136AA


def test_a_whole_log_is_left_alone(path: Path) -> None:
    data = newest_log(path).read_bytes()
    assert len(data) > 2 * BLOCK_BYTES
    assert cut_torn_tail(path) == ""
    assert keys(path) == (RECORDS, "")


@pytest.mark.parametrize("torn", [1, 300, 5000])
def test_garbage_in_the_last_bytes_loses_only_the_last_record(path: Path, torn: int) -> None:
    log = newest_log(path)
    data = log.read_bytes()
    log.write_bytes(data[:-torn] + bytes(byte ^ 0xA5 for byte in data[-torn:]))
    found, mended = keys(path)
    assert found == RECORDS - 1 and "torn tail" in mended
    assert keys(path) == (RECORDS - 1, "")


def test_garbage_after_the_last_record_loses_nothing(path: Path) -> None:
    log = newest_log(path)
    log.write_bytes(log.read_bytes() + random.Random(1).randbytes(50_000))
    found, mended = keys(path)
    assert found == RECORDS and "50000 bytes" in mended


def test_an_invalid_header_is_cut_before_the_engine_opens(path: Path) -> None:
    """RocksDB itself would never stop reading a last record of type 6, which is a type used in recycled logs."""
    log = newest_log(path)
    data = log.read_bytes()
    assert ends_whole(data)
    tails = {kind: data + bytes([0, 1, 2, 3, 0, 0, kind]) for kind in range(256)}
    assert [kind for kind, tail in tails.items() if ends_whole(tail)] == [1, 4]
    log.write_bytes(tails[6] + bytes(range(7, 256)))
    assert keys(path)[0] == RECORDS


def test_a_log_is_complete_only_if_it_ends_with_a_record(path: Path) -> None:
    """A log that was cut inside a fragment, or between two fragments of one record, is not complete."""
    data = newest_log(path).read_bytes()
    found = list(fragments(data))
    assert len(found) > RECORDS, "some records cross a block's end"
    ends = {0} | {fragment.end for fragment in found if fragment.ends_record}
    begins = {fragment.begin - HEADER_BYTES for fragment in found}
    for length in sorted(ends | begins | {n + 1 for n in begins} | set(range(0, len(data), 997))):
        padding = length in begins and max(end for end in ends if end <= length) > length - 7
        assert ends_whole(data[:length]) == (length in ends or padding), length


@pytest.mark.parametrize("how", ["longer", "type 0", "first of two"])
def test_a_tail_that_the_engine_would_skip_is_cut_and_reported(path: Path, how: str) -> None:
    log = newest_log(path)
    data = log.read_bytes()
    tail = {"longer": bytes([1, 2, 3, 4, 0, 1, 1]), "type 0": bytes(4096), "first of two": b""}[how]
    if how == "first of two":
        cut = next(
            n for n in range(len(data) - 1, 0, -1) if (found := fragment_at(data, n)) and found.kind == 4
        )
        data = data[:cut]
    log.write_bytes(data + tail)
    lost = how == "first of two"
    found, mended = keys(path)
    assert found <= RECORDS - lost and "of a torn tail cut off" in mended
    assert keys(path) == (found, "")


def test_a_torn_tail_of_an_older_log_is_refused(path: Path) -> None:
    """A torn tail of an older log is damage: the store began the newer log only after the older one was complete."""
    log = newest_log(path)
    newer = path / f"{int(log.stem) + 1:06d}.log"
    newer.write_bytes(log.read_bytes())
    log.write_bytes(log.read_bytes() + b"torn")
    with pytest.raises(DamageError, match=f"{log.name} is damaged"):
        mend_logs(path, "mend it")
    newer.unlink()
    assert "4 bytes of a torn tail" in mend_logs(path, "mend it")


def test_a_flipped_byte_of_a_log_is_never_silent(tmp_path: Path, engine: str) -> None:
    """Flip each byte of a header, and one byte of the content.

    The log is refused, or its last record is cut and reported. With only the engines' own checks, 40 of 52
    flips in the upper byte of a length silently lost all later records. If a fragment seems to be longer than
    the file, the engines assume that the log ends there.
    """
    whole, held = crashed(tmp_path, engine, range(20, 20 + 12 * 7, 7))  # the log is one short block
    data = newest_log(whole).read_bytes()
    begins = [fragment.begin - HEADER_BYTES for fragment in fragments(data)]
    places = [begin + n for begin in (0, begins[-4], begins[-1]) for n in range(8)]
    outcomes = set()
    for place, mask in [*itertools.product(places, (0xFF,)), *((begin + 5, 0x10) for begin in begins)]:
        copy = Path(shutil.copytree(whole, tmp_path / "copy"))
        flipped = bytearray(data)
        flipped[place] ^= mask
        newest_log(copy).write_bytes(flipped)
        try:
            with contextlib.closing(open_store(copy)) as store:
                lost = len(held) - len(dict(store.scan(b"k")).items() & held.items())
                outcomes.add((place >= begins[-1], "torn tail" in store.mended, lost))
        except DamageError:
            outcomes.add((place >= begins[-1], "refused", 0))
        shutil.rmtree(copy)
    assert outcomes == {(False, "refused", 0), (True, True, 1)}


@pytest.mark.parametrize("place", [10, 5_000, BLOCK_BYTES + 10_000, 2 * BLOCK_BYTES + 50])
def test_damage_before_other_records_is_refused(path: Path, place: int) -> None:
    """The records after the damage were acknowledged, so only a person may decide to drop them."""
    log = newest_log(path)
    data = bytearray(log.read_bytes())
    data[place : place + 8] = bytes(byte ^ 0xFF for byte in data[place : place + 8])
    log.write_bytes(data)
    with pytest.raises(DamageError, match="store"):
        open_store(path)
    assert log.read_bytes() == bytes(data)
