"""A torn tail of LevelDB's newest log is cut; damage that acknowledged records follow is refused."""

import random
from pathlib import Path

import pytest

from crawler.errors import DamageError
from crawler.storage.engines import open_store
from crawler.storage.snapshot import snapshot
from crawler.storage.torn_log import BLOCK_BYTES, crc32c, cut_torn_tail, headers_are_sound, whole_length
from tests.engines import ENGINES

RECORDS = 40


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path, engine: str) -> Path:
    """A store of 40 synced batches of up to 9 kB, so that some cross a block's end."""
    store = open_store(tmp_path / "store", engine)
    for number in range(RECORDS):
        batch = store.batch(sync=True)
        batch.put(b"k%03d" % number, random.Random(number).randbytes(100 + number * 220))
        store.write(batch)
    snapshot(tmp_path / "store", tmp_path / "crashed")  # a close of RocksDB empties the log
    store.close()
    return tmp_path / "crashed"


def newest_log(path: Path) -> Path:
    return max(path.glob("*.log"))


def keys(path: Path) -> tuple[int, str]:
    store = open_store(path)
    found, mended = len(list(store.scan(b"k"))), store.mended
    store.close()
    return found, mended


def test_crc32c_check_value() -> None:
    """RFC 3720, B.4: 32 bytes of zeros."""
    assert crc32c(bytes(32)) == 0x8A9136AA


def test_a_whole_log_is_left_alone(path: Path) -> None:
    data = newest_log(path).read_bytes()
    assert len(data) > 2 * BLOCK_BYTES
    assert whole_length(data) == len(data)
    assert cut_torn_tail(path) == ""
    assert keys(path) == (RECORDS, "")


@pytest.mark.parametrize("torn", [1, 300, 5000])
def test_garbage_for_the_last_bytes_costs_the_last_record_only(path: Path, torn: int) -> None:
    log = newest_log(path)
    data = log.read_bytes()
    log.write_bytes(data[:-torn] + bytes(byte ^ 0xA5 for byte in data[-torn:]))
    found, mended = keys(path)
    assert found == RECORDS - 1 and "torn tail" in mended
    assert keys(path) == (RECORDS - 1, "")


def test_garbage_behind_the_last_record_costs_nothing(path: Path) -> None:
    log = newest_log(path)
    log.write_bytes(log.read_bytes() + random.Random(1).randbytes(50_000))
    found, mended = keys(path)
    assert found == RECORDS and "50000 bytes" in mended


def test_a_header_that_can_be_none_is_not_left_to_the_engine(path: Path) -> None:
    """RocksDB reads a last record of type 6 (a recycled log's) for ever."""
    log = newest_log(path)
    data = log.read_bytes()
    assert headers_are_sound(data)
    tails = {kind: data + bytes([0, 1, 2, 3, 4, 5, kind]) + bytes(range(7, 256)) for kind in range(256)}
    assert [kind for kind, tail in tails.items() if headers_are_sound(tail)] == [1, 2, 3, 4]
    log.write_bytes(tails[6])
    assert keys(path)[0] == RECORDS


@pytest.mark.parametrize("place", [10, 5_000, BLOCK_BYTES + 10_000, 2 * BLOCK_BYTES + 50])
def test_damage_that_records_follow_is_refused(path: Path, place: int) -> None:
    """They were acknowledged: only a person may decide to lose them."""
    log = newest_log(path)
    data = bytearray(log.read_bytes())
    data[place : place + 8] = bytes(byte ^ 0xFF for byte in data[place : place + 8])
    log.write_bytes(data)
    with pytest.raises(DamageError, match="store"):
        open_store(path)
    assert log.read_bytes() == bytes(data)
