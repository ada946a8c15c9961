"""Counts the tags of a page by kind, in one pass over its bytes, for `parser_guard.py`.

A *formatting* tag is a start tag that may belong to a formatting element, judged by the two bytes after `<`.
Tags such as `<bible>` are therefore counted, too. So the number of formatting tags may be too high, but
counting them takes only one table look-up per tag.
"""

import re

import cython

if cython.compiled:
    from cython.cimports.libc.string import memchr

COMPILED: bool = cython.compiled

# The formatting elements (WHATWG HTML, 13.1). `a` is left out, because its attributes hold links.
FORMATTING_NAMES = (
    b"b", b"big", b"code", b"em", b"font", b"i", b"nobr", b"s", b"small", b"strike", b"strong", b"tt", b"u",
)  # fmt: skip
_AFTER_NAME = b"\t\n\f\r /"  # a tag such as `<b>`, with `>` after the name, has no attributes

_FORMATTING_START = re.compile(
    b"|".join(sorted({b"<" + name[:1] + (name[1:2] or b"[%b]" % _AFTER_NAME) for name in FORMATTING_NAMES})),
    re.IGNORECASE,
)


def _beginnings() -> bytes:
    """Return a table by the two bytes after `<` (little-endian): 1 if a formatting tag may begin with them."""
    table = bytearray(1 << 16)
    for name in FORMATTING_NAMES:
        for first in (name[0], name[0] & 0xDF):
            for second in name[1:2] or _AFTER_NAME:
                table[first | second << 8] = 1
                if len(name) > 1:
                    table[first | (second & 0xDF) << 8] = 1
    return bytes(table)


_BEGINNINGS = _beginnings()


def survey(content: bytes) -> tuple[int, int, list[int]]:
    """Return upper bounds of the numbers of tags and end tags, and the positions at which formatting tags may begin."""
    if not cython.compiled:
        starts = [match.start() + 1 for match in _FORMATTING_START.finditer(content)]
        return content.count(b"<"), content.count(b"</"), starts
    beginnings: bytes = _BEGINNINGS
    formats: cython.p_uchar = cython.cast(cython.p_uchar, cython.cast(cython.p_char, beginnings))
    text: cython.p_uchar = cython.cast(cython.p_uchar, cython.cast(cython.p_char, content))
    end: cython.p_uchar = text + len(content)
    at: cython.p_uchar = text
    tags: cython.Py_ssize_t = 0
    end_tags: cython.Py_ssize_t = 0
    formatting: list = []
    while True:
        at = cython.cast(cython.p_uchar, memchr(at, 60, end - at))
        if at == cython.NULL:
            return tags, end_tags, formatting
        at += 1  # at the end of the page, this byte is the NUL that follows every bytes object
        tags += 1
        if at[0] == 47:
            end_tags += 1
        elif at[0] != 0 and formats[at[0] | at[1] << 8]:
            formatting.append(at - text)
