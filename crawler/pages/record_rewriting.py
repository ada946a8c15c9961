"""The interface of a step that changes records which are stored already, as part of a commit group."""

import msgspec

from crawler.pages.archive import Archive
from crawler.pages.segment_writers import SegmentWriters
from crawler.storage.kv import Batch


class Rewriting(msgspec.Struct):
    """A step of an erasure (`erasure.py`) or of a cleaning (`cleaning.py`).

    Like a capture, a step is carried out by the writer thread: it writes files first, and keys afterwards.
    """

    def write(self, archive: Archive, segments: SegmentWriters) -> None:
        """Change files.

        Raises:
            DamageError: stored bytes cannot be read; the step then changes no keys.
            StoreError, OSError: the disk failed.
        """

    def stage(self, batch: Batch) -> None:
        """Put the keys that follow from `write` into the batch."""
