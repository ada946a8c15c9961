"""Test the cache of inflated bodies on disk: its bounds, what it keeps, damage, and that withdrawals empty it."""

import gzip
import os
import random
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from crawler.config import ServeConfig
from crawler.errors import ConfigError
from crawler.pages.withdrawals import Withdrawals
from crawler.serve.disk_cache import BODY_BYTES_MIN, BYTES_AN_ENTRY, DiskCache, KeptBody, open_disk_cache
from tests.serve.support import Served
from tests.serve.test_stored_parts import AT, GZIP, PAGE, TEXT, both, inflated, withdraw  # noqa: F401 (a fixture)

BOUND = 1 << 20


def body(number: int, length: int) -> bytes:
    return (b"%d " % number * length)[:length]


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[DiskCache]:
    made = DiskCache(tmp_path, BOUND)
    yield made
    made.close()


def file_of(cache: DiskCache) -> Path:
    return Path(f"/proc/self/fd/{cache._file}")


def test_what_is_read_is_what_was_written(cache: DiskCache) -> None:
    """Bodies of any length are written, replaced and dropped in any order.

    The sum of their lengths is much larger than the file.
    """
    rng = random.Random(7)
    written: dict[int, bytes] = {}
    hits = 0
    for _ in range(4000):
        number = min(rng.randrange(200), rng.randrange(200))
        place = KeptBody(cache, f"place {number}")
        found = place.read()
        assert found is None or found == written[number]
        hits += found is not None
        content = body(number, rng.choice((2048, 5000, 5001, 20_000, rng.randrange(2048, BOUND // 8))))
        if found is None and place.wanted(len(content)):
            place.write(content)
            written[number] = content
            assert place.read() == content
        cache._check()
        assert file_of(cache).stat().st_size <= BOUND
    assert hits > 500 and cache.bytes > BOUND // 2


def test_the_index_is_bounded(cache: DiskCache) -> None:
    for number in range(1000):
        KeptBody(cache, f"{number}").write(body(number, BODY_BYTES_MIN))
        assert len(cache) <= BOUND // BYTES_AN_ENTRY
        cache._check()
    assert KeptBody(cache, "999").read() and KeptBody(cache, "900").read() is None


def test_a_client_that_requests_everything_once_replaces_nothing(cache: DiskCache) -> None:
    while cache.bytes + 20_000 <= BOUND:
        KeptBody(cache, f"{cache.bytes}").write(bytes(20_000))
    once = [KeptBody(cache, f"once {number}") for number in range(100)]
    assert not any(place.wanted(20_000) for place in once)
    assert once[0].wanted(20_000), "the second request"
    for length in (0, BODY_BYTES_MIN - 1, BOUND // 8 + 1):
        assert not any(KeptBody(cache, "length").wanted(length) for _ in range(2))


@pytest.mark.parametrize("change", [b"\xff", b""], ids=["changed", "cut"])
def test_damaged_bodies_are_not_returned(cache: DiskCache, change: bytes) -> None:
    place = KeptBody(cache, "page")
    place.write(TEXT)
    with file_of(cache).open("r+b") as file:
        file.seek(1000)
        file.write(change)
        if not change:
            file.truncate()
    assert place.read() is None and len(cache) == cache.bytes == 0
    place.write(TEXT)
    assert place.read() == TEXT


def test_no_file_stays_and_none_is_needed(tmp_path: Path) -> None:
    """The file has no name. Without a writable directory, there is no file. A `disk_cache_folder` must exist."""
    before = len(os.listdir("/proc/self/fd"))
    cache = DiskCache(tmp_path, BOUND)
    KeptBody(cache, "page").write(TEXT)
    assert list(tmp_path.iterdir()) == []
    cache.close()
    place = KeptBody(cache, "page")
    assert place.read() is None and not place.wanted(len(TEXT))
    cache.clear()
    config = ServeConfig()
    assert open_disk_cache(config, None) is None
    assert open_disk_cache(config, tmp_path / "missing") is None
    assert open_disk_cache(replace(config, disk_cache_bytes=0), tmp_path) is None
    with pytest.raises(ConfigError, match=r"serve\.disk_cache_folder: .*/missing: No such file"):
        open_disk_cache(replace(config, disk_cache_folder=str(tmp_path / "missing")), tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_is_emptied_in_portions_while_new_bodies_arrive(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawler.serve.disk_cache.CLEARED_AT_ONCE", 100_000)
    while cache.has_room(20_000):
        KeptBody(cache, f"{cache.bytes}").write(b"old" * 6666)
    for pause, _ in enumerate(cache.clearing()):
        if pause < 3:
            KeptBody(cache, f"new {pause}").write(body(pause, 30_000))
            assert KeptBody(cache, "0").read() is None
    assert pause > 5
    assert all(KeptBody(cache, f"new {pause}").read() == body(pause, 30_000) for pause in range(3))
    assert b"old" not in file_of(cache).read_bytes()
    cache._check()


@contextmanager
def no_file_longer_than(length: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_takes_no_more_ends_the_cache(cache: DiskCache, caplog: pytest.LogCaptureFixture) -> None:
    place = KeptBody(cache, "page")
    with no_file_longer_than(1000):
        place.write(TEXT)  # one part fits
        assert place.read() is None and cache.bytes == 0
        with file_of(cache).open("r+b") as file:
            file.truncate(1000)
        cache._end = 1000
        place.write(TEXT)
    assert "no longer kept on disk" in caplog.text
    assert place.read() is None and not place.wanted(len(TEXT))


@pytest.fixture
def cached(tmp_path: Path) -> Served:
    made = Served(tmp_path, ready_bytes_max=0, disk_cache_folder=str(tmp_path))
    made.site.cache.withdrawals = Withdrawals(tmp_path)
    made.store(body=TEXT)
    return made


async def test_a_page_is_inflated_once(cached: Served, inflated: list[int]) -> None:  # noqa: F811
    """Whole pages and ranges come from the cache on disk, but gzip from the segment."""
    for _ in range(2):
        for part in await both(cached, "Range: bytes=2000-2099"):
            assert part.status == 206 and part.body == TEXT[2000:2100]
        for plain in await both(cached):
            assert plain.body == TEXT
        rewritten = await cached.get(AT + "&rewrite=1")
        assert rewritten.status == 200 and b"some words" in rewritten.body
        await both(cached, GZIP)
    assert inflated == [len(TEXT)]
    cached.store(body=TEXT + b"<p>more", at=50.0)
    assert (await cached.get(AT)).body == TEXT + b"<p>more"


async def test_decoded_pages_are_cached_apart_from_encoded_ones(cached: Served) -> None:
    long = os.urandom(3000) + TEXT
    coded = gzip.compress(long, 1)
    cached.store(
        PAGE + "coded", coded, headers=((b"Content-Encoding", b"gzip"), (b"Content-Type", b"text/html"))
    )
    for _ in range(2):
        for plain in await both(cached, target=AT + "coded"):
            assert plain.body == long and "content-encoding" not in plain.fields
        for same in await both(cached, GZIP, target=AT + "coded"):
            assert same.body == coded and same.fields["content-encoding"] == "gzip"
        part = await cached.get(AT + "coded", "Range: bytes=7000-7009")
        assert part.body == long[7000:7010]
    assert cached.handler.disk_cache is not None and cached.handler.disk_cache.hits >= 4


async def test_a_page_that_was_damaged_on_disk_comes_from_the_segment(
    cached: Served,
    inflated: list[int],  # noqa: F811
) -> None:
    await both(cached)
    cache = cached.handler.disk_cache
    assert cache is not None and file_of(cache).read_bytes() == TEXT
    with file_of(cache).open("r+b") as file:
        file.write(b"spoiled")
    for plain in await both(cached):
        assert plain.body == TEXT
    assert inflated == [len(TEXT)] * 2


async def test_a_withdrawal_empties_the_file_at_once(cached: Served) -> None:
    """The bytes have left the disk before any further request."""
    await both(cached)
    cache = cached.handler.disk_cache
    assert cache is not None and file_of(cache).read_bytes() == TEXT
    withdraw(cached)
    assert file_of(cache).read_bytes() == b"" and len(cache) == 0
    assert [each.status for each in await both(cached)] == [451, 451]
    assert file_of(cache).read_bytes() == b""
