"""The line of pages.jsonl for a fetch."""

import msgspec

from crawler.clock import iso_time
from crawler.frontier.outcome_policy import End
from crawler.records import Extracted, Fetch, FetchTask

_encode_json = msgspec.json.Encoder().encode


class PageLine(msgspec.Struct, omit_defaults=True, gc=False):
    """A line of pages.jsonl; fields without a value are left out."""

    id: str
    url: str
    ts: str
    outcome: str
    status: int
    mime: str
    bytes: int
    took: float
    depth: int
    attempt: int
    decision: str
    title: str = ""
    truncated: str = ""
    location: str = ""
    error: str = ""
    rendered: float = 0.0  # seconds for which a browser showed the page
    gained: bool = False  # whether the browser showed links or text that the answer lacks
    # The limit that ended the page in the browser; without `rendered`, why the page was not shown.
    cut_by: str = ""
    missing: int = 0  # requests of the page in the browser that got no usable answer


def page_line(fetch_task: FetchTask, fetch: Fetch, extracted: Extracted | None, end: End) -> bytes:
    """Return the line for a fetch with the end `end`, including the line feed."""
    line = PageLine(
        f"{fetch_task.fingerprint:016x}",
        fetch_task.url,
        iso_time(fetch.began),
        fetch.outcome,
        fetch.status,
        fetch.content_type,
        fetch.body_bytes,
        round(fetch.took, 4),
        fetch_task.depth,
        fetch_task.attempt + 1,
        end,
        extracted.title if extracted is not None else "",
        fetch.truncated,
        fetch.location,
        fetch.error,
        round(fetch.shown.took, 2) if fetch.shown else 0.0,
        fetch.rendering.added if fetch.rendering else False,
        fetch.rendering.broke if fetch.rendering else "",
        fetch.rendering.missing if fetch.rendering else 0,
    )
    return _encode_json(line) + b"\n"
