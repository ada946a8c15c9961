"""Reads untrusted XML (sitemaps and feeds) as it arrives.

The parser is expat, without the dangerous features of XML. Reading ends at a document type declaration, so no
entities are expanded and nothing is fetched. Reading also ends if elements are nested too deeply, if there
are too many elements, or at a token (tag, comment) longer than a megabyte. The part of the document that was
read before reading ended is used.

Namespaces are ignored, because many files declare none. An element is identified by its local name. A field
of a sitemap entry must also have the namespace prefix of the entry: `<image:loc>` inside `<url>` is not the
`<loc>` of the URL.
"""

from collections.abc import Callable
from typing import NamedTuple
from xml.parsers import expat

DEPTH_MAX = 64
TOKEN_BYTES_MAX = 1 << 20
NAMES_KNOWN_MAX = 256
TEXT_CHARACTERS_MAX = 8192  # a text with more characters is neither a URL nor a date, and is treated as ""

BLANK = b" \t\r\n"
BOM = b"\xef\xbb\xbf"


class Refused(Exception):
    """The document uses an unsupported feature, or exceeds a limit; the message names the feature or limit."""


class Name(NamedTuple):
    """The name of an element. The local part is in lower case."""

    prefix: str
    local: str


_OUTSIDE = Name("", "")


class XmlStream:
    """Calls a function at the start and at the end of each element.

    Args:
        start: called with the element's name, its parent's name and the attributes;
            returns whether the text of the element is wanted.
        end: called with the two names and the text, "" if it was not wanted.
        elements_max: the number of elements after which the reading ends.
    """

    def __init__(
        self,
        start: Callable[[Name, Name, dict[str, str]], bool],
        end: Callable[[Name, Name, str], None],
        elements_max: int,
    ) -> None:
        self._start = start
        self._end = end
        self._elements_left = elements_max
        self._names: list[Name] = [_OUTSIDE]
        self._known: dict[str, Name] = {}
        self._text: list[str] = []
        self._text_left = 0
        self._text_depth = 0
        self._fed = 0
        self._blank = True
        self.problem = ""
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._on_start
        self._parser.EndElementHandler = self._on_end
        self._parser.StartDoctypeDeclHandler = self._on_doctype

    def feed(self, chunk: bytes) -> None:
        """Parse the next bytes; do nothing once `problem` is set."""
        if self._blank:  # skip blanks, as expat accepts the XML declaration only at the very start
            chunk = chunk.lstrip(BLANK)
            self._blank = not chunk
        if chunk and not self.problem:
            self._parse(chunk, False)
            self._fed += len(chunk)
            if self._fed - max(self._parser.CurrentByteIndex, 0) > TOKEN_BYTES_MAX:
                self.problem = "a token is too long"

    def close(self) -> None:
        """End the input."""
        if not self.problem:
            self._parse(b"", True)
        # The parser refers to our methods, which makes a reference cycle.
        self._parser.StartElementHandler = self._parser.EndElementHandler = None
        self._parser.CharacterDataHandler = self._parser.StartDoctypeDeclHandler = None

    def _parse(self, chunk: bytes, final: bool) -> None:
        try:
            self._parser.Parse(chunk, final)
        except (expat.ExpatError, Refused, LookupError, ValueError) as error:
            self.problem = str(error) or type(error).__name__

    def _on_start(self, raw_name: str, attributes: dict[str, str]) -> None:
        self._elements_left -= 1
        if self._elements_left < 0 or len(self._names) > DEPTH_MAX:
            raise Refused("the document has too many elements")
        name = self._known.get(raw_name) or self._learn(raw_name)
        parent = self._names[-1]
        self._names.append(name)
        if self._start(name, parent, attributes) and not self._text_depth:
            self._text = []
            self._text_left = TEXT_CHARACTERS_MAX
            self._text_depth = len(self._names)
            self._parser.CharacterDataHandler = self._on_text

    def _on_text(self, text: str) -> None:
        self._text_left -= len(text)
        if self._text_left >= 0:
            self._text.append(text)

    def _on_end(self, _raw_name: str) -> None:
        text = ""
        if self._text_depth == len(self._names):
            self._parser.CharacterDataHandler = None
            self._text_depth = 0
            text = "".join(self._text).strip() if self._text_left >= 0 else ""
        name = self._names.pop()
        self._end(name, self._names[-1], text)

    def _on_doctype(self, *_: object) -> None:
        raise Refused("the document has a document type declaration")

    def _learn(self, raw_name: str) -> Name:
        prefix, _, local = raw_name.rpartition(":")
        name = Name(prefix, local.lower())
        if len(self._known) < NAMES_KNOWN_MAX:
            self._known[raw_name] = name
        return name
