# cython: annotation_typing=False
"""The forms of a URL (`urls/README.md`, "Forms of a URL").

    raw_url   as written on the page                          "../A%7e?q=é#top"
    url       request form: sent and stored, ASCII            "http://h.example/A%7e?q=%C3%A9"
    key       duplicate key: only hashed, never sent          b"http://h.example/A~?q=%C3%A9"

`resolve` makes the request form with the WHATWG URL parser (ada); `canonical(canonical(u)) == canonical(u)`.
`duplicate_key` returns the same key for all spellings that certainly mean the same resource. The functions
`hostname`, `authority`, `directory` and `target` return parts of a request form, without checking their
argument.

Most hrefs are plain: `../a/b.html?x=1`, or absolute and already in the final form. `plain_join` appends a
plain href to the directory of the base, or to a directory above it, in a fifth of the parser's time. All other
hrefs are left to the parser.

The functions of this module raise no exception for any text. For a text that is not a usable http or https
URL, the functions return None. `resolve_or_rule` instead returns the name of the rule that rejects the text.
"""

import codecs
import re
from functools import lru_cache

import cython
from ada_url import URL, join_url

COMPILED: bool = cython.compiled

LENGTH_MAX = 8192  # maximum number of octets of a URL; RFC 9110 section 4.1 asks for at least 8,000
RAW_LENGTH_FACTOR = 8  # a text longer than this many times the limit is not parsed
# version of _SESSION_PATH and _SESSION_QUERY; it must rise with every change to them, because the keys of
# URLs change
SESSION_IDS_VERSION = 2

# The reasons why a raw URL has no request form. The URL filter has rules of these names.
UNPARSABLE = "unparsable"
SCHEME = "scheme"
TOO_LONG = "too_long"


def parse(raw_url: str, base: str | None = None) -> str | None:
    """Parse a URL of any scheme; return it as the WHATWG standard serialises it, or None if parsing fails.

    Lone surrogates become U+FFFD, as in the standard's USVString.
    """
    try:
        return URL(raw_url).href if base is None else join_url(base, raw_url)
    except ValueError:
        return _parse_scalar(raw_url, base)


def _parse_scalar(raw_url: str, base: str | None) -> str | None:
    """If there are lone surrogates, which the parser rejects, replace them and parse again."""
    clean, clean_base = _scalar(raw_url), None if base is None else _scalar(base)
    return parse(clean, clean_base) if (clean, clean_base) != (raw_url, base) else None


