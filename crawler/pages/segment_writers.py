"""The segments to which a process appends: one series for new captures, another for captures that a cleaning keeps.

Kept captures have lasted, so they will probably last longer than new captures. If they have segments of their
own, these segments contain less garbage, and cleaning copies fewer bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from crawler.config import PagesConfig
from crawler.pages import segments, warc
from crawler.pages.captures import segment_key
from crawler.pages.moving import Mover, ReceiptOf
from crawler.storage.kv import Batch, seal

_KEPT = "-kept"  # follows the name of the process in the names of segments with kept captures


class SegmentSeries:
    """Writes segments whose names begin with `series`. `first` is the id of the open segment's first record.

    `options` are those of `SegmentWriter`.
    """

    def __init__(
        self,
        folder: Path,
        series: str,
        *,
        about: Sequence[tuple[str, object]],
        compress: Callable[[bytes], bytes],
        random: Callable[[int], bytes],
        **options: Any,
    ) -> None:
        self._about = about
        self._compress = compress
        self._random = random
        self.first = b""
        self.writer = segments.SegmentWriter(folder, series, opening=self._opening, **options)

    def _opening(self, name: str, now: float) -> bytes:
        self.first = warc.record_ids(self._random, 1)[0]
        return self._compress(warc.warcinfo(self.first, warc.date_text(now), name, self._about))


class SegmentWriters:
    """Writes the segments of one process, and knows the lengths of all its segments. `compress` compresses a record.

    `committed` maps the segments in the store to their lengths. `mover` copies captures to segments for kept
    captures. These are always synced, because the former segments of the captures are deleted.
    """

    def __init__(
        self,
        folder: Path,
        config: PagesConfig,
        about: warc.SegmentFacts,
        committed: Mapping[str, int],
        *,
        compress: Callable[[bytes], bytes],
        random: Callable[[int], bytes],
        receipt_of: ReceiptOf,
        sync: bool,
    ) -> None:
        self._lengths = dict(committed)
        self.compress = compress
        name = f"{config.prefix}-{about.process}"
        series = partial(
            SegmentSeries,
            folder,
            segment_bytes=config.segment_bytes,
            serial=segments.next_serial(list(committed)),
            about=about.lines(),
            compress=compress,
            random=random,
        )
        self.new = series(name, sync=sync)
        self._kept = series(name + _KEPT, sync=True)
        self.mover = Mover(self._kept.writer, compress, receipt_of, lambda: self._kept.first)
        self._writers = self.new.writer, self._kept.writer

    def sync(self, *, moved: bool) -> None:
        """Make the appended records durable. If captures were moved in this group, `moved` must be true."""
        self.new.writer.sync()
        if moved:
            self._kept.writer.sync()

    def stage(self, batch: Batch) -> None:
        """Put the lengths of the segments that grew."""
        for writer in self._writers:
            for segment, length in writer.take_lengths().items():
                batch.put(segment_key(segment), seal(length.to_bytes(8, "big")))
                self._lengths[segment] = length

    def finish(self, segment: str) -> None:
        """Complete a segment if it is open. Runs in the writer thread."""
        for writer in self._writers:
            if writer.name == segment:
                writer.finish()

    def close(self, *, finish: bool) -> None:
        """Complete the open segments; without `finish`, only close their files."""
        for writer in self._writers:
            if finish:
                writer.finish()
            else:
                writer.abandon()

    @property
    def bytes(self) -> int:
        """The number of bytes in all segments."""
        return sum([*self._lengths.values()])  # a copy, because the writer thread may add a segment

    def release(self, segment: str) -> int:
        """Forget a segment that holds no captures any more; return its length."""
        return self._lengths.pop(segment)

    def __repr__(self) -> str:
        return repr(self.new.writer)
