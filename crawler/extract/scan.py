"""Finds links by a plain scan, for pages that must not be parsed or could not be parsed completely.

The scan reads tags with one regular expression that never looks at a byte twice, so it takes linear time for
any input. The scan skips comments, script, style and similar elements, but builds no tree. So the scan finds
nearly, but not exactly, the links that the HTML standard defines. Most scans run in the child process that
parses large pages. A scan in the child process reads the whole page. A scan in the process that crawls reads
only the first megabyte. In that process, the scan of a long page runs in a thread, and other scans run in the
event loop.
"""

import re

from crawler.config import ExtractConfig
from crawler.extract.collected import Collected, Context, one_line
from crawler.extract.decode import to_utf8
from crawler.extract.foreign import Foreign
from crawler.extract.link_attributes import FOLLOWED
from crawler.extract.references import attribute_text, data_text
from crawler.records import Extracted

SCAN_BYTES = 1 << 20  # maximum number of bytes of a page that are scanned in this process

# The rest of a tag. The tag ends at `<` or `>` outside of a quoted value. A quote that is not closed extends to
# the end of the page.
_REST = rb"(?:[^<>=]++|=[\t\n\f\r ]*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z))?+)*+"
# Comments and raw text are skipped, up to the end of the input if they are not closed. A doctype, a CDATA section
# and a processing instruction extend to the next `>`.
_TOKEN = re.compile(
    rb"<!--(?:-?>|(?s:.*?)(?:--!?>|\Z))"
    rb"|<[!?][^>]*+"
    rb"|<(?P<raw>script|style|textarea|title|template|xmp|noembed|noframes)(?=[\t\n\f\r />])(?s:.*?)(?:</(?P=raw)|\Z)"
    rb"|<(?P<tag>(?P<iframe>iframe)|%b|base|link|meta)(?=[\t\n\f\r />])(?P<rest>%b)(?(iframe)(?s:.*?)(?:</iframe|\Z))"
    rb"|</?[a-z]%b" % ("|".join(FOLLOWED).encode(), _REST, _REST),
    re.IGNORECASE,
)
_ATTRIBUTE = re.compile(
    rb"""([^\s/>=][^\s/>=]*+)(?:\s*+=\s*+(?:"([^"]*+)(?:"|\Z)|'([^']*+)(?:'|\Z)|([^\s>]++)))?+"""
)
_READ = frozenset([b"href", b"src", b"rel", b"name", b"content", b"http-equiv", b"type"])
_TITLE_END = re.compile(rb"</title\Z", re.IGNORECASE)
_TITLE_BYTES_MAX = 16 << 10  # maximum number of bytes of a title, before its references are decoded


def scan(content: bytes, page: Context, config: ExtractConfig) -> Extracted:
    """Return the links that a plain scan finds in the first part of `content`. The result is marked `parse_limit`."""
    utf8, encoding = to_utf8(content[:SCAN_BYTES], page.charset)
    return scan_utf8(utf8[:SCAN_BYTES], encoding, page, config)


def scan_utf8(utf8: bytes, encoding: str, page: Context, config: ExtractConfig) -> Extracted:
    """Scan a whole page that is already UTF-8."""
    found = Collected(page)
    title = ""
    foreign: Foreign | None = None
    for match in _TOKEN.finditer(utf8):
        raw, tag = match["raw"], match["tag"]
        if raw is not None and not title and raw.lower() == b"title":
            title = _title(match[0])
        elif tag is not None:
            if tag.lower() == b"base":
                foreign = Foreign(utf8) if foreign is None else foreign
                if match.start() in foreign:
                    continue
            _take(tag.lower(), _attributes(match["rest"]), found)
            if len(found.hrefs) > config.links_max:
                break
    return found.extracted(encoding, title, config.links_max, parse_limit=True)


def _title(element: bytes) -> str:
    """Return the text of a title element as `one_line` formats it. The end tag may be missing."""
    text = _TITLE_END.sub(b"", element.partition(b">")[2])[:_TITLE_BYTES_MAX]
    return one_line(data_text(text.decode("utf-8", "replace")))


def _take(tag: bytes, attributes: dict[str, str], found: Collected) -> None:
    href, relations = attributes.get("href"), attributes.get("rel")
    if tag == b"meta":
        found.take_meta(attributes.get("name"), attributes.get("http-equiv"), attributes.get("content"))
    elif tag == b"base":
        found.take_base(href)
    elif tag == b"link":
        found.take_link(relations, href, attributes.get("type"))
    elif (attribute := FOLLOWED[tag.decode("ascii")]) != "href" or not (
        found.skips_nofollow and "nofollow" in (relations or "").lower().split()
    ):
        found.add(attributes.get(attribute))


def _attributes(text: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(text):
        if (name := match[1].lower()) in _READ and match[0] != match[1]:
            value = match[2] or match[3] or match[4] or b""
            found.setdefault(name.decode("ascii"), attribute_text(value.decode("utf-8", "replace")))
    return found
