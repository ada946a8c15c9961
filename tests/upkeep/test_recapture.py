"""Test that keys rebuilt from WARC files equal the lost ones, and that pages without a copy are listed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crawler.crawl.directory import CrawlDirectory
from crawler.pages import segments
from crawler.pages.captures import capture_key, payload_key, unpack_capture, unpack_record
from crawler.pages.reading import Record
from crawler.records import Extracted, LinkFlag, Outcome, PageRecord, Rendering
from crawler.storage.commit import Change
from crawler.storage.engines import open_store
from crawler.storage.keys import CAPTURE, PAGE, PAYLOAD, SEGMENT
from crawler.storage.kv import scan_prefix, seal
from crawler.upkeep.recapture import Recapture
from crawler.upkeep.repair import Repair
from crawler.urls.fingerprint import Fingerprinter
from tests.process.support import SEED, Joint, fetch
from tests.upkeep.support import HREFS, LINKS, TREE, config, lose, segment, write

KINDS = (CAPTURE, PAYLOAD, SEGMENT, PAGE)
HOME, OTHER = "http://a.org/", "http://a.org/same"


@contextmanager
def begun(directory: CrawlDirectory, *, store_damaged: bool) -> Iterator[tuple[Recapture, Repair]]:
    """Yield the rebuild and the repair of the closed process p0."""
    folder = directory.process("p0")
    store = open_store(folder / "store")
    try:
        repair = Repair.of(config(), folder, Fingerprinter(SEED), store, store_damaged=store_damaged)
        yield Recapture(repair), repair
    finally:
        store.close()


def mended(directory: CrawlDirectory, *, store_damaged: bool) -> Repair:
    """Run both steps of rebuilding p0; return the repair."""
    with begun(directory, store_damaged=store_damaged) as (recapture, repair):
        recapture.mend_segments()
        recapture.remove_orphans()
        return repair


def dump(directory: CrawlDirectory, *prefixes: bytes) -> dict[bytes, bytes]:
    store = open_store(directory.process("p0") / "store")
    try:
        return {key: value for prefix in prefixes for key, value in scan_prefix(store, prefix)}
    finally:
        store.close()


def records(directory: CrawlDirectory) -> dict[str, PageRecord]:
    found = [unpack_record(key, value) for key, value in dump(directory, PAGE).items()]
    return {record.url: record for record in found}


def number(url: str) -> int:
    return Fingerprinter(SEED).fingerprint(url)


@pytest.fixture
def again(tmp_path: Path) -> CrawlDirectory:
    """Return a crawl with one page. The page first changed, then stayed the same, and at last was gone."""
    directory = CrawlDirectory(tmp_path / "again")
    directory.create(SEED)
    joint = Joint(directory.path, **TREE)
    gone = {"status": 404, "outcome": Outcome.GONE}
    for n, (body, values) in enumerate([(b"one", {}), (b"two", {}), (b"two", {}), (b"none", gone)]):
        answer = fetch(HOME, body, **({"began": 1_000_100.0 + 100.0 * n} | values))
        joint.follow(HOME, answer, Extracted(HOME))
        joint.clock.advance(100.0)
    joint.close()
    return directory


def test_rebuilt_keys_equal_the_lost_ones(directory: CrawlDirectory) -> None:
    """The keys of captures, payloads and segment lengths are equal byte by byte. A second run changes nothing."""
    before = dump(directory, *KINDS[:3])
    known = records(directory)
    lose(directory, *KINDS)
    repair = mended(directory, store_damaged=True)
    assert dump(directory, *KINDS[:3]) == before and not repair.lost
    assert repair.done[-2:] == [
        "5 captures restored from WARC records",
        "4 page records restored from WARC records",
    ]
    facts = ("url", "state", "outcome", "status", "depth", "redirects", "digest", "location", "fetched_at")
    found = records(directory)
    for url, record in known.items():
        assert [getattr(found[url], name) for name in facts] == [getattr(record, name) for name in facts]
    assert mended(directory, store_damaged=True).done == []
    assert mended(directory, store_damaged=False).done == []


def test_a_rebuilt_record_describes_the_newest_capture(again: CrawlDirectory) -> None:
    """Once, a rebuilt record described the oldest capture, so a page that was gone counted as stored."""
    before = records(again)[HOME]
    captures = dump(again, CAPTURE)
    lose(again, *KINDS)
    repair = mended(again, store_damaged=True)
    after = records(again)[HOME]
    assert dump(again, CAPTURE) == captures
    assert f"{len(captures)} captures restored from WARC records" in repair.done
    assert "1 page records restored from WARC records" in repair.done
    for name in ("state", "status", "fetched_at", "changed_at", "fetches", "changes", "attempts", "depth"):
        assert getattr(after, name) == getattr(before, name), name


def test_an_existing_record_is_not_changed(directory: CrawlDirectory) -> None:
    before = dump(directory, PAGE)
    lose(directory, CAPTURE)
    mended(directory, store_damaged=True)
    assert dump(directory, PAGE) == before


def test_answers_of_one_second_get_consecutive_keys(directory: CrawlDirectory) -> None:
    """The first keys of that second are already in use. The rebuilt captures do not overwrite them."""
    (key,) = [key for key in dump(directory, CAPTURE) if key[2:10] == number(HOME).to_bytes(8, "big")]
    taken = {capture_key(number(HOME), 1_000_000.0 + n / 1000): b"taken" for n in range(2)}
    with begun(directory, store_damaged=True) as (recapture, repair):
        original = unpack_capture(key, repair.store.get(key) or b"")
        others = {k: v for k, v in scan_prefix(repair.store, CAPTURE) if k != key}
        other_key, other = next((k, v) for k, v in others.items() if unpack_capture(k, v).url == OTHER)
        write(repair.store, {key: None} | dict.fromkeys(taken, other))
        recapture.mend_segments()
        found = {
            k: unpack_capture(k, v)
            for k, v in scan_prefix(repair.store, CAPTURE + number(HOME).to_bytes(8, "big"))
        }
    last = capture_key(number(HOME), 1_000_000.002)
    assert list(found) == [*taken, last] and other_key not in found
    assert found[last].url == HOME and found[last].fetched_at == 1_000_000.002
    assert (found[last].offset, found[last].length, found[last].extent, found[last].digest) == (
        original.offset,
        original.length,
        original.extent,
        original.digest,
    )


def test_a_revisit_without_its_original_has_lost_its_copy(directory: CrawlDirectory) -> None:
    """A revisit record does not contain the payload, so the page is fetched again."""
    (key,) = [key for key in dump(directory, CAPTURE) if key[2:10] == number(OTHER).to_bytes(8, "big")]
    with begun(directory, store_damaged=True) as (recapture, repair):
        capture = unpack_capture(key, repair.store.get(key) or b"")
        assert capture.kind == "revisit"
        write(repair.store, {key: None, payload_key(capture.digest): None})
        recapture.mend_segments()
        assert repair.lost == {number(OTHER)} and repair.store.get(key) is None
        assert not any("restored" in line for line in repair.done)


def test_segments_set_aside_are_taken_back_unless_their_name_is_taken(directory: CrawlDirectory) -> None:
    folder = directory.process("p0") / "warc"
    aside = folder / segments.LOST_AND_FOUND
    aside.mkdir(exist_ok=True)
    name = segment(directory).name
    (aside / name).write_bytes(b"an older one")
    (aside / "more.warc.gz").write_bytes(b"")
    (aside / f"late.warc.gz{segments.OPEN_SUFFIX.removeprefix('.warc.gz')}").write_bytes(b"")
    (aside / "some.warc.gz.bak").write_bytes(b"")
    size = segment(directory).stat().st_size
    repair = mended(directory, store_damaged=False)
    assert sorted(path.name for path in aside.iterdir())[-1] == "some.warc.gz.bak"
    assert len(list(aside.iterdir())) == 4 and repair.done == [], (
        "an intact store knows its segments, so none is taken back"
    )
    repair = mended(directory, store_damaged=True)
    assert "more.warc.gz: taken back from lost+found" in repair.done
    assert sorted(path.name for path in aside.iterdir()) == sorted([name, "some.warc.gz.bak"])
    assert (folder / name).stat().st_size == size


def test_pages_without_a_copy_are_listed_as_lost(directory: CrawlDirectory) -> None:
    """The lost pages are a redirect whose answer is cut off, its target, and a page whose capture is missing."""
    bare, redirected = "http://a.org/x", "http://a.org/r"
    with begun(directory, store_damaged=False) as (recapture, repair):
        found = {key: unpack_capture(key, value) for key, value in scan_prefix(repair.store, CAPTURE)}
        cut = next(capture.offset for capture in found.values() if capture.url == redirected)
        behind = {capture.url for capture in found.values() if capture.offset >= cut}
        for key, capture in found.items():
            if capture.url == bare:
                write(repair.store, {key: None})
        data = segment(directory).read_bytes()
        segment(directory).write_bytes(data[:cut])
        recapture.remove_orphans()
        left = {unpack_capture(key, value).url for key, value in scan_prefix(repair.store, CAPTURE)}
        assert left == {capture.url for capture in found.values()} - behind - {bare}
        assert repair.lost == {number(url) for url in behind | {bare}}


def test_captures_and_payloads_of_a_missing_segment_are_removed(directory: CrawlDirectory) -> None:
    name = segment(directory).name.removesuffix(segments.OPEN_SUFFIX)
    segment(directory).unlink()
    repair = mended(directory, store_damaged=False)
    assert f"{name}: the segment is missing" in repair.done
    assert dump(directory, CAPTURE, PAYLOAD, SEGMENT) == {}
    assert repair.lost >= {number(url) for url in (HOME, OTHER)}


def test_payload_keys_refer_to_existing_captures(directory: CrawlDirectory) -> None:
    nowhere = payload_key(b"x" * 20)
    before = dump(directory, PAYLOAD)
    with begun(directory, store_damaged=False) as (recapture, repair):
        write(repair.store, {nowhere: seal(capture_key(1, 1.0))})
        recapture.remove_orphans()
        assert repair.lost == set()
    assert dump(directory, PAYLOAD) == before


def test_a_page_without_metadata_counts_as_a_seed(tmp_path: Path) -> None:
    """The depth and redirects that a metadata record states are used. If they are missing, they are 0."""
    directory = CrawlDirectory(tmp_path / "deep")
    directory.create(SEED)
    joint = Joint(directory.path, **(TREE | {"crawl": {"depth": 9}}))
    joint.follow(HOME, fetch(HOME, LINKS), Extracted(HOME, hrefs=HREFS[LINKS]))
    joint.follow(OTHER, fetch(OTHER, b"deep"), Extracted(OTHER), depth=3, redirects=2)
    joint.stages.commits.commit(Change())
    joint.close()
    before = {url: (record.depth, record.redirects) for url, record in records(directory).items()}
    assert before == {HOME: (0, 0), OTHER: (3, 2)}
    lose(directory, PAGE)
    mended(directory, store_damaged=True)
    assert {url: (each.depth, each.redirects) for url, each in records(directory).items()} == before


@pytest.mark.parametrize(
    "fields", [{}, {"warc-target-uri": HOME}, {"warc-target-uri": HOME, "warc-date": "yesterday"}]
)
def test_a_record_without_url_or_date_restores_nothing(
    directory: CrawlDirectory, fields: dict[str, str]
) -> None:
    """A record without a URL or a date, which another program may have written, is not a capture."""
    before = dump(directory, *KINDS)
    record = Record("WARC/1.1", {"warc-type": "response", **fields}, b"HTTP/1.1 200 OK\r\n\r\nx")
    with begun(directory, store_damaged=True) as (recapture, repair):
        recapture._restore("s", [(0, 10, record)], {})
        recapture._restore("s", [], {})
        repair.writer.flush()
        assert not recapture._restored and not repair.lost
    assert dump(directory, *KINDS) == before


def test_rendered_pages_are_rebuilt_with_their_doms_and_the_facts_about_them(tmp_path: Path) -> None:
    """A rebuilt capture once lost its DOM, and its record no longer said that a browser had shown the page."""
    directory = CrawlDirectory(tmp_path / "rendered")
    directory.create(SEED)
    joint = Joint(directory.path, **TREE)
    good = {"requests": 3, "missing": 1, "took": 0.25, "cpu": 0.5, "added": True}
    renderings = {
        HOME: Rendering(dom=b"<p>shown", why="request", view=b"PNG", **good),
        OTHER: Rendering(dom=b"", why="mark", broke="crash", failures=2, again_at=2_000_000.0),
        "http://a.org/plain": None,
    }
    for n, (url, rendering) in enumerate(renderings.items()):
        answer = fetch(url, LINKS, rendering=rendering, began=1_000_100.0 + n)
        joint.follow(url, answer, Extracted(url))
    joint.close()
    captures, before = dump(directory, CAPTURE), records(directory)
    lose(directory, *KINDS)
    mended(directory, store_damaged=True)
    assert dump(directory, CAPTURE) == captures
    after = records(directory)
    for url, record in before.items():
        assert (after[url].rendered, after[url].shown) == (record.rendered, record.shown), url
    assert [after[url].flags & LinkFlag.RENDER for url in renderings] == [LinkFlag.RENDER, 0, 0]
    assert after[HOME].rendered and after[HOME].shown is not None and after[HOME].shown.pictured
