"""Test large bodies on disk: their digests, resumed transfers, and the deletion of files that are no longer needed."""

import hashlib
from pathlib import Path

import mmh3
import pytest

from crawler.errors import StoreError
from crawler.storage import parts
from crawler.storage.parts import Part, PartFolder, PartHead

BODY = bytes(range(256)) * 9000
PIECES = (BODY[:700_001], BODY[700_001:])


def _head(length: int = len(BODY)) -> PartHead:
    return PartHead("http://a/f", 5.0, 200, "OK", "HTTP/1.1", ((b"ETag", b'"1"'),), b"GET", length)


def _begun(folder: Path, identity: str = "0f") -> Part:
    part = PartFolder(folder).begin(identity, _head())
    part.write(PIECES[0])
    return part


def test_digests_are_those_of_the_whole_body(tmp_path: Path) -> None:
    part = _begun(tmp_path)
    assert part.length < part.head.length
    part.write(PIECES[1])
    assert part.length == part.head.length == len(BODY)
    assert part.payload_digest == hashlib.sha1(BODY).digest()
    assert part.content_digest == mmh3.mmh3_x64_128_digest(BODY)
    assert b"".join(part.pieces()) == BODY == b"".join(part.pieces())


def test_another_process_resumes_a_part(tmp_path: Path) -> None:
    """The first process is killed, so it does not close its part."""
    _begun(tmp_path)
    later = PartFolder(tmp_path)
    assert later.has("0f") and not later.has("1e") and later.left("1e") is None
    part = later.left("0f")
    assert part is not None and part.head.fields == _head().fields and part.length == len(PIECES[0])
    part.note_resumed()
    part.write(PIECES[1])
    assert part.payload_digest == hashlib.sha1(BODY).digest()
    assert part.head.resumed == [len(PIECES[0])]
    assert later.left("0f") is None, "the part is in use"
    later.keep("0f", part)
    again = later.left("0f")
    assert again is not None and again.length == again.head.length and again.head.resumed == [len(PIECES[0])]
    again.drop()
    assert not list(tmp_path.iterdir())


def test_the_bytes_of_open_parts_are_arriving(tmp_path: Path) -> None:
    """Bytes of an earlier process arrived in its time, and those of a closed part are committed or wait for a retry."""
    _begun(tmp_path).close()
    folder = PartFolder(tmp_path)
    resumed, new = folder.left("0f"), folder.begin("1e", _head())
    assert resumed is not None and folder.arriving_bytes == 0
    resumed.write(b"abc")
    new.write(b"de")
    assert folder.arriving_bytes == 5
    folder.keep("0f", resumed)
    assert folder.arriving_bytes == 2
    new.drop()
    assert folder.arriving_bytes == 0


def test_a_new_answer_replaces_a_part(tmp_path: Path) -> None:
    _begun(tmp_path).close()
    part = _begun(tmp_path)
    assert part.length == len(PIECES[0]) == len(b"".join(part.pieces()))


@pytest.mark.parametrize("needed", [True, False])
def test_sweep_deletes_parts_that_are_not_needed(tmp_path: Path, needed: bool) -> None:
    _begun(tmp_path).close()
    later = PartFolder(tmp_path)
    later.sweep(lambda identity, head: needed and identity == "0f" and head.began == 5.0)
    assert later.has("0f") is needed and bool(list(tmp_path.iterdir())) is needed


def test_parts_of_an_earlier_boot_and_damaged_heads_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts are not synced, so a part from before a reboot may lack bytes that were lost in a power cut."""
    _begun(tmp_path, "0f").close()
    _begun(tmp_path, "1e").close()
    (tmp_path / "1e.head").write_bytes(b"\xff")
    boot = tmp_path.parent / "boot"
    boot.write_text("another boot")
    monkeypatch.setattr(parts, "_BOOT", boot)
    later = PartFolder(tmp_path)
    later.sweep(lambda identity, head: True)
    assert not later.has("0f") and not later.has("1e") and not list(tmp_path.iterdir())


def test_a_full_disk_is_a_store_error(tmp_path: Path) -> None:
    part = _begun(tmp_path)
    part.close()
    with pytest.raises(StoreError, match="cannot append"):
        part.write(b"more")
    with pytest.raises(StoreError, match="cannot read"):
        list(part.pieces())
