"""Error responses: a status and the reason, as JSON for programs or as a page for people with a browser."""

from collections.abc import Sequence
from html import escape

import msgspec

from crawler.serve.header_fields import weights

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><meta name="robots" content="noindex">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem;
 overflow-wrap: anywhere }}
dt {{ font-weight: 600 }} dd {{ margin: 0 0 .5rem }}
</style>
<main><h1>{title}</h1>
<p>{why}</p>
<dl>{rows}</dl></main></html>
"""
# The heading of an error page for each value of `state` in an `HttpError`. For other states, the heading is
# the status and its name.
_TITLES = {
    "unknown": "This page is not in the cache",
    "todo": "This page has not been fetched yet",
    "failed": "This page could not be fetched",
    "gone": "This page no longer exists",
    "denied": "This page may not be crawled",
    "filtered": "This page is outside of the crawl",
    "noarchive": "This page may not be shown",
    "retired": "This page was removed",
    "withdrawn": "This page was removed",
    "stale": "The stored copy is too old",
    "queued": "This page will be fetched soon",
    "parked": "This page is beyond a limit of the crawl",
    "blocked": "This page cannot be fetched now",
    "disallowed": "This page may not be crawled",
    "out_of_scope": "This page is outside of the crawl",
    "full": "Too many pages are waiting",
    "damaged": "The stored copy cannot be read",
    "shipped": "The stored copy is in object storage",
    "elsewhere": "Another server has this page",
    "changed": "The stored copy has changed",
}
_LABELS = {"url": "Address", "age": "Age of the copy in seconds", "refresh": "Refresh", "queued": "Queued"}


class HttpError(Exception):
    """An error response: a status, a JSON object with the reason, and additional header `fields`.

    Such an error is expected: it is caused by the client or by the state of the crawl.
    """

    def __init__(
        self, status: int, state: str, why: str, *, fields: tuple[tuple[str, str], ...] = (), **more: object
    ) -> None:
        super().__init__(f"{status} {state}: {why}")
        self.status = status
        self.body = {"state": state, "why": why, **more}
        self.fields = fields

    def content(self) -> bytes:
        """Return the JSON text."""
        return msgspec.json.encode(self.body) + b"\n"

    def page(self, reason: str) -> bytes:
        """Return an HTML page with the reason; `reason` is the name of the status."""
        title = _TITLES.get(str(self.body["state"]), reason)
        shown = {name: self.body[name] for name in _LABELS if name in self.body}
        rows = [f"<dt>{_LABELS[name]}</dt><dd>{escape(_shown(value))}</dd>" for name, value in shown.items()]
        rows.append(f"<dt>Status</dt><dd>{self.status} {escape(reason)}</dd>")
        text = _PAGE.format(
            title=escape(title), why=escape(_sentence(str(self.body["why"]))), rows="\n".join(rows)
        )
        return text.encode("utf-8", "replace")


def check_method(method: str, allowed: Sequence[str]) -> None:
    """Raise HttpError (405, with the methods in `Allow`) if a path does not have this method (RFC 9110, 15.5.6)."""
    if method not in allowed:
        methods = ", ".join(allowed)
        why = f"the method {method} is not allowed here; allowed: {methods}"
        raise HttpError(405, "bad_request", why, fields=(("Allow", methods),))


def wants_page(accept: str) -> bool:
    """Return whether this Accept field is from a browser, which means that it names HTML and does not prefer JSON.

    Programs send no Accept field, or `*/*`, or a field that names JSON.
    """
    given = weights(accept)
    html = given.get("text/html", 0.0)
    return html > 0.0 and html >= given.get("application/json", 0.0)


def _shown(value: object) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "`")) else ".")
