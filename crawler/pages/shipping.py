"""Ships finished segments to object storage, and deletes their local files if configured.

    NAME.warc.gz            a finished segment
    NAME.warc.gz.shipped    a note: the URL of its object, its length and digest

`pages/README.md`, "Object storage", states the rules. An erasure changes a segment in place (`erased_bytes.py`).
Before that, it marks the segment's note. The next time segments are shipped, a segment whose note is marked
replaces its object in the storage.

The functions raise DamageError if a note cannot be read, StoreError if the disk fails, and ObjectStoreError if the
storage cannot be reached or has another object of the same name.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from crawler.errors import DamageError, ObjectStoreError, ShippedError
from crawler.storage.faults import reach
from crawler.storage.files import atomic_write, store_errors, sync_directory
from crawler.storage.object_store import ObjectStore, file_digest

NOTE = ".shipped"
_SEGMENTS = "*.warc.gz"


class ShippingNote(msgspec.Struct, frozen=True):
    """The confirmation of a copy in object storage: `length` in bytes, `sha256` in hexadecimal, `at` in Unix time.

    `changed` is True if the local segment was altered after the copy was made.
    """

    url: str
    length: int
    sha256: str
    at: float
    changed: bool = False


class Shipment(NamedTuple):
    """A segment to be shipped: its files (several after a reshard), and whether it replaces an outdated object."""

    segment: str
    files: tuple[Path, ...]
    replaces: bool


class Transfers:
    """Follows the transfers of segments: counts them, and counts the bytes of the current one.

    `ended` is called with the note of each segment whose transfer has ended.
    """

    def __init__(self, ended: Callable[[ShippingNote], None] = lambda note: None) -> None:
        self._ended = ended
        self._segment, self._number, self._count = "", 0, 0
        self._moved, self._length = 0, 0

    def expect(self, count: int) -> None:
        """Begin to follow this number of transfers."""
        self._number, self._count = 0, count

    def begin(self, segment: str, length: int) -> None:
        """Follow the transfer of a segment of `length` bytes."""
        self._segment, self._length, self._moved = segment, length, 0
        self._number += 1

    def moved(self, count: int) -> None:
        """Count bytes of the current segment."""
        self._moved += count

    def end(self, note: ShippingNote) -> None:
        """Record that the current transfer has ended."""
        self._segment = ""
        self._ended(note)

    def __str__(self) -> str:
        """Return a text about the current transfer, or "" if there is none."""
        if not self._segment:
            return ""
        moved = f"{min(self._moved, self._length):,} of {self._length:,} bytes transferred"
        return f"file {self._number:,} of {self._count:,}, {self._segment}: {moved}"


def note_of(folder: Path, segment: str) -> ShippingNote | None:
    """Return the note of a segment, or None if it has none."""
    path = folder / (segment + NOTE)
    try:
        return msgspec.json.decode(path.read_bytes(), type=ShippingNote)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise DamageError(f"{path}: cannot be read; delete it, and the segment is shipped again") from error


def waiting(folders: Iterable[Path], before: float = math.inf) -> list[Shipment]:
    """Return the finished segments in `folders` that must be shipped and were last changed before `before`.

    A running crawl gives a segment its final name before it commits the last records of the segment. If the
    crawl crashes in between, these records are cut off. Therefore, `before` keeps a new segment from being
    shipped immediately.
    """
    files: dict[str, list[Path]] = {}
    for folder in folders:
        for path in folder.glob(_SEGMENTS):
            if path.stat().st_mtime < before:
                files.setdefault(path.name, []).append(path)
    shipments = []
    for name, paths in sorted(files.items()):
        notes = [note_of(path.parent, name) for path in paths]
        if any(note is None or note.changed for note in notes):
            shipments.append(Shipment(name, tuple(paths), any(each is not None for each in notes)))
    return shipments


def ship(shipment: Shipment, store: ObjectStore, now: float) -> ShippingNote:
    """Copy a segment to object storage and write its notes."""
    name, path = shipment.segment, shipment.files[0]
    if shipment.replaces:
        store.replace(name, path)
    else:
        store.create(name, path)
    reach("segment shipped")
    note = ShippingNote(store.place(name), path.stat().st_size, file_digest(path), now)
    if store.size(name) != note.length:
        raise ObjectStoreError(f"{note.url}: its length differs from that of {path}, which is kept")
    for file in shipment.files:
        write_note(file.parent, name, note)
    reach("shipping noted")
    return note


def write_note(folder: Path, segment: str, note: ShippingNote) -> None:
    atomic_write(folder / (segment + NOTE), msgspec.json.encode(note) + b"\n")


def shipped(folders: Iterable[Path]) -> Iterator[tuple[Path, ShippingNote, bool]]:
    """Yield (path, note, True if the file is on this disk) for each segment that was shipped, ordered by path."""
    for folder in sorted(folders):
        for path in sorted(folder.glob(_SEGMENTS + NOTE)):
            segment = path.with_name(path.name.removesuffix(NOTE))
            note = note_of(folder, segment.name)
            if note is not None:
                yield segment, note, segment.exists()


def refuse_elsewhere(folders: Iterable[Path]) -> None:
    """Raise ShippedError if a segment is only in object storage.

    Call this before work that needs all segments.
    """
    for path, note, here in shipped(folders):
        if not here:
            raise ShippedError(
                f"{path}: lies in {note.url} only; bring it back first with `crawler ship --fetch`"
            )


def delete_shipped(folders: Iterable[Path]) -> int:
    """Delete the local files of segments that object storage has confirmed; return the number of bytes freed."""
    freed = 0
    for path, note, here in shipped(folders):
        if here and not note.changed and path.stat().st_size == note.length:
            with store_errors(path, "delete"):
                path.unlink()
            sync_directory(path.parent)
            reach("segment deleted")
            freed += note.length
    return freed


def note_changes(folder: Path, segments: Iterable[str]) -> None:
    """Mark the notes of segments that are about to be altered, so that these segments are shipped again."""
    for segment in segments:
        note = note_of(folder, segment)
        if note is not None and not note.changed:
            write_note(folder, segment, msgspec.structs.replace(note, changed=True))
