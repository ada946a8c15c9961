"""A small crawl at rest, made without a network. The tests damage and repair copies of it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from crawler.clock import VirtualClock
from crawler.config import Config, convert
from crawler.crawl.directory import CrawlDirectory
from crawler.frontier.discovery.entries import decode, order_depth
from crawler.process.opening.stages import Stages, at_rest
from crawler.records import Capture, Extracted, Fetch, Outcome, PageRecord
from crawler.storage.commit import Change
from crawler.storage.engines import open_store
from crawler.storage.keys import PARKED, TODO
from crawler.storage.kv import DiskStore, scan_prefix
from tests.process.support import SEED, Joint, fetch, redirect

SEEDS = ["http://a.org/", "http://a.org/same", "http://b.org/"]
TREE = {"crawl": {"depth": 1}, "seeds": SEEDS, "store": {"durability": "process"}, "cache": {"bits": 8}}
LINKS = b'<a href="/x">x</a> <a href="/r">y</a>'
DEEP = b'<title>x</title><a href="/deep">d</a>'
WEB: dict[str, Fetch] = {
    "http://a.org/": fetch("http://a.org/", LINKS),
    "http://a.org/same": fetch("http://a.org/same", LINKS),  # this page is stored as a revisit record
    "http://a.org/x": fetch("http://a.org/x", DEEP),
    "http://a.org/r": redirect(
        "http://a.org/r", "/\u00e9t", headers=((b"Location", "/\u00e9t".encode()),), content_type=""
    ),
}
HREFS = {LINKS: ["/x", "/r"], DEEP: ["/deep"]}
TO_DO = {"http://a.org/%C3%A9t": 1, "http://b.org/": 0}  # URL -> depth
PARKED_URLS = {"http://a.org/deep": 2}
LATE = {"http://a.org/late": 0}  # this link waits in the links log


class Held(NamedTuple):
    """The content of a process: records and captures by URL, the depths of queued and parked URLs, counters."""

    records: dict[str, PageRecord]
    captures: dict[str, Capture]
    todo: dict[str, int]
    parked: dict[str, int]
    counters: dict[str, int]


def config() -> Config:
    return convert(TREE)


def crawl(path: Path, *, pending: bool = False) -> CrawlDirectory:
    """Make a crawl with four stored pages, three queued URLs and one parked URL.

    `pending` adds a link to the links log.
    """
    directory = CrawlDirectory(path)
    directory.create(SEED)
    joint = Joint(path, **TREE)
    directory.settings.save(joint.stages.config)
    joint.seeds(*SEEDS[:2])
    for _ in WEB:
        fetch_task = joint.fetch_task()
        answer = WEB[fetch_task.url]
        found = answer.outcome is Outcome.FETCHED
        extracted = Extracted(base=fetch_task.url, hrefs=HREFS[answer.content]) if found else None
        joint.page(fetch_task, answer, extracted)
        joint.stages.commits.commit_now(Change())
    joint.seeds("http://b.org/")
    if pending:
        joint.commit(joint.admission.seeds(["http://a.org/late"]))
    joint.close()
    return directory


def opened(directory: CrawlDirectory, name: str = "p0") -> Any:
    return at_rest(convert(directory.settings.load()), directory, name, clock=VirtualClock())


def held(directory: CrawlDirectory) -> Held:
    with opened(directory) as stages:
        return Held(
            {record.url: record for _, record in stages.pages.all_records()},
            {capture.url: capture for _, capture in stages.pages.newest_captures()},
            queue(stages, TODO),
            queue(stages, PARKED),
            dict(stages.point.counters),
        )


def queue(stages: Stages, prefix: bytes) -> dict[str, int]:
    """Return the depth of each URL in a queue."""
    names = {"a.org": stages.fingerprinter.fingerprint("http://a.org/") >> 48}
    found = {}
    for key, value in scan_prefix(stages.store, prefix):
        name = "a.org" if int.from_bytes(key[2:4], "big") == names["a.org"] else "b.org"
        found[f"http://{name}{decode(key, value).tail[1:]}"] = order_depth(int.from_bytes(key[10:], "big"))
    return found


def keys(directory: CrawlDirectory, prefix: bytes) -> Iterator[tuple[DiskStore, bytes, bytes]]:
    """Open the closed store of p0.

    Yield the store with each key of a kind and its value, so that a test can change them.
    """
    store = open_store(directory.process("p0") / "store")
    try:
        for key, value in list(scan_prefix(store, prefix)):
            yield store, key, value
    finally:
        store.close()


def segment(directory: CrawlDirectory) -> Path:
    """Return the only WARC file of p0."""
    (found,) = directory.process("p0").glob("warc/*.warc.gz*")
    return found


def lose(directory: CrawlDirectory, *prefixes: bytes) -> None:
    """Delete all keys of some kinds from the store of p0."""
    for prefix in prefixes:
        for store, key, _ in keys(directory, prefix):
            write(store, {key: None})


def write(store: DiskStore, changes: dict[bytes, bytes | None]) -> None:
    batch = store.batch(sync=True)
    for key, value in changes.items():
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value)
    store.write(batch)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return crawl(tmp_path_factory.mktemp("sound") / "crawl", pending=True).path


@pytest.fixture
def directory(sound: Path, tmp_path: Path) -> CrawlDirectory:
    """Return a copy of the small crawl."""
    return CrawlDirectory(Path(shutil.copytree(sound, tmp_path / "crawl")))
