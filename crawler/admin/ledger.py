"""The politeness ledger: the requests to a host, their times and gaps, from the log of fetches.

It shows webmasters what the crawler did on their hosts. Only the last `TAIL_BYTES` of
`pages.jsonl` are read, so the cost of an answer is bounded.
"""

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from crawler.storage.rotating_file import generations
from crawler.urls.canonical import canonical, hostname

TAIL_BYTES = 64 << 20
ROWS_MAX = 1000


def tail_lines(path: Path, bytes_max: int = TAIL_BYTES) -> Iterable[bytes]:
    """Return the complete lines in the last `bytes_max` bytes of a rotated log, the oldest first."""
    for file, skipped in _tail_files(path, bytes_max):
        with suppress(FileNotFoundError), file.open("rb") as lines:
            if skipped:
                lines.seek(skipped)
                lines.readline()
            yield from lines


def _tail_files(path: Path, bytes_max: int) -> list[tuple[Path, int]]:
    """Return (file, bytes to skip) for the files that contain the last `bytes_max` bytes, the oldest first."""
    found: list[tuple[Path, int]] = []
    left = bytes_max
    for file in reversed(generations(path)):
        if file.suffix == ".gz":  # an old file, which would take too long to read
            break
        with suppress(FileNotFoundError):
            size = file.stat().st_size
            found.append((file, max(0, size - left)))
            left -= size
        if left <= 0:
            break
    return found[::-1]


def of_host(lines: Iterable[bytes], host: str, rows_max: int = ROWS_MAX) -> dict[str, Any]:
    """Return {"host", "requests", "least_gap", "rows": [...]}; `rows` are the latest requests, each with its gap.

    The gap of a request is the time in seconds between the end of the previous answer and this request.
    """
    needle = host.encode("ascii", "replace")
    rows: deque[dict[str, Any]] = deque(maxlen=rows_max)
    count, least, ended = 0, None, None
    for line in lines:
        if needle not in line:
            continue
        try:
            entry = msgspec.json.decode(line)
            if hostname(entry["url"]) != host or not entry.get("status"):
                continue
            began = datetime.fromisoformat(entry["ts"]).timestamp()
        except (msgspec.MsgspecError, KeyError, ValueError, TypeError):
            continue
        gap = None if ended is None else round(began - ended, 3)
        ended = began + entry.get("took", 0.0)
        least = gap if least is None or (gap is not None and gap < least) else least
        count += 1
        row = {name: entry.get(name) for name in ("ts", "url", "status", "outcome", "bytes", "took")}
        rows.append(row | {"gap": gap})
    return {"host": host, "requests": count, "least_gap": least, "rows": list(rows)}


def host_name(text: str) -> str:
    """Return the canonical name of a host, or "" if it is not a host name."""
    url = canonical(text if "://" in text else f"http://{text}/")
    return "" if url is None else hostname(url)
