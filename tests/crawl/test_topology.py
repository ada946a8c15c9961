"""Test the processes of a crawl: their names, the bucket table in force, and the tables that are refused."""

from pathlib import Path

import pytest

from crawler.config import Config, convert
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.process_names import process_names
from crawler.crawl.topology import TABLE_FILE, Topology, check_processes, keep_topology, topology
from crawler.errors import ConfigError, DirectoryError, UsageError
from crawler.splitter.partition import BUCKETS, Partition
from crawler.storage.kv import MemoryStore


def config_of(processes: int, **splitter: object) -> Config:
    return convert({"crawl": {"processes": processes}, "splitter": splitter})


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (config_of(1), ["p0"]),
        (config_of(3), ["p0", "p1", "p2"]),
        (config_of(1, peers=["b=127.0.0.1:2", "a=127.0.0.1:1"]), ["a", "b"]),
    ],
)
def test_the_names_of_processes(config: Config, names: list[str]) -> None:
    assert process_names(config) == names


def test_without_a_table_processes_have_equal_ranges(tmp_path: Path) -> None:
    made = topology(config_of(4), tmp_path, "p2")
    assert (made.me, made.names, made.peers) == ("p2", ("p0", "p1", "p2", "p3"), ("p0", "p1", "p3"))
    assert list(made.partition.ranges())[1] == ("p1", BUCKETS // 4, BUCKETS // 2)
    with pytest.raises(ConfigError, match="p4"):
        topology(config_of(4), tmp_path, "p4")


def table(path: Path, *names: str) -> Path:
    ranges = [(name, n * BUCKETS // 4, (n + 1) * BUCKETS // 4) for n, name in enumerate(names[:-1])]
    last = (names[-1], len(ranges) * BUCKETS // 4, BUCKETS)
    path.write_bytes(Partition.from_ranges([*ranges, last], epoch=3).encode())
    return path


def test_a_named_table_precedes_the_table_of_a_reshard(tmp_path: Path) -> None:
    table(tmp_path / TABLE_FILE, "p0", "p1")
    assert next(topology(config_of(2), tmp_path, "p0").partition.ranges()) == ("p0", 0, BUCKETS // 4)
    named = table(tmp_path / "named", "p1", "p0")
    made = topology(config_of(2, table_file=str(named)), tmp_path, "p0")
    assert next(made.partition.ranges()) == ("p1", 0, BUCKETS // 4)
    with pytest.raises(ConfigError, match="is for p0, p1, the crawl has p0, p1, p2"):
        topology(config_of(3), tmp_path, "p0")
    with pytest.raises(ConfigError, match="missing"):
        topology(config_of(2, table_file=str(tmp_path / "missing")), tmp_path, "p0")


def test_a_crawl_keeps_its_processes(tmp_path: Path) -> None:
    crawl = CrawlDirectory(tmp_path)
    crawl.create()
    check_processes(config_of(2), crawl)
    (tmp_path / "p0" / "store").mkdir(parents=True)
    check_processes(config_of(2), crawl)  # p0 may have been moved here; its store contains the table
    crawl.settings.save(config_of(1))
    check_processes(config_of(1), crawl)
    with pytest.raises(UsageError, match="are p0, not p0, p1; use `crawler reshard`"):
        check_processes(config_of(2), crawl)


def test_a_process_keeps_the_name_and_the_table_it_was_opened_with() -> None:
    """If a process opened the folder of another one, it would fetch again what that process has stored."""
    folder = Path("p1")
    store, table = MemoryStore(), Partition.equal_ranges(["p0", "p1"])
    for _ in range(2):
        keep_topology(store, Topology("p0", table), folder)
    with pytest.raises(DirectoryError, match="bucket table of this process"):
        keep_topology(store, Topology("p0", Partition.equal_ranges(["p0", "p1", "p2"])), folder)
    with pytest.raises(DirectoryError, match="^p1: its data belongs to p0, not to p1; give the folders"):
        keep_topology(store, Topology("p1", table), folder)
    keep_topology(store, Topology("p0", table), folder)
