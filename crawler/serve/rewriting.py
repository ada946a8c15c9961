"""Rewrites the links of a stored page so that they point into the cache: `rewrite=1`.

Links and frames point to `/page?url=...&rewrite=1`. Requisites (images, style sheets) point there, too, so
that references within style sheets are rewritten. A URL that the cache lacks gets 404 with the reason.
"""

from crawler.serve.memento import page_path
from crawler.serve.representation import Rewriter
from crawler.urls.media_type import media_type

_HTML = ("text/html", "application/xhtml+xml")


def rewriter() -> Rewriter | None:
    """Return a function that rewrites HTML and CSS by their Content-Type."""
    from crawler.extract.decode import to_utf8
    from crawler.extract.rewrite import Kind, rewrite_css_bytes, rewrite_html

    def mapped(url: str, kind: Kind) -> str | None:
        return "" if kind is Kind.BASE else page_path(url, rewrite=True)

    def rewrite(content: bytes, content_type: bytes, url: str) -> bytes | None:
        kind, charset = media_type([content_type])
        if kind in _HTML or (not kind and content[:512].lstrip()[:1] == b"<"):
            encoding = to_utf8(content, charset)[1]
            return rewrite_html(content, encoding, url, mapped, xhtml=kind == _HTML[1])
        if kind == "text/css":
            return rewrite_css_bytes(content, charset, url, mapped)
        return None

    return rewrite
