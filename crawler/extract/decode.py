"""Determines the character encoding of a page, and converts the page to UTF-8 for the parser.

`extract/README.md`, "Types and charset", lists the sources of the encoding (WHATWG HTML, 13.2.3). If a page is
plain ASCII and declares nothing, its encoding is reported as windows-1252, the standard's default.

Labels have the meaning that the WHATWG Encoding standard gives them: `iso-8859-1` is windows-1252, and
`gb2312` is gbk. Nearly all pages are UTF-8. The bytes of a UTF-8 page are passed on unchanged, because the parser
itself replaces invalid bytes.
"""

import re
from functools import lru_cache

import webencodings

PRESCAN_BYTES = 1024  # bytes examined by WHATWG's "prescan a byte stream"
LATE_PRESCAN_BYTES = 16_384  # a browser still finds a late declaration within this many bytes

DEFAULT = "windows-1252"

_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xfe\xff", "utf-16be"), (b"\xff\xfe", "utf-16le"))
# Encodings in which ASCII bytes can have another meaning, so even pure ASCII must be decoded.
_NOT_ASCII_COMPATIBLE = frozenset({"utf-16be", "utf-16le", "iso-2022-jp", "replacement"})

# matches two-byte characters up to an escape sequence
_CUT_CHARACTER = re.compile(rb"(\x1b\$[@B])([^\x1b]*+)(?=\x1b)")
_CONTROLS = bytes(range(0x20))
_GETA = b'".'  # bytes of JIS X 0208 that mark a missing character

# All quantifiers are possessive, so no page can make the expression backtrack.
_NAME, _DOUBLE, _SINGLE, _BARE = rb"[^\s/>][^\s/>=]*+", rb'[^"]*+', rb"[^']*+", rb"[^\s>]*+"
_ATTRIBUTE = re.compile(
    rb"(%b)(?:\s*+=\s*+(?:\"(%b)\"|'(%b)'|(?![\"'])(%b)))?+" % (_NAME, _DOUBLE, _SINGLE, _BARE)
)
# A tag with its name and attributes. The final `>` is missing if a quote is not closed.
_TAG = re.compile(
    rb"</?([A-Za-z][^\s/>]*+)((?:[\s/]*+%b(?:\s*+=\s*+(?:\"%b\"|'%b'|(?![\"'])%b))?+)*+)[\s/]*+>?"
    % (_NAME, _DOUBLE, _SINGLE, _BARE)
)
# The usual contents of a page before its `<meta>`: text, whole comments, declarations, and tags without stray
# quotes.
_PLAIN_MARKUP = re.compile(
    rb"""(?:[^<]++|<!(?=--)(?>.*?-->)|<(?:!(?!--)|\?)[^>]*+>|</?[A-Za-z][^\s/>"'=<]*+"""
    rb"""(?:[\s/]++[^\s/>"'=<]++(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'=<]++))?+)*+[\s/]*+>)*+""",
    re.DOTALL,
)
_LABEL_IN_CONTENT = re.compile(
    rb"""charset\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|(?!["'])([^\s;]++))""", re.IGNORECASE
)


def to_utf8(content: bytes, declared: str = "") -> tuple[bytes, str]:
    """Return `content` as UTF-8 for the parser, and the page's encoding (WHATWG name, lower case).

    Args:
        content: a page, without content coding.
        declared: the charset parameter of Content-Type; "" if there is none.
    """
    for bom, name in _BOMS:
        if content.startswith(bom):
            return _transcode(content[len(bom) :], name), name
    name = name_of(declared.strip("\"' ")) or _prescan(content) or _guess(content)
    return _transcode(content, name), name


def name_of(label: str) -> str:
    """Return the WHATWG name of an encoding label; "" if the label is unknown."""
    if label in ("utf-8", "UTF-8"):
        return "utf-8"
    try:
        encoding = webencodings.lookup(label)
    except UnicodeError:  # a lone surrogate
        return ""
    return encoding.name if encoding is not None else ""


