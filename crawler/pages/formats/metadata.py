"""Reads the metadata that a page declares: author, dates, description, site name, canonical URL, language, image.

The metadata and the text (`text.py`) are read from the same tree, so a page is parsed only once. The extra
`text` must be installed to read metadata. `PRECEDENCE` lists the sources of each column, the best first. The
sources are

    meta        `<meta name>` and `<meta property>` in the head: OpenGraph (ogp.me), Dublin Core, Highwire (`citation_`)
    link        `<link rel>` in the head, or a field `Link` of the header
    html        the attribute `lang` of `<html>`
    item        a schema.org item that describes the page, from JSON-LD or else from microdata, also in arrays,
                `@graph` and `mainEntity`; an article is preferred to a page of any other type (`_RANKS`)

These functions raise no error, whatever the page contains. JSON that cannot be parsed is ignored. The
functions read only a bounded number of bytes, elements, blocks, items and levels.
"""

import ctypes
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from crawler.urls.canonical import resolve

CHARACTERS_MAX = 1_000  # maximum length of a value; a longer author or description is cut
URL_CHARACTERS_MAX = 2_000  # a URL with more characters is omitted
BLOCKS_MAX = 16  # number of JSON-LD blocks that are read per page; content systems write one to five
BLOCK_CHARACTERS_MAX = 256 << 10  # number of characters that are read in all JSON-LD blocks of a page
ELEMENTS_MAX = 1_000  # maximum number of children of the head that are examined, and of script elements
ITEMS_MAX = 300  # number of JSON-LD objects that are examined
MICRODATA_CHARACTERS_MAX = 256 << 10  # the properties after this many characters are empty
PROPERTIES_MAX = 200  # number of microdata items and needed properties that are examined
NAMES_MAX = 20  # maximum number of authors listed
_ITEM_DEPTH_MAX = 6  # maximum number of arrays and objects around an item in a block
_DATE_CHARACTERS_MAX = 64
_TO_SECONDS = len("2026-11-03T10:00:00")
_YEAR_MIN = 1000  # earlier years are placeholders such as 0001-01-01

# Maps each column to its sources, the best first. Values are text; a missing value is None.
PRECEDENCE: dict[str, tuple[str, ...]] = {
    "author": ("item author", "item creator", "meta author", "meta citation_author", "meta dc.creator")
    + ("meta dcterms.creator", "meta article:author"),
    "published": ("item datePublished", "meta article:published_time", "meta og:article:published_time")
    + ("meta citation_publication_date", "meta dcterms.issued", "meta dc.date", "meta dcterms.date")
    + ("meta date", "item dateCreated", "item uploadDate"),
    "modified": ("item dateModified", "meta article:modified_time", "meta og:updated_time")
    + ("meta dcterms.modified", "meta last-modified"),
    "description": ("meta description", "meta og:description", "item description", "item abstract")
    + ("meta twitter:description", "meta dcterms.description", "meta dc.description"),
    "site_name": ("meta og:site_name", "item publisher", "meta application-name"),
    "canonical": ("link canonical", "meta og:url", "item url"),
    "declared_language": ("html lang", "meta content-language", "item inLanguage", "meta og:locale"),
    "image": ("meta og:image:secure_url", "meta og:image", "meta og:image:url", "item image")
    + ("item thumbnailUrl", "meta twitter:image", "meta twitter:image:src", "link image_src"),
}
# Maps the type of an item to its rank, where 0 is best. Items of other types do not describe the page.
_RANKS = dict.fromkeys(
    ["Report", "Recipe", "CreativeWork", "DiscussionForumPosting", "VideoObject", "Book", "Dataset", "Course"]
    + ["HowTo", "Review", "Chapter", "Thesis", "Event", "Product", "PodcastEpisode", "SocialMediaPosting"],
    1,
) | dict.fromkeys(["WebSite", "BreadcrumbList"], 9)
_SUFFIX_RANKS = [(("Article", "BlogPosting"), 0), (("Page",), 2)]
_IGNORED = 9

