"""Makes text from the web safe to show in a terminal, a log or a spreadsheet.

Titles, header fields, error texts and file names are untrusted. If such text were printed raw, ESC and the C1
controls would control the terminal: they can set colours and the title, and make the terminal answer as if
the user typed. CR and line separators would forge lines, bidi controls would reorder a name, and `=` would
start a formula. Only this module decides what is hidden in such text. All output of the commands to standard
output and standard error passes through `PrintableStream`.

A hidden character is written as a JSON escape, such as `\\u001b`. So JSON keeps its meaning, and people can
see which character was hidden.
"""

import codecs
import contextlib
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

# C0 and C1 controls, DEL; bidi and line controls (UAX #9, section 2; UAX #14); surrogates, which cannot be encoded.
_HIDDEN = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ud800-\udfff"
_IN_TEXT = re.compile(f"[{_HIDDEN}]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_IN_LINE = re.compile(f"[\t\n{_HIDDEN}]")
# Characters that start a formula in spreadsheets, including their full-width and small forms.
_FORMULA = re.compile("\\s*[=+\\-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b]|[\t\r\n]")
# text such as "-5" or "+49 30 123" has no letters, so it cannot call a function
_NUMBER = re.compile(r"[-+]?[0-9 .,:/()%-]*")


def printable(value: object) -> str:
    """Return `value` as one line of text, with hidden characters escaped."""
    return _IN_LINE.sub(_escape, str(value))


def is_unicode(text: str) -> bool:
    """Return whether a text can be encoded: it has no lone surrogates, which stand for bytes that were not UTF-8."""
    return _SURROGATE.search(text) is None


def printable_text(text: str) -> str:
    """Return text of several lines with hidden characters escaped; line feeds and tabs are kept."""
    return _IN_TEXT.sub(_escape, text)


def csv_cell(text: str) -> str:
    """Return `text` as a cell that no spreadsheet reads as a formula."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def csv_line(cells: Iterable[object]) -> str:
    """Return one line of CSV. Text is made safe by `csv_cell`, and None becomes an empty cell."""
    import csv  # imported here, because few commands write CSV

    line = io.StringIO()
    made = (csv_cell(cell) if isinstance(cell, str) else cell for cell in cells)
    csv.writer(line, lineterminator="\n").writerow(made)
    return line.getvalue()


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


class PrintableStream:
    """A text stream that writes printable text to `raw`. On a terminal, `buffer` does the same for UTF-8 bytes.

    The reader of a pipe may close it, as `head` does. If `outlives_reader` is true, all further text is then
    discarded, so that a repair is not stopped halfway and a failed check keeps its exit code. Otherwise, and for
    bytes written to `buffer`, BrokenPipeError is raised.
    """

    def __init__(self, raw: TextIO, *, outlives_reader: bool = False) -> None:
        self.raw = raw
        self.buffer: Any = _Terminal(self) if raw.isatty() else getattr(raw, "buffer", None)
        self._outlives_reader = outlives_reader

    def write(self, text: str) -> int:
        """Write `text` with hidden characters escaped."""
        with self._reader_may_leave():
            self.raw.write(printable_text(text))
        return len(text)

    def flush(self) -> None:
        with self._reader_may_leave():
            self.raw.flush()

    @contextlib.contextmanager
    def _reader_may_leave(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            if not self._outlives_reader:
                raise
            discard(self.raw)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


class _Terminal:
    """Replaces `sys.stdout.buffer` on a terminal, so that a stored page or an export is shown as text."""

    def __init__(self, stream: PrintableStream) -> None:
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def write(self, data: bytes) -> int:
        """Write bytes as text, decoded as UTF-8."""
        self._stream.write(self._decode(bytes(data)))
        return len(data)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            self.write(piece)

    def flush(self) -> None:
        self._stream.flush()


def raw_stream(stream: Any) -> TextIO:
    """Return the raw stream under a `PrintableStream`, for code that draws with its own control sequences."""
    return stream.raw if isinstance(stream, PrintableStream) else stream  # type: ignore[no-any-return]


def printing(stream: Any, *, outlives_reader: bool = False) -> Any:
    """Return a stream that writes printable text to `stream`, or `stream` itself if it already does so."""
    if stream is None or isinstance(stream, PrintableStream):
        return stream
    return PrintableStream(stream, outlives_reader=outlives_reader)


def discard(stream: Any) -> None:
    """Discard what is buffered for a stream that cannot be written, and all further text."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def flush_output() -> None:
    """Flush standard output and standard error. Skip a stream that is missing or cannot be written."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()


@contextlib.contextmanager
def printable_output(*, outlives_reader: bool = True) -> Iterator[None]:
    """Make standard output and standard error printable while the context is entered (see `PrintableStream`)."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (printing(stream, outlives_reader=outlives_reader) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
