"""Test that kills, power cuts, full disks and lost files never lose or duplicate committed data unnoticed."""

import errno
import gzip
import os
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.errors import DamageError, StoreError
from crawler.pages import damage, segments
from crawler.pages.captures import Problem, pack
from crawler.storage import files
from crawler.storage.kv import MemoryStore, seal
from tests.pages.support import Site, fetch, members

URL = "http://site.example/"


def _reopen(tmp_path: Path, site: Site, **options: int) -> Site:
    """Return the site after a simulated power cut. Only the store is reset to its last synced state."""
    return Site(tmp_path, MemoryStore(site.store.durable, keep_durable=True), **options)  # type: ignore[attr-defined]


def _pages(site: Site) -> dict[str, bytes]:
    return {capture.url: site.cache.read(capture).payload for _, capture in site.cache.all_captures()}


@pytest.mark.parametrize("torn", [0, 1, 50])
def test_a_power_cut_between_append_and_batch(tmp_path: Path, torn: int) -> None:
    """Bytes that were appended but not committed are dropped. Earlier pages are kept, and later pages can be read."""
    site = Site(tmp_path)
    site.visit(fetch(URL + "a", b"committed"), 1)
    site.cache.write([site.decide(fetch(URL + "b", b"lost" * 1000), 2)])
    [path] = site.segments()
    if torn:
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - torn)
    again = _reopen(tmp_path, site)
    assert list(again.cache.recovery.cut) == [path.name.removesuffix(".open")]
    assert again.cache.record(2) is None
    again.visit(fetch(URL + "c", b"after"), 3)
    assert _pages(again) == {URL + "a": b"committed", URL + "c": b"after"}
    assert list(again.cache.check()) == []
    assert again.cache.lost == []