_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8}){0,4}")
# comment marks that may be around a block of JSON
_OPENINGS = ("<!--", "//<![CDATA[", "<![CDATA[")
_CLOSINGS = ("-->", "//]]>", "]]>")
_WEB_URL = re.compile(r"\s*https?:", re.IGNORECASE)
_SLASHED = re.compile(r"(\d{4})/(\d\d?)(?:/(\d\d?))?")
_PARTIAL = re.compile(r"\d{4}(?:-(?:0[1-9]|1[0-2]))?")
_ISO_START = re.compile(r"\d{4}-?\d\d-?\d\d(?![\d-])")
_MAIL_DATE = re.compile(r"(?:[A-Za-z]{3,9}, *)?\d{1,2} +[A-Za-z]{3,9} +\d{4} +\d\d?:\d\d", re.ASCII)
_SPACED_ZONE = re.compile(r"(?<=\d)\s+(?=[+-]\d\d:?\d\d$|Z$)")
_LONG_FRACTION = re.compile(r"(?<=\.\d{6})\d+")

Item = dict[str, Any]
# the kind and name of a source, the reader of its text, and the property of an object that is this text
_Source = tuple[str, str, Callable[[str, str], str | None], str]
Links = Iterable[tuple[str, frozenset[str]]]


class _Declared(NamedTuple):
    """The declarations of a page.

    The keys of `metas` and `links` are names in lower case. `items` has the best item first, and `by_id` has
    all items.
    """

    metas: dict[str, str]
    links: dict[str, str]
    language: str
    items: list[Item]
    by_id: dict[str, Item]


def read_metadata(tree: Any, utf8: bytes, url: str, header_links: Links = ()) -> dict[str, str | None]:
    """Return the declared metadata of a page: a value, or None, for each column of `PRECEDENCE`. Takes linear time.

    Args:
        tree: resiliparse's tree of `utf8`.
        url: the URL of the page, from which relative URLs are resolved unless the page has a `<base>`.
        header_links: (raw URL, relation types in lower case) of the header's fields `Link`.
    """
    head = tree.head  # the parser creates a head and its parent `<html>` for every page
    root = head.parent
    language = root.getattr("lang") or root.getattr("xml:lang") or ""
    declared = _Declared(*_read_head(head, header_links), language, [], {})
    _add_items(declared, root, utf8)
    base = (resolve(url, declared.links["<base>"]) or url) if "<base>" in declared.links else url
    return {column: _first(sources, declared, base) for column, sources in _COLUMNS}


def _first(sources: list[_Source], declared: _Declared, base: str) -> str | None:
    """Return the value of the best source of a column that has one."""
    metas, links, language, items, by_id = declared
    for kind, name, read, wanted in sources:
        if kind == "item":
            for item in items:
                if name in item:
                    said = item[name]
                    if not isinstance(said, str):
                        said = _text(said, by_id, wanted)
                    if said and (value := read(said, base)):
                        return value
        else:
            text = metas.get(name) if kind == "meta" else links.get(name) if kind == "link" else language
            if text and (value := read(text, base)):
                return value
    return None


# -- elements


# The elements of a serialized head (HTML, 13.3). In this form, values are in double quotes and contain no `<`, and
# each element with content is closed. The groups are name and content of a usual meta element, or element and
# attributes of another one. Comments and links with one relation that is not needed have none.
_NAMES = {
    wanted: {
        name for sources in PRECEDENCE.values() for kind, name in map(str.split, sources) if kind == wanted
    }
    for wanted in ("meta", "link", "item")
}
_RELATION = f"(?i:{'|'.join(sorted(_NAMES['link']))})"
_IN_HEAD = re.compile(
    r'<meta (?:property|name)="([^"]*)" content="([^"]*)">'
    rf'|<link rel="(?!{_RELATION})[^"\s]*"[^<]*>|<!--[^-]*+(?:-(?!->)[^-]*+)*+|<(meta|link|base) ([^<]*)>'
)
# elements whose content is text, or no child of the head
_WITH_CONTENT = [(f"<{name}", f"</{name}>") for name in ("script", "style", "template", "noscript")]
# The name of an attribute may contain a quote, so a search that began inside of a name would take quadratic time.
_ATTRIBUTE = re.compile(r'(?<!\S)([^\s="]++)="([^"]*)"')
_HAS_RELATION = re.compile(_RELATION)


