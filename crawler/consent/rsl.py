"""Reads Really Simple Licensing 1.0 (rslstandard.org/rsl): licence documents, and the URLs where they are announced.

    <rsl><content url="/news/" server="...">            the longest matching `url` decides
      <license><permits type="usage">search</permits>   one offer among several
        <prohibits type="usage">ai-train</prohibits><payment type="free"/></license></content></rsl>

The licences of one content element give the following answer about one use. The first row that applies decides.

| the licences say | answer |
|---|---|
| one prohibits the use | n, whatever the others permit |
| one permits it, free and without conditions | y |
| one permits it on a condition: users, countries, attribution, a token from the `server` above | unknown |
| all that permit it ask for money or work | n, since nothing was paid |
| none mentions it | unknown |

If a document cannot be read to its end, the whole document is ignored.
"""

from collections.abc import Iterable

import msgspec

from crawler.consent.paths import address_of, longest
from crawler.consent.statements import (
    ALLOW,
    FIELD_OCTETS_MAX,
    LINES_MAX,
    REFUSE,
    UNKNOWN,
    USES,
    Preference,
    Preferences,
    Statement,
    combined,
)
from crawler.extract.headers import typed_link_headers
from crawler.extract.xmlstream import Name, XmlStream

PARSER = "rsl/1"
MEDIA_TYPE = "application/rsl+xml"
DOCUMENT_OCTETS_MAX = 512_000  # maximum size of a document in bytes, as for robots.txt
ELEMENTS_MAX = 20_000  # maximum number of XML elements; a content element with its licence has about 10
# maximum number of content elements per document; each is compared with every page of the site
CONTENTS_MAX = 500
ANNOUNCED_MAX = 8  # maximum number of licence documents that one answer or robots.txt may announce
_USAGES = {
    "all": USES,
    "ai-all": ("ai_input", "train_ai"),
    "ai-input": ("ai_input",),
    "ai-train": ("train_ai",),
    "train-ai": ("train_ai",),  # the name that the drafts before 1.0 used
    "search": ("search",),
}
_FREE, _CONDITIONAL = frozenset({"", "free"}), frozenset({"attribution"})


