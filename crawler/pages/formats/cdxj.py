"""Writes CDXJ, the sorted text index in which replay tools look up captures.

    com,example)/path?a=1&b=2 20261120235959 {"url": ..., "mime": ..., "status": ..., ...}
    key (SURT)                time           JSON

A *SURT* is a URL reordered so that sorting by bytes puts the pages of a domain together. The labels of the
host are reversed, and the query is sorted. The scheme, user, default port, leading `www` and session ids are
removed. Everything is in lower case. A SURT loses information on purpose. Different URLs may have the same
key. So a reader looks up the key, and then compares `url` with the URL that it wants. The rules are those of
the Internet Archive's library `surt`. A test (`tests/pages/formats`) compares the keys of that library with
ours for canonical http URLs, the kind of URL that a crawl stores.

The fields and their format are those of pywb's sample indexes: all values are strings, and the digest has no
`sha1:`. A revisit has the mime `warc/revisit`. If a request is not a plain GET, its key ends with the method
and the body (`pages/request_query.py`), because pywb looks up such keys.

`sorted_lines` merges the lines of many processes in bounded memory. Runs of lines that fit into memory are
sorted and written to disk. Then the runs are merged, a bounded number at a time.
"""

import heapq
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote_to_bytes

import msgspec

from crawler.pages import warc
from crawler.pages.request_query import parts_of, url_with
from crawler.records import Capture

_NO_CONSENT: Mapping[str, Any] = {}
_RUNS_MERGED_MAX = 64  # maximum number of runs (open files) that are merged at the same time
_LINE_ENDS = re.compile(r"[\t\r\n]")  # the WHATWG rules remove these characters from URLs
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_URL = re.compile(r"(?P<scheme>[a-z]+)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?", re.I)
_WWW = re.compile(r"www\d*\.")
# Session ids: those of ASP.NET and ColdFusion, and four parameters with ids of a fixed length.
_PATH_SESSION = re.compile(rb"/(?:\([a-z0-9]{24}\)|\((?:[a-z]\([a-z0-9]{24}\))+\))(/[^?]*\.aspx)")
_QUERY_SESSIONS = (
    re.compile(rb"(.*)jsessionid=[0-9a-z]{32}(?:&(.*))?"),
    re.compile(rb"(.*)phpsessid=[0-9a-z]{32}(?:&(.*))?"),
    re.compile(rb"(.*)sid=[0-9a-z]{32}(?:&(.*))?"),
    re.compile(rb"(.*)aspsessionid[a-z]{8}=[a-z]{24}(?:&(.*))?"),
    re.compile(rb"(.*)cfid=[^&]+&cftoken=[^&]+(?:&(.*))?"),
)
_ESCAPED = {byte: b"%%%02x" % byte for byte in (*range(33), ord("#"), ord("%"), *range(127, 256))}


def surt(url: str) -> str:
    """Return the SURT key of an absolute http or https URL. Any other URL is its own key."""
    match = _URL.match(url)
    if match is None:
        return url
    key = _host_key(match["scheme"].lower(), match["authority"]) + ")" + _path_key(match["path"])
    query = _query_key(match["query"] or "")
    return key + "?" + query if query else key


def _host_key(scheme: str, authority: str) -> str:
    host, port = _split_port(authority.rpartition("@")[2].lower())
    if not host.startswith("["):
        host = host.rstrip(".")
        if host.count(".") and (www := _WWW.match(host)):
            host = host[www.end() :]
        host = ",".join(reversed(host.split(".")))
    port = port.lstrip("0")
    return host.strip("[]") + (":" + port if port and port != _DEFAULT_PORTS.get(scheme) else "")


def _split_port(authority: str) -> tuple[str, str]:
    host, colon, port = authority.rpartition(":")
    return (host, port) if colon and (port.isdigit() or not port) else (authority, "")


def _path_key(path: str) -> str:
    raw = _unescape(path).lower()
    segments: list[bytes] = []
    for segment in raw.split(b"/"):
        if segment == b".." and segments and segments[-1] != b"..":
            segments.pop()
        elif segment not in (b"", b"."):
            segments.append(segment)
    raw = _PATH_SESSION.sub(rb"\1", b"/" + b"/".join(segments))
    return _escape(raw)


