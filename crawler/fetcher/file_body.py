"""The body of a file: an answer that is not parsed for links, such as an image, a PDF or an archive.

    in memory --more than `held_bytes_max`--> in a part on disk (`storage/parts.py`)
       broken off --next request: Range, If-Range--> 206: the part continues | 200: it begins again

The parser needs the whole body of a page in memory; a large file takes no memory. `fetcher/README.md`, "Files",
states which files have limits of their own, and when a transfer is resumed.
"""

import re
import sys
from collections.abc import Callable

import msgspec

from crawler import http_dates
from crawler.fetcher.framing import Body, Head, body_of, head_of
from crawler.storage.parts import Part, PartFolder, PartHead

_CONTENT_RANGE = re.compile(rb"bytes[ \t]+([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)", re.IGNORECASE)


class FileRule(msgspec.Struct, frozen=True):
    """The rule that decides whether the answer to one request is received as a file.

    `parses(media type, first bytes)` says whether a body is parsed; a parsed body is not a file.
    `is_asked(URL, media type)` says whether the user asked for this file. `bytes_max` limits the size of such
    a file; 0 means no limit. If `any_length` is not set and the answer does not state its length, the limit
    of a page applies instead. `rate_min` is the minimum rate, in bytes per second, at which such a file must
    arrive.
    """

    parses: Callable[[str, bytes], bool]
    is_asked: Callable[[str, str], bool]
    held_bytes_max: int
    bytes_max: int = 0
    any_length: bool = True
    rate_min: int = 0


class FileBody:
    """The body that a fetch task receives, over all requests of the task; `identity` names the body's part on disk.

    `part` holds what has arrived so far, if it is on disk. `is_asked` says whether the user asked for this
    file, and `resumable` whether the request is a plain GET.
    """

    def __init__(self, rule: FileRule, parts: PartFolder, identity: str, *, resumable: bool) -> None:
        self.rule = rule
        self.part: Part | None = None
        self.resumable = resumable
        self.is_asked = False
        self.began = 0.0
        self.request_head = b""
        self._parts = parts
        self._identity = identity

    def has_left(self) -> bool:
        """Return whether an earlier transfer has left a part that a request may continue."""
        return self.resumable and self._parts.has(self._identity)

    def reopen(self) -> None:
        """Reopen the part that an earlier transfer left. Any thread may call this. It takes 2 ms per MB."""
        self.part = self._parts.left(self._identity)

    def range_fields(self, url: str) -> str:
        """Return the header fields that request the rest of a partly received file; "" if this is impossible."""
        part = self.part
        if part is None or not self.can_resume() or part.head.url != url:
            return ""
        head = _head_of(part.head)
        return f"Range: bytes={part.length}-\r\nIf-Range: {_validator(head)}\r\n"

    def can_resume(self) -> bool:
        """Return whether there is a part whose rest can be requested."""
        part = self.part
        return (
            self.resumable
            and part is not None
            and 0 < part.length != part.head.length
            and bool(_validator(_head_of(part.head)))
        )

    def resume(self, head: Head) -> bool:
        """Return whether this answer (206) contains the rest of the part. If it does, continue the part."""
        part, match = self.part, _CONTENT_RANGE.fullmatch(head.known.get(b"content-range", b"").strip())
        if part is None:
            return False
        fits = match is not None and int(match[1]) == part.length and not head.transfer_coding()
        whole = int(match[3]) if match is not None and match[3] != b"*" else part.head.length
        if not fits or (part.head.length >= 0 and whole != part.head.length):
            return False
        part.head.length = whole
        part.note_resumed()
        self._judge(part.head.url, self.first_head())
        return True

    def first_head(self) -> Head:
        """Return the head of the first answer of the partly received file."""
        assert self.part is not None
        return _head_of(self.part.head)

    def begin(
        self, url: str, head: Head, held: bytes, kind: str, start: bytes, content: bytes | None = None
    ) -> bool:
        """Move a body to a part on disk; return False if its type or its decoded `start` show that it must be parsed.

        `content` is the content decoded so far if the body will be decoded to its end, else None.
        """
        if self.rule.parses(kind, start):
            return False
        ending, length = body_of(head)
        self.drop()
        self.part = self._parts.begin(
            self._identity,
            PartHead(
                url=url,
                began=self.began,
                status=head.status,
                reason=head.reason,
                version=head.version,
                fields=head.fields,
                request=self.request_head,
                length=length if ending is Body.LENGTH else -1,
            ),
        )
        if content is not None:
            self.part.hash_content(content)
        self.part.write(held)
        self._judge(url, head)
        return True

    def _judge(self, url: str, head: Head) -> None:
        """Decide whether the user asked for this file."""
        states_length = self.part is not None and self.part.head.length >= 0
        self.is_asked = (self.rule.any_length or states_length) and self.rule.is_asked(
            url, head.media_type()[0]
        )

    def bytes_max(self, page_max: int) -> int:
        """Return the limit of the file's size; `page_max` is the limit for a page."""
        return (self.rule.bytes_max or sys.maxsize) if self.is_asked else page_max

    def end(self, *, resumed_later: bool) -> None:
        """Close the part if a later request may resume it. Otherwise, delete the part."""
        if self.part is None:
            return
        if resumed_later and self.can_resume():
            self._parts.keep(self._identity, self.part)
        else:
            self.part.drop()
        self.part = None

    def drop(self) -> None:
        """Delete the part on disk, if there is one, because the server has another body now."""
        if self.part is not None:
            self.part.drop()
            self.part = None


def _head_of(head: PartHead) -> Head:
    return head_of(head.fields, version=head.version, status=head.status, reason=head.reason)


def _validator(head: Head) -> str:
    """Return the strong validator of an answer; "" if it has none, or if the server does not support ranges."""
    if head.status != 200 or head.known.get(b"accept-ranges", b"").strip().lower() == b"none":
        return ""
    etag = head.known.get(b"etag", b"").strip()
    if etag[:1] == b'"' and etag[-1:] == b'"' and b"\n" not in etag:
        return etag.decode("latin-1")
    modified = head.known.get(b"last-modified", b"").decode("latin-1")
    return modified if http_dates.is_strong(modified, head.known.get(b"date", b"").decode("latin-1")) else ""
