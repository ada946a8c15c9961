"""One answer, assembled from arriving bytes, without I/O or a clock.

    HEAD --header block--> LENGTH | CHUNKED | CLOSE | DONE        every state --bad bytes--> DONE
      ^--- 1xx, up to 16 ---'      '--- end, limit, cut ---> DONE

The result is the same whether the bytes arrive all at once or one by one. This module
enforces every size limit: of the header block, of the body on the wire and of the
decoded body. Bytes after the end of an answer are dropped, and the connection is not
used again.
"""

import sys
from enum import Enum

from crawler import content_codings
from crawler.config import FetchConfig
from crawler.fetcher import framing
from crawler.fetcher.fetch_request import ContentListener
from crawler.fetcher.file_body import FileBody
from crawler.fetcher.framing import BadAnswer, Body, Head
from crawler.fetcher.held_body import HeldBody
from crawler.records import Outcome
from crawler.storage.parts import Part

INTERIM_MAX = 16  # maximum number of 1xx answers before the final answer (RFC 9110 15.2 sets no limit)
_PREFIX = b"HTTP/"
# number of bytes by which chunk sizes, extensions and headers together may exceed the payload
_FRAMING_MAX = 256 << 10
# An answer may have this many chunks, plus one for each 64 bytes: a chunk costs as much time as a kilobyte of
# payload.
_CHUNKS_MAX, _CHUNK_BYTES_MEAN = 50_000, 64
_START_MAX = 16  # bytes of blank lines that are skipped before the status line


class AnswerState(Enum):
    HEAD = "head"
    BODY = "body"
    DONE = "done"


