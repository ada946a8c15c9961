"""Shipping: finished segments are copied to object storage, and deleted here if asked.

    NAME.warc.gz            a finished segment
    NAME.warc.gz.shipped    its receipt: where it lies, its length and digest

The receipt is written when the storage has confirmed the object. From then on the segment
may be deleted here. A kill before that leaves the segment without a receipt, so it is shipped
again: the storage finds an equal object and keeps it. So nothing is lost, and nothing is
stored twice (`storage/object_store.py`).

An erasure changes a segment in place (`erased_bytes.py`). It marks the receipt first, and
a marked segment replaces its object the next time segments are shipped.
"""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from crawler.errors import DamageError, ObjectStoreError, ShippedError, StoreError
from crawler.storage.faults import reach
from crawler.storage.files import atomic_write, sync_directory
from crawler.storage.object_store import ObjectStore, file_digest

RECEIPT = ".shipped"
_SEGMENTS = "*.warc.gz"


class Receipt(msgspec.Struct, frozen=True):
    """The confirmation of a copy in object storage; `length` in bytes, `sha256` in hexadecimal, `at` in Unix time.

    `changed`: the segment was altered here afterwards.
    """

    url: str
    length: int
    sha256: str
    at: float
    changed: bool = False


class Shipment(NamedTuple):
    """A segment that waits: its files (several if processes share it after a reshard), and if its object is outdated."""

    segment: str
    files: tuple[Path, ...]
    replaces: bool


def receipt_of(folder: Path, segment: str) -> Receipt | None:
    """Return the receipt of a segment; None if it has none.

    Raises:
        DamageError: the receipt cannot be read.
    """
    path = folder / (segment + RECEIPT)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Receipt)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise DamageError(f"{path}: cannot be read; delete it, and the segment is shipped again") from error


def waiting(folders: Iterable[Path], before: float = math.inf) -> list[Shipment]:
    """Return the finished segments in `folders`, last written before the instant `before`, that must be shipped.

    A segment of a running crawl gets its name before its last records are committed; a crash then
    cuts them off. So it is left alone for a while.

    Raises:
        DamageError: a receipt cannot be read.
    """
    files: dict[str, list[Path]] = {}
    for folder in folders:
        for path in folder.glob(_SEGMENTS):
            if path.stat().st_mtime < before:
                files.setdefault(path.name, []).append(path)
    shipments = []
    for name, paths in sorted(files.items()):
        receipts = [receipt_of(path.parent, name) for path in paths]
        if any(receipt is None or receipt.changed for receipt in receipts):
            shipments.append(Shipment(name, tuple(paths), any(each is not None for each in receipts)))
    return shipments


def ship(shipment: Shipment, store: ObjectStore, now: float) -> Receipt:
    """Copy a segment to object storage and write its receipts.

    Raises:
        ObjectStoreError: the storage cannot be reached, or has another object of that name.
        StoreError: the disk failed.
    """
    name, path = shipment.segment, shipment.files[0]
    if shipment.replaces:
        store.replace(name, path)
    else:
        store.create(name, path)
    reach("segment shipped")
    receipt = Receipt(store.place(name), path.stat().st_size, file_digest(path), now)
    if store.size(name) != receipt.length:
        raise ObjectStoreError(f"{receipt.url}: its length is not that of {path}; it is kept here")
    for file in shipment.files:
        write_receipt(file.parent, name, receipt)
    reach("receipt written")
    return receipt


def write_receipt(folder: Path, segment: str, receipt: Receipt) -> None:
    """Write the receipt of a segment durably."""
    atomic_write(folder / (segment + RECEIPT), msgspec.json.encode(receipt) + b"\n")


def shipped(folders: Iterable[Path]) -> Iterator[tuple[Path, Receipt, bool]]:
    """Yield (path, receipt, True if it is here) for each segment that was shipped, by name."""
    for folder in sorted(folders):
        for path in sorted(folder.glob(_SEGMENTS + RECEIPT)):
            segment = path.with_name(path.name.removesuffix(RECEIPT))
            receipt = receipt_of(folder, segment.name)
            if receipt is not None:
                yield segment, receipt, segment.exists()


def refuse_elsewhere(folders: Iterable[Path]) -> None:
    """Raise ShippedError if a segment lies in object storage only, for work that needs all of them here."""
    for path, receipt, here in shipped(folders):
        if not here:
            raise ShippedError(
                f"{path}: lies in {receipt.url} only; bring it back first with `crawler ship --fetch`"
            )


def delete_shipped(folders: Iterable[Path]) -> int:
    """Delete the segments that object storage has confirmed; return the number of bytes that this frees.

    Raises:
        StoreError: the disk failed.
    """
    freed = 0
    for path, receipt, here in shipped(folders):
        if here and not receipt.changed and path.stat().st_size == receipt.length:
            try:
                path.unlink()
            except OSError as error:
                raise StoreError(f"{path}: cannot delete: {error.strerror}") from error
            sync_directory(path.parent)
            reach("segment deleted")
            freed += receipt.length
    return freed


def bring_back(path: Path, receipt: Receipt, store: ObjectStore) -> None:
    """Write a segment that lies in object storage only to its place, if its content is the one that was shipped.

    Raises:
        ObjectStoreError: the storage cannot be reached, or has other content.
        StoreError: the disk failed.
    """
    draft = path.with_name(path.name + "~fetched")
    try:
        store.fetch(path.name, draft)
        if file_digest(draft) != receipt.sha256:
            raise ObjectStoreError(f"{receipt.url}: its content is not the one that was shipped")
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_directory(path.parent)


def note_changes(folder: Path, segments: Iterable[str]) -> None:
    """Mark the receipts of segments that are about to be altered here, so that they are shipped again."""
    for segment in segments:
        receipt = receipt_of(folder, segment)
        if receipt is not None and not receipt.changed:
            write_receipt(folder, segment, msgspec.structs.replace(receipt, changed=True))
