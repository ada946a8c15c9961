"""Replaces the URLs of a page, for mirrors on disk and for pages served from the cache.

`rewrite_html` passes every URL of a page, absolute and canonical, to `map_url` and replaces it by the result.
All other bytes stay unchanged. A parser's tree would not preserve the bytes that stay unchanged, so one
regular expression finds the tags in the same way as the standard's tokenizer (WHATWG HTML, 13.2.5):

    comments, doctypes                     skipped
    script, textarea, title, iframe ...    the tag is read, the text skipped
    style                                  its text is CSS
    any other start tag                    its attributes are read

The expression takes linear time for any input. A tag or a quote that is not closed ends with the page. A tag
whose name has over 100 characters stays unchanged. In `<a<a<a`, each `<` begins a name that extends to the
end of the text, so reading all these names would take quadratic time. Because the time is linear, even pages
that are expensive to parse are rewritten: 1 MB takes some 20 ms.

Besides the URLs, two things are changed, because a browser would otherwise reject the replaced URLs. Elements
with a replaced URL lose `integrity` and `crossorigin`, and a `<meta>` with a Content-Security-Policy loses
its content.
"""

import re
from collections.abc import Callable
from itertools import islice
from urllib.parse import quote

from crawler.extract import css
from crawler.extract.collected import BASES_MAX
from crawler.extract.decode import name_of
from crawler.extract.foreign import Foreign
from crawler.extract.headers import refresh
from crawler.extract.link_attributes import LINK_ATTRIBUTES, REQUISITE_RELATIONS, Form, Kind
from crawler.extract.references import attribute_text
from crawler.extract.requisites import srcset_spans
from crawler.urls.canonical import ancestors, plain_join, query_codec, resolve

# Maximum number of bytes that replacements may add to a page; further URLs stay unchanged.
GROWTH_BYTES_MAX = 64 << 20
# Codecs in which bytes below 128 may have another meaning than in ASCII.
_NO_ASCII = frozenset({"utf-16-le", "utf-16-be", "iso2022_jp"})


# Maps a URL (canonical, without fragment) and its kind to the replacement. None means that the URL stays
# unchanged.
MapUrl = Callable[[str, Kind], str | None]

_WS = rb"[\t\n\f\r ]"
# Attributes as in the HTML standard, 13.2.5.32 to 13.2.5.39. A quote that is not closed extends to the end of
# the page.
_VALUE = rb"\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z)|(?![\"'])[^\t\n\f\r >]*+"
_ATTRIBUTES = (
    rb"(?:[\t\n\f\r /]++(?:[^\t\n\f\r />][^\t\n\f\r />=]*+(?:%b*+=%b*+(?:%b))?+)?+|(?<=[\"'])"
    rb"[^\t\n\f\r />][^\t\n\f\r />=]*+(?:%b*+=%b*+(?:%b))?+)*+" % ((_WS, _WS, _VALUE) * 2)
)
_RAW_NAMES = rb"script|style|textarea|title|xmp|iframe|noembed|noframes"
_TOKENS = (
    rb"(?i)<!--(?:-?>|(?s:.*?)(?:--!?>|\Z))"
    rb"|<[!?][^>]*+(?:>|\Z)"
    rb"|<plaintext(?=[\t\n\f\r />])(?s:.*+)"
    rb"|<(?P<raw>%b)(?=[\t\n\f\r />])(?P<raw_attributes>%b)>%b"
    rb"(?P<text>(?:[^<]++|<(?!/(?P=raw)[\t\n\f\r />]))*+)"
    rb"|<(?P<name>[a-z][^\t\n\f\r />]{0,99}+)(?=[\t\n\f\r /])(?P<attributes>%b)"
)
_TOKEN = re.compile(_TOKENS % (_RAW_NAMES, _ATTRIBUTES, b"", _ATTRIBUTES))
# group `text` is empty for `<script/>`
_XML_TOKEN = re.compile(_TOKENS % (_RAW_NAMES, _ATTRIBUTES, rb"(?<!/>)", _ATTRIBUTES))
# The second part matches white space at the end. Without this part, the time would be quadratic in the length
# of the white space.
_ATTRIBUTE = re.compile(
    rb"[\t\n\f\r /]*+([^\t\n\f\r />][^\t\n\f\r />=]*+)(?:%b*+=%b*+(%b))?+|[\t\n\f\r /]++" % (_WS, _WS, _VALUE)
)
_NAMES = "|".join(sorted({row.attribute for row in LINK_ATTRIBUTES} | {"content"})).encode()
_WORTH_READING = re.compile(rb"(?i)(?:%b)%b*+=" % (_NAMES, _WS))
_BASE = re.compile(rb"(?i)<base[\t\n\f\r /]")

# Maps each attribute and element ("" for any element) to the kind of its URL.
_KINDS: dict[bytes, dict[bytes, Kind]] = {}
for _row in LINK_ATTRIBUTES:
    if _row.form is Form.URL:
        _KINDS.setdefault(_row.attribute.encode(), {}).update(
            (element.encode(), _row.kind) for element in _row.elements or ("",)
        )
