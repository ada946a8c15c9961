"""Measure the CPU time of storing pages with the page cache and with warcio's writer, in one run.

    python scripts/bench/warc.py [--pages 2000] [--bytes 45000] [FILE ...]

The pages are slices of the FILEs (default: sources of the standard library). Each page contains its number,
so no two pages are equal. For each page, both sides write a response, a request and a metadata record with
payload and block digests. Each record is one gzip member. The directory is removed afterwards. Times are
microseconds of process CPU per page; the best of three runs counts.
"""

import io
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from crawler.bench import harness
from crawler.config import PagesConfig
from crawler.pages.page_cache import PageCache
from crawler.pages.warc import SegmentFacts
from crawler.records import Extracted, Fetch, FetchTask, Outcome, TaskKind
from crawler.storage.kv import MemoryStore

GROUP = 16
PHASES = ("capture", "write", "stage", "committed")
HEADERS = (
    (b"Server", b"nginx/1.22.1"),
    (b"Date", b"Fri, 20 Nov 2026 23:30:00 GMT"),
    (b"Content-Type", b"text/html; charset=utf-8"),
    (b"Content-Length", b"45000"),
    (b"Last-Modified", b"Tue, 10 Nov 2026 08:00:00 GMT"),
    (b"Connection", b"keep-alive"),
    (b"ETag", b'"6551e2a0-afc8"'),
    (b"Accept-Ranges", b"bytes"),
)
REQUEST = (
    b"GET /doc/page/%d.html HTTP/1.1\r\nHost: site.example\r\nUser-Agent: crawler/0.1\r\n"
    b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n"
    b"Accept-Language: en;q=0.9,*;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\n\r\n"
)


def bodies(files: list[Path], count: int, size: int) -> list[bytes]:
    """Return `count` pages of `size` bytes."""
    paths = files or sorted(Path(os.__file__).parent.glob("*.py"))
    text = b"".join(path.read_bytes() for path in paths)[: 64 << 20]
    starts = range(0, max(1, len(text) - size), max(1, (len(text) - size) // count))
    return [
        b"<p>%08d</p>" % number + text[starts[number % len(starts)] :][: size - 15] for number in range(count)
    ]


def ours(pages: list[bytes], folder: Path, level: int) -> dict[str, float]:
    """Store the bodies in the page cache; return the CPU seconds of each phase."""
    store = MemoryStore()
    cache = PageCache(folder, store, PagesConfig(gzip_level=level), about=SegmentFacts("p0"))
    extracted = Extracted(base="http://site.example/")
    phases = dict.fromkeys(PHASES, 0.0)
    for first in range(0, len(pages), GROUP):
        began = time.process_time()
        group = []
        for number in range(first, min(first + GROUP, len(pages))):
            url = f"http://site.example/doc/page/{number}.html"
            body = pages[number]
            fetch = Fetch(
                url=url,
                outcome=Outcome.FETCHED,
                status=200,
                reason="OK",
                headers=HEADERS,
                request_head=REQUEST % number,
                body=body,
                content=body,
                content_type="text/html",
                address="127.0.0.2",
                took=0.01,
            )
            fetch_task = FetchTask(
                kind=TaskKind.PAGE, host=1, hostname="site.example", url=url, fingerprint=number + 1, via=1
            )
            group.append(cache.capture(fetch, fetch_task, extracted, 1.7e9 + number))
        decided = time.process_time()
        cache.write(group)
        written = time.process_time()
        batch = store.batch()
        cache.stage(batch)
        staged = time.process_time()
        store.write(batch)
        begin_last = time.process_time()
        cache.committed()
        done = time.process_time()
        for name, took in zip(
            phases, (decided - began, written - decided, staged - written, done - begin_last), strict=True
        ):
            phases[name] += took
    cache.close()
    return phases


def theirs(pages: list[bytes], folder: Path, level: int) -> dict[str, float]:
    """Return the CPU seconds that warcio takes to write the same records, at the default level of zlib."""
    folder.mkdir(parents=True)
    began = time.process_time()
    with (folder / "warcio.warc.gz").open("wb") as file:
        writer = WARCWriter(file, gzip=True)
        for number, body in enumerate(pages):
            url = f"http://site.example/doc/page/{number}.html"
            fields = [(name.decode(), value.decode()) for name, value in HEADERS]
            http = StatusAndHeaders("200 OK", fields, protocol="HTTP/1.1")
            response = writer.create_warc_record(url, "response", payload=io.BytesIO(body), http_headers=http)
            request = writer.create_warc_record(url, "request", payload=io.BytesIO(REQUEST % number))
            facts = b"via: http://site.example/\r\ndepth: 0\r\nfetchTimeMs: 10\r\n"
            metadata = writer.create_warc_record(
                url, "metadata", payload=io.BytesIO(facts), warc_content_type="application/warc-fields"
            )
            for record in (response, request, metadata):
                writer.write_record(record)
    return {"warcio": time.process_time() - began}


def best(
    run: Callable[[list[bytes], Path, int], dict[str, float]], pages: list[bytes], level: int, rounds: int = 3
):
    """Measure some runs, and return the result of the fastest run.

    The result consists of the CPU microseconds per page by phase, and the stored bytes per page.
    """
    results = []
    for _ in range(rounds):
        folder = Path(tempfile.mkdtemp(prefix="bench-warc-"))
        try:
            phases = run(pages, folder / "p0", level)
            size = sum(path.stat().st_size for path in folder.rglob("*.gz")) / len(pages)
        finally:
            shutil.rmtree(folder)
        results.append(({name: took / len(pages) * 1e6 for name, took in phases.items()}, size))
    return min(results, key=lambda result: sum(result[0].values()))


def main() -> None:
    parser = harness.parser(__doc__)
    parser.option("--pages", 2000)
    parser.option("--bytes", 45_000)
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    pages = bodies(options.files, options.pages, options.bytes)
    reference, reference_size = best(theirs, pages, 0, rounds=1)
    total = sum(reference.values())
    table = harness.Table(f"{'':14}", "us a page", " bytes", "ratio", *PHASES)
    table.row("warcio", total, reference_size, 1.0, *[""] * len(PHASES))
    for level in (0, 1, 2, 9):
        phases, size = best(ours, pages, level)
        mine = sum(phases.values())
        table.row(f"pages, level {level}", mine, size, total / mine, *phases.values())


if __name__ == "__main__":
    main()