class RslLicense(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One licence: usage names as written, types of payment, and whether other conditions are attached."""

    permits: tuple[str, ...] = ()
    prohibits: tuple[str, ...] = ()
    payments: tuple[str, ...] = ()
    conditions: bool = False


class RslContent(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One content element: the paths to which it applies, the server that issues tokens, and the licences offered."""

    url: str
    server: str = ""
    licenses: tuple[RslLicense, ...] = ()


class RslDocument(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A licence document. `problem` is the reason why the document was not read."""

    contents: tuple[RslContent, ...] = ()
    problem: str = ""
    parser: str = PARSER


def read_rsl(body: bytes) -> RslDocument:
    """Return the content elements of a licence document."""
    if len(body) > DOCUMENT_OCTETS_MAX:
        return RslDocument(problem=f"longer than {DOCUMENT_OCTETS_MAX} bytes")
    reading = _Reading()
    stream = XmlStream(reading.start, reading.end, ELEMENTS_MAX)
    stream.feed(body)
    stream.close()
    problem = stream.problem or reading.problem
    return RslDocument(problem=problem) if problem else RslDocument(tuple(reading.contents))


def terms_for(documents: Iterable[RslDocument], url: str) -> Statement:
    """Return the meaning of the terms for the page `url`. The raw text names the servers that issue tokens.

    In each document, the content element with the longest matching path decides.
    """
    authority, target = address_of(url)
    deciding: list[RslContent] = []
    for document in documents:
        here = [
            (each, path) for each in document.contents if (path := _path(each.url, authority)) is not None
        ]
        deciding += [here[at][0] for at in longest((path for _, path in here), target)]
    servers = tuple(each.server for each in deciding if each.server)
    return Statement(servers, combined(map(_meaning, deciding)))


def terms_paths(document: RslDocument, authority: str) -> list[str]:
    """Return the path patterns of the content elements that concern this authority ("scheme://host[:port]")."""
    _, _, name = authority.partition("://")
    return [path for each in document.contents if (path := _path(each.url, name)) is not None]


def announced_licenses(robots_lines: Iterable[str], link_fields: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the raw URLs of the licence documents that are announced, at most `ANNOUNCED_MAX`.

    Args:
        robots_lines: values of the License lines of robots.txt; only absolute URLs count.
        link_fields: values of the `Link` header.
    """
    found = dict.fromkeys(line for line in robots_lines if line.lower().startswith(("http://", "https://")))
    for url, relations, media_type in typed_link_headers(link_fields):
        if "license" in relations and media_type == MEDIA_TYPE:
            found[url] = None
    return tuple(url for url in found if len(url) <= FIELD_OCTETS_MAX)[:ANNOUNCED_MAX]


def _path(url: str, authority: str) -> str | None:
    """Return the path pattern in the `url` of a content element; None if the element concerns another authority."""
    if url.startswith("/") and not url.startswith("//"):
        return url
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.lower() not in ("http", "https"):
        return None
    host, slash, path = rest.partition("/")
    return slash + path or "/" if host.lower() == authority.lower() else None


def _meaning(content: RslContent) -> Preferences:
    return Preferences(**{use: _answer(content, use) for use in USES})


def _answer(content: RslContent, use: str) -> Preference:
    if any(_names(license_.prohibits, use) for license_ in content.licenses):
        return REFUSE
    offers = [_offer(each, content.server) for each in content.licenses if _names(each.permits, use)]
    if not offers:
        return UNKNOWN
    return next(answer for answer in (ALLOW, UNKNOWN, REFUSE) if answer in offers)


def _offer(license_: RslLicense, server: str) -> Preference:
    """Return the answer that follows from a licence that permits a use: "y" only if it asks for nothing in return."""
    payments = set(license_.payments) - _FREE
    if payments - _CONDITIONAL:
        return REFUSE
    return UNKNOWN if payments or license_.conditions or server else ALLOW


def _names(usages: Iterable[str], use: str) -> bool:
    return any(use in _USAGES.get(usage, ()) for usage in usages)


class _Reading:
    """A document being read: the finished content elements, and the open content element and licence."""

    def __init__(self) -> None:
        self.contents: list[RslContent] = []
        self.problem = "no rsl element"
        self._licenses: list[RslLicense] = []
        self._lists: dict[str, list[str]] = {}
        self._conditions = False
        self._content = ("", "")
        self._type = ""

    def start(self, name: Name, parent: Name, attributes: dict[str, str]) -> bool:
        if name.local == "rsl" and not parent.local:
            self.problem = ""
        elif (parent.local, name.local) == ("rsl", "content"):
            self._content = attributes.get("url", ""), attributes.get("server", "")
            self._licenses = []
        elif (parent.local, name.local) == ("content", "license"):
            self._lists = {"permits": [], "prohibits": [], "payment": []}
            self._conditions = False
        elif parent.local == "license" and name.local in self._lists:
            self._type = attributes.get("type", "").strip().lower()
            return name.local != "payment"
        return False

    def end(self, name: Name, parent: Name, text: str) -> None:
        if parent.local == "license" and name.local in self._lists:
            self._term(name.local, text)
        elif (parent.local, name.local) == ("content", "license"):
            permits, prohibits, payments = map(tuple, self._lists.values())
            self._licenses.append(RslLicense(permits, prohibits, payments, self._conditions))
        elif (parent.local, name.local) == ("rsl", "content"):
            if len(self.contents) == CONTENTS_MAX:
                self.problem = f"more than {CONTENTS_MAX} contents"
            else:
                self.contents.append(RslContent(*self._content, tuple(self._licenses)))

    def _term(self, kind: str, text: str) -> None:
        """Add a term to the open licence. A term that does not name a use is a condition."""
        words = text.lower().replace(",", " ").split()
        if kind == "payment":
            self._lists[kind].append(self._type)
        elif self._type != "usage":
            self._conditions = True
        elif not words or len(self._lists[kind]) + len(words) > LINES_MAX:
            self.problem = f"{kind} names no use, or more than {LINES_MAX}"
        else:
            self._lists[kind] += words