_CANDIDATES = frozenset(row.attribute.encode() for row in LINK_ATTRIBUTES if row.form is Form.CANDIDATES)
_DROPPED = frozenset({b"integrity", b"crossorigin"})
_SRCSET_UNSAFE = re.compile(r"[\t\n\f\r ]|,$|^,")


def rewrite_html(content: bytes, encoding: str, base: str, map_url: MapUrl, *, xhtml: bool = False) -> bytes:
    """Return the page with each URL replaced by the result of `map_url`; fragments are kept.

    `map_url` receives the same URL that the extractor would return as a link. It returns the text of the new
    URL, which may be "". If it returns None, the URL is kept. If a page has a `<base>`, unchanged URLs stay
    relative to that base, unless `map_url` returns "" for the base itself (Kind.BASE).

    Args:
        content: without content coding.
        encoding: the page's encoding, as `decode.to_utf8` names it.
        base: URL of the page; this function finds a `<base>` in the page by itself.
        xhtml: whether `<script/>` is a complete element.
    """
    codec = python_codec(encoding)
    if codec not in _NO_ASCII:
        return _rewritten(content, _Page(encoding, codec, base, map_url), xhtml)
    utf8 = content.decode(codec, "replace").encode("utf-8", "replace")
    changed = _rewritten(utf8, _Page(encoding, "utf-8", base, map_url), xhtml)
    return changed.decode("utf-8").encode(codec, "xmlcharrefreplace")


def _rewritten(content: bytes, page: "_Page", xhtml: bool) -> bytes:
    token = _XML_TOKEN if xhtml else _TOKEN
    if _BASE.search(content):
        foreign = Foreign(content)
        tags = (match for match in token.finditer(content) if (match["name"] or b"").lower() == b"base")
        bases = (page.base_of(match) for match in islice(tags, BASES_MAX) if match.start() not in foreign)
        if base := next(filter(None, bases), ""):
            page.set_base(base)
    return token.sub(page.token, content)


def rewrite_css(text: str, base: str, map_url: MapUrl) -> str:
    """Return the style sheet with each URL replaced by the result of `map_url`."""
    return _Page("utf-8", "utf-8", base, map_url).css(text)


def rewrite_css_bytes(content: bytes, charset: str, base: str, map_url: MapUrl) -> bytes:
    """Like `rewrite_css`, for a body; `charset` is the charset in its Content-Type, "" if there is none."""
    text, codec = css.decode(content, charset)
    changed = rewrite_css(text, base, map_url)
    return content if changed is text else css.encode(changed, codec)


def python_codec(encoding: str) -> str:
    """Return the Python codec of a WHATWG encoding name; windows-1252 if the name is unknown."""
    import webencodings

    known = webencodings.lookup(name_of(encoding) or "windows-1252")
    assert known is not None
    return known.codec_info.name if known.name not in ("replacement", "x-user-defined") else "cp1252"