def _read_head(head: Any, header_links: Links) -> tuple[dict[str, str], dict[str, str]]:
    """Return the metas and the links of a page.

    The metas are the content of the first `<meta>` of each name that has content; for authors, the contents of
    all. The links are the raw URL of the first link of each relation. Links in the HTTP header precede those in
    the page, and the relation "<base>" stands for the base URL.

    The head is serialized, because an object for each of its elements takes five times as long.
    """
    metas: dict[str, str] = {}
    authors: dict[str, list[str]] = {}
    links: dict[str, str] = {}
    for raw_url, relations in header_links:
        for relation in relations:
            links.setdefault(relation, raw_url)
    serialized = head.html
    for opening, closing in _WITH_CONTENT:
        if closing in serialized:  # cutting at these marks is many times faster than a regular expression
            *pieces, last = serialized.split(closing)
            serialized = "".join([piece.partition(opening)[0] for piece in pieces]) + last
    needed = _NAMES["meta"]
    for names, content, element, attributes in _IN_HEAD.findall(serialized)[:ELEMENTS_MAX]:
        if element:
            if element == "link" and not _HAS_RELATION.search(attributes):  # a style sheet or an icon
                continue
            values = dict(_ATTRIBUTE.findall(attributes))
            if element != "meta":
                href = html.unescape(values.get("href", ""))
                names = ["<base>"] if element == "base" else values.get("rel", "").lower().split()
                for relation in names if href else ():
                    links.setdefault(relation, href)
                continue
            names = " ".join(values.get(each, "") for each in ("property", "name", "http-equiv"))
            content = values.get("content", "")
        for name in names.lower().split():
            if name in needed and content and not content.isspace():
                text = html.unescape(content) if "&" in content else content
                if name.endswith(("author", "creator")):
                    authors.setdefault(name, []).append(text)
                else:
                    metas.setdefault(name, text)
    return metas | {name: _joined(texts) for name, texts in authors.items()}, links


# -- items


def _add_items(declared: _Declared, root: Any, utf8: bytes) -> None:
    found: list[Item] = []
    # A long word is found faster than "ld+json". The word lacks the first letter of "application", which may be
    # a capital.
    if _contains(utf8, b"pplication/ld+json"):
        found += _linked_data(root)
    if _contains(utf8, b"itemscope"):
        found += _microdata(root)
    ranked = [(rank, item) for item in found if (rank := _rank(item)) < _IGNORED]
    declared.items.extend(item for _, item in sorted(ranked, key=lambda pair: pair[0]))
    for item in found:
        name = item.get("@id")
        if isinstance(name, str) and len(item) > 1:
            declared.by_id.setdefault(name, item)


def _contains(utf8: bytes, word: bytes) -> bool:
    """Return `word in utf8`, in a third of the time of Python's own search, which takes 40 us for 100 kB."""
    return _memmem(utf8, len(utf8), word, len(word)) is not None


_memmem = ctypes.CDLL(None).memmem
_memmem.restype = ctypes.c_void_p
_memmem.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]


def _rank(item: Item) -> int:
    kinds = item.get("@type")
    if isinstance(kinds, str):
        return _type_rank(kinds)
    kinds = kinds[:NAMES_MAX] if isinstance(kinds, list) else []
    return min((_type_rank(kind) for kind in kinds if isinstance(kind, str)), default=_IGNORED)


def _type_rank(kind: str) -> int:
    """Return the rank of a type of schema.org, written with or without the vocabulary's URL."""
    name = kind.rpartition("/")[2].rpartition(":")[2].strip()
    if name in _RANKS:
        return _RANKS[name]
    for suffixes, rank in _SUFFIX_RANKS:
        if name.endswith(suffixes):
            return rank
    return _IGNORED


def _linked_data(root: Any) -> list[Item]:
    """Return the objects of the page's JSON-LD, in order."""
    found: list[Item] = []
    room = BLOCK_CHARACTERS_MAX
    for node in _selected(root, 'script[type*="ld+json" i]', BLOCKS_MAX):
        if (node.getattr("type") or "").partition(";")[0].strip().lower() != "application/ld+json":
            continue
        text = node.text
        if len(text) <= room:
            room -= len(text)
            _walk(_parsed(text), found, 0)
    return found


