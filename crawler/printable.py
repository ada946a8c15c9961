"""Text of the web where people read it: a terminal, a log, a table of a spreadsheet.

Titles, header fields, error texts and file names are a stranger's. Raw, ESC and the C1
controls drive a terminal (colours, titles, its answers typed as input), CR and line
separators forge lines, bidi controls show a name in another order, and `=` begins a
formula. Here is the one rule, and `PrintableStream`, through which all that the commands write
to standard output and standard error goes, whoever prints it.

A character that is not shown stands as in JSON, `\\u001b`, so JSON that passes is the
same JSON, and people see what was there.
"""

import codecs
import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO

# C0 and C1 controls, DEL; bidi and line controls (UAX #9, section 2; UAX #14); surrogates, which nothing can encode.
_HIDDEN = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ud800-\udfff"
_IN_TEXT = re.compile(f"[{_HIDDEN}]")
_IN_LINE = re.compile(f"[\t\n{_HIDDEN}]")
# What spreadsheets take for the beginning of a formula, in the forms of East Asian keyboards too.
_FORMULA = re.compile("\\s*[=+\\-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b]|[\t\r\n]")
_NUMBER = re.compile(r"[-+]?[0-9 .,:/()%-]*")  # "-5", "+49 30 123": no letters, so no function


def printable(value: object) -> str:
    """One line or one field of text, without any character that is not shown."""
    return _IN_LINE.sub(_escape, str(value))


def printable_text(text: str) -> str:
    """Text of several lines; line feeds and tabs are its own."""
    return _IN_TEXT.sub(_escape, text)


def csv_cell(text: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


class PrintableStream:
    """A text stream that writes printable text to `raw`; on a terminal its `buffer` does so for bytes in UTF-8."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw
        self.buffer: Any = _Terminal(self) if raw.isatty() else getattr(raw, "buffer", None)

    def write(self, text: str) -> int:
        """Write what is printable of it."""
        self.raw.write(printable_text(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write them one by one."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


class _Terminal:
    """What `sys.stdout.buffer` is on a terminal: a stored page, an export, shown as text."""

    def __init__(self, stream: PrintableStream) -> None:
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def write(self, data: bytes) -> int:
        """Write the text of these bytes."""
        self._stream.write(self._decode(bytes(data)))
        return len(data)

    def flush(self) -> None:
        """Show what was written."""
        self._stream.flush()


def raw_stream(stream: Any) -> TextIO:
    """The terminal behind a `PrintableStream`, for what draws with control sequences of its own."""
    return stream.raw if isinstance(stream, PrintableStream) else stream  # type: ignore[no-any-return]


def printing(stream: Any) -> Any:
    """A stream that writes printable text; one that does so already is returned."""
    return stream if stream is None or isinstance(stream, PrintableStream) else PrintableStream(stream)


@contextlib.contextmanager
def printable_output() -> Iterator[None]:
    """While it is entered, standard output and standard error get printable text only."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(printing, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