class _Page:
    """The state of `rewrite_html` for one page."""

    def __init__(self, encoding: str, codec: str, base: str, map_url: MapUrl) -> None:
        self._encoding = encoding if query_codec(encoding) != "utf-8" else "utf-8"
        self._codec = codec
        self._url = base
        self._map_url = map_url
        self._room = GROWTH_BYTES_MAX
        self.set_base(base)

    def set_base(self, base: str) -> None:
        self._base = base
        self._above = ancestors(base)

    def base_of(self, match: re.Match[bytes]) -> str:
        """Return the base URL that this tag sets; "" if it has no usable `href`."""
        for attribute in _attributes_in(match["attributes"]):
            if attribute[1].lower() == b"href":
                href = self._text(_unquoted(attribute[2] or b""))
                return resolve(self._url, href) or ""
        return ""

    # -- tokens

    def token(self, match: re.Match[bytes]) -> bytes:
        """Return the replacement of a token."""
        group = match.lastgroup
        if group == "attributes":
            attributes = match["attributes"]
            if _WORTH_READING.search(attributes) is None:
                return match[0]
            name = match["name"]
            return b"<" + name + self._attributes(name.lower(), attributes)
        if group == "text":
            return self._raw_element(match)
        return match[0]

    def _raw_element(self, match: re.Match[bytes]) -> bytes:
        name, attributes, text = match.group("raw", "raw_attributes", "text")
        if _WORTH_READING.search(attributes) is not None:
            attributes = self._attributes(name.lower(), attributes)
        if name.lower() == b"style":
            text = self._style(text)
        return b"<" + name + attributes + b">" + text

    def _style(self, text: bytes) -> bytes:
        if b"(" not in text and b"@" not in text:
            return text
        source, codec = css.decode_as(text, self._codec)
        changed = self.css(source)
        return text if changed is source else css.encode(changed, codec)

    def css(self, text: str) -> str:
        return css.replace(text, lambda raw_url: self._mapped(raw_url, Kind.REQUISITE))

    # -- attributes

    def _attributes(self, tag: bytes, text: bytes) -> bytes:
        """Return the attributes of a tag with their URLs replaced."""
        found = _attributes_in(text)
        # if a name occurs several times, its first value is used
        values = {each[1].lower(): each[2] or b"" for each in reversed(found)}
        changes: list[tuple[re.Match[bytes], bytes]] = []
        for each in found:
            if (value := each[2]) and (
                changed := self._attribute(tag, each[1].lower(), value, values)
            ) is not None:
                changes.append((each, changed))
        return _with_changes(text, found, changes) if changes else text

    def _attribute(self, tag: bytes, name: bytes, value: bytes, values: dict[bytes, bytes]) -> bytes | None:
        """Return the new value of an attribute; None if it stays unchanged."""
        kinds = _KINDS.get(name)
        if kinds is not None:
            kind = kinds.get(tag) or kinds.get(b"")
            if tag == b"link" and name == b"href":
                kind = self._link_kind(values)
            return None if kind is None else self._changed(value, lambda text: self._mapped(text, kind))
        if name in _CANDIDATES:
            return self._changed(value, self._srcset)
        if name == b"style":
            return (
                self._changed(value, lambda text: _if_changed(text, self.css(text)))
                if b"(" in value
                else None
            )
        if name == b"content" and tag == b"meta":
            return self._meta(value, values)
        return None

    def _link_kind(self, values: dict[bytes, bytes]) -> Kind:
        relations = self._text(_unquoted(values.get(b"rel", b""))).lower().split()
        return Kind.LINK if REQUISITE_RELATIONS.isdisjoint(relations) else Kind.REQUISITE

    def _meta(self, value: bytes, values: dict[bytes, bytes]) -> bytes | None:
        directive = _unquoted(values.get(b"http-equiv", b"")).lower()
        if directive == b"refresh":
            return self._changed(value, self._refresh)
        return b'""' if directive == b"content-security-policy" else None

    def _refresh(self, content: str) -> str | None:
        said = refresh(content)
        if said is None or not said[1] or (mapped := self._mapped(said[1], Kind.REFRESH)) is None:
            return None
        return f"{said[0]}; url={mapped}"

    def _srcset(self, value: str) -> str | None:
        parts: list[str] = []
        done = 0
        for start, end in srcset_spans(value):
            if (mapped := self._mapped(value[start:end], Kind.REQUISITE)) is not None:
                parts += [value[done:start], _SRCSET_UNSAFE.sub(lambda unsafe: quote(unsafe[0]), mapped)]
                done = end
        return "".join([*parts, value[done:]]) if parts else None

    def _changed(self, value: bytes, change: Callable[[str], str | None]) -> bytes | None:
        """Decode an attribute value, apply `change` to the text, and return it with quotes; None if it is unchanged."""
        new = change(self._text(_unquoted(value)))
        if new is None:
            return None
        quote = value[:1] if value[:1] in (b'"', b"'") else b'"'
        text = new.replace("&", "&amp;").replace('"', "&quot;") if quote == b'"' else (
            new.replace("&", "&amp;").replace("'", "&#39;")
        )  # fmt: skip
        return quote + text.encode(self._codec, "xmlcharrefreplace") + quote

    def _text(self, value: bytes) -> str:
        return attribute_text(value.decode(self._codec, "replace"))

    # -- URLs

    def _mapped(self, raw_url: str, kind: Kind) -> str | None:
        """Return the replacement of a URL, with its fragment; None if it stays unchanged."""
        if self._room <= 0:
            return None
        stripped = raw_url.strip("\t\n\f\r ")
        if self._base == self._url and (not stripped or stripped[0] == "#"):
            return None  # a link within the page
        href, mark, fragment = stripped.partition("#")
        above_url = plain_join(self._above, href) if kind is not Kind.BASE else ""
        base = self._url if kind is Kind.BASE else self._base
        url = above_url or resolve(base, href, encoding=self._encoding)
        mapped = self._map_url(url, kind) if url else None
        if mapped is None:
            return None
        if mark and "#" not in mapped:
            mapped += mark + fragment
        self._room -= len(mapped)
        return mapped


def _with_changes(
    text: bytes, found: list[re.Match[bytes]], changes: list[tuple[re.Match[bytes], bytes]]
) -> bytes:
    """Return the attributes with the new values, and without `_DROPPED`, which would make browsers reject new URLs."""
    edits = [(each.start(2), each.end(2), value) for each, value in changes]
    edits += [(each.start(), each.end(), b"") for each in found if each[1].lower() in _DROPPED]
    parts: list[bytes] = []
    done = 0
    for start, end, value in sorted(edits):
        parts += [text[done:start], value]
        done = end
    return b"".join([*parts, text[done:]])


def _unquoted(value: bytes) -> bytes:
    if value[:1] in (b'"', b"'"):
        return value[1:-1] if len(value) > 1 and value[-1] == value[0] else value[1:]
    return value


def _if_changed(old: str, new: str) -> str | None:
    return None if new is old else new


def _attributes_in(text: bytes) -> list[re.Match[bytes]]:
    return [each for each in _ATTRIBUTE.finditer(text) if each[1]]