def _selected(root: Any, selector: str, count: int) -> Iterator[Any]:
    """Yield the first `count` descendants that match.

    Iterating over the library's own list of matches would take quadratic time. A slice makes an object for each match.
    """
    found = root.query_selector_all(selector)
    return iter(found[:]) if len(found) <= count else map(found.item, range(count))


def _parsed(text: str) -> Any:
    """Return the value of a JSON text, or None.

    The text may have comment marks around it, and the strings in it may contain line ends.
    """
    text = text.strip()
    text = text[next((len(mark) for mark in _OPENINGS if text.startswith(mark)), 0) :]
    text = text[: len(text) - next((len(mark) for mark in _CLOSINGS if text.endswith(mark)), 0)]
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        pass
    try:
        return json.loads(text.strip().rstrip(";"), strict=False)
    except (ValueError, RecursionError):
        return None


def _walk(value: Any, found: list[Item], depth: int) -> None:
    if depth > _ITEM_DEPTH_MAX or len(found) >= ITEMS_MAX:
        return
    if isinstance(value, list):
        for each in value[:ITEMS_MAX]:
            _walk(each, found, depth + 1)
    elif isinstance(value, dict):
        found.append(value)
        for name in ("@graph", "mainEntity", "mainEntityOfPage"):
            if isinstance(value.get(name), dict | list):
                _walk(value[name], found, depth + 1)


# the microdata items, and the properties that `PRECEDENCE` and `_scalar` need
_PROPERTIES = {"name", "alternateName", "contentUrl"} | _NAMES["item"]
_NAMED = ",".join([f'[itemprop~="{name}"]' for name in sorted(_PROPERTIES)])
_IN_ITEMS = f"[itemscope],[itemprop]:is({_NAMED})"


def _microdata(root: Any) -> list[Item]:
    """Return the items of the page's microdata, in the same structure as JSON-LD. `itemref` is not followed."""
    items: list[Item] = []
    # the items around the current element, each with the test whether it contains an element; the innermost is last
    around: list[tuple[Callable[[Any], bool], Item]] = []
    room = MICRODATA_CHARACTERS_MAX
    for node in chain([root], _selected(root, _IN_ITEMS, PROPERTIES_MAX)):
        while around and not around[-1][0](node):
            around.pop()
        item = around[-1][1] if around else None
        value: str | Item
        if node.hasattr("itemscope"):
            types = (node.getattr("itemtype") or "").split()
            value = {"@type": types[0] if len(types) == 1 else types}
            items.append(value)
            around.append((node.contains, value))
        elif item is None or room <= 0:
            value = ""
        else:
            text = _property(node)
            room -= len(text)
            value = text[: 4 * CHARACTERS_MAX]
        if item is not None:
            for name in (node.getattr("itemprop") or "").split():
                if name in _PROPERTIES:
                    _add_value(item, name, value)
    return items


def _add_value(item: Item, name: str, value: str | Item) -> None:
    """Add a value of a property. Like in JSON-LD, several values are a list."""
    known = item.get(name)
    if known is None:
        item[name] = value
    elif not isinstance(known, list):
        item[name] = [known, value]
    elif len(known) < NAMES_MAX:
        known.append(value)


# Maps elements to the attribute that holds the value of a property (HTML, 5.2.4). In other elements, the text
# is the value.
_VALUES = {"meta": "content", "time": "datetime", "data": "value", "meter": "value", "object": "data"} | (
    dict.fromkeys(["a", "area", "link"], "href")
    | dict.fromkeys(["img", "source", "video", "audio", "embed", "iframe", "track"], "src")
)


def _property(node: Any) -> str:
    """Return the value of a property.

    As in RDFa, the attribute `content` is used on any element, because many sites write it there.
    """
    value = node.getattr("content") or node.getattr(_VALUES.get(node.tag, "content"))
    return value if value is not None else node.text


