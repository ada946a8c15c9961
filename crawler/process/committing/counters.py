"""The durable counters of a process, and the equations that hold between them (`broken_laws`).

`accepted` counts links that passed the URL filter; `received` counts links from other processes. A cache hit
is a link that is already in the CLOCK cache or in the DUE's set of pending fingerprints. `resharded` balances
the equations after a reshard has moved hosts to or from this process. Seeds count as links, and URLs in flight
as to do. Each group that is committed contains its own counts, so the equations also hold after a crash.

`stored.records` counts the page records in the store (u/), and `stored.captures` the captures (c/). If a count
differs from the number of keys in the store, a key was lost.
"""

from collections.abc import Mapping

from crawler.frontier.outcome_policy import End
from crawler.pages.captures import Capturing
from crawler.records import DueCounts, Fetch, FrontierCounts, LinkFlag, Outcome, Rendering, SplitterCounts
from crawler.storage.commit import Change
from crawler.urls.media_type import is_page

_NO_FAILURE = frozenset(
    {
        Outcome.FETCHED,
        Outcome.EMPTY,
        Outcome.TRUNCATED,
        Outcome.UNCHANGED,
        Outcome.REDIRECT,
        Outcome.GONE,
        Outcome.ROBOTS_DENIED,
        Outcome.WITHDRAWN,
    }
)
# The counters of links that other processes have sent. Their sum is the number of links applied from the
# inbox.
FROM_PEERS = ("urls.received", "splitter.scope_heard", "splitter.signals_heard", "splitter.credits_heard")
RECOVERIES = "splitter.recoveries"
_KEPT_IF_CUT = (Outcome.FETCHED, Outcome.TRUNCATED)
_SHOWS_CONTENT = (Outcome.FETCHED, Outcome.EMPTY)


def count_kept(change: Change, capturing: Capturing) -> None:
    """Count the keys that a capture adds to the store. Also count the captured body if it is incomplete."""
    change.captures.append(capturing)
    change.count("stored.records", capturing.new_record)
    change.count("stored.captures", capturing.new_capture)
    fetch = capturing.fetch
    change.count("kept.pages", capturing.stored and capturing.record is not None)
    if fetch.truncated and fetch.final and fetch.outcome in _KEPT_IF_CUT and capturing.stored:
        change.count("bodies.cut" if fetch.truncated == "length" else "bodies.broken_off")
        is_file = not is_page(fetch.content_type, fetch.content)
        change.count("bodies.asked_incomplete", is_file and bool(capturing.fetch_task.flags & LinkFlag.SEED))


def count_retired(change: Change, urls: int) -> None:
    """Count URLs that `crawler retire` dropped; they are done."""
    change.count("urls.done", urls)
    change.count("urls.retired", urls)


def count_page(change: Change, fetch: Fetch, end: End) -> None:
    """Count the fetch of a discovered page: `pages.<outcome>`, and also the URL if it is done."""
    _count_fetch(change, "pages", fetch, end)
    if end is End.DONE:
        change.count("urls.done")
        if fetch.outcome not in _NO_FAILURE:
            change.count("urls.failed")


def count_refresh(change: Change, capturing: Capturing, end: End, *, is_first: bool) -> None:
    """Count the refetch of a known page: `refresh.<outcome>`, and whether its content changed, if that is known.

    If no earlier fetch has found the page (`is_first`), count its first copy instead of a change.
    """
    fetch = capturing.fetch
    _count_fetch(change, "refresh", fetch, end)
    if end is End.DONE:
        change.count("refresh.done")
        if is_first:
            change.count("refresh.first_copies", fetch.outcome in _SHOWS_CONTENT)
        elif fetch.outcome in _SHOWS_CONTENT and not capturing.new_form:
            change.count("refresh.content_same" if capturing.unchanged else "refresh.content_changed")


def count_rendering(change: Change, rendering: Rendering) -> None:
    """Count a page that a browser showed or failed to show, its requests, and the time that it took in milliseconds."""
    change.count("rendered.pages" if rendering.dom else "rendered.failed")
    change.count("rendered.added", rendering.added)
    change.count("rendered.cut", bool(rendering.broke))
    change.count("rendered.requests", rendering.requests)
    change.count("rendered.cached", rendering.cached)
    change.count("rendered.missing", rendering.missing)
    change.count("rendered.ms", int(rendering.took * 1000))
    change.count("rendered.cpu_ms", int(rendering.cpu * 1000))
    change.count(f"rendered.why_{rendering.why}")
    for fetch in rendering.subresources:
        count_connection(change, fetch)
        change.count("bytes.wire", fetch.wire_bytes)


def count_connection(change: Change, fetch: Fetch) -> None:
    """Count the requests by their connections: reused, new without TLS, or new with a full or a resumed TLS handshake."""
    for connection in (*fetch.hop_connections, fetch.connection):
        if connection:
            change.count(f"connections.{connection}")


def count_request(change: Change, source: str, fetch: Fetch) -> None:
    """Count a request by its outcome, as `<source>.<outcome>`, with its connections and its bytes."""
    change.count(f"{source}.{fetch.outcome}")
    count_connection(change, fetch)
    change.count("bytes.wire", fetch.wire_bytes)


def _count_fetch(change: Change, source: str, fetch: Fetch, end: End) -> None:
    count_request(change, source, fetch)
    if end is not End.DONE:
        change.count(f"{source}.retried")
    change.count("bytes.decoded", fetch.part.length if fetch.part else len(fetch.content))


def broken_laws(
    counters: Mapping[str, int],
    due: DueCounts,
    frontier: FrontierCounts,
    splitter: SplitterCounts | None = None,
) -> list[str]:
    """Return the equations that do not hold, each as one line of text; [] if all equations hold.

    With one process, `splitter` is None.
    """
    c = counters.get
    laws = {
        "accepted + received + resharded = cache_hits + to_outbox + to_due": (
            c("urls.accepted", 0) + c("urls.received", 0) + c("urls.resharded", 0),
            c("urls.cache_hits", 0) + c("urls.to_outbox", 0) + c("urls.to_due", 0),
        ),
        "to_due = pending + known + new": (c("urls.to_due", 0), due.pending + due.known + due.new),
        "new = done + todo + parked": (due.new, c("urls.done", 0) + frontier.todo + frontier.parked),
        "refreshes by outcome = done + retried": (
            sum(c(f"refresh.{outcome}", 0) for outcome in Outcome),
            c("refresh.done", 0) + c("refresh.retried", 0),
        ),
    }
    if splitter is not None:
        laws |= {
            "to_outbox + scope_told + signals_told + credits_told = sent + waiting + repeated": (
                c("urls.to_outbox", 0) + splitter.scope_told + splitter.signals_told + splitter.credits_told,
                splitter.sent + splitter.waiting + splitter.repeated,
            ),
            "received + scope_heard + signals_heard + credits_heard = applied": (
                c("urls.received", 0)
                + splitter.scope_heard
                + splitter.signals_heard
                + splitter.credits_heard,
                splitter.applied,
            ),
        }
    return [f"{law}: {left} != {right}" for law, (left, right) in laws.items() if left != right]
