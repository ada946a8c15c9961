"""The front page of the page server: a form for people who open the server's address in a browser.

The form opens a stored page with its links rewritten, so that they lead to stored pages. The front page tells
nothing about the crawl.
"""

from crawler.serve.header_fields import Field, head
from crawler.serve.reply import Reply

_HTML = b"""<!doctype html>
<html lang=en><head><meta charset=utf-8><meta name=viewport content="width=device-width,initial-scale=1">
<title>Stored pages</title><style>
:root { color-scheme: light dark }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem }
form { display: flex; flex-wrap: wrap; gap: .5rem; align-items: end }
label { flex: 1 1 16rem } input { width: 100%; box-sizing: border-box }
input, button { font: inherit; padding: .3rem .6rem }
td { padding: .2rem 1rem .2rem 0; vertical-align: top; overflow-wrap: anywhere }
@media (max-width: 36rem) { table, tbody, tr, td { display: block } td { padding: 0 } tr { margin-bottom: .8rem } }
</style></head><body><main><h1>Stored pages</h1>
<form action=/page><label>URL of a stored page <input name=url type=url required placeholder="https://example.org/"></label>
<input type=hidden name=rewrite value=1><button>Show</button></form>
<h2>For programs</h2>
<table>
<tr><td><code>/page?url=URL</code><td>the newest copy; <code>&amp;at=TIME</code> an earlier one,
<code>&amp;rewrite=1</code> with links to stored pages
<tr><td><code>/view?url=URL</code><td>the picture of the copy that a browser took
<tr><td><code>/timegate/URL</code><td>the copy nearest to <code>Accept-Datetime</code> (Memento)
<tr><td><code>/timemap/link/URL</code><td>the list of the copies (Memento)
<tr><td><code>/signal</code>, <code>/indexnow</code><td>reports of changed pages (POST)
<tr><td><code>/healthz</code>, <code>/readyz</code><td>whether the server runs, and whether it is ready
</table></main></body></html>
"""
_FIELDS: tuple[Field, ...] = (
    (b"Content-Type", b"text/html; charset=utf-8"),
    (
        b"Content-Security-Policy",
        b"default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Referrer-Policy", b"no-referrer"),
    (b"Cross-Origin-Resource-Policy", b"same-origin"),
)


def front_page() -> Reply:
    """Return the reply to a request for `/`."""
    return Reply(200, head(200, "OK", _FIELDS), len(_HTML), _HTML)