def _text(value: Any, by_id: dict[str, Item], name: str) -> str:
    """Return a property of an item as text.

    For an object, this is its `name` or URL. For a list, it is the first text or, if the argument `name` is
    "name", all texts, joined.
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, list):
        return _scalar(value, by_id, name)
    texts = [text for each in value[:NAMES_MAX] if (text := _scalar(each, by_id, name))]
    return _joined(texts) if name == "name" else next(iter(texts), "")


def _scalar(value: Any, by_id: dict[str, Item], name: str) -> str:
    if isinstance(value, str):
        return value[: 4 * CHARACTERS_MAX]
    if isinstance(value, dict):
        reference = value.get("@id")
        known = by_id.get(reference, value) if isinstance(reference, str) else value
        names = (name, "@value", "contentUrl") if name == "url" else (name, "@value", "alternateName")
        value = next((known[each] for each in names if known.get(each)), None)
        if isinstance(value, list):
            value = value[0]
    return value[: 4 * CHARACTERS_MAX] if isinstance(value, str) else ""


# -- values


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(list(dict.fromkeys(map(_line, texts)))[:NAMES_MAX])


def _line(text: str) -> str:
    """Return a text as one line that UTF-8 can encode, cut to CHARACTERS_MAX."""
    line = " ".join(text[: 4 * CHARACTERS_MAX].split())[:CHARACTERS_MAX]
    return line if line.isascii() else line.encode("utf-8", "replace").decode()


def _plain(text: str, _: str) -> str | None:
    return _line(text) or None


def _name(text: str, _: str) -> str | None:
    """Return the names in a text. URLs are ignored, because OpenGraph states authors by the URLs of their profiles."""
    return None if _WEB_URL.match(text) else _line(text) or None


def _url(text: str, base: str) -> str | None:
    text = text.strip()
    if not text or len(text) > URL_CHARACTERS_MAX:
        return None
    return resolve(base, text if text.isascii() else text.encode("utf-8", "replace").decode())


def _language(text: str, _: str) -> str | None:
    """Return a language tag in the letter case of BCP 47. Tags such as `en_US`, as in OpenGraph, are accepted too."""
    tag = text[:100].split(",", 1)[0].strip().replace("_", "-")
    if not _LANGUAGE.fullmatch(tag):
        return None
    first, *rest = tag.lower().split("-")
    cased = [part.upper() if len(part) == 2 else part.title() if len(part) == 4 else part for part in rest]
    return "-".join([first, *cased])


def _date(text: str, _: str = "") -> str | None:
    return iso_date(text)


def iso_date(text: str) -> str | None:
    """Return a date in ISO 8601, or None if its format is unknown.

    The result is a year, a month, a day or a time, depending on the precision of the text. A time with a zone
    becomes UTC and ends in Z. A time without a zone stays as it is. Known formats are ISO 8601, also with
    blanks or slashes, and the dates of mail and HTTP.
    """
    text = text.strip() if len(text) <= _DATE_CHARACTERS_MAX else ""
    if not text.isascii():
        return None
    if "/" in text and (match := _SLASHED.fullmatch(text)):
        text = "-".join(part.zfill(2) for part in match.groups() if part)
    try:
        if _ISO_START.match(text):
            if " " in text or "." in text:
                text = _LONG_FRACTION.sub("", _SPACED_ZONE.sub("", text))
            moment = datetime.fromisoformat(text)
        elif _PARTIAL.fullmatch(text):
            return text if int(text[:4]) >= _YEAR_MIN else None
        elif _MAIL_DATE.match(text):
            moment = parsedate_to_datetime(text)
        else:
            return None
        if moment.year < _YEAR_MIN:
            return None
        if ":" not in text and "T" not in text:
            return moment.date().isoformat()
        if moment.tzinfo is None:
            return moment.isoformat()[:_TO_SECONDS]
        return moment.astimezone(UTC).isoformat()[:_TO_SECONDS] + "Z"
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


_READERS: dict[str, Callable[[str, str], str | None]] = {
    "author": _name,
    "published": _date,
    "modified": _date,
    "description": _plain,
    "site_name": _plain,
    "canonical": _url,
    "declared_language": _language,
    "image": _url,
}
_URL_NAMES = {"url", "image", "thumbnailUrl"}
_COLUMNS: list[tuple[str, list[_Source]]] = [
    (
        column,
        [
            (kind, name, _READERS[column], "url" if name in _URL_NAMES else "name")
            for kind, name in map(str.split, sources)
        ],
    )
    for column, sources in PRECEDENCE.items()
]