def _transcode(content: bytes, name: str) -> bytes:
    if name == "utf-8" or (name not in _NOT_ASCII_COMPATIBLE and content.isascii()):
        return content
    if name == "iso-2022-jp":
        content = _CUT_CHARACTER.sub(_whole_characters, content)
    text, _ = webencodings.lookup(name).codec_info.decode(content, "replace")
    return text.encode("utf-8", "replace")


def _whole_characters(run: re.Match[bytes]) -> bytes:
    """Return a run of two-byte characters. If it ends with half a character, replace this half by `_GETA`.

    If an escape sequence follows half a character, WHATWG's decoder recognizes the sequence. Python's decoder
    takes the first byte of the sequence as the second half, and then reads all following text as Japanese.
    """
    halves = len(run[2].translate(None, _CONTROLS))
    return run[0] if halves % 2 == 0 else run[1] + run[2].rstrip(_CONTROLS)[:-1] + _GETA


def _guess(content: bytes) -> str:
    if content.isascii():
        return DEFAULT
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return DEFAULT
    return "utf-8"


def _prescan(content: bytes) -> str:
    """Return the encoding that a `<meta>` declares; "" if none does.

    An early declaration takes precedence over a late one. Most pages have one of a few declarations, so the
    answer is cached by the text of the declaration. If the text before the declaration could matter, the
    answer is cached by the whole beginning of the page.
    """
    head = content[:PRESCAN_BYTES]
    end = head.find(b">", head.find(b"charset")) + 1
    begin = max(head.rfind(b"<", 0, end), 0)
    if b"charset" in head[:begin].lower() or not _PLAIN_MARKUP.fullmatch(head, 0, begin):
        begin = 0
    return (
        (_prescan_beginning(head[begin:end]) if end else "")
        or _prescan_part(head)
        or _prescan_part(content[:LATE_PRESCAN_BYTES])
    )


@lru_cache(maxsize=256)
def _prescan_beginning(beginning: bytes) -> str:
    """Return the encoding declared in `beginning`; "" if this depends on whether `beginning` ends inside quotes."""
    found = {_prescan_part(beginning + end) for end in (b"", b'">', b"'>")}
    return found.pop() if len(found) == 1 else ""


def _prescan_part(head: bytes) -> str:
    if b"charset" not in head.lower():
        return ""
    at = head.find(b"<")
    while at >= 0:
        if head.startswith(b"<!--", at):
            end = head.find(b"-->", at + 2)
        elif tag := _TAG.match(head, at):
            end = tag.end() if head[tag.end() - 1 : tag.end()] == b">" else -1
            if end >= 0 and tag[1].lower() == b"meta" and (name := _declared_by(_attributes(tag[2]))):
                return name
        elif head[at + 1 : at + 2] in (b"!", b"/", b"?"):
            end = head.find(b">", at)
        else:
            end = at + 1
        if end < 0:
            return ""
        at = head.find(b"<", end)
    return ""


def _attributes(text: bytes) -> dict[bytes, bytes]:
    """Return the attributes of a tag; if a name occurs several times, the first attribute is used."""
    found: dict[bytes, bytes] = {}
    for match in _ATTRIBUTE.finditer(text):
        found.setdefault(match[1].lower(), match[2] or match[3] or match[4] or b"")
    return found


def _declared_by(attributes: dict[bytes, bytes]) -> str:
    """Return the encoding that a meta tag declares, "" if none (WHATWG 13.2.3.2, "prescan", step "meta")."""
    label = attributes.get(b"charset")
    if label is None and attributes.get(b"http-equiv", b"").lower() == b"content-type":
        match = _LABEL_IN_CONTENT.search(attributes.get(b"content", b""))
        label = match and (match[1] or match[2] or match[3])
    name = name_of(label.decode("latin-1")) if label else ""
    return {"utf-16be": "utf-8", "utf-16le": "utf-8", "x-user-defined": DEFAULT}.get(name, name)
