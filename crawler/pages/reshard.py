"""Move the page cache to the new processes when a crawl is resharded.

Records and captures follow their buckets; a `g/` key follows its capture. WARC
segments are linked, not copied, into every process that gets one of their captures.
A revisit may repeat a response of a host that moves to another process: `v/` keeps
the place of that capture.
"""

from contextlib import suppress

from crawler.errors import ShippedError
from crawler.pages.captures import segment_key, unpack_capture
from crawler.pages.segments import segment_path
from crawler.pages.shipping import NOTE, note_of
from crawler.records import Capture
from crawler.storage.files import link_or_copy, sync_directory
from crawler.storage.keys import CAPTURE, ELSEWHERE, PAGE, PAYLOAD, SEGMENT
from crawler.storage.kv import scan_prefix, seal, unseal
from crawler.storage.reshard import NewProcess, OldProcess


def move(to: NewProcess) -> None:
    """Move records, captures, payload keys and segments to a new process.

    Raises:
        DamageError: a value is damaged.
        StoreError: the disk failed.
    """
    for _ in to.copy(PAGE):
        pass
    needed = _Segments(to)
    for source, key, value in to.copy(CAPTURE):
        capture = unpack_capture(key, value)
        needed.add(source, capture)
        if capture.refers_to and not to.owns_key(capture.refers_to):
            _bring_original(to, needed, capture.refers_to)
    for source in to.sources:
        for key, value in scan_prefix(source.store, PAYLOAD):
            if to.owns_key(unseal(key, value)):
                to.put(key, value)
    needed.link()
    if to.heir:
        _keep_lost_and_found(to)


def _bring_original(to: NewProcess, needed: "_Segments", key: bytes) -> None:
    """Keep the place of the response that a revisit repeats and that another process gets."""
    elsewhere = ELSEWHERE + key[2:]
    for source in to.sources:
        value = source.store.get(key) or source.store.get(elsewhere)
        if value is not None:
            to.put(elsewhere, value)
            return needed.add(source, unpack_capture(key, value))


class _Segments:
    """The segments that hold captures of the new process, with their committed lengths."""

    def __init__(self, to: NewProcess) -> None:
        self._to = to
        self._needed: dict[str, tuple[OldProcess, bytes]] = {}

    def add(self, source: OldProcess, capture: Capture) -> None:
        if capture.segment not in self._needed:
            length = source.store.get(segment_key(capture.segment))
            assert length is not None, capture
            self._needed[capture.segment] = (source, length)

    def link(self) -> None:
        folder = self._to.folder / "warc"
        folder.mkdir()
        for segment, (source, length) in self._needed.items():
            warc = source.folder / "warc"
            if note_of(warc, segment):
                link_or_copy(warc / (segment + NOTE), folder / (segment + NOTE))
            with suppress(ShippedError):
                link_or_copy(segment_path(warc, segment), folder / segment)
            self._to.put(SEGMENT + segment.encode(), seal(unseal(segment_key(segment), length)))
        sync_directory(folder)


def _keep_lost_and_found(to: NewProcess) -> None:
    """Link the files in lost+found into the new process; they belong to no bucket."""
    for source in to.sources:
        for path in sorted((source.folder / "warc/lost+found").glob("*")):
            link_or_copy(path, to.folder / "warc/lost+found" / f"{source.name}-{path.name}")
