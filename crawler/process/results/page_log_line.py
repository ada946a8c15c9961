"""The line of pages.jsonl for a fetch."""

import msgspec

from crawler.clock import iso_time
from crawler.frontier.outcome_policy import End
from crawler.records import Extracted, Fetch, FetchTask, Rendering

_NONE = Rendering(dom=b"")
_encode_json = msgspec.json.Encoder().encode


class PageLine(msgspec.Struct, omit_defaults=True, gc=False):
    """A line of pages.jsonl. Fields that have their default values are left out."""

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
    rendered: float = 0.0  # number of seconds for which a browser showed the page
    gained: bool = False  # whether the browser showed links or text that the static answer lacks
    # If the page was shown: the limit at which the browser stopped the page. If the page was not shown
    # (`rendered` is absent): the reason.
    cut_by: str = ""
    missing: int = 0  # number of requests of the page in the browser that got no usable answer
    render_why: str = ""  # the reason for showing the page in a browser (`admin/render_reasons.py`)
    requests: int = 0  # requests of the page in the browser
    cpu: float = 0.0  # number of CPU seconds that the browser used for the page
    # True if no browser was tried, because earlier renderings of the page had failed.
    held_back: bool = False


def page_line(fetch_task: FetchTask, fetch: Fetch, extracted: Extracted | None, end: End) -> bytes:
    """Return the line for a fetch that ended with `end`. The line includes a line feed."""
    rendering = fetch.rendering or _NONE
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
        round(rendering.took, 2) if rendering.dom else 0.0,
        rendering.added,
        rendering.broke,
        rendering.missing,
        rendering.why,
        rendering.requests,
        round(rendering.cpu, 2) or 0.0,
        fetch.held_back,
    )
    return _encode_json(line) + b"\n"
