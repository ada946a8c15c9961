"""The latest matching lines of the log, and of the log of fetches, newest first.

Only the last `TAIL_BYTES` of a file are read, so the cost of an answer is bounded: about 10 ms.
"""

import re
from pathlib import Path
from typing import Any

import msgspec

from crawler.admin.ledger import latest_lines

TAIL_BYTES = 8 << 20
ROWS_MAX = 500
_LINE_BYTES_MAX = 4096  # the rest of a longer log line is not returned
_FIELDS = ("ts", "url", "status", "outcome", "bytes", "took", "decision")
_LEVEL = re.compile(rb"\d{4}-\d\d-\d\d [\d:,]+(?: \S+)? (DEBUG|INFO|WARNING|ERROR|CRITICAL) ")
LEVELS = {"debug": 0, "info": 1, "warning": 2, "error": 3, "critical": 4}


def fetches(path: Path, *, outcome: str = "", text: str = "", limit: int = 100) -> list[dict[str, Any]]:
    """Return the latest lines of `pages.jsonl` that have the given outcome and whose URL contains `text`."""
    marks = [part for part in (f'"outcome":"{outcome}"' if outcome else "", text) if part]
    needles = [mark.encode("utf-8", "replace") for mark in marks]
    rows: list[dict[str, Any]] = []
    for line in latest_lines(path, TAIL_BYTES, needles[-1] if needles else b""):
        if len(rows) >= min(limit, ROWS_MAX):
            break
        if not all(needle in line for needle in needles):
            continue
        try:
            entry = msgspec.json.decode(line)
        except msgspec.MsgspecError:
            continue
        if isinstance(entry, dict) and text in str(entry.get("url", "")):
            rows.append({name: entry.get(name) for name in _FIELDS})
    return rows


def log_lines(path: Path, *, level: str = "debug", text: str = "", limit: int = 100) -> list[dict[str, str]]:
    """Return the latest lines of a log that contain `text` and have at least the given level, as {"level", "line"}.

    Lines without a level, such as those of a traceback, belong to the message before them.
    """
    least, needle = LEVELS.get(level, 0), text.encode("utf-8", "replace").lower()
    rows: list[dict[str, str]] = []
    rest: list[bytes] = []
    for line in latest_lines(path, TAIL_BYTES):
        if len(rows) >= min(limit, ROWS_MAX):
            break
        if (found := _LEVEL.match(line)) is None:
            rest.append(line)
            continue
        name = found[1].decode("ascii").lower()
        whole, rest = b"".join([line, *reversed(rest)]), []
        if LEVELS.get(name, 0) < least or needle not in whole.lower():
            continue
        shown = whole[:_LINE_BYTES_MAX].decode("utf-8", "replace").rstrip("\n")
        rows.append({"level": name, "line": shown})
    return rows
