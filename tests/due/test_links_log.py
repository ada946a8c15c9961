"""Test the links log: its files, the cut after a crash, the removal of flushed files, and reports of damage."""

import errno
import os
from pathlib import Path

import pytest

from crawler.due.links_log import BLOCK_LINKS_MAX, LinksLog
from crawler.errors import DamageError, StoreError
from crawler.records import Link


def links(count: int, base: int = 0) -> list[Link]:
    return [Link(2**64 - 1 - n, f"http://host/{base + n}/é", n, 7, 1, 3) for n in range(count)]


def opened(directory: Path, begin: int = 0, end: int = 0, size: int = 1 << 20) -> LinksLog:
    return LinksLog(directory, begin=begin, end=end, file_bytes_max=size)


def append(log: LinksLog, some: list[Link]) -> int:
    """Append links and sync; return the end position."""
    assert [link for block, _ in log.append(some) for link in block] == some
    log.sync()
    return log.end


def everything(log: LinksLog, begin: int, end: int) -> list[Link]:
    return log.read(begin, end, range(10_000), 10_000)[0]


@pytest.mark.parametrize("count", [0, 1, BLOCK_LINKS_MAX, BLOCK_LINKS_MAX + 1])
def test_appended_links_are_read_back(tmp_path: Path, count: int) -> None:
    log = opened(tmp_path)
    end = append(log, links(count))
    assert everything(log, 0, end) == links(count)
    assert everything(opened(tmp_path, 0, end), 0, end) == links(count)


def test_a_link_takes_its_url_and_about_30_bytes(tmp_path: Path) -> None:
    some = [Link(2**63 + n, "http://example.org/" + "x" * 40, 5, 2**63 + 1) for n in range(100)]
    assert append(opened(tmp_path), some) <= 100 * (59 + 30)


def test_many_files_form_one_stream(tmp_path: Path) -> None:
    log = opened(tmp_path, size=500)
    ends = [append(log, links(3, base)) for base in range(20)]
    assert len(list(tmp_path.iterdir())) > 3
    assert everything(log, 0, ends[-1]) == [link for base in range(20) for link in links(3, base)]
    assert everything(log, ends[6], ends[8]) == links(3, 7) + links(3, 8)
    log.close()
    again = opened(tmp_path, ends[3], ends[-1], size=500)
    end = append(again, links(2, 99))
    assert everything(again, ends[17], end) == links(3, 18) + links(3, 19) + links(2, 99)


def test_consumed_files_are_unlinked_except_the_current_one(tmp_path: Path) -> None:
    log = opened(tmp_path, size=100)
    ends = [append(log, links(1, base)) for base in range(12)]
    log.drop_before(ends[5])
    assert everything(log, ends[5], ends[-1]) == [link for base in range(6, 12) for link in links(1, base)]
    log.drop_before(ends[-1])
    assert len(list(tmp_path.iterdir())) == 1
    end = append(log, links(1, 50))
    assert everything(log, ends[-1], end) == links(1, 50)


def test_uncommitted_bytes_are_cut_off(tmp_path: Path) -> None:
    log = opened(tmp_path, size=300)
    committed = append(log, links(2))
    for base in range(9):
        append(log, links(2, base))
    log.close()
    again = opened(tmp_path, 0, committed, size=300)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == committed
    end = append(again, links(1, 77))
    assert everything(again, 0, end) == links(2) + links(1, 77)


def test_a_log_that_was_never_committed_is_removed(tmp_path: Path) -> None:
    append(opened(tmp_path), links(3))
    log = opened(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert everything(log, 0, append(log, links(1))) == links(1)


@pytest.mark.parametrize("damage", ["first missing", "middle missing", "last missing", "short"])
def test_a_missing_file_is_named(tmp_path: Path, damage: str) -> None:
    log = opened(tmp_path, size=100)
    ends = [append(log, links(1, base)) for base in range(8)]
    log.close()
    paths = sorted(tmp_path.iterdir())
    path = {
        "first missing": paths[0],
        "middle missing": paths[3],
        "last missing": paths[-1],
        "short": paths[2],
    }[damage]
    if damage == "short":
        os.truncate(path, 5)
    else:
        path.unlink()
    with pytest.raises(DamageError, match=r"\.log: .* missing"):
        opened(tmp_path, 0, ends[-1])


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    log = opened(tmp_path)
    end = append(log, links(2))
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(DamageError, match=path.name):
            everything(log, 0, end)


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for call in ("write", "fdatasync", "open"):
        log = opened(tmp_path / call)
        list(log.append(links(1)))
        with monkeypatch.context() as patched:
            patched.setattr(os, call, full)
            with pytest.raises(StoreError, match="No space left"):
                log.sync()
