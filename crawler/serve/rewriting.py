"""Rewrites the links of a stored page so that they point into the cache: `rewrite=1`.

Links and frames point to `/page?url=...&rewrite=1`. Requisites (images, style sheets) point there, too, so
that references within style sheets are rewritten. A URL that the cache lacks gets 404 with the reason.

A browser ignores a meta refresh in a sandbox without scripts, so a page that only forwards its readers would
be a dead end. So a link to the copy of the target is added at the end of a page that only forwards its
readers.
"""

from collections.abc import Sequence
from html import escape

from crawler.serve.memento import page_path
from crawler.serve.representation import Rewriter
from crawler.urls.canonical import resolve
from crawler.urls.media_type import CSS, XHTML, field_text, is_page, media_type

_NOTE = (
    '<p style="all: initial; display: block; padding: 8px; background: #fff; font: 16px sans-serif; color: #000">'
    'This page sends its readers on to <a href="{path}">{target}</a></p>'
)


def rewriter() -> Rewriter | None:
    """Return a function that rewrites HTML and CSS, which it recognizes by the Content-Type."""
    from crawler.extract.decode import to_utf8
    from crawler.extract.headers import refresh
    from crawler.extract.rewrite import Kind, python_codec, rewrite_css_bytes, rewrite_html

    def rewrite(
        content: bytes, content_types: Sequence[bytes], url: str, refresh_field: bytes
    ) -> bytes | None:
        kind, charset = media_type(content_types)
        if kind == CSS:
            return rewrite_css_bytes(content, charset, url, lambda target, _: page_path(target, rewrite=True))
        if not is_page(kind, content):
            return None
        said = refresh(field_text(refresh_field))
        encoding, xhtml = to_utf8(content, charset)[1], kind == XHTML
        targets = [resolve(url, said[1], encoding=encoding)] if said is not None else []

        def mapped(target: str, kind: Kind) -> str:
            if kind is Kind.REFRESH:
                targets.append(target)
            return "" if kind is Kind.BASE else page_path(target, rewrite=True)

        changed = rewrite_html(content, encoding, url, mapped, xhtml=xhtml)
        onward = next((target for target in targets if target and target != url), "")
        if not onward:
            return changed
        end = changed.rfind(b"</body") if xhtml else len(changed)
        note = _NOTE.format(path=escape(page_path(onward, rewrite=True)), target=escape(onward))
        return changed if end < 0 else changed[:end] + note.encode(python_codec(encoding)) + changed[end:]

    return rewrite
