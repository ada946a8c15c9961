"""Deletes the segments that hold no captures any more, because a cleaning has moved or dropped them all.

    D/<segment>     length: the file must be deleted

The batch that removes the key `w/` of a segment puts its key `D/`. The file is deleted afterwards, and then
the key `D/`. So a crash leaves at most a file that is deleted when the archive is next opened.

Other programs may be reading the segment, because they opened a copy of the store before that batch was
written. Each of these readers holds a shared lock on the folder of the segments (`reading`). While a reader
holds the lock, no file is deleted. In the same way, LevelDB keeps the tables that an iterator reads.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from crawler.pages.archive import Archive
from crawler.pages.record_rewriting import Rewriting
from crawler.pages.segment_writers import SegmentWriters
from crawler.pages.shipping import NOTE
from crawler.storage import keys
from crawler.storage.faults import reach
from crawler.storage.files import opened, share, sync_directory, unlock
from crawler.storage.kv import Batch, KeyValue, scan_prefix, seal


def stage_release(batch: Batch, segment: str, length: int) -> None:
    """Let the file of a segment be deleted. The batch must also delete the key of the segment."""
    batch.put(keys.RELEASED + segment.encode(), seal(length.to_bytes(8, "big")))


def released_segments(store: KeyValue) -> list[str]:
    """Return the segments whose files must be deleted."""
    return [key[len(keys.RELEASED) :].decode() for key, _ in scan_prefix(store, keys.RELEASED)]


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Keep all segments in `folder` from being deleted during the block.

    Enter the block before the store is copied from which the places of captures are read.
    """
    with ExitStack() as stack:
        with suppress(FileNotFoundError):
            descriptor = stack.enter_context(_unlocked_at_end(folder))
            share(descriptor)
        yield


def delete(folder: Path, segments: Iterable[str]) -> bool:
    """Delete the files and notes of segments. Return False, and delete nothing, if another program reads the folder.

    Raises:
        OSError: the disk failed.
    """
    with _unlocked_at_end(folder) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        for segment in segments:
            for name in (segment, segment + NOTE):
                (folder / name).unlink(missing_ok=True)
            reach("released segment deleted")
        sync_directory(folder)
        return True


@contextmanager
def _unlocked_at_end(folder: Path) -> Iterator[int]:
    """Open a folder for a lock, and release the lock at the end."""
    with opened(folder, os.O_RDONLY) as descriptor:
        try:
            yield descriptor
        finally:
            unlock(descriptor)


def finish(folder: Path, store: KeyValue) -> list[str]:
    """Delete the released segments that an earlier process left. Return those that another program still reads.

    Raises:
        OSError: the disk failed.
    """
    left = released_segments(store)
    if not left or not folder.is_dir() or not delete(folder, left):
        return left
    batch = store.batch(sync=True)
    for segment in left:
        batch.delete(keys.RELEASED + segment.encode())
    store.write(batch)
    return []


class Deleted(Rewriting):
    """Released segments whose files are deleted. `done` is set when they are deleted."""

    segments: list[str]
    done: bool = False

    def write(self, archive: Archive, segments: SegmentWriters) -> None:
        """Delete the files, unless another program reads the folder."""
        self.done = delete(archive.folder, self.segments)

    def stage(self, batch: Batch) -> None:
        """Delete the keys of the deleted segments."""
        if self.done:
            for segment in self.segments:
                batch.delete(keys.RELEASED + segment.encode())
