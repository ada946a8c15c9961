"""Keeps open the segments that were read most recently, so that reading a copy takes one system call.

An open descriptor of a segment stays valid, because a segment grows only at its end, is renamed only once,
and has its erased records overwritten in place. Only `crawler ship` and the cleaning of old copies delete
segments. Descriptors of deleted files are closed within `_CHECK_INTERVAL` reads, because an open descriptor
keeps the disk space of its file in use.
"""

import os
from collections import OrderedDict
from pathlib import Path

from crawler.errors import DamageError
from crawler.pages import segments

_CHECK_INTERVAL = 256  # number of reads between two checks for deleted files


class SegmentFiles:
    """Descriptors of at most `files_max` segments. The least recently used descriptor is closed first."""

    def __init__(self, files_max: int) -> None:
        self._files_max = files_max
        self._open: OrderedDict[tuple[Path, str], int] = OrderedDict()
        self._reads = 0

    def __len__(self) -> int:
        return len(self._open)

    def read(self, folder: Path, segment: str, length: int, offset: int) -> bytes:
        """Return `length` bytes of a segment, finished or still open; return fewer at the end of the segment.

        Raises:
            DamageError: there is no such segment, or it cannot be read.
        """
        self._reads += 1
        if self._reads % _CHECK_INTERVAL == 0:
            self._close_deleted()
        key = folder, segment
        file = self._open.get(key)
        if file is None:
            file = self._enter(key)
        elif len(self._open) > 1:
            self._open.move_to_end(key)
        try:
            return os.pread(file, length, offset)
        except OSError as error:
            raise DamageError(f"{folder / segment}: {error.strerror}") from error

    def _enter(self, key: tuple[Path, str]) -> int:
        file = segments.open_segment(*key)
        self._open[key] = file
        if len(self._open) > self._files_max:
            os.close(self._open.popitem(last=False)[1])
        return file

    def _close_deleted(self) -> None:
        for key, file in list(self._open.items()):
            if os.fstat(file).st_nlink == 0:
                os.close(self._open.pop(key))

    def close(self) -> None:
        """Close all descriptors; `read` opens segments again."""
        while self._open:
            os.close(self._open.popitem()[1])
