"""Measure the cost of consent receipts: CPU time, bytes in the store and bytes in the WARC per page.

    python scripts/bench/receipts.py [--pages 20000] [--hosts 200] [--rounds 5]

Each round stores the same pages twice in one process: once with receipts and once without. The order
alternates. The directories are removed afterwards. Bytes in the store are those of keys and values before
compression. There are three webs. `silent` makes no statements about the use of its pages. `spoken` makes
statements in robots.txt. `paths` makes statements for parts of the site in robots.txt, and statements in
headers and meta elements of one page in four. The script prints medians over the rounds. The receipts of a
page should take at most 30 us, and at most 40 bytes in the store.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from crawler.bench import harness
from crawler.config import ConsentConfig, PagesConfig, RobotsConfig, StoreConfig
from crawler.consent.site_book import SiteBook
from crawler.consent.stamping import Stamping
from crawler.pages.page_cache import PageCache
from crawler.records import Extracted, Fetch, FetchTask, Outcome, TaskKind
from crawler.robots.cache import RobotsCache
from crawler.storage.commit import Change
from crawler.storage.engines import open_store
from crawler.storage.keys import CAPTURE, PAGE, RECEIPT
from crawler.storage.kv import KeyValue, scan_prefix
from crawler.urls.fingerprint import Fingerprinter

GROUP = 32  # pages per commit
BODY = b"<p>%08d</p>" + b"words of a page " * 400
ROBOTS = {
    "silent": b"User-agent: *\nDisallow: /private/\n",
    "spoken": b"User-agent: *\nDisallow: /private/\nContent-Usage: train-ai=n, search=y\nContent-Signal: ai-input=no\n",
    "paths": b"User-agent: *\nDisallow: /private/\nContent-Usage: /a/ train-ai=n\nContent-Usage: /b/ train-ai=y\n",
}
HEADERS = (
    (b"Server", b"nginx/1.22.1"),
    (b"Date", b"Fri, 20 Nov 2026 23:30:00 GMT"),
    (b"Content-Type", b"text/html"),
    (b"Content-Length", b"6412"),
    (b"Last-Modified", b"Tue, 10 Nov 2026 08:00:00 GMT"),
    (b"ETag", b'"6551e2a0-afc8"'),
    (b"Cache-Control", b"max-age=600"),
)
OWN = ((b"Content-Usage", b"search=y"), (b"TDM-Reservation", b"1"))


class Cost(NamedTuple):
    """The cost of one run.

    It consists of the CPU microseconds per page (in total, and for receipts), the bytes per page, and the
    number of receipts in the store.
    """

    all_us: float
    stamp_us: float
    keys: float
    warc: float
    receipts: int


def pages(web: str, count: int, hosts: int) -> list[tuple[Fetch, Extracted]]:
    """Return the answers in the order of a crawl, in which hosts take turns page by page."""
    found = []
    for number in range(count):
        own = web == "paths" and number // hosts % 4 == 0
        url = f"http://host{number % hosts}.example/{'ab'[number % 2]}/{number}"
        headers = HEADERS + (OWN if own else ())
        fetch = Fetch(
            url, Outcome.FETCHED, status=200, headers=headers, body=BODY % number, content_type="text/html"
        )
        fetch.began = 1e9 + number / 100
        found.append((fetch, Extracted(url, statements=[("robots", "noai")] if own else [])))
    return found


def store_pages(
    web: str, answers: list[tuple[Fetch, Extracted]], hosts: int, folder: Path, *, stamped: bool
) -> Cost:
    """Store the pages and return the cost."""
    store = open_store(folder / "store", StoreConfig().engine)
    printer = Fingerprinter(bytes(16))
    cache = PageCache(folder, store, PagesConfig(), process="p0", sync=False)
    robots = RobotsCache(store, RobotsConfig(), "crawler", 10_000)
    for host in range(hosts):
        robots.record(
            f"http://host{host}.example",
            status=200,
            outcome=Outcome.FETCHED,
            body=ROBOTS[web],
            complete=True,
            now=1e9,
        )
    book = SiteBook(
        store,
        robots,
        ConsentConfig(),
        token="crawler",
        fingerprint=printer.fingerprint,
        record_of=lambda url, at: b"",
    )
    stamping = Stamping(store, book, "crawler")
    spent, begin = 0.0, time.process_time()
    for first in range(0, len(answers), GROUP):
        change, group = Change(), []
        for fetch, extracted in answers[first : first + GROUP]:
            fingerprint = printer.fingerprint(fetch.url)
            task = FetchTask(TaskKind.PAGE, 0, "", fetch.url, fingerprint)
            capturing = cache.capture(fetch, task, extracted, fetch.began)
            if stamped:
                at = time.thread_time()
                fetch.site = book.note(fetch.url[: fetch.url.index("/", 8)])
                assert not stamping.wanted_files(fetch, extracted, fetch.began)
                capturing.stamp = stamping.stamp(fetch, fingerprint, extracted, None, change)
                assert capturing.record is not None
                capturing.record.receipt = capturing.stamp.digest
                spent += time.thread_time() - at
            group.append(capturing)
        cache.write(group)
        batch = store.batch()
        for key, value in change.operations:
            assert value is not None
            batch.put(key, value)
        cache.stage(batch)
        store.write(batch)
        cache.committed()
    took = time.process_time() - begin
    cache.close()
    keys, receipts = _bytes(store)
    store.close()
    warc = sum(path.stat().st_size for path in (folder / "warc").iterdir())
    count = len(answers)
    return Cost(1e6 * took / count, 1e6 * spent / count, keys / count, warc / count, receipts)


def _bytes(store: KeyValue) -> tuple[int, int]:
    """Return the uncompressed bytes of keys and values of pages, captures and receipts, and the number of receipts."""
    total, receipts = 0, 0
    for prefix in (PAGE, CAPTURE, RECEIPT):
        for key, value in scan_prefix(store, prefix):
            total += len(key) + len(value)
            receipts += prefix == RECEIPT
    return total, receipts


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    table = harness.Table(
        "web   ", "    CPU us a page", "of it receipts", "      store bytes", "       WARC bytes", "receipts"
    )
    for web in ROBOTS:
        rounds: dict[bool, list[Cost]] = {False: [], True: []}
        for number in range(options.rounds):
            for stamped in (number % 2 == 0, number % 2 == 1):
                answers = pages(web, options.pages, options.hosts)
                with tempfile.TemporaryDirectory() as folder:
                    rounds[stamped].append(
                        store_pages(web, answers, options.hosts, Path(folder), stamped=stamped)
                    )
        without, with_ = (
            Cost(*map(statistics.median, zip(*rounds[stamped], strict=True))) for stamped in (False, True)
        )
        cpu, keys, warc = (
            f"{one:.1f} to {two:.1f}"
            for one, two in (
                (without.all_us, with_.all_us),
                (without.keys, with_.keys),
                (without.warc, with_.warc),
            )
        )
        table.row(web, cpu, with_.stamp_us, keys, warc, with_.receipts)


if __name__ == "__main__":
    main()