def test_a_power_cut_before_the_first_batch_of_a_segment(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.cache.write([site.decide(fetch(URL + "a", b"lost"), 1)])
    again = _reopen(tmp_path, site)
    assert again.segments() == []
    assert len(again.cache.recovery.moved) == 1
    again.visit(fetch(URL + "a", b"again"), 1)
    assert _pages(again) == {URL + "a": b"again"}


def test_a_power_cut_between_two_segments(tmp_path: Path) -> None:
    """Lose the batch of a commit group that fills a segment and starts the next one.

    None of the group's records may be valid after that.
    """
    site = Site(tmp_path, segment_bytes=900)
    site.visit(fetch(URL + "a", b"first"), 1)
    group = [site.decide(fetch(f"{URL}{number}", b"body %d" % number), number) for number in range(2, 6)]
    site.cache.write(group)
    assert len(site.segments()) > 2
    again = _reopen(tmp_path, site, segment_bytes=900)
    assert _pages(again) == {URL + "a": b"first"}
    for number in range(2, 6):
        again.visit(fetch(f"{URL}{number}", b"body %d" % number), number)
    assert len(_pages(again)) == 5
    assert list(again.cache.check()) == []


def test_a_revisit_does_not_refer_to_a_lost_group(tmp_path: Path) -> None:
    """A revisit must never name a response that was not committed."""
    site = Site(tmp_path)
    site.cache.write([site.decide(fetch(URL + "a", b"same"), 1)])
    again = _reopen(tmp_path, site)
    capturing = again.visit(fetch(URL + "b", b"same"), 2)
    assert capturing.capture is not None and capturing.capture.kind == "response"


def test_check_finds_a_tail_that_was_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the recovery does not cut the uncommitted tail (because of a planted bug), `check` reports the tail."""
    site = Site(tmp_path)
    site.visit(fetch(URL + "a", b"committed"), 1)
    [path] = site.segments()
    with path.open("ab") as file:
        file.write(b"\x1f\x8btorn")
    with monkeypatch.context() as planted:
        planted.setattr("crawler.pages.segments.cut", lambda path, length: 0)
        again = _reopen(tmp_path, site)
    assert [problem.message for problem in again.cache.check()] != []
    assert list(_reopen(tmp_path, site).cache.check()) == []


@pytest.mark.parametrize("call", ["write", "fdatasync", "fsync"])
def test_a_full_disk_commits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    site = Site(tmp_path)
    site.visit(fetch(URL + "a", b"committed"), 1)
    site.cache.close()  # makes the next group start a new segment
    group = [site.decide(fetch(URL + "b", b"x" * 5000), 2)]

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(files.os, call, full)
        with pytest.raises(StoreError, match="No space left"):
            site.cache.write(group)
    again = _reopen(tmp_path, site)
    assert _pages(again) == {URL + "a": b"committed"}
    assert list(again.cache.check()) == []


def _three_segments(tmp_path: Path) -> Site:
    """Return a site whose pages a, b and c are in three segments.

    The page d has the same content as a, and e has different content.
    """
    site = Site(tmp_path, segment_bytes=1)
    for number, name in enumerate("abcde", 1):
        site.visit(fetch(URL + name, b"body a" if name == "d" else b"body " + name.encode()), number)
    site.cache.close()
    return site


def test_a_missing_segment_names_its_pages(tmp_path: Path) -> None:
    site = _three_segments(tmp_path)
    site.segments()[0].unlink()
    again = Site(tmp_path, site.store)
    assert sorted(lost.capture.url for lost in again.cache.lost) == [URL + "a", URL + "d"]
    assert {lost.fingerprint for lost in again.cache.lost} == {1, 4}
    with pytest.raises(DamageError, match="missing"):
        again.cache.get(1)
    assert len(list(again.cache.check())) > 0
    _forget(again)
    final = Site(tmp_path, site.store)
    assert final.cache.lost == []
    assert list(final.cache.check()) == []
    stored = final.visit(fetch(URL + "d", b"body a"), 4)
    assert stored.capture is not None and stored.capture.kind == "response", (
        "the lost response is no original"
    )
    assert set(_pages(final)) == {URL + name for name in "bcde"}


def _forget(site: Site) -> None:
    batch = site.store.batch()
    site.cache.forget(batch)
    site.store.write(batch)


def test_a_truncated_segment_keeps_its_whole_records(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for number, name in enumerate("abc", 1):
        site.visit(fetch(URL + name, b"body " + name.encode()), number)
    site.cache.close()
    [path] = site.segments()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 10)
    again = Site(tmp_path, site.store)
    assert [lost.capture.url for lost in again.cache.lost] == [URL + "c"]
    _forget(again)
    final = Site(tmp_path, site.store)
    assert _pages(final) == {URL + "a": b"body a", URL + "b": b"body b"}
    assert list(final.cache.check()) == []


def test_check_finds_a_flipped_bit(tmp_path: Path) -> None:
    site = _three_segments(tmp_path)
    assert list(site.cache.check()) == []
    path = site.segments()[1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    [problem] = site.cache.check()
    assert path.name in problem.where
    assert "gzip" in problem.message


def _many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Site, Path, list[int]]:
    """Store twelve pages in a segment that is checked in parts of two records.

    Return the site, the segment and the offsets.
    """
    site = Site(tmp_path)
    for number in range(12):
        site.visit(fetch(f"{URL}{number}", random.Random(number).randbytes(2000)), number + 1)
    site.cache.close()
    [path] = site.segments()
    offsets = sorted(capture.offset for _, capture in site.cache.all_captures())
    monkeypatch.setattr(damage, "_PART_BYTES", 2 * (offsets[1] - offsets[0]))
    return site, path, offsets


def test_a_segment_is_checked_in_parts_and_each_reports_its_first_broken_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, path, offsets = _many(tmp_path, monkeypatch)
    parts: list[damage.SegmentPart] = []

    def sharing(work: Any, pieces: Iterable[damage.SegmentPart]) -> Iterator[list[Problem]]:
        parts.extend(pieces)
        return map(work, parts)

    assert list(site.cache.check(sharing)) == []
    assert len(parts) > 4 and {part.begin for part in parts} <= {0, *offsets}
    assert [part.end for part in parts[:-1]] == [part.begin for part in parts[1:]]
    assert parts[-1].end == path.stat().st_size
    data = bytearray(path.read_bytes())
    for begin in (offsets[1], offsets[9], offsets[10]):
        data[begin + 500] ^= 4
    path.write_bytes(data)
    found = list(site.cache.check())
    assert [problem.message.partition(": ")[0] for problem in found] == [
        f"{path.name} at {offset}" for offset in (offsets[1], offsets[9], offsets[10])
    ]


def test_the_missing_end_of_a_segment_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds although several parts of the segment are missing."""
    site, path, offsets = _many(tmp_path, monkeypatch)
    whole = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(offsets[4])
    [problem] = site.cache.check()
    assert problem.message == f"{whole} bytes were committed, but whole records end at {offsets[4]}"


def test_check_finds_a_capture_that_starts_within_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, path, offsets = _many(tmp_path, monkeypatch)
    monkeypatch.setattr(damage, "_PART_BYTES", 1)
    key, capture = next(item for item in site.cache.all_captures() if item[1].offset == offsets[5])
    batch = site.store.batch()
    batch.put(key, pack(replace(capture, offset=offsets[5] + 7)))
    site.store.write(batch)
    messages = [problem.message for problem in site.cache.check()]
    assert messages[0].startswith(f"a record should start at {offsets[5] + 7}, but one ends at ")
    assert f"{path.name} at {offsets[5] + 7}: broken gzip member" in messages[1]


def test_check_names_a_segment_that_the_disk_cannot_read(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.visit(fetch(URL, b"body"), 1)
    [path] = site.segments()

    def fail(*_: object, **__: object) -> Iterator[None]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(segments, "contents", fail)
    segment = path.name.removesuffix(".open")
    assert set(site.cache.check()) == {Problem(segment, "cannot be read: Input/output error")}


def test_check_finds_a_wrong_digest(tmp_path: Path) -> None:
    """The gzip member's checksum is right, but its payload differs from the payload that was fetched."""
    site = Site(tmp_path, block_digests=True)
    site.visit(fetch(URL, b"payload"))
    site.cache.close()
    [path] = site.segments()
    pieces = []
    with path.open("rb") as file:
        for offset, length in members(path):
            file.seek(offset)
            pieces.append(gzip.decompress(file.read(length)).replace(b"payload", b"PAYLOAD"))
    path.write_bytes(b"".join(map(gzip.compress, pieces)))
    batch = site.store.batch()
    batch.put(b"w/" + path.name.encode(), seal(path.stat().st_size.to_bytes(8, "big")))
    site.store.write(batch)
    messages = {problem.message for problem in site.cache.check()}
    assert messages >= {"block digest differs", "payload digest differs"}


def test_check_finds_a_dangling_revisit(tmp_path: Path) -> None:
    site = _three_segments(tmp_path)
    [original] = site.cache.captures(1)
    batch = site.store.batch()
    batch.delete(next(key for key, capture in site.cache.all_captures() if capture == original))
    site.store.write(batch)
    assert [problem.where for problem in site.cache.check()] == [URL + "d"]
    with pytest.raises(DamageError, match="repeats is not in the store"):
        site.cache.get(4)


def test_process_durability_syncs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(files.os, "fdatasync", calls.append)
    site = Site(tmp_path, sync=False)
    site.visit(fetch(URL + "a"), 1)
    began = len(calls)
    site.visit(fetch(URL + "b"), 2)
    assert len(calls) == began
    synced = Site(tmp_path / "power")
    synced.visit(fetch(URL + "a"), 1)
    synced.visit(fetch(URL + "b"), 2)
    assert len(calls) - began >= 3
