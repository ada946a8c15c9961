"""The politeness ledger: the requests to a host, their times and gaps, from the log of fetches.

The ledger shows webmasters what the crawler did on their hosts. Only the last `TAIL_BYTES` of `pages.jsonl`
are read, so the cost of an answer is bounded.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from crawler.storage.rotating_file import generations
from crawler.urls.canonical import hostname

TAIL_BYTES = 64 << 20
ROWS_MAX = 1000
BLOCK_BYTES = 1 << 18


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
        if file.suffix == ".gz":  # older files are compressed, and would take too long to read
            break
        with suppress(FileNotFoundError):
            size = file.stat().st_size
            found.append((file, max(0, size - left)))
            left -= size
        if left <= 0:
            break
    return found[::-1]


def latest_lines(path: Path, bytes_max: int, needle: bytes = b"") -> Iterator[bytes]:
    """Yield the complete lines with `needle` in the last `bytes_max` bytes of a rotated log, the latest first.

    Only as many bytes are read as the caller needs, and lines without `needle` are skipped at the speed of `rfind`.
    """
    for file, skipped in reversed(_tail_files(path, bytes_max)):
        with suppress(FileNotFoundError), file.open("rb") as log:
            yield from _backwards(log, skipped, needle)


def _backwards(log: BinaryIO, begin: int, needle: bytes) -> Iterator[bytes]:
    """Yield the complete lines that contain `needle`, from the end of the file back to the byte `begin`."""
    end, rest = log.seek(0, os.SEEK_END), b""
    while end > begin:
        at = max(begin, end - BLOCK_BYTES)
        log.seek(at)
        block = log.read(end - at) + rest
        # The bytes before `begun` belong to a line that begins in an earlier block.
        begun = block.find(b"\n") + 1 if at else 0
        end, rest = at, block[:begun] if begun or not at else block
        if begun or not at:
            yield from _with_needle(block, begun, block.rfind(b"\n") + 1, needle)


def _with_needle(block: bytes, begin: int, end: int, needle: bytes) -> Iterator[bytes]:
    """Yield the lines of `block[begin:end]` that contain `needle`, the last one first."""
    while end > begin and (hit := block.rfind(needle, begin, end - 1)) >= begin:
        start = max(begin, block.rfind(b"\n", begin, hit) + 1)
        yield block[start : block.find(b"\n", hit, end) + 1]
        end = start


def of_host(lines: Iterable[bytes], host: str, rows_max: int = ROWS_MAX) -> dict[str, Any]:
    """Return {"host", "requests", "least_gap", "rows": [...]}; `rows` are the latest requests, each with its gap.

    The gap of a request is the time in seconds between the end of the previous answer and this request.
    """
    rows: deque[dict[str, Any]] = deque(maxlen=rows_max)
    count, least, ended = 0, None, None
    for entry, began in _requests(lines, host):
        gap = None if ended is None else round(began - ended, 3)
        ended = began + entry.get("took", 0.0)
        least = gap if least is None or (gap is not None and gap < least) else least
        count += 1
        row = {name: entry.get(name) for name in ("ts", "url", "status", "outcome", "bytes", "took")}
        rows.append(row | {"gap": gap})
    return {"host": host, "requests": count, "least_gap": least, "rows": list(rows)}


def latest_of_host(path: Path, host: str, rows_max: int) -> list[dict[str, Any]]:
    """Return the rows of the latest requests to a host, the latest first."""
    found: list[bytes] = []
    for line in latest_lines(path, TAIL_BYTES, host.encode("ascii", "replace")):
        found += [line for _ in _requests([line], host)]
        if len(found) > rows_max:  # one request more is needed, to compute the gap before the oldest row
            break
    rows: list[dict[str, Any]] = of_host(found[::-1], host, rows_max)["rows"]
    return rows[::-1]


def _requests(lines: Iterable[bytes], host: str) -> Iterator[tuple[dict[str, Any], float]]:
    """Yield the entries of the log that are requests to a host, each with the instant at which it began."""
    needle = host.encode("ascii", "replace")
    for line in lines:
        if needle not in line:
            continue
        try:
            entry = msgspec.json.decode(line)
            if hostname(entry["url"]) == host and entry.get("status"):
                yield entry, datetime.fromisoformat(entry["ts"]).timestamp()
        except (msgspec.MsgspecError, KeyError, ValueError, TypeError):
            continue
