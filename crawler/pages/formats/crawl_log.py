"""Writes Heritrix's `crawl.log`: one line per fetch, in the order of the fetches.

    2026-11-20T23:59:59.123Z   200   1234 http://h/a LL http://h/ text/html #000 20261120235959000+123 sha1:... - -

Columns: time of the log entry, status, size, URL, hops from the seed (L link, R redirect, E page requisite),
URL of the page with the link, type, thread (always 000), start of the fetch + milliseconds, digest, seed (-),
annotations. The status of a fetch without an answer is one of Heritrix's negative codes. The lines are made
from `pages.jsonl`. Columns that are missing in that file come from the store.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from crawler.clock import iso_time
from crawler.pages import warc
from crawler.pages.archive import Archive
from crawler.pages.captures import capture_key
from crawler.pages.formats.rows import url_finder
from crawler.printable import printable
from crawler.records import TLS_FAILURES, LinkFlag, Outcome, PageRecord

# Heritrix's FetchStatusCodes for fetches without an answer.
_STATUS = {
    Outcome.DNS_ERROR: -1,
    Outcome.DNS_NOT_FOUND: -1,
    Outcome.CONNECT_ERROR: -2,
    Outcome.ADDRESS_DENIED: -2,
    **dict.fromkeys(TLS_FAILURES, -2),
    Outcome.PROXY_ERROR: -2,
    Outcome.RESET: -3,
    Outcome.HEADER_TIMEOUT: -4,
    Outcome.FRAMING: -404,  # Heritrix: an empty or broken answer
    Outcome.HEADER_TOO_LARGE: -404,
    Outcome.BAD_STATUS: -404,
    Outcome.ROBOTS_DENIED: -9998,
    Outcome.WITHDRAWN: -5003,  # Heritrix: blocked by a custom processor
}
_FAILED = -5  # Heritrix: some other runtime failure
_NAMES = str.maketrans({" ": "%20", "\n": "%0A", "\r": "%0D", "\t": "%09"})


def crawl_log_lines(lines: Iterable[bytes], archives: Sequence[Archive]) -> Iterator[bytes]:
    """Yield one line for each line of pages.jsonl that can be parsed; leave out fetches of withdrawn URLs."""
    url_of = url_finder(archives)
    for line in lines:
        try:
            fetch = msgspec.json.decode(line)
            if _is_withdrawn(fetch, archives):
                continue
            yield _line(fetch, archives, url_of).encode("utf-8", "replace")
        except (msgspec.MsgspecError, KeyError, ValueError, TypeError):  # a crash cut the line short
            continue


def _is_withdrawn(fetch: dict[str, Any], archives: Sequence[Archive]) -> bool:
    """Return whether a withdrawal covers a fetch. All archives of a crawl have the same withdrawals."""
    withdrawals = archives[0].withdrawals if archives else None
    if not withdrawals:
        return False
    return withdrawals.of_copy(fetch["url"], datetime.fromisoformat(fetch["ts"]).timestamp()) is not None


def _line(fetch: dict[str, Any], archives: Sequence[Archive], url_of: Any) -> str:
    fingerprint = int(fetch["id"], 16)
    found = ((archive, archive.record(fingerprint)) for archive in archives)
    archive, record = next((pair for pair in found if pair[1] is not None), (None, None))
    began = datetime.fromisoformat(fetch["ts"])
    digest = "-"
    if archive is not None:
        capture = archive.capture_at(capture_key(fingerprint, began.timestamp() + 0.0005))
        digest = warc.digest_text(capture.digest).decode() if capture and capture.digest else "-"
    via = url_of(record.via) if record is not None else ""
    took = float(fetch["took"])
    started = began.astimezone(UTC).strftime("%Y%m%d%H%M%S") + f"{began.microsecond // 1000:03d}"
    cut = [f"{fetch['truncated']}Trunc"] if fetch.get("truncated") else []
    again = [f"{fetch['attempt']}t"] if fetch["attempt"] > 1 else []
    columns = (
        iso_time(began.timestamp() + took),
        f"{fetch['status'] or _STATUS.get(fetch['outcome'], _FAILED):5d}",
        f"{fetch['bytes'] or '-':>10}",
        _column(fetch["url"]),
        _hops(fetch["depth"], record) or "-",
        _column(via) or "-",
        _column(fetch["mime"] or "unknown"),
        "#000",
        f"{started}+{took * 1000:.0f}",
        digest,
        "-",
        ",".join(cut + again) or "-",
    )
    return " ".join(columns) + "\n"


def _column(text: str) -> str:
    """Return a text in which characters that would end the column or the line are escaped."""
    return printable(text.translate(_NAMES))


def _hops(depth: int, record: PageRecord | None) -> str:
    hops = "L" * depth
    if record is not None:
        requisite = record.flags & LinkFlag.REQUISITE
        hops += "E" * (1 + record.redirects) if requisite else "R" * record.redirects
    return hops
