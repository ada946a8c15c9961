"""Kill a crawl that keeps only the newest copy of each page while it drops old copies (`pages/README.md`, "Old copies").

The crawl is killed at each step of a cleaning. `refreshing.run` compares the state after each kill with the log
of the web, and runs `check` at the end.
"""

import asyncio
import shutil
from pathlib import Path

from crawler.clock import SystemClock
from crawler.export.archives import opened
from crawler.pages.cleaning import GRACE
from tests.faults.refreshing import changing_web, crawler, run

SEGMENT_BYTES = 30_000
FAULTS = (
    "copies dropped:1",
    "copies moved:1",
    "60",
    "segment released:1",
    "released segment deleted:1",  # at the opening that follows
)


def test_a_crawl_that_drops_old_copies_survives_kills(tmp_path: Path) -> None:
    """The disk space stays bounded, and a store that is rebuilt from the archive shows the same newest copies."""
    web, crawl = changing_web(SystemClock().now()), tmp_path / "crawl"
    settings = ("--keep-copies", "1", "--set", f"pages.segment_bytes={SEGMENT_BYTES}")
    verdict = asyncio.run(run(web, tmp_path, FAULTS, 12.0, settings=settings))
    assert verdict.kills == len(FAULTS)
    assert not verdict.problems
    assert len(web.log) > 5 * len(web)
    copies, live = newest(crawl)
    assert len(copies) >= len(web)
    files = [path.stat() for path in (crawl / "p0/warc").glob("*.warc.gz*")]
    last = max(file.st_mtime for file in files)
    # a released segment stays for `GRACE` seconds, in which others arrive
    arrived = sum(file.st_size for file in files if file.st_mtime >= last - GRACE)
    assert sum(file.st_size for file in files) <= 2.25 * live + 3 * SEGMENT_BYTES + arrived
    shutil.rmtree(crawl / "p0/store")
    asyncio.run(crawler("check", "--repair", "--dir", str(crawl)))
    code, text = asyncio.run(crawler("check", "--dir", str(crawl)))
    assert code == 0, text
    rebuilt, _ = newest(crawl)
    assert rebuilt.keys() == copies.keys()
    # the records state whole seconds
    assert all(abs(rebuilt[url] - at) < 1.01 for url, at in copies.items())


def newest(crawl: Path) -> tuple[dict[str, float], int]:
    """Read the newest copy of each URL. Return the time of each, and the number of bytes of all captures."""
    with opened(crawl) as crawled:
        archive, times = crawled.archives[0], dict[str, float]()
        for _, capture in archive.newest_captures():
            assert archive.read(capture).payload
            times[capture.url] = capture.fetched_at
        return times, sum(capture.extent for _, capture in archive.all_captures())
