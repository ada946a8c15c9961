"""Test segments: the start of new segments, committed lengths, and recovery on opening."""

import errno
import gzip
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.errors import DamageError, DirectoryError, StoreError
from crawler.pages import gzip_members, reading, segments
from crawler.storage import files
from tests.pages.support import members

NOW = 1_700_000_000.0
COMPRESS = gzip_members.compressor(1)


def _opening(name: str, now: float) -> bytes:
    return COMPRESS(b"opening of " + name.encode())


def _writer(folder: Path, *, segment_bytes: int = 1000, serial: int = 0) -> segments.SegmentWriter:
    folder.mkdir(exist_ok=True)
    return segments.SegmentWriter(
        folder, "crawl-p0", segment_bytes=segment_bytes, serial=serial, opening=_opening
    )


def _member(text: str) -> bytes:
    return COMPRESS(text.encode())


def test_returned_places_point_to_the_members(tmp_path: Path) -> None:
    writer = _writer(tmp_path)
    places = writer.append([_member("one"), _member("two")], NOW) + writer.append([_member("three")], NOW)
    writer.sync()
    texts = [b"".join(segments.member_pieces(tmp_path, place)) for place in places]
    assert texts == [b"one", b"two", b"three"]
    [path] = tmp_path.iterdir()
    assert path.name == "crawl-p0-20231114221320-00000.warc.gz.open"
    assert [offset for offset, _ in members(path)][1:] == [place.offset for place in places]
    assert writer.take_lengths() == {places[0].segment: path.stat().st_size}
    assert writer.take_lengths() == {}


def test_a_full_segment_is_finished_and_the_next_begun(tmp_path: Path) -> None:
    """The records of one capture stay in one segment. If a group fills two segments, both lengths are committed."""
    writer = _writer(tmp_path, segment_bytes=100, serial=7)
    first = writer.append([_member("a" * 50), b"x" * 200], NOW)
    second = writer.append([_member("b")], NOW)
    writer.sync()
    assert {place.segment for place in first} == {"crawl-p0-20231114221320-00007.warc.gz"}
    assert {place.segment for place in second} == {"crawl-p0-20231114221320-00008.warc.gz"}
    assert sorted(path.name for path in tmp_path.iterdir()) == [first[0].segment, second[0].segment + ".open"]
    assert set(writer.take_lengths()) == {first[0].segment, second[0].segment}
    writer.finish()
    writer.finish()
    assert (tmp_path / second[0].segment).exists()


def test_nothing_is_created_before_the_first_capture(tmp_path: Path) -> None:
    writer = _writer(tmp_path)
    writer.sync()
    writer.finish()
    assert list(tmp_path.iterdir()) == []


def test_large_groups_are_written_early(tmp_path: Path) -> None:
    writer = _writer(tmp_path, segment_bytes=1 << 30)
    for _ in range(3):
        writer.append([b"x" * (1 << 20)], NOW)
    [path] = tmp_path.iterdir()
    assert path.stat().st_size >= 3 << 20


def test_a_full_disk_ends_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = _writer(tmp_path)
    writer.append([_member("one")], NOW)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(files.os, "write", full)
        with pytest.raises(StoreError, match="No space left"):
            writer.sync()
    with pytest.raises(StoreError, match="closed after a failed write"):
        writer.append([_member("two")], NOW)
        writer.sync()


def _leave(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)


def test_recovery_cuts_tails_moves_unknown_files_and_reports_both(tmp_path: Path) -> None:
    folder = tmp_path / "warc"
    _leave(folder, "a.warc.gz.open", b"0123456789torn")
    _leave(folder, "b.warc.gz", b"0123456789")
    _leave(folder, "c.warc.gz", b"short")
    _leave(folder, "never-named.warc.gz.open", b"?")
    recovery = segments.recover(folder, {"a.warc.gz": 10, "b.warc.gz": 10, "c.warc.gz": 10, "d.warc.gz": 10})
    assert recovery.cut == {"a.warc.gz": 4}
    assert recovery.moved == ["never-named.warc.gz.open"]
    assert recovery.damaged == {"c.warc.gz": 5, "d.warc.gz": 0}
    assert (folder / "a.warc.gz").read_bytes() == b"0123456789"
    assert not (folder / "a.warc.gz.open").exists()
    assert (folder / "lost+found" / "never-named.warc.gz.open").read_bytes() == b"?"
    again = segments.recover(folder, {"a.warc.gz": 10, "b.warc.gz": 10})
    assert again.moved == ["c.warc.gz"]
    assert again.cut == again.damaged == {}