class Answer:
    """The part of an answer received so far.

    Pass received bytes to `receive`, then call `end` or `expire`. The answer is complete when `state` is
    DONE.

    If the answer failed, `failure` is its outcome and `error` is the reason; otherwise, `failure` is None.
    `truncated` is "", "length", "time" or "disconnect". `reusable` is true if the connection can carry
    another request. `held_bytes` is the size of body and content in memory. `listener` receives the content
    piece by piece. If `file` is given, the body of the file at `url` is moved to disk once it is large
    (`file_body.py`). In that case, `part` is the body on disk, and `body` and `content` are empty. A listener
    still receives the decoded body.
    """

    __slots__ = (
        "_chunks",
        "_decoder",
        "_file",
        "_interim",
        "_kind",
        "_left",
        "_limits",
        "_listener",
        "_held",
        "_held_content",
        "_mark",
        "_pending",
        "_transfer",
        "_url",
        "body_bytes",
        "error",
        "failure",
        "head",
        "held_bytes",
        "part",
        "reusable",
        "state",
        "truncated",
        "undecoded",
        "wire_bytes",
    )

    def __init__(
        self,
        limits: FetchConfig,
        listener: ContentListener | None = None,
        file: FileBody | None = None,
        url: str = "",
    ) -> None:
        self._listener = listener
        if listener is not None:
            listener.restart()
        self._limits = limits
        self._file = file
        self._url = url
        self._mark = 0
        self.part: Part | None = None
        self._pending = bytearray()
        self._interim = 0
        self._kind = Body.NONE
        self._left = 0
        self._held, self._held_content = HeldBody(), HeldBody()
        self._chunks: framing.ChunkDecoder | None = None
        self._transfer: content_codings.Decoder | None = None
        self._decoder: content_codings.Decoder | None = None
        self.state = AnswerState.HEAD
        self.head: Head | None = None
        self.body_bytes = 0
        self.held_bytes = 0
        self.wire_bytes = 0
        self.truncated = ""
        self.undecoded = False
        self.failure: Outcome | None = None
        self.error = ""
        self.reusable = False

    @property
    def body(self) -> bytes:
        """The payload after transfer decoding, before content decoding. Its pieces are joined only once."""
        return self._held.joined()

    @property
    def content(self) -> bytes:
        """The payload after content decoding; b"" if the content coding is unknown."""
        if self._decoder is None:
            return b"" if self.undecoded else self.body
        return self._held_content.joined()

    def join(self) -> None:
        """Join the pieces of body and content now, rather than at the first access to them."""
        self._held.joined()
        self._held_content.joined()

    def receive(self, received: bytes | memoryview) -> bool:
        """Process bytes that the connection received, and copy them. Return True once the answer is complete."""
        self.wire_bytes += len(received)
        try:
            data = self._take_head(received) if self.state is AnswerState.HEAD else bytes(received)
            if data and self.state is AnswerState.BODY:
                self._take_body(data)
            elif data:
                self.reusable = False  # these bytes came after the end of the answer (RFC 9112 9.2)
        except BadAnswer as error:
            self._fail(error.outcome, str(error))
        return self.state is AnswerState.DONE

    def end(self, error: str = "") -> None:
        """Finish the answer: the connection has closed. `error` is the reason if the connection was lost."""
        if self.state is AnswerState.HEAD:
            self._fail(
                Outcome.RESET,
                error or ("closed in the header block" if self.wire_bytes else "closed before any answer"),
            )
        elif self.state is AnswerState.BODY:
            self.reusable = False
            if self._kind is Body.CLOSE and not error:
                self._finish()
            else:
                self._cut("disconnect", error or "closed before the end of the body")

    def expire(self, error: str) -> None:
        """End the answer because a time limit has passed."""
        if self.state is AnswerState.HEAD:
            self._fail(Outcome.HEADER_TIMEOUT, error)
        elif self.state is AnswerState.BODY:
            self._cut("time", error)

    def _take_head(self, data: bytes | memoryview) -> bytes:
        """Process header bytes, including those of 1xx answers; return the bytes after the final header block."""
        while True:
            searched = 0
            if self._pending:
                searched = max(len(self._pending) - 2, 0)
                self._pending += data
                data = b""
            match = framing.HEAD_END.search(self._pending or data, searched)
            if match is None:
                self._pending += data
                _check_start(self._pending)
                self._check_size(len(self._pending))
                return b""
            if self._pending:
                data = bytes(self._pending)
                self._pending.clear()
            block, data = bytes(data[: match.end()]), data[match.end() :]
            if self._take_block(block):
                return bytes(data)
            # limit the size of all interim answers together
            self._check_size((self.wire_bytes - len(data)) // 2)

    def _check_size(self, size: int) -> None:
        if size > self._limits.header_bytes_max:
            raise BadAnswer(
                Outcome.HEADER_TOO_LARGE, f"header of more than {self._limits.header_bytes_max} bytes"
            )

    def _take_block(self, block: bytes) -> bool:
        """Read one header block; return False if it belongs to an interim answer."""
        limits = self._limits
        _check_start(block)
        self._check_size(len(block))
        if not block.strip(b"\r\n"):
            self._count_interim()  # skip blank lines before the status line
            return False
        head = framing.parse_head(
            block, fields_max=limits.header_fields_max, field_bytes_max=limits.header_field_bytes_max
        )
        if 100 <= head.status < 200 and head.status != 101:
            self._count_interim()
            return False
        self.head = head
        self._kind, self._left = framing.body_of(head)
        self.reusable = framing.keeps_alive(head) and self._kind is not Body.CLOSE and head.status != 101
        if self._file is not None and self._file.part is not None:
            self._go_on(self._file, head)
        self._open_body(head)
        return True

    def _go_on(self, file: FileBody, head: Head) -> None:
        """Accept `head`, the answer to a request for the rest of a file, as the continuation of the first answer."""
        if head.status == 416 or (head.status == 206 and not file.resume(head)):
            file.drop()
            raise BadAnswer(
                Outcome.TRUNCATED, "the file could not be resumed; it is fetched from its beginning"
            )
        if head.status == 206 and file.part is not None:
            self.part, self.head = file.part, file.first_head()
            self.body_bytes = self.part.length

    def _count_interim(self) -> None:
        self._interim += 1
        if self._interim > INTERIM_MAX:
            raise BadAnswer(Outcome.UNEXPECTED_STATUS, f"more than {INTERIM_MAX} interim answers")

    def _open_body(self, head: Head) -> None:
        if self._kind is Body.NONE:
            self.state = AnswerState.DONE
            return
        self.state = AnswerState.BODY
        if self._kind is Body.CHUNKED:
            self._chunks = framing.ChunkDecoder()
        if self.part is not None:
            return
        if (coding := head.transfer_coding()) and content_codings.can_decode((coding,)):
            self._transfer = content_codings.decoder_of(
                (coding,), limit=sys.maxsize, step=self._limits.decode_step_bytes
            )
        if b"content-encoding" not in head.known:
            return
        try:
            self._decoder = content_codings.decoder_for(
                head.tokens(b"content-encoding"),
                limit=self._limits.body_bytes_max,
                step=self._limits.decode_step_bytes,
            )
        except content_codings.UnknownCoding as error:
            self.undecoded = True
            self.error = str(error)

    def _take_body(self, data: bytes) -> None:
        if self._kind is Body.LENGTH:
            if len(data) > self._left:
                data = data[: self._left]
                self.reusable = False
            self._left -= len(data)
            self._take_payload(data)
            if not self._left and self.state is AnswerState.BODY:
                self._finish()
        elif self._chunks is not None:
            self._take_chunks(self._chunks, data)
        else:
            self._take_transferred(data)
            self._check_framing()

    def _take_chunks(self, chunks: framing.ChunkDecoder, data: bytes) -> None:
        try:
            pieces = chunks.feed(data)
            if pieces:  # join the pieces, because a bytes object of two bytes takes forty bytes of memory
                self._take_transferred(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        except BadAnswer as error:
            self._fail(error.outcome, str(error))
            return
        if self.state is not AnswerState.BODY:
            return
        if chunks.done:
            if chunks.rest:
                self.reusable = False
            self._finish()
        elif chunks.chunks > _CHUNKS_MAX + self.body_bytes // _CHUNK_BYTES_MEAN:
            self._cut("length", "too many chunks for the payload")
        else:
            self._check_framing()

    def _check_framing(self) -> None:
        """End an answer that is mostly framing, such as chunk extensions or bytes after the end of a coded stream."""
        framing_max = self._limits.header_bytes_max + min(_FRAMING_MAX, self._limits.wire_bytes_max)
        if self.state is AnswerState.BODY and self.wire_bytes - 2 * self.body_bytes > framing_max:
            self._cut("length", "more framing than payload")

    def _take_transferred(self, data: bytes) -> None:
        """Undo the transfer coding, so that the body is the same as without it (RFC 9112 7)."""
        if self._transfer is None:
            return self._take_payload(data)
        for piece in self._transfer.pieces(data):
            self._take_payload(piece)
            if self.state is not AnswerState.BODY:
                return

    def _take_payload(self, piece: bytes) -> None:
        file = self._file
        if self.part is None and file is not None and self.body_bytes + len(piece) > self._held_max(file):
            self._begin_part(file)
        if self.part is not None:
            return self._take_file(self.part, piece)
        limits = self._limits
        room = limits.wire_bytes_max - self.body_bytes
        if self._decoder is None and limits.body_bytes_max < limits.wire_bytes_max:
            room -= limits.wire_bytes_max - limits.body_bytes_max
        over = len(piece) > room
        if over:
            piece = piece[:room]
        self._held.append(piece)
        self.body_bytes += len(piece)
        self.held_bytes += len(piece)
        if self._decoder is None:
            self._tell(piece)
        else:
            for content in self._decoder.feed(piece):
                self._take_content(content)
            over = over or self._decoder.full
        if over and self.part is None and self._file is not None:
            self._begin_part(self._file)
        if over and (self.part is None or self._decoder is not None):
            self._cut("length", "")

    def _take_content(self, content: bytes) -> None:
        """Process decoded bytes: keep them in memory, or, if the body is on disk, only hash them."""
        file = self._file if self._listener is not None and self.part is None else None
        if file is not None and self._held_content.size + len(content) > self._held_max(file):
            self._begin_part(file)
        if self.part is not None:
            self.part.hash_content(content)
        else:
            self._held_content.append(content)
            self.held_bytes += len(content)
        self._tell(content)

    def _tell(self, content: bytes) -> None:
        if self._listener is not None and not self.undecoded:
            self._listener.feed(content)

    def _held_max(self, file: FileBody) -> int:
        return min(file.rule.held_bytes_max, self._limits.wire_bytes_max, self._limits.body_bytes_max)

    def _begin_part(self, file: FileBody) -> None:
        """Move the body to disk. If the body is not a file, keep it in memory from now on."""
        assert self.head is not None
        start = self._held_content.start or self._held.start
        if self._listener is None:
            self._decoder = None
        content = None if self._decoder is None else self._held_content.joined()
        if not 200 <= self.head.status < 300 or not file.begin(
            self._url, self.head, self._held.joined(), self.head.media_type()[0], start, content
        ):
            self._file = None
            return
        self.part = file.part
        self._held, self._held_content = HeldBody(), HeldBody()
        self.held_bytes = 0

    def _take_file(self, part: Part, piece: bytes) -> None:
        assert self._file is not None
        room = self._file.bytes_max(self._limits.body_bytes_max) - self.body_bytes
        kept = piece[: max(0, room)]
        part.write(kept)
        self.body_bytes += len(kept)
        if self._decoder is None:
            self._tell(kept)
        else:
            self.held_bytes += len(kept)  # the decoder keeps its input, so these bytes stay in memory
            for content in self._decoder.feed(kept):
                self._take_content(content)
        if len(kept) < len(piece) or (self._decoder is not None and self._decoder.full):
            self._cut("length", "")

    @property
    def is_patient(self) -> bool:
        """True for a file on disk that the user asked for: it has no time limit as long as it arrives fast enough."""
        return self.part is not None and self._file is not None and self._file.is_asked

    def keeps_rate(self, seconds: float) -> bool:
        """Return whether the file was received at the minimum rate or faster since the last call, `seconds` ago."""
        assert self._file is not None
        came, self._mark = self.wire_bytes - self._mark, self.wire_bytes
        return came >= max(1.0, self._file.rule.rate_min * seconds)

    def _finish(self) -> None:
        transfer, self._transfer = self._transfer, None
        for piece in transfer.finish() if transfer is not None else ():
            self._take_payload(piece)
        if self.state is AnswerState.DONE:
            return
        self.state = AnswerState.DONE
        if self._decoder is not None:
            for content in self._decoder.finish():
                self._take_content(content)

    def _cut(self, why: str, error: str) -> None:
        self.truncated = why
        self.error = error or self.error
        self.reusable = False
        self._finish()

    def _fail(self, outcome: Outcome, error: str) -> None:
        self.failure = outcome
        self.error = error
        self.reusable = False
        self.state = AnswerState.DONE

    def __repr__(self) -> str:
        status = self.head.status if self.head else None
        return f"Answer({self.state.value}, {status}, {self._kind.value}, {self.body_bytes}, {self.error!r})"


def _check_start(data: bytes | bytearray) -> None:
    """Reject an answer, such as a bare page (HTTP/0.9), as soon as it cannot begin with a status line."""
    start = bytes(data[:_START_MAX]).lstrip(b"\r\n")[:5]
    if start != _PREFIX[: len(start)]:
        raise BadAnswer(Outcome.FRAMING, f"no status line: {bytes(data[:60])!r}")