def _scalar(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def resolve(base: str, raw_url: str, *, encoding: str = "utf-8", length_max: int = LENGTH_MAX) -> str | None:
    """Return the request form of `raw_url` on a page with the base URL `base`, or None if the link must be dropped.

    `encoding`, the WHATWG name of the page's encoding, applies only to the query. The path is always
    encoded in UTF-8.
    """
    return resolve_or_rule(base, raw_url, encoding=encoding, length_max=length_max)[0] or None


def canonical(raw_url: str, *, length_max: int = LENGTH_MAX) -> str | None:
    """Return the request form of an absolute URL, or None if it has none."""
    plain = _PLAIN.fullmatch(raw_url)
    if plain is not None and "/." not in plain[2] and len(raw_url) <= length_max and _is_canonical(plain[1]):
        return raw_url
    return resolve_or_rule(None, raw_url, length_max=length_max)[0] or None


# Matches an origin and a path. The parser leaves such a URL unchanged, unless a segment of the path begins
# with a dot.
_PLAIN = re.compile(r"(https?://[-.0-9:a-z]{1,80})(/[-.0-9A-Z_a-z~/]*)")


@lru_cache(maxsize=1024)
def _is_canonical(origin: str) -> bool:
    return resolve_or_rule(None, f"{origin}/")[0] == f"{origin}/"


def resolve_or_rule(
    base: str | None, raw_url: str, *, encoding: str = "utf-8", length_max: int = LENGTH_MAX
) -> tuple[str, str]:
    """Return (request form, "") or ("", name of the rule that rejects the URL)."""
    end = raw_url.find("#")
    if end >= 0:  # keep the `#`, so that the parser does not trim a space before it
        raw_url = raw_url[: end + 1]
    if len(raw_url) > RAW_LENGTH_FACTOR * length_max:
        return "", TOO_LONG
    if encoding != "utf-8" and "?" in raw_url and not (raw_url.isascii() and raw_url.isprintable()):
        raw_url = _encode_query(raw_url, encoding)
    href = parse(raw_url, base)
    if href is None:
        return "", UNPARSABLE
    if not href.startswith(("http://", "https://")):
        return "", SCHEME
    return _request_form(href, length_max)


def _request_form(href: str, length_max: int) -> tuple[str, str]:
    """Remove fragment, credentials and the host's trailing dot from a parsed http(s) URL."""
    href = href.partition("#")[0]  # if the raw URL is empty, the parser keeps the fragment of the base
    start = 8 if href[4] == "s" else 7
    slash = href.index("/", start)
    if "@" in href[start:slash] or href[slash - 1] == "." or ".:" in href[start:slash]:
        netloc = _bare_netloc(href[start:slash])
        if not netloc:
            return "", UNPARSABLE
        href = href[:start] + netloc + href[slash:]
    return ("", TOO_LONG) if len(href) > length_max else (href, "")


def _bare_netloc(netloc: str) -> str:
    """Remove credentials and one trailing dot from an authority. Return "" if the name is invalid.

    A name that still ends with a dot after that, or that consists only of dots, is invalid.
    """
    netloc = netloc.rpartition("@")[2]
    if netloc[0] == "[":  # an IPv6 address contains colons and does not end with a dot
        return netloc
    host, colon, port = netloc.partition(":")
    host = host.removesuffix(".")
    return "" if not host or host.endswith(".") else host + colon + port


# The percent-encode set of special queries (WHATWG URL 1.3), as bytes.
_QUERY_ESCAPES = [
    f"%{byte:02X}" if byte <= 0x20 or byte >= 0x7F or byte in b"\"#<>'" else chr(byte) for byte in range(256)
]
_TRIMMED = "".join(map(chr, range(0x21)))  # C0 controls and space, removed from both ends of a URL
_REMOVED = {ord(character): None for character in "\t\n\r"}


def _encode_query(raw_url: str, encoding: str) -> str:
    """Percent-encode the query, from the first `?`, in the page's encoding.

    The standard calls this "percent-encode after encode". A character that the encoding lacks becomes a
    decimal character reference. The caller has removed the fragment, except its `#`.
    """
    codec = query_codec(encoding)
    if codec == "utf-8":
        return raw_url
    before, mark, query = raw_url.strip(_TRIMMED).translate(_REMOVED).partition("?")
    query = _scalar(query.removesuffix("#")).translate(_CODEC_EXCEPTIONS.get(codec, {}))
    encoded = query.encode(codec, "crawler.reference")
    return before + mark + "".join(map(_QUERY_ESCAPES.__getitem__, encoded))


def _reference(error: UnicodeError) -> tuple[str, int]:
    """Return decimal character references, percent-encoded, for characters that cannot be encoded."""
    assert isinstance(error, UnicodeEncodeError), error
    bad = error.object[error.start : error.end]
    return "".join(f"%26%23{ord(character)}%3B" for character in bad), error.end


codecs.register_error("crawler.reference", _reference)

# Replacements for characters that Python's codec encodes differently from the standard's encoder.
_GB18030_EXCEPTIONS = {0xE5E5: "%26%2358853%3B"}
_CODEC_EXCEPTIONS = {
    "gb18030": _GB18030_EXCEPTIONS,
    "gbk": _GB18030_EXCEPTIONS,
    # In ISO-2022-JP, the control characters 0x0E, 0x0F and 0x1B would switch the character set.
    "iso2022_jp": dict.fromkeys((0x0E, 0x0F, 0x1B), "%26%2365533%3B"),
    "cp1252": {code: f"%{code:02X}" for code in (0x81, 0x8D, 0x8F, 0x90, 0x9D)},
    "ascii": {0xF780 + byte: f"%{0x80 + byte:02X}" for byte in range(128)},
}
# an encoding of ASCII and 128 private-use characters, for which Python has no codec
_X_USER_DEFINED = "x-user-defined"
# On pages in one of these encodings, queries are encoded in UTF-8 (the standard's "get an output encoding").
_UTF8_OUTPUT = {"utf-8", "utf-16le", "utf-16be", "replacement"}


@lru_cache(maxsize=512)
def query_codec(encoding: str) -> str:
    """Return the Python codec for the queries on pages in `encoding`, or UTF-8 if the label is unknown."""
    import webencodings  # imported only if needed, because most pages are in UTF-8

    known = webencodings.lookup(encoding)
    if known is None or known.name in _UTF8_OUTPUT:
        return "utf-8"
    return "ascii" if known.name == _X_USER_DEFINED else known.codec_info.name


_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def normal_escapes(text: str) -> str:
    """Decode the escapes of unreserved characters, and write the hex digits of the others in upper case."""
    return _ESCAPE.sub(_normal_escape, text)


def _normal_escape(match: re.Match[str]) -> str:
    character = chr(int(match[0][1:], 16))
    return character if character in _UNRESERVED else match[0].upper()


# Version 2. Names are case-insensitive. A value ends at the next delimiter of the path or of the query,
# depending on where the name is. Some names also have other meanings. The value of such a name counts as an
# identifier only if it consists of 32 hexadecimal digits, or of at least 16 letters and digits, with at least
# one of each. Other values, as in `sid=7` and `session_id=autumn`, describe the page's content.
_SESSION_PATH = re.compile(r";jsessionid=[^/;]*|/\(S\([^/()]*\)\)(?=/|$)", re.IGNORECASE)
_SESSION_QUERY = re.compile(
    r"(?:PHPSESSID|CFID|CFTOKEN)=.*"
    r"|sid=[0-9a-f]{32}|(?:sid|sess(?:ion)?_?id|oscsid|zenid|aspsessionid[a-z]{8})="
    r"(?=[^0-9]*[0-9])(?=[^a-z]*[a-z])[0-9a-z,-]{16,128}",
    re.IGNORECASE | re.DOTALL,
)


def duplicate_key(url: str, *, strip_session_ids: bool = True) -> bytes:
    """Return the duplicate key of a URL (request form), as ASCII bytes. The key is hashed, and used for nothing else."""
    if "%" in url:
        url = normal_escapes(url)
    if strip_session_ids and ("?" in url or ";" in url or "(" in url):
        url = _without_session(url)
    return url.encode("ascii")


def _without_session(url: str) -> str:
    path, mark, query = url.partition("?")
    if ";" in path or "(" in path:
        start = url.index("/", 8)
        path = path[:start] + (_SESSION_PATH.sub("", path[start:]) or "/")
    if query and "=" in query:
        fields = query.split("&")
        kept = [field for field in fields if not _SESSION_QUERY.fullmatch(field)]
        if len(kept) < len(fields):
            query = "&".join(kept)
            mark = mark if kept else ""
    return path + mark + query


# Plain references. The parser does not change the segments of a plain reference. A segment has no colon,
# because a colon could end a scheme. A segment does not begin with a dot, because it could be a dot segment.
# A segment has no characters that must be escaped. The host of a plain reference is in its final form: in
# lower case and without a port. The last label of the host begins with a letter, because it might otherwise
# be a number. All repetitions are possessive.
_SEGMENT = r"[\w~+,;=@()!$&*-][\w.~+,;=@()!$&*-]*+"
_PATH = rf"(?:{_SEGMENT}/)*+(?:{_SEGMENT}(?:\?[\w.~=&;/+%:,@!$()*?-]*+)?+)?+"
_PLAIN_RELATIVE = re.compile(rf"((?:\.\./)*+|/){_PATH}", re.ASCII)
_PLAIN_ABSOLUTE = re.compile(rf"https?://(?:[a-z0-9_-]++\.)*+[a-z][a-z0-9_-]*+(/{_PATH})?", re.ASCII)


# Maximum number of slashes. The memory for the ancestors of a path grows with the square of its depth.
_DEPTH_MAX = 40


def ancestors(base: str) -> tuple[str, ...]:
    """Return the directory of an http(s) URL and all directories above it, up to the root.

    Return () if the URL has no request form, or is so deep that only the parser should process it.
    """
    url = canonical(base)
    if url is None or url.count("/") > _DEPTH_MAX:
        return ()
    found = [directory(url)]
    while found[-1].count("/") > 3:
        found.append(found[-1][: found[-1].rindex("/", 0, -1) + 1])
    return tuple(found)


def plain_join(above: tuple[str, ...], href: str) -> str:
    """Return the result of `resolve` for a plain `href`, or "" for other hrefs. The length is not checked.

    `above` are the base's `ancestors`.
    """
    if ":" in href:
        return "" if (match := _PLAIN_ABSOLUTE.fullmatch(href)) is None else href if match[1] else href + "/"
    if not above or not href or _PLAIN_RELATIVE.fullmatch(href) is None:
        return ""
    if href[0] == "/":
        return above[-1] + href[1:]
    level: cython.Py_ssize_t = 0
    while href.startswith("../", 3 * level):
        level += 1
    place = above[min(level, len(above) - 1)]
    return place + href[3 * level :] if level else place + href


def directory(url: str) -> str:
    """Return a URL (request form) up to and including the last slash of its path."""
    query = url.find("?")
    return url[: url.rindex("/", 0, query) + 1] if query >= 0 else url[: url.rindex("/") + 1]


def authority(url: str) -> str:
    """Return `scheme://host[:port]` of a URL (request form)."""
    return url[: url.index("/", 8)]


def target(url: str) -> str:
    """Return the path and the query of a URL (request form)."""
    return url[url.index("/", 8) :]


def hostname(url: str) -> str:
    """Return the host of a URL (request form), without the port. An IPv6 address keeps its brackets."""
    start = 8 if url[4] == "s" else 7
    netloc = url[start : url.index("/", start)]
    if ":" not in netloc or netloc[-1] == "]":
        return netloc
    return netloc[: netloc.rindex(":")]
