"""Test that broken members of a WARC file become empty records of the same length, so other offsets stay valid."""

import gzip
import io
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from crawler.pages import reading, warc
from crawler.pages.erased_bytes import filler
from crawler.upkeep.warc_members import mended
from tests.pages.support import records as records_of

NAME = "x.warc.gz"


def member(text: str, size: int = 300) -> bytes:
    """Return a metadata record as one gzip member."""
    block = text.encode() + b"." * size
    fields = b"WARC-Target-URI: http://a.org/%b\r\n" % text.encode()
    record = warc.record(b"metadata", b"<urn:uuid:0>", b"2026-11-20T23:59:59Z", fields, block)
    return gzip.compress(record, 0, mtime=0)


MEMBERS = [member("one"), member("two", 5000), member("three")]
SHORTEST = len(filler(1000) or b"") and next(length for length in range(1000) if filler(length) is not None)


def starts() -> list[int]:
    return [sum(map(len, MEMBERS[:n])) for n in range(len(MEMBERS))]


def play(path: Path, data: bytes, end: int | None = None) -> list[tuple[int, int, bool]]:
    """Write a file.

    For each member that is found, return the offset, the length, and whether the member is complete.
    """
    path.write_bytes(data)
    found = mended(path, NAME, len(data) if end is None else end)
    return [(at, length, record is not None) for at, length, record in found]


def test_whole_members_are_yielded_in_order_and_nothing_is_written(tmp_path: Path) -> None:
    path, data = tmp_path / NAME, b"".join(MEMBERS)
    assert play(path, data) == [(at, len(m), True) for at, m in zip(starts(), MEMBERS, strict=True)]
    assert path.read_bytes() == data
    assert [record.fields["warc-target-uri"] for _, _, record in mended(path, NAME, len(data)) if record] == [
        "http://a.org/one",
        "http://a.org/two",
        "http://a.org/three",
    ]
    assert list(mended(path, NAME, 0)) == []
    assert play(path, b"") == [], "an empty file has no members"
    assert play(path, data, end=len(MEMBERS[0])) == [(0, len(MEMBERS[0]), True)]


@pytest.mark.parametrize("broken", [0, 1])
@pytest.mark.parametrize("place", ["magic", "payload"])
def test_a_broken_member_is_blanked_and_the_file_is_readable(tmp_path: Path, broken: int, place: str) -> None:
    path, data = tmp_path / NAME, bytearray(b"".join(MEMBERS))
    at = starts()[broken]
    data[at + (0 if place == "magic" else 150)] ^= 0xFF
    found = play(path, bytes(data))
    assert found == [
        (start, len(m), n != broken) for n, (start, m) in enumerate(zip(starts(), MEMBERS, strict=True))
    ]
    after = path.read_bytes()
    assert len(after) == len(data)
    for n, (start, m) in enumerate(zip(starts(), MEMBERS, strict=True)):
        if n != broken:
            assert after[start : start + len(m)] == m
    assert [record.kind for record in records_of(path)] == ["metadata"] * 3
    assert all(whole for *_, whole in play(path, after)), "once is enough"


def test_a_blanked_member_is_synced_before_it_is_yielded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data = tmp_path / NAME, b"".join(MEMBERS)
    path.write_bytes(b"?" + data[1:])
    synced: list[bytes] = []
    monkeypatch.setattr("crawler.upkeep.warc_members.os.fsync", lambda _: synced.append(path.read_bytes()))
    next(mended(path, NAME, len(data)))
    blank = filler(len(MEMBERS[0]))
    assert blank is not None and synced == [blank + data[len(blank) :]]


def test_two_broken_members_in_a_row_become_one(tmp_path: Path) -> None:
    path, data = tmp_path / NAME, bytearray(b"".join(MEMBERS))
    data[100] ^= 0xFF
    data[starts()[1] + 100] ^= 0xFF
    assert play(path, bytes(data)) == [(0, starts()[2], False), (starts()[2], len(MEMBERS[2]), True)]


@pytest.mark.parametrize("cut", [1, 150, len(MEMBERS[2]) - 1])
def test_iteration_stops_if_no_whole_member_follows(tmp_path: Path, cut: int) -> None:
    path, data = tmp_path / NAME, b"".join(MEMBERS)[:-cut]
    assert [whole for *_, whole in play(path, data)] == [True, True]
    assert path.read_bytes() == data


@pytest.mark.parametrize("gap", [1, 20, SHORTEST - 1])
def test_a_gap_too_small_for_a_record_includes_the_next_member(tmp_path: Path, gap: int) -> None:
    """All later members keep their offsets. If the gap is at the end of the file, no member follows it."""
    path = tmp_path / NAME
    data = MEMBERS[0] + b"x" * gap + MEMBERS[1] + MEMBERS[2]
    behind = len(data) - len(MEMBERS[2])
    first = (0, len(MEMBERS[0]), True)
    gone = (first[1], behind - first[1], False)
    assert play(path, data) == [first, gone, (behind, len(MEMBERS[2]), True)]
    assert path.read_bytes()[behind:] == MEMBERS[2]
    assert all(whole for *_, whole in play(path, path.read_bytes())), "once is enough"
    last = MEMBERS[0] + b"x" * gap + MEMBERS[1]
    assert play(path, last) == [first, (first[1], len(last) - first[1], False)]


def test_a_member_with_a_wrong_digest_is_broken(tmp_path: Path) -> None:
    """The member's gzip checksum is right, as in a file that another program wrote."""
    wrong = gzip.compress(gzip.decompress(MEMBERS[1]).replace(b"two.", b"twO."), 0, mtime=0)
    found = play(tmp_path / NAME, MEMBERS[0] + wrong + MEMBERS[2])
    assert [whole for *_, whole in found] == [True, False, True]


@pytest.mark.parametrize(
    "more", [0, 1, *range(50, 180), 9_900, 65_300, 65_400, 65_401, 65_500, 70_000, 1_000_000]
)
def test_a_filler_of_any_length_is_one_empty_record(more: int) -> None:
    """A small gap is filled by a short comment, and a larger gap by uncompressed blocks of blanks (RFC 1952)."""
    data = filler(SHORTEST + more)
    assert data is not None and len(data) == SHORTEST + more
    record = reading.parse_record(gzip.decompress(data))
    assert (record.kind, record.block.strip(b" "), int(record.fields["content-length"])) == (
        "metadata",
        b"",
        len(record.block),
    )
    assert [each.rec_type for each in ArchiveIterator(io.BytesIO(data))] == ["metadata"]
    assert reading.member_length(iter([data]), NAME) == len(data)
    assert filler(SHORTEST - 1) is None
