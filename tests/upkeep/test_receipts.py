"""Test that consent receipts survive check, repair, reshard and recovery, and that earlier directories get them."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.consent.receipts import Receipt, SiteStatements, load, receipt_key
from crawler.export.archives import opened
from crawler.pages.captures import fingerprint_of, pack, unpack_capture, unpack_record
from crawler.storage.engines import open_store
from crawler.storage.keys import CAPTURE, PAGE, RECEIPT
from crawler.storage.kv import scan_prefix, seal
from tests.end_to_end.web import ReceivedRequest, Web, crawl, page, run
from tests.upkeep.support import write

ROBOTS = (200, {"Content-Type": "text/plain"}, "User-agent: *\nContent-Usage: train-ai=y\n")
HOSTS = [f"127.4.0.{n}" for n in range(1, 5)]


def answer(asked: ReceivedRequest) -> Any:
    if asked.path == "/robots.txt":
        return ROBOTS
    fields = {"Content-Usage": "train-ai=n"} if asked.path == "/n" else {}
    etag = f'"{asked.path}"'
    if asked.headers.get("If-None-Match") == etag:
        return 304, fields, ""
    links = ("/n", "/y") if asked.path == "/" else ()
    return 200, fields | {"ETag": etag}, page(*links, text=asked.path)


@pytest.fixture
def crawled(tmp_path: Path) -> Any:
    with Web({}, address="0.0.0.0", other=answer) as web:
        directory = tmp_path / "crawl"
        crawl(directory, *(web.url("/", host) for host in HOSTS))
        yield web, directory


def answers(directory: Path) -> dict[str, str]:
    """Map each URL to three facts in its copies' receipts: the training answer, its source, the robots.txt URL."""
    found = {}
    with opened(directory) as stored:
        for archive in stored.archives:
            for key, capture in archive.all_captures():
                fingerprint = fingerprint_of(key)
                receipt = load(archive.store, fingerprint, capture.receipt, Receipt)
                record = archive.record(fingerprint)
                if receipt is not None and record is not None:
                    site = load(archive.store, fingerprint, receipt.site, SiteStatements)
                    assert site is not None and record.receipt == capture.receipt
                    said = receipt.uses.train_ai
                    found[capture.url] = f"{said.preference} {said.source} {site.robots_url}"
    return found


def store(directory: Path) -> Any:
    return closing(open_store(directory / "p0" / "store"))


def check(directory: Path, *flags: str, code: int = 0) -> str:
    done = run("check", "--dir", directory, *flags)
    assert done.code == code, done
    return done.text + done.err


@pytest.mark.parametrize("harm", ["missing", "damaged", "another"])
def test_check_finds_a_lost_receipt_and_repair_restores_it(crawled: tuple[Web, Path], harm: str) -> None:
    _, directory = crawled
    before = answers(directory)
    assert len(before) == 3 * len(HOSTS)
    with store(directory) as kept:
        key, value = next(scan_prefix(kept, RECEIPT))
        _, other = list(scan_prefix(kept, RECEIPT))[-1]
        write(kept, {key: {"missing": None, "damaged": b"x" + value, "another": other}[harm]})
    assert key[4:].hex() in check(directory, code=3) or harm == "damaged"
    assert "restored" in check(directory, "--repair")
    check(directory)
    assert answers(directory) == before


def test_a_store_that_is_lost_is_rebuilt_with_its_receipts(crawled: tuple[Web, Path]) -> None:
    _, directory = crawled
    before = answers(directory)
    for path in (directory / "p0" / "store").iterdir():
        path.write_bytes(b"") if path.is_file() else None
    check(directory, "--repair")
    assert answers(directory) == before


def test_a_reference_to_a_receipt_that_nothing_can_restore_is_removed(crawled: tuple[Web, Path]) -> None:
    _, directory = crawled
    with store(directory) as kept:
        key, value = next(item for item in scan_prefix(kept, CAPTURE) if unpack_capture(*item).receipt)
        capture = msgspec.structs.replace(unpack_capture(key, value), receipt=b"\x01" * 16)
        write(kept, {key: pack(capture)})
    assert "is missing, although a page refers to it" in check(directory, code=3)
    loose = ("--allow", "train-ai", "--unknown", "allow")
    rows = run("export", "--dir", directory, "--format", "jsonl", "--fields", "url", *loose).text.splitlines()
    # the lost receipt might have contained a refusal
    assert rows and capture.url not in {json.loads(row)["url"] for row in rows}
    assert "consent receipts lost: 1" in check(directory, "--repair")
    check(directory)


def test_receipts_follow_their_pages_to_other_processes(crawled: tuple[Web, Path]) -> None:
    _, directory = crawled
    before = answers(directory)
    assert run("reshard", "--dir", directory, "--to", "3").code == 0
    assert answers(directory) == before
    check(directory)
    assert run("reshard", "--dir", directory, "--to", "1").code == 0
    assert answers(directory) == before


def test_a_directory_of_an_earlier_version_opens_and_gets_receipts_at_the_next_fetch(
    crawled: tuple[Web, Path],
) -> None:
    """For copies from an earlier version, the answers are "unknown".

    The next fetch is unconditional, so that meta elements can be read.
    """
    web, directory = crawled
    before = answers(directory)
    with store(directory) as kept:
        changes: dict[bytes, bytes | None] = {key: None for key, _ in scan_prefix(kept, RECEIPT)}
        for key, value in scan_prefix(kept, CAPTURE):
            changes[key] = _shortened(msgspec.structs.replace(unpack_capture(key, value), receipt=b""))
        for key, value in scan_prefix(kept, PAGE):
            changes[key] = _shortened(msgspec.structs.replace(unpack_record(key, value), receipt=b""))
        write(kept, changes)
    check(directory)
    tree = json.loads(run("report", "--consent", "--format", "json", "--dir", directory).out)
    assert tree["all"]["without_receipt"] == tree["all"]["train_ai"]["unknown"] == len(before)
    assert not run("export", "--dir", directory, "--format", "jsonl", "--allow", "train-ai").out
    assert (
        "consent"
        not in json.loads(run("why", web.url("/y", HOSTS[0]), "--dir", directory, "--json").out)["consent"]
    )
    web.asked.clear()
    crawl(directory, "--timestamping")
    assert all("If-None-Match" not in asked.headers for asked in web.asked)
    assert answers(directory) == before
    web.asked.clear()
    crawl(directory, "--timestamping")
    assert any("If-None-Match" in asked.headers for asked in web.asked)
    assert answers(directory) == before
    check(directory)


def _shortened(value: Any) -> bytes:
    """Return a record or capture as the earlier version stored it: without the receipt, which is the last field."""
    return seal(msgspec.msgpack.encode(list(msgspec.structs.astuple(value))[:-1]))


def test_keys_have_the_bucket_of_their_page() -> None:
    assert receipt_key(0xABCD_0000_0000_0001, b"d" * 16) == RECEIPT + b"\xab\xcd" + b"d" * 16
