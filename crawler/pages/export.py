"""The page cache in the formats of other tools: WARC, CDXJ, JSON lines, links, text, Parquet.

Every export is an iterable over one or several archives (the processes of a
crawl), so it can go to a file, a socket or a test; memory stays bounded
whatever the size of the crawl. `mirror.py` and `wacz.py` hold the two formats
that are more than a stream.

A capture flagged `noarchive` is left out unless asked for. A revisit whose
response is left out is written as a response of its own, so that what is
exported can be read without what is not.

Parsing pages is another stage's trade: link and text extraction come as
callables. The text of a page has a default here, resiliparse if it is
installed, else the page without its tags.
"""

import html
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import webencodings
from msgspec import structs

from crawler.errors import DamageError, UsageError
from crawler.pages import cdxj, warc
from crawler.pages.archive import Archive
from crawler.pages.captures import StoredPage
from crawler.records import Capture, Outcome, PageRecord, PageState

Select = Callable[[Capture], bool]
Report = Callable[[str], None]
Links = Callable[[StoredPage], Iterable[str]]
Text = Callable[[StoredPage], str]


class Chunk(msgspec.Struct):
    """A piece of a WARC file: the records of `capture`, its answer first; None for a warcinfo record.

    `length` is that of the first record's gzip member.
    """

    capture: Capture | None
    data: bytes
    length: int


def selection(*, with_noarchive: bool = False, since: float = 0.0, until: float = float("inf")) -> Select:
    """Which captures are exported: by directive and time (seconds, `since` included, `until` not)."""
    return lambda capture: (with_noarchive or not capture.noarchive) and since <= capture.fetched_at < until


def ignore(message: str) -> None:
    """Report nothing."""


# -- WARC and CDXJ


def warc_chunks(
    archives: Sequence[Archive],
    select: Select,
    *,
    report: Report = ignore,
    folder: Path | None = None,
    memory_bytes: int = 64 << 20,
) -> Iterator[Chunk]:
    """The selected captures as WARC, in the order in which they were written, each segment with its warcinfo.

    A capture that cannot be read is reported and left out. `folder` and
    `memory_bytes` are for sorting (see `cdxj.sorted_lines`).
    """
    lines = _positions(archives, select)
    segment = ""
    for position in cdxj.sorted_lines(lines, folder=folder, memory_bytes=memory_bytes):
        number, name, _, key = position.rstrip(b"\n").split(b" ")
        archive = archives[int(number)]
        try:
            if name.decode() != segment:
                segment = name.decode()
                data = archive.warcinfo(segment)
                yield Chunk(None, data, len(data))
            capture = archive.capture_at(bytes.fromhex(key.decode()))
            if capture is not None:
                yield _chunk(archive, capture, select)
        except DamageError as error:
            report(str(error))


def _positions(archives: Sequence[Archive], select: Select) -> Iterator[bytes]:
    """A line a selected capture; sorted by bytes they follow the segments."""
    for number, archive in enumerate(archives):
        for key, capture in archive.all_captures():
            if select(capture):
                yield b"%04d %b %020d %b\n" % (
                    number,
                    capture.segment.encode(),
                    capture.offset,
                    key.hex().encode(),
                )


def _chunk(archive: Archive, capture: Capture, select: Select) -> Chunk:
    original = archive.capture_at(capture.refers_to) if capture.refers_to else None
    if original is None or select(original):
        return Chunk(capture, archive.raw_records(capture), capture.length)
    page = archive.read(capture)
    data = warc.compressor(1)(_as_response(page))
    whole = structs.replace(capture, kind="response", status=page.status, refers_to=b"")
    return Chunk(whole, data, len(data))


def _as_response(page: StoredPage) -> bytes:
    """A revisit as the response that it stands for."""
    head = warc.http_head(f"{page.version} {page.status:03d} {page.reason}".encode("latin-1"), page.headers)
    return warc.response(
        warc.record_ids(os.urandom, 1)[0],
        warc.date_text(page.capture.fetched_at),
        warc.target_fields(page.capture.url, "", page.version),
        head,
        page.payload,
        page.capture.digest,
    )


def cdxj_lines(
    archives: Sequence[Archive], select: Select, *, folder: Path | None = None, memory_bytes: int = 64 << 20
) -> Iterator[bytes]:
    """The CDXJ index of the segments as they lie in the crawl directory, sorted over all archives."""
    lines = (
        cdxj.line(capture) for archive in archives for _, capture in archive.all_captures() if select(capture)
    )
    return cdxj.sorted_lines(lines, folder=folder, memory_bytes=memory_bytes)


# -- a line a page


