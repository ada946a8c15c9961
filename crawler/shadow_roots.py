"""Shows the contents of shadow roots to parsers that do not support shadow roots.

Sites, and browsers that save their DOM, write a shadow root as `<template shadowrootmode="open">` (WHATWG
HTML, 4.12.3). People see the contents of a shadow root. But a parser that does not support shadow roots reads
the `<template>` element as an ordinary template, whose contents are not part of the page.
"""

import re

_MARK = b"shadowrootmode"
_NAME = b"shadow-root"  # an element that no parser knows, so that its contents are part of the page
_TOKEN = re.compile(
    rb"<!--.*?(?:-->|\Z)|<(script|style|textarea|title|xmp)\b.*?(?:</\1|\Z)"
    rb"|<(?P<end>/?)template\b(?P<attributes>[^<>]{0,1000})>",
    re.DOTALL | re.IGNORECASE,
)
_IS_ROOT = re.compile(rb"[\s/]shadowrootmode\s*=\s*[\"']?(?:open|closed)\b", re.IGNORECASE)


def open_shadow_roots(html: bytes) -> bytes:
    """Return the HTML with shadow roots turned into normal elements. Other templates stay. The time is linear.

    >>> open_shadow_roots(b'<x-a><template shadowrootmode="open"><a href="/1">One</a></template></x-a>')
    b'<x-a><shadow-root shadowrootmode="open"><a href="/1">One</a></shadow-root></x-a>'
    """
    if _MARK not in html.lower():
        return html
    open_templates: list[bool] = []  # a stack of the open templates; True stands for a shadow root

    def replace(token: re.Match[bytes]) -> bytes:
        attributes = token["attributes"]
        if attributes is None:
            return token[0]
        if token["end"]:
            is_root = bool(open_templates) and open_templates.pop()
        else:
            is_root = _IS_ROOT.search(attributes) is not None
            open_templates.append(is_root)
        return b"<%b%b%b>" % (token["end"], _NAME, attributes) if is_root else token[0]

    return _TOKEN.sub(replace, html)