def _query_key(query: str) -> str:
    raw = _unescape(query).lower()
    for pattern in _QUERY_SESSIONS:
        if match := pattern.fullmatch(raw):
            raw = match[1] + (match[2] or b"")
    # by name, then by value
    arguments = sorted(raw.split(b"&"), key=lambda argument: argument.partition(b"="))
    return _escape(b"&".join(arguments))


def _unescape(text: str) -> bytes:
    """Percent-decode the text until it no longer changes. So all spellings of a text give the same bytes."""
    raw = text.encode("utf-8", "replace")
    while b"%" in raw and (decoded := unquote_to_bytes(raw)) != raw:
        raw = decoded
    return raw


def _escape(raw: bytes) -> str:
    return b"".join([_ESCAPED.get(byte) or bytes((byte,)) for byte in raw]).decode("ascii")


def timestamp(instant: float) -> str:
    """Return a time in UTC as 14 digits."""
    return datetime.fromtimestamp(int(instant), UTC).strftime("%Y%m%d%H%M%S")


def line(capture: Capture, *, filename: str = "", consent: Mapping[str, Any] = _NO_CONSENT) -> bytes:
    """Return the CDXJ line of a capture, with its line end. `filename`, if given, replaces the name of the segment.

    `consent` holds the consent columns of a row (`rows.py`). The columns whose value is known are added to
    the line.
    """
    revisit = capture.kind == "revisit"
    fields = {
        "url": capture.url,
        "mime": "warc/revisit" if revisit else capture.content_type or "unk",
        "status": str(capture.status),
        "digest": warc.base32(capture.digest).decode(),
        "length": str(capture.length),
        "offset": str(capture.offset),
        "filename": filename or capture.segment,
    }
    if revisit:
        del fields["status"]
    if capture.query:
        fields["method"], body = parts_of(capture.query)
        fields |= {"requestBody": body} if body else {}
    fields |= {name: value for name, value in consent.items() if value and value != "unknown"}
    asked = url_with(capture.url, _LINE_ENDS.sub("", capture.query))
    key = f"{surt(asked)} {timestamp(capture.fetched_at)} "
    return key.encode("utf-8", "replace") + msgspec.json.encode(fields) + b"\n"


def sorted_lines(
    lines: Iterable[bytes], *, folder: Path | None = None, memory_bytes: int = 64 << 20
) -> Iterator[bytes]:
    """Yield `lines` sorted by bytes. Each line ends in a line feed.

    At most about `memory_bytes` of these lines are held in memory. The other lines are in unnamed files in
    `folder`, by default the system's temporary folder.
    """
    with ExitStack() as stack:
        levels: list[list[IO[bytes]]] = []
        source = iter(lines)
        while run := _take(source, memory_bytes):
            run.sort()
            if not levels and sum(map(len, run)) < memory_bytes:  # all lines fit in memory
                yield from run
                return
            _add_run(levels, 0, _spill(run, stack, folder), stack, folder)
        yield from heapq.merge(*[run for level in levels for run in level])


def _add_run(
    levels: list[list[IO[bytes]]], level: int, run: IO[bytes], stack: ExitStack, folder: Path | None
) -> None:
    """Add a run to its level.

    A full level is merged into one run of the next level, so each line is copied only a few times.
    """
    if level == len(levels):
        levels.append([])
    levels[level].append(run)
    if len(levels[level]) == _RUNS_MERGED_MAX:
        merged = _spill(heapq.merge(*levels[level]), stack, folder)
        for file in levels[level]:
            file.close()
        levels[level] = []
        _add_run(levels, level + 1, merged, stack, folder)


def _take(source: Iterator[bytes], memory_bytes: int) -> list[bytes]:
    """Return as many of the next lines as are needed to reach `memory_bytes`."""
    run = []
    size = 0
    while size < memory_bytes and (text := next(source, None)) is not None:
        run.append(text)
        size += len(text)
    return run


def _spill(lines: Iterable[bytes], stack: ExitStack, folder: Path | None) -> IO[bytes]:
    file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (the stack closes it)
    stack.callback(file.close)
    file.writelines(lines)
    file.seek(0)
    return file
