"""Test the folders that a reshard builds: all keys reach the processes that need them, in bounded batches."""

from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from crawler.clock import VirtualClock
from crawler.config import convert
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.immutable_settings import immutable_settings, load_immutable
from crawler.crawl.process_names import process_names
from crawler.crawl.topology import topology
from crawler.errors import DirectoryError
from crawler.lab.caches.traces import Trace
from crawler.records import Outcome, PageRecord, PageState
from crawler.splitter.partition import Partition
from crawler.storage.commit import Change
from crawler.storage.keys import BUCKET_TABLE, EQUIVALENCES, ROBOTS
from crawler.storage.kv import scan_prefix, seal, unseal
from crawler.upkeep import build
from crawler.upkeep.build import open_source, problems_of
from crawler.upkeep.reshard import Resharding
from crawler.urls.trace import TraceWriter
from tests.upkeep.support import write
from tests.upkeep.test_reshard import config_of, crawl, open_one

HOSTS = [f"h{number}.org" for number in range(12)]


def moved(path: Path, *, before: int = 2, after: int = 3) -> CrawlDirectory:
    """Return a crawl after a reshard.

    Before the reshard, the processes had different robots.txt files, proofs of equivalence and traces.
    """
    directory = crawl(path, before)
    for name in process_names(config_of(before)):
        with open_one(directory, before, name) as stages:
            changes: dict[bytes, bytes | None] = {}
            owner, hash_of = stages.topology.partition.owner_of_bucket, stages.fingerprinter.bucket
            for host in HOSTS:
                if owner[hash_of(host)] == stages.topology.partition.index(name):
                    changes[ROBOTS + f"http://{host}".encode()] = seal(host.encode())
            proven = {f"http://{name}.org": f"https://{name}.org"}
            write(stages.store, changes | {EQUIVALENCES: seal(msgspec.json.encode(proven))})
            change = Change()
            for host in HOSTS:
                url = f"http://{host}/stored"
                fingerprint = stages.fingerprinter.fingerprint(url)
                if owner[fingerprint >> 48] == stages.topology.partition.index(name):
                    record = PageRecord(url, PageState.STORED, Outcome.FETCHED, 200)
                    stages.pages.put_record(change, fingerprint, record)
                    change.count("stored.records")
                    change.count("pages.fetched")
            stages.commits.commit_now(change)
        with closing(TraceWriter.next_in(directory.process(name) / "trace", {"process": name})) as trace:
            trace.write_page(1, np.arange(3, dtype=np.uint64), False)
    target = Partition.equal_ranges(process_names(config_of(after)), epoch=2)
    Resharding(directory, config_of(after), target, VirtualClock(), lambda _: None).run()
    return directory


def test_keys_without_a_bucket_reach_the_processes_that_need_them(tmp_path: Path) -> None:
    """The robots.txt files are moved to the owners of their hosts, and the traces to the first process.

    All processes get all proofs, and the new table.
    """
    directory = moved(tmp_path / "crawl")
    names, robots, records, fetched = process_names(config_of(3)), [], 0, []
    for name in names:
        with open_one(directory, 3, name) as stages:
            owner, mine = stages.topology.partition.owner_of_bucket, stages.topology.partition.index(name)
            hosts = [unseal(key, value).decode() for key, value in scan_prefix(stages.store, ROBOTS)]
            assert all(owner[stages.fingerprinter.bucket(host)] == mine for host in hosts)
            robots += hosts
            found = stages.store.get(EQUIVALENCES)
            assert found is not None
            assert set(msgspec.json.decode(unseal(EQUIVALENCES, found))) == {"http://p0.org", "http://p1.org"}
            assert stages.views.problems() == []
            records += stages.point.counters["stored.records"]
            fetched.append(stages.point.counters["pages.fetched"])
            assert stages.store.get(BUCKET_TABLE) == stages.topology.partition.encode()
            assert load_immutable(stages.store) == immutable_settings(config_of(3))
        folders = (directory.process(name) / "trace").glob("*")
        traces = {path.name: Trace.open(path).info["process"] for path in folders}
        assert traces == ({"p0-0001": "p0", "p1-0001": "p1"} if name == names[0] else {})
    assert sorted(robots) == sorted(HOSTS) and records == len(HOSTS)
    assert fetched == [len(HOSTS), 0, 0], "the first process has the counts of the crawl so far"


def test_a_reshard_keeps_the_immutable_settings(tmp_path: Path) -> None:
    directory = moved(tmp_path / "crawl")
    changed = convert({"crawl": {"processes": 2}, "urls": {"partition": "host"}})
    target = Partition.equal_ranges(process_names(changed), epoch=3)
    with pytest.raises(DirectoryError, match=r"urls\.partition"):
        Resharding(directory, changed, target, VirtualClock(), lambda _: None).run()
    with open_one(directory, 3, "p2") as stages:
        assert stages.views.problems() == []


def test_pieces_of_a_process_are_its_buckets_by_old_owner(tmp_path: Path) -> None:
    old = Partition.equal_ranges(["p0", "p1"])
    sources: dict[str, Any] = {"p0": "first", "p1": "second"}
    making = build.Build(config_of(2), sources, old, None)  # type: ignore[arg-type]
    target = Partition.equal_ranges(["p0", "p1", "p2"], epoch=2)
    found = [piece for name in target.names for piece in making._pieces(target, name)]
    ends = [end for *_, end in found]
    assert [begin for _, begin, _ in found] == [0, *ends[:-1]] and ends[-1] == 1 << 16
    assert [source for source, *_ in found] == ["first", "first", "second", "second"]


def test_wrong_counters_are_found_before_the_switch(tmp_path: Path) -> None:
    directory, config, clock = moved(tmp_path / "crawl"), config_of(3), VirtualClock()
    place = topology(config, directory.path, "p1")
    folder, seed = directory.process("p1"), directory.seed()
    assert problems_of(config, folder, seed, place, clock) == []
    with open_one(directory, 3, "p1") as stages:
        change = Change()
        change.count("urls.to_due", 3)
        stages.commits.commit_now(change)
    assert any("to_due" in line for line in problems_of(config, folder, seed, place, clock))


def test_an_unknown_key_is_refused(tmp_path: Path) -> None:
    directory = crawl(tmp_path / "crawl", 1)
    with open_one(directory, 1, "p0") as stages:
        write(stages.store, {b"?/strange": b"1"})
    for _ in range(2):  # a second attempt shows that the store was closed
        with pytest.raises(DirectoryError, match="does not know how to move the key"):
            open_source(directory.process("p0"), "p0")
