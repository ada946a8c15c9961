"""Maps every way in which a fetch ends to exactly one Outcome and one Blame.

`fetcher/README.md`, "Status and outcome", has the table.
"""

from crawler import http_dates
from crawler.fetcher.answer import Answer
from crawler.fetcher.framing import Head
from crawler.records import BUSY_STATUSES, REDIRECT_STATUSES, TLS_FAILURES, Blame, Outcome, only_value
from crawler.urls.media_type import field_text

_BLAME = {
    Outcome.TEMPORARY: Blame.URL,
    Outcome.FRAMING: Blame.URL,
    Outcome.TRUNCATED: Blame.URL,
    Outcome.HEADER_TIMEOUT: Blame.URL,
    Outcome.NOT_RENDERED: Blame.URL,
    Outcome.INTERNAL_ERROR: Blame.URL,
    Outcome.HOST_BUSY: Blame.HOST,
    Outcome.DNS_ERROR: Blame.HOST,
    Outcome.CONNECT_ERROR: Blame.HOST,
    Outcome.RESET: Blame.HOST,
    **dict.fromkeys(TLS_FAILURES, Blame.HOST),
    Outcome.PROXY_ERROR: Blame.HOST,
    Outcome.DNS_NOT_FOUND: Blame.NONE,
    Outcome.ADDRESS_DENIED: Blame.NONE,
}


def blame_of(outcome: Outcome) -> Blame:
    """Return the party to which an outcome is charged: NONE for success and for final outcomes."""
    return _BLAME.get(outcome, Blame.NONE)


def conclude(answer: Answer, *, conditional: bool) -> Outcome:
    """Return the outcome of a complete answer."""
    if answer.failure is not None:
        return answer.failure
    assert answer.head is not None
    if answer.truncated in ("time", "disconnect") and 200 <= answer.head.status < 300:
        return Outcome.TRUNCATED
    return of_head(answer.head, conditional=conditional, has_body=answer.body_bytes > 0)


def of_head(head: Head, *, conditional: bool = False, has_body: bool) -> Outcome:
    """Return the outcome of an answer that was received completely, now or in an earlier crawl."""
    if demands_license(head):
        return Outcome.LICENSE_REQUIRED
    return of_status(
        head.status, conditional=conditional, has_body=has_body, has_location=bool(location_of(head))
    )


def demands_license(head: Head) -> bool:
    """Return whether an answer demands a licence token (RSL 1.0), that is, a 401 with the challenge `License`."""
    return head.status == 401 and any(
        value.lower().split(None, 1)[:1] == [b"license"] for value in head.values(b"www-authenticate")
    )


def of_status(status: int, *, conditional: bool, has_body: bool, has_location: bool) -> Outcome:
    """Return the outcome of a final status (RFC 9110 15)."""
    if 200 <= status < 300:
        if status == 206:
            return Outcome.UNEXPECTED_STATUS
        return Outcome.FETCHED if has_body and status not in (204, 205) else Outcome.EMPTY
    if status == 304:
        return Outcome.UNCHANGED if conditional else Outcome.UNEXPECTED_STATUS
    if 300 <= status < 400:
        return Outcome.REDIRECT if status in REDIRECT_STATUSES and has_location else Outcome.BAD_REDIRECT
    if status in (404, 410):
        return Outcome.GONE
    if status in BUSY_STATUSES:
        return Outcome.HOST_BUSY
    if status == 408 or 500 <= status < 600:
        return Outcome.TEMPORARY
    if status == 416:  # answer.py handles the 416 to a request with Range; without Range, a 416 is unexpected
        return Outcome.UNEXPECTED_STATUS
    return Outcome.CLIENT_ERROR if 400 <= status < 500 else Outcome.UNEXPECTED_STATUS


def location_of(head: Head) -> str:
    """Return the target of a redirect, with raw UTF-8 decoded; "" if there is none, or there are several that differ."""
    return field_text(only_value(head.values(b"location"))) if 300 <= head.status < 400 else ""


def retry_after_of(head: Head, now: float) -> float:
    """Return the wait in seconds that Retry-After demands in a 429, 503 or 3xx; 0.0 if absent, past or unreadable."""
    raw = head.known.get(b"retry-after")
    if raw is None or not (head.status in BUSY_STATUSES or 300 <= head.status < 400):
        return 0.0
    value = raw.partition(b"\n")[0]
    if value.isdigit():
        return float(value[:15])
    instant = http_dates.instant(field_text(value))
    return max(instant - now, 0.0) if instant is not None else 0.0