def iso_time(instant: float) -> str:
    """`2026-11-20T23:59:59.123Z` of an instant."""
    return datetime.fromtimestamp(instant, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def page_row(fingerprint: int, record: PageRecord) -> dict[str, Any]:
    """What is known of a URL, under names that stay.

    `id, url, ts, status, mime, depth` mean what they mean in Browsertrix's
    pages.jsonl; the others are ours. Instants are ISO 8601, "" if there is none.
    """
    return {
        "id": f"{fingerprint:016x}",
        "url": record.url,
        "ts": iso_time(record.fetched_at) if record.fetched_at else "",
        "status": record.status,
        "mime": record.content_type,
        "depth": record.depth,
        "state": record.state.value,
        "outcome": record.outcome.value,
        "via": f"{record.via:016x}" if record.via else "",
        "redirects": record.redirects,
        "location": record.location,
        "changed": iso_time(record.changed_at) if record.changed_at else "",
        "took": record.took,
        "digest": warc.digest_text(record.digest).decode() if record.digest else "",
        "attempts": record.attempts,
        "fetches": record.fetches,
        "changes": record.changes,
        "links": record.links,
        "noindex": record.noindex,
        "noarchive": record.noarchive,
        "error": record.error,
    }


def page_rows(archives: Sequence[Archive]) -> Iterator[dict[str, Any]]:
    """A row for each URL that was tried, by process and fingerprint."""
    for archive in archives:
        for fingerprint, record in archive.all_records():
            yield page_row(fingerprint, record)


def jsonl_lines(archives: Sequence[Archive]) -> Iterator[bytes]:
    """`page_rows` as JSON lines."""
    for row in page_rows(archives):
        yield msgspec.json.encode(row) + b"\n"


def write_parquet(archives: Sequence[Archive], path: Path, *, rows_at_once: int = 10_000) -> int:
    """Write `page_rows` as a Parquet file; return the number of rows.

    Raises:
        UsageError: pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UsageError("export: the format parquet needs pyarrow; pip install 'crawler[export]'") from None
    kinds = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    blank = page_row(0, PageRecord("", PageState.STORED, Outcome.FETCHED))
    schema = pyarrow.schema([(name, kinds[type(value)]) for name, value in blank.items()])
    count = 0
    with parquet.ParquetWriter(path, schema) as writer:
        for rows in _batches(page_rows(archives), rows_at_once):
            writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
            count += len(rows)
    return count


def _batches(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    batch = []
    for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


# -- content of the newest copy of each page


def pages(
    archives: Sequence[Archive], select: Select, *, report: Report = ignore
) -> Iterator[tuple[int, StoredPage]]:
    """(fingerprint, newest copy) of each URL whose newest copy is selected and has a 2xx status."""
    for archive in archives:
        for fingerprint, capture in archive.newest_captures():
            if not select(capture) or not (200 <= capture.status < 300 or capture.status == 304):
                continue
            try:
                page = archive.read(capture)
            except DamageError as error:
                report(str(error))
                continue
            if 200 <= page.status < 300:  # else a 304 that confirms nothing we have
                yield fingerprint, page


def link_lines(
    archives: Sequence[Archive], select: Select, links: Links, *, report: Report = ignore
) -> Iterator[bytes]:
    """`source TAB target` for each link that `links` finds in the newest copies."""
    for _, page in pages(archives, select, report=report):
        for target in links(page):
            yield _plain(page.capture.url) + b"\t" + _plain(target) + b"\n"


def _plain(text: str) -> bytes:
    return re.sub(r"[\t\r\n]", " ", text).encode("utf-8", "replace")


def text_lines(
    archives: Sequence[Archive], select: Select, *, text: Text | None = None, report: Report = ignore
) -> Iterator[bytes]:
    """JSON lines with `id, url, ts, mime, text` of the newest copies that are HTML or plain text."""
    to_text = text or page_text
    for fingerprint, page in pages(archives, select, report=report):
        if is_text(page.capture.content_type):
            row = {
                "id": f"{fingerprint:016x}",
                "url": page.capture.url,
                "ts": iso_time(page.capture.fetched_at),
                "mime": page.capture.content_type,
                "text": to_text(page),
            }
            yield msgspec.json.encode(row) + b"\n"


def is_text(content_type: str) -> bool:
    """Whether pages of this type have a text."""
    return content_type in ("text/html", "application/xhtml+xml", "text/plain")


# What makes the parsers under resiliparse quadratic; such pages lose their tags by a plain scan.
_PARSED_BYTES_MAX = 2 << 20
_UNCLOSED_TAGS_MAX = 2_000
_TAG_BYTES_MAX = 64 << 10
_SKIPPED = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style|template|noscript|textarea)\b.*?(?:</\1[^<>]*>|\Z)|</?[a-z!?/][^>]*(?:>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
_BLANKS = re.compile(r"[ \t\r\f\v\xa0]+")
_LINES = re.compile(r" ?\n[ \n]*")


def page_text(page: StoredPage) -> str:
    """The readable text of a page, lines stripped."""
    source = decode_text(page.content, page.header_charset)
    if page.capture.content_type == "text/plain":
        return source
    extract = _resiliparse() if _is_tame(source) else None
    return extract(source) if extract is not None else _without_tags(source)


def decode_text(content: bytes, charset: str) -> str:
    """Text of `content`: byte order mark, then `charset`, then UTF-8 if valid, then windows-1252."""
    encoding = webencodings.lookup(charset)
    if encoding is None and not content.startswith((b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe")):
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            pass
    return webencodings.decode(content, encoding or webencodings.lookup("windows-1252"))[0]


def _is_tame(source: str) -> bool:
    """Whether a parser handles the page in about linear time: bounded size, tags and nesting."""
    if len(source) > _PARSED_BYTES_MAX or max(map(len, source.split("<"))) > _TAG_BYTES_MAX:
        return False
    unclosed: Counter[str] = Counter()
    total = 0
    for end, name in _TAG.findall(source):
        if not end and name.lower() not in _VOID:
            unclosed[name] += 1
            total += 1
        elif end and unclosed[name]:
            unclosed[name] -= 1
            total -= 1
        if total > _UNCLOSED_TAGS_MAX:
            return False
    return True


def _resiliparse() -> Callable[[str], str] | None:
    try:
        from resiliparse.extract.html2text import extract_plain_text
    except ImportError:
        return None
    return extract_plain_text


def _without_tags(source: str) -> str:
    text = html.unescape(_SKIPPED.sub(" ", source))
    return _LINES.sub("\n", _BLANKS.sub(" ", text)).strip()
