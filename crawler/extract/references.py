"""Decodes character references in attribute values and in text (WHATWG HTML, 13.2.5.72 to 80).

`html.unescape` follows the standard for text, but not for attributes, and not for control characters.
"""

import re
from html.entities import html5

_REFERENCE = re.compile(r"&(?:#([0-9]++);?|#[xX]([0-9a-fA-F]++);?|([a-zA-Z][a-zA-Z0-9]{0,31}+;?))")
_WITHOUT_SEMICOLON_MAX = max(len(name) for name in html5 if not name.endswith(";"))
# maximum number of significant digits of a code point; a number with more digits is out of range
_DIGITS_MAX = 7
_REPLACEMENT = "\ufffd"
_CODE_POINT_MAX = 0x10FFFF
# The code points 0x80 to 0x9F stand for the characters that windows-1252 has at these positions.
_OF_WINDOWS = {
    0x80 + place: character
    for place, character in enumerate(bytes(range(0x80, 0xA0)).decode("windows-1252", "replace"))
    if character != _REPLACEMENT
}


def attribute_text(value: str) -> str:
    """Decode the character references in an attribute value. `value` is as written in the page."""
    return _REFERENCE.sub(_in_attribute, value) if "&" in value else value


def data_text(text: str) -> str:
    """Decode the character references in the text of an element. `text` is as written in the page."""
    return _REFERENCE.sub(_in_text, text) if "&" in text else text


def _in_attribute(match: re.Match[str]) -> str:
    name = match[3]
    if name is None:
        return _numbered(match)
    if name.endswith(";"):
        return html5.get(name, match[0])
    followed = match.string[match.end() : match.end() + 1]
    return match[0] if followed == "=" or _is_alphanumeric(followed) else html5.get(name, match[0])


def _is_alphanumeric(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _in_text(match: re.Match[str]) -> str:
    name = match[3]
    if name is None:
        return _numbered(match)
    if name in html5:
        return html5[name]
    for length in range(min(len(name), _WITHOUT_SEMICOLON_MAX), 1, -1):
        if (character := html5.get(name[:length])) is not None:
            return character + name[length:]
    return match[0]


def _numbered(match: re.Match[str]) -> str:
    """Return the character of a numeric reference."""
    digits = (match[1] or match[2]).lstrip("0")
    if len(digits) > _DIGITS_MAX:
        return _REPLACEMENT
    number = int(digits or "0", 10 if match[1] else 16)
    if number in _OF_WINDOWS:
        return _OF_WINDOWS[number]
    surrogate = 0xD800 <= number <= 0xDFFF
    return _REPLACEMENT if not number or surrogate or number > _CODE_POINT_MAX else chr(number)
