"""Test that `crawler check` reports all damage, and that `--repair` repairs it without losing other data."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.cli import work_progress
from crawler.clock import VirtualClock
from crawler.config import convert
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import BusyError, CrawlerError, DamageError
from crawler.frontier.discovery.entries import decode
from crawler.frontier.hosts.registry import Meta
from crawler.frontier.hosts.table import RECORD, full_record
from crawler.pages import damage
from crawler.pages.captures import Problem
from crawler.process.opening.stages import BALLAST, at_rest
from crawler.records import Extracted
from crawler.storage.files import Lock
from crawler.storage.keys import (
    CAPTURE,
    DUE_RUNS,
    FRONTIER,
    HOST,
    PAGE,
    PARKED,
    PAYLOAD,
    RECEIPT,
    SEGMENT,
    TODO,
    TOMBSTONE,
)
from crawler.storage.kv import scan_prefix, seal, unseal
from crawler.storage.reshard import load
from crawler.upkeep import check as checking
from crawler.upkeep.check import PROBLEMS_MAX, check, repair, repair_before_opening
from tests.end_to_end.web import run
from tests.process.support import Joint, fetch
from tests.upkeep import support
from tests.upkeep.support import (
    HREFS,
    LATE,
    LINKS,
    PARKED_URLS,
    TO_DO,
    TREE,
    WEB,
    config,
    held,
    keys,
    lose,
    opened,
    segment,
    write,
)

AGAIN = "forgotten URLs found again in stored pages and waiting links: 1"
RENEWED = "due: one run of {} known URLs was written"
FACTS = ("url", "state", "outcome", "status", "depth", "redirects", "fetched_at", "content_type", "digest")
FACTS += ("location",)


def mend(directory: CrawlDirectory) -> list[str]:
    """Repair p0 and return the messages. Assert that no problem is left and that a second repair does nothing."""
    done, left = repair(config(), directory, "p0", VirtualClock())
    assert left == []
    with opened(directory) as stages:
        stages.frontier._check()
    assert repair(config(), directory, "p0", VirtualClock()) == ([], [])
    return done


def facts(directory: CrawlDirectory) -> list[tuple[Any, ...]]:
    """Return the fields of each page that a repair must restore.

    Other fields, such as link counts and milliseconds, may be lost.
    """
    records = held(directory).records.values()
    return sorted(tuple(getattr(record, name) for name in FACTS) for record in records)


def test_an_intact_process_is_not_changed(directory: CrawlDirectory) -> None:
    before = held(directory)
    assert (set(before.records), before.todo, before.parked) == (set(WEB), TO_DO, PARKED_URLS)
    assert mend(directory) == [] and held(directory) == before
    assert before.captures["http://a.org/same"].kind == "revisit"


@pytest.mark.parametrize(
    ("prefixes", "done"),
    [
        (
            [CAPTURE],
            ["store: 0 keys c/, but 5 were written (stored.captures)",
             "5 captures restored from WARC records", RENEWED.format(7), AGAIN],
        ),
        (
            [PAGE],
            ["store: 0 keys u/, but 4 were written (stored.records)",
             "4 page records restored from WARC records", RENEWED.format(7), AGAIN],
        ),
        ([TODO], ["store: 0 keys t/, but the host records say 2", RENEWED.format(5), AGAIN.replace("1", "3", 1)]),
        ([PARKED], ["store: 0 keys p/, but the host records say 1", RENEWED.format(6), AGAIN.replace("1", "2", 1)]),
        (
            [HOST],
            [
                "new = done + todo + parked: 7 != 5",
                "store: 2 keys t/, but the host records say 0",
                "queue entries removed, as duplicates or for lack of their host record: 3",
                RENEWED.format(4),
                AGAIN.replace("1", "4", 1),
            ],
        ),
        ([DUE_RUNS], ["the store counts 7 known URLs, but the runs hold 0", RENEWED.format(7), AGAIN]),
        ([FRONTIER], ["store: there are host records, but the key b'm/frontier' is missing", RENEWED.format(7), AGAIN]),
    ],
    ids=lambda value: value[0].decode("latin-1") if isinstance(value[0], bytes) else None,
)  # fmt: skip
def test_lost_keys_are_rebuilt(directory: CrawlDirectory, prefixes: list[bytes], done: list[str]) -> None:
    """Captures, records, queues and counts are stored in two places, so all of them are restored."""
    before, known = held(directory), facts(directory)
    lose(directory, *prefixes)
    said = mend(directory)
    assert len(said) == len(done) and all(want in line for want, line in zip(done, said, strict=True)), said
    after = held(directory)
    assert (after.todo, after.parked) == (TO_DO | LATE, PARKED_URLS)
    assert after.captures == before.captures and facts(directory) == known
    same = {"stored.records", "stored.captures", "urls.done", "pages.fetched", "bytes.wire", "urls.accepted"}
    assert {name: after.counters[name] for name in same} == {name: before.counters[name] for name in same}


def test_rebuilt_entries_equal_the_lost_ones(directory: CrawlDirectory) -> None:
    """The depth, origin and flags of an entry must be right, because they determine how the link is treated."""

    def entries() -> dict[str, tuple[int, ...]]:
        found = {}
        with opened(directory) as stages:
            for prefix in (TODO, PARKED):
                for key, value in scan_prefix(stages.store, prefix):
                    entry = decode(key, value)
                    found[entry.tail] = (entry.fingerprint, entry.via, entry.flags, entry.rule)
        return found

    before = entries()
    lose(directory, TODO, PARKED)
    mend(directory)
    after = entries()
    late = after.pop("h/late")
    assert late[1:] == (0, 1, 0), "a seed"
    assert after.keys() == before.keys()
    for tail, (fingerprint, via, flags, rule) in before.items():
        assert after[tail][:2] == (fingerprint, via) and after[tail][3] == rule
        assert after[tail][2] & flags == after[tail][2]


def test_a_broken_record_is_blanked_and_its_pages_are_fetched_again(directory: CrawlDirectory) -> None:
    """A revisit that refers to the record has lost its payload, so its page is fetched again as well."""
    before = held(directory).captures
    broken = before["http://a.org/"]
    data = bytearray(segment(directory).read_bytes())
    data[broken.offset + 100] ^= 0xFF
    segment(directory).write_bytes(data)
    said = mend(directory)
    assert (
        f"{broken.segment} at {broken.offset}: a broken record of {broken.length} bytes was blanked" in said
    )
    assert "pages queued to be fetched again for lack of a copy: 2" in said
    after = held(directory)
    gone = {"http://a.org/", "http://a.org/same"}
    assert after.captures == {url: capture for url, capture in before.items() if url not in gone}
    assert set(after.records) == set(WEB) - gone and after.todo == TO_DO | LATE | dict.fromkeys(gone, 0)
    assert len(segment(directory).read_bytes()) == len(data), "all other records keep their offsets"


def test_a_page_whose_record_is_truncated_is_fetched_again(directory: CrawlDirectory) -> None:
    cut = held(directory).captures["http://a.org/r"]
    data = segment(directory).read_bytes()
    segment(directory).write_bytes(data[: cut.offset + 10])
    said, left = repair(config(), directory, "p0", VirtualClock())
    assert left == [] and "pages queued to be fetched again for lack of a copy: 1" in said
    assert held(directory).todo == TO_DO | LATE | {"http://a.org/r": 1}
    assert held(directory).captures.keys() == set(WEB) - {"http://a.org/r"} | {"http://a.org/robots.txt"}


def test_bytes_after_the_last_whole_record_are_cut_off(directory: CrawlDirectory) -> None:
    """If the store is damaged, the committed length of the file is unknown.

    Then the file is kept up to its last complete record.
    """
    before = held(directory)
    lose(directory, SEGMENT, CAPTURE, PAGE)
    size = segment(directory).stat().st_size
    with segment(directory).open("ab") as file:
        file.write(b"\x1f\x8b\x08 no member")
    said = mend(directory)
    name = before.captures["http://a.org/"].segment
    assert f"{name}: taken back from lost+found" in said
    assert f"{name}: 13 bytes after the last whole record were cut off" in said
    assert segment(directory).stat().st_size == size and held(directory).captures == before.captures
    assert held(directory).todo == TO_DO | LATE


@pytest.mark.parametrize(("prefix", "again"), [(PAGE, 0), (CAPTURE, 0), (TODO, 1), (HOST, 1), (PAYLOAD, 0)])
def test_a_damaged_value_is_named_and_removed(directory: CrawlDirectory, prefix: bytes, again: int) -> None:
    before = held(directory)
    for store, key, value in keys(directory, prefix):
        write(store, {key: value[:-1] + bytes([value[-1] ^ 1])})
        break
    done, left = repair(config(), directory, "p0", VirtualClock())
    assert left == [] and any(line.startswith("store: unreadable values ") for line in done), done
    after = held(directory)
    assert after.todo.keys() == (TO_DO | LATE).keys() and after.parked == PARKED_URLS
    assert set(after.records) == set(before.records) and after.captures == before.captures


def test_an_unknown_key_is_named_and_removed(directory: CrawlDirectory) -> None:
    for store, _, _ in keys(directory, FRONTIER):
        write(store, {b"zz": b"?", b"m/none": b"?"})
    with opened(directory) as stages:
        assert check(stages) == ["store: the key b'm/none' is unknown", "store: the key b'zz' is unknown"]
    said = mend(directory)
    assert "store: unreadable values zz removed: 1" in said
    assert held(directory).todo == TO_DO | LATE


def test_a_url_that_is_queued_twice_is_kept_once(directory: CrawlDirectory) -> None:
    """New entries get numbers after the largest number found. The cursor is before the first entry."""
    for store, key, value in keys(directory, TODO):
        order = int.from_bytes(key[10:], "big") + 7
        write(store, {key[:10] + order.to_bytes(8, "big"): value})
    said = mend(directory)
    assert "queue entries removed, as duplicates or for lack of their host record: 2" in said
    assert held(directory).todo == TO_DO | LATE


def test_a_missing_store_is_rebuilt(directory: CrawlDirectory) -> None:
    """Only data that no page contains is lost.

    Links that were only in the links log are lost, and so is what was learned about politeness.
    """
    known, before = facts(directory), held(directory)
    shutil.rmtree(directory.process("p0") / "store")
    with pytest.raises(DamageError, match="is missing"), opened(directory):
        pass
    done, left = repair(config(), directory, "p0", VirtualClock())
    assert left == [] and "5 captures restored from WARC records" in done
    after = held(directory)
    assert facts(directory) == known and after.captures == before.captures
    assert after.todo.keys() == (TO_DO | LATE).keys() and after.parked == PARKED_URLS
    assert after.counters["pages.fetched"] == 3 and after.counters["pages.redirect"] == 1
    with opened(directory) as stages:
        assert stages.intake.explain("http://a.org/new").rule == "", "the scope is rebuilt"


def test_a_store_of_an_earlier_state_is_refused_and_completed_from_the_archive(
    directory: CrawlDirectory,
) -> None:
    """The store was replaced by an earlier copy, or its log was cut between two records.

    The store itself does not show this.
    """
    store, older = directory.process("p0") / "store", directory.path / "older"
    shutil.copytree(store, older)
    joint = Joint(directory.path, **TREE)
    fetch_task = joint.fetch_task()
    joint.page(fetch_task, fetch(fetch_task.url, LINKS), Extracted(base=fetch_task.url, hrefs=HREFS[LINKS]))
    joint.close()
    known = facts(directory)
    assert fetch_task.url in {fact[0] for fact in known}
    shutil.rmtree(store)
    older.rename(store)
    with pytest.raises(DamageError, match="older than the last run"), opened(directory):
        pass
    assert mend(directory)[0].startswith("store: it is older than the last run")
    assert facts(directory) == known


def test_host_records_and_totals_are_recomputed_from_the_queues(directory: CrawlDirectory) -> None:
    """Cursors are moved back to the first entry.

    If a scan started after an entry, it would never find this entry.
    """
    for store, key, value in keys(directory, HOST):
        payload = full_record(key, unseal(key, value))
        fields = list(RECORD.unpack_from(payload))
        fields[5:8] = [(1 << 64) - 2, 7, 9]
        write(store, {key: seal(RECORD.pack(*fields) + payload[RECORD.size :])})
    for store, _, _ in keys(directory, FRONTIER):
        meta = load(store, FRONTIER, Meta, Meta())
        meta.sequence, meta.parked = 0, {"pages_per_host": 5}
        write(store, {FRONTIER: seal(msgspec.msgpack.encode(meta))})
    done, left = repair(config(), directory, "p0", VirtualClock())
    assert left == [] and any("say 14" in line for line in done), done
    after = held(directory)
    assert (after.todo, after.parked) == (TO_DO | LATE, PARKED_URLS)
    for store, _, _ in keys(directory, FRONTIER):
        meta = load(store, FRONTIER, Meta, Meta())
        assert meta.parked == {"depth": 1} and meta.sequence >= 5
    queues = {prefix: [key for _, key, _ in keys(directory, prefix)] for prefix in (TODO, PARKED)}
    for _, key, value in keys(directory, HOST):
        cursor, todo, parked = RECORD.unpack_from(full_record(key, unseal(key, value)))[5:8]
        own = [int.from_bytes(each[10:], "big") for each in queues[TODO] if each[2:10] == key[2:]]
        assert cursor <= min(own) and todo == len(own)
        assert parked == sum(each[2:10] == key[2:] for each in queues[PARKED])


def test_keys_of_buckets_that_another_process_owns_are_named(tmp_path: Path) -> None:
    two = convert(support.TREE | {"crawl": {"processes": 2}})
    directory = CrawlDirectory(tmp_path)
    directory.create(support.SEED)
    directory.settings.save(two)
    with at_rest(two, directory, "p0", clock=VirtualClock()) as stages:
        assert check(stages) == []
        write(stages.store, {HOST + b"\xff" * 8: seal(b""), PAGE + b"\x00" * 8: seal(b"")})
        files = (TOMBSTONE, RECEIPT)  # these may be about files on hosts of other processes
        write(stages.store, {prefix + b"\xff" * 8: seal(b"") for prefix in files})
        found = check(stages)
    assert [line for line in found if "owns" in line] == [
        "store: 1 keys h/ of buckets 32768 to 65536, which p1 owns"
    ]


@pytest.fixture
def broken(directory: CrawlDirectory, monkeypatch: pytest.MonkeyPatch) -> CrawlDirectory:
    """Return a crawl with damage in the store and in several parts of its segment."""
    with opened(directory) as stages:
        write(stages.store, {b"zz": b""})
        offsets = sorted(capture.offset for _, capture in stages.pages.stored_captures())
    [path] = (directory.process("p0") / "warc").glob("*.gz")
    data = bytearray(path.read_bytes())
    for offset in offsets[:3]:
        data[offset + 40] ^= 4
    path.write_bytes(data)
    monkeypatch.setattr(damage, "_PART_BYTES", 1)
    return directory


def test_several_processes_find_the_same_problems_in_the_same_order(broken: CrawlDirectory) -> None:
    with opened(broken) as stages:
        found = check(stages)
        assert len(found) >= 4
        assert check(stages, 3) == found


@pytest.mark.parametrize("times", [1, 2])
def test_a_killed_process_of_a_check_is_replaced_once(
    broken: CrawlDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, times: int
) -> None:
    """If the replacement is killed at the same part, the check ends with an error."""
    read, parent = damage._read, os.getpid()

    def killed(folder: Path, part: damage.SegmentPart, found: list[Problem]) -> int:
        for number in range(times):
            note = tmp_path / f"kill{number}"
            if os.getpid() != parent and part.is_last and not note.exists():
                note.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return read(folder, part, found)

    with opened(broken) as stages:
        expected = check(stages)
        monkeypatch.setattr(damage, "_read", killed)
        if times == 1:
            assert check(stages, 2) == expected
        else:
            with pytest.raises(CrawlerError, match=r"signal 9.*--processes 1"):
                check(stages, 2)


def test_the_number_of_reported_problems_is_bounded(directory: CrawlDirectory) -> None:
    with opened(directory) as stages:
        write(stages.store, {b"zz%04d" % number: b"" for number in range(PROBLEMS_MAX + 5)})
        assert len(check(stages)) == PROBLEMS_MAX


def test_reserved_space_is_freed_before_anything_is_written(directory: CrawlDirectory) -> None:
    folder = directory.process("p0")
    assert repair_before_opening(folder) == []
    (folder / BALLAST).write_bytes(bytes(3 << 20))
    assert repair_before_opening(folder) == ["freed 3 MiB of ballast"]
    assert not (folder / BALLAST).exists()
    with Lock(folder / "node.lock", "p0"), pytest.raises(BusyError):
        repair_before_opening(folder)


@pytest.mark.parametrize("repairs", [False, True])
def test_a_check_shows_how_much_it_has_read(
    directory: CrawlDirectory, monkeypatch: pytest.MonkeyPatch, repairs: bool
) -> None:
    monkeypatch.setattr(work_progress, "PLAIN_INTERVAL", 0.0)
    monkeypatch.setattr(checking, "_TOLD_EVERY", 1)
    with opened(directory) as stages:
        whole = sum(length for _, length in stages.pages.committed_lengths())
    words = ["check", "--dir", directory.path, *(["--repair"] if repairs else [])]
    shown = run(*words).err.splitlines()
    assert "crawler: values of the store: 1" in shown
    assert shown[-1] == f"crawler: bytes of WARC records: {whole:,} of {whole:,}"
    assert run(*words, "--quiet").err == ""
