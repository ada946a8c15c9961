"""Test that the body of a stored answer is read completely only if its record is undamaged."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from crawler.errors import DamageError
from crawler.pages.erased_bytes import overwrite
from crawler.pages.segments import RecordPlace, member_pieces
from crawler.pages.stored_bodies import PIECE_BYTES, open_capture
from crawler.records import Capture
from tests.pages.support import Site, fetch

BODY = random.Random(1).randbytes(1 << 20).hex().encode()  # a piece of the segment inflates to several pieces


def _erase(folder: Path, capture: Capture) -> None:
    overwrite([folder], {capture.segment: [(capture.offset, capture.length)]})


def _flip_the_checksum(folder: Path, capture: Capture) -> None:
    [path] = folder.glob(f"{capture.segment}*")
    with path.open("r+b") as file:
        file.seek(capture.offset + capture.length - 8)
        file.write(os.urandom(4))


@pytest.mark.parametrize("damage", [_erase, _flip_the_checksum])
def test_no_reader_gets_all_bytes_of_a_record_that_is_damaged_while_it_is_read(
    site: Site, damage: Callable[[Path, Capture], None]
) -> None:
    """The number of bytes tells the client that its answer is incomplete. The record is damaged after its first piece."""
    site.visit(fetch(body=BODY), 1)
    capture = site.cache.get(1).capture
    folder = site.segments()[0].parent
    assert b"".join(open_capture(folder, capture, None).pieces()) == BODY
    copy = open_capture(folder, capture, None)
    pieces = copy.pieces()
    got = len(next(pieces))
    damage(folder, capture)
    with pytest.raises(DamageError):
        for piece in pieces:
            got += len(piece)
    assert got < copy.length == len(BODY)


def test_the_checksum_of_a_record_that_is_hardly_longer_than_a_piece_is_verified(site: Site) -> None:
    """The first piece contains the whole payload, but not the end of the record."""
    capture = site.visit(fetch(body=bytes(60_000)), 1).capture
    folder = site.segments()[0].parent
    place = RecordPlace(capture.segment, capture.offset, capture.length)
    head = sum(map(len, member_pieces(folder, place))) - 60_000 - len(b"\r\n\r\n")
    capture = site.visit(fetch(body=bytes(PIECE_BYTES - head - 2)), 2).capture
    assert len(site.payload(2)) == PIECE_BYTES - head - 2
    _flip_the_checksum(folder, capture)
    with pytest.raises(DamageError):
        open_capture(folder, capture, None)