def test_lost_and_found_overwrites_nothing(tmp_path: Path) -> None:
    for content in (b"first", b"second", b"third"):
        _leave(tmp_path, "x.warc.gz.open", content)
        segments.recover(tmp_path, {})
    found = sorted(path.read_bytes() for path in (tmp_path / "lost+found").iterdir())
    assert found == [b"first", b"second", b"third"]


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "warc").write_bytes(b"")
    with pytest.raises(DirectoryError, match="warc"):
        segments.recover(tmp_path / "warc", {})


def test_serials_continue_after_the_largest() -> None:
    assert segments.next_serial([]) == 0
    names = [
        "crawl-p0-20231114221320-00009.warc.gz",
        "crawl-p0-20231114221320-123456.warc.gz",
        "foreign.warc.gz",
    ]
    assert segments.next_serial(names) == 123_457


def test_reading_at_a_place_that_does_not_exist_is_damage(tmp_path: Path) -> None:
    place = segments.RecordPlace("a.warc.gz", 5, 10)
    with pytest.raises(DamageError, match="missing"):
        list(segments.member_pieces(tmp_path, place))
    _leave(tmp_path, "a.warc.gz", b"01234" + gzip.compress(b"text")[:8])
    with pytest.raises(DamageError, match="short"):
        list(segments.member_pieces(tmp_path, place))


def test_a_segment_that_is_finished_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader once looked up an open segment, but did not find its file, because it had been renamed meanwhile."""
    begun, finished = tmp_path / "a.warc.gz.open", tmp_path / "a.warc.gz"
    begun.write_bytes(gzip.compress(b"one") + gzip.compress(b"two"))
    real = os.open

    def opened(path: str, *options: int) -> int:
        if path == str(begun):
            begun.rename(finished)
        return real(path, *options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", opened)
        assert segments.read_segment(tmp_path, "a.warc.gz", 0, 2) == b"\x1f\x8b"
    assert len(list(segments.contents(begun, bytes_max=100))) == 2


def _read_twice(path: Path, bytes_max: int) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield the same as `segments.contents`, but more slowly: first find each member, and then read it."""
    for offset, length in members(path):
        content = reading.expand(
            path.read_bytes()[offset : offset + length], where=f"{path.name} at {offset}"
        )
        yield offset, length, content if len(content) <= bytes_max else None


def _until_damage(found: Iterator[tuple[int, int, bytes | None]]) -> list[object]:
    seen: list[object] = []
    try:
        seen.extend(found)
    except DamageError as error:  # if a member has two faults, either may be reported
        seen.append(str(error).partition(":")[0])
    return seen


@pytest.mark.parametrize("seed", range(60))
def test_contents_equals_reading_each_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Members of many sizes cross the borders of chunks and steps. Files are whole, cut, or have a flipped bit."""
    draw = random.Random(seed)
    monkeypatch.setattr(reading, "_READ_BYTES", draw.choice([1, 100, 4096, 1 << 20]))
    monkeypatch.setattr(reading, "_STEP_BYTES", draw.choice([1, 7, 100, 16 << 10]))
    bodies = [draw.randbytes(draw.randrange(300)) + b" " * draw.randrange(5000) for _ in range(12)]
    data = bytearray(b"".join(draw.choice([COMPRESS, gzip.compress])(body) for body in bodies))
    if seed % 3 == 1:
        del data[draw.randrange(len(data)) :]
    if seed % 3 == 2:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path = tmp_path / "a.warc.gz"
    path.write_bytes(data)
    bytes_max = draw.choice([6000, 5000, 1000])
    assert _until_damage(segments.contents(path, bytes_max=bytes_max)) == _until_damage(
        _read_twice(path, bytes_max)
    )
