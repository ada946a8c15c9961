"""Decisions of the page cache about answers that are not committed yet."""

from crawler.pages.captures import Capturing, Original
from crawler.records import PageRecord


class Uncommitted:
    """The records, responses and capture keys that are not committed yet.

    Records are found by fingerprint, and responses by the digest of their payload.
    """

    def __init__(self) -> None:
        self.records: dict[int, PageRecord] = {}
        self.originals: dict[bytes, Original] = {}
        self._captures: set[bytes] = set()

    def __len__(self) -> int:
        return len(self.records) + len(self.originals) + len(self._captures)

    def add_capture(self, key: bytes) -> bool:
        """Add a capture. Return False if a capture with this key is already uncommitted."""
        if key in self._captures:
            return False
        self._captures.add(key)
        return True

    def has_capture(self, key: bytes) -> bool:
        """Return whether a capture with this key is uncommitted."""
        return key in self._captures

    def drop(self, capturing: Capturing) -> None:
        """Drop what was decided about an answer, because it is committed. Later decisions about its URL stay."""
        self._captures.discard(capturing.key)
        if self.records.get(capturing.fingerprint) is capturing.record:
            self.records.pop(capturing.fingerprint, None)
        self.drop_original(capturing)

    def drop_original(self, capturing: Capturing) -> None:
        """Drop the response that holds the payload of an answer, unless it is the response of another answer."""
        original = self.originals.get(capturing.payload_digest)
        if original is not None and original.key == capturing.key:
            del self.originals[capturing.payload_digest]

    def __repr__(self) -> str:
        return f"Uncommitted({len(self.records)} records, {len(self._captures)} captures)"
