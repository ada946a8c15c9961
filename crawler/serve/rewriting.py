"""Links of a stored page led back into the cache: `rewrite=1`.

Links and frames go to `/page?url=...&rewrite=1`, requisites (images, styles)
too, so that a style sheet's own references are led back as well. What the
cache lacks answers 404 with its reason.
"""

from crawler.serve.memento import page_path
from crawler.serve.representation import Rewriter
from crawler.urls.media_type import media_type

_HTML = ("text/html", "application/xhtml+xml")


def rewriter() -> Rewriter | None:
    """What rewrites HTML and CSS by their Content-Type."""
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
