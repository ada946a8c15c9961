"""The processes of a crawl and the buckets that each of them owns.

    crawl --processes N    p0 ... pN-1, all in one directory
    node                   the names of `splitter.peers`, each in a directory of its own

The bucket table is read from the file that the configuration names (`splitter.table_file`). If the
configuration names no file, the table is read from DIR/buckets.json, which a reshard writes. If neither file
exists, every process owns an equal range of buckets. Every process keeps the bucket table with which it was
first opened, and refuses to start with another table until `crawler reshard` has moved the buckets. With
different tables, two processes would crawl the same host. Every process also keeps its name, so a folder that
was given the name of another process is refused.
"""

from pathlib import Path

import msgspec

from crawler.config import Config
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.process_names import process_names
from crawler.errors import ConfigError, DirectoryError, UsageError
from crawler.splitter.partition import Partition
from crawler.storage.keys import BUCKET_TABLE, PROCESS
from crawler.storage.kv import KeyValue

TABLE_FILE = "buckets.json"


class Topology(msgspec.Struct, frozen=True):
    """The processes that share the crawl. `me` is the name of this process."""

    me: str
    partition: Partition

    @property
    def names(self) -> tuple[str, ...]:
        return self.partition.names

    @property
    def peers(self) -> tuple[str, ...]:
        """Return all processes except this one."""
        return tuple(name for name in self.names if name != self.me)


def topology(config: Config, directory: Path, me: str) -> Topology:
    """Return the topology of the crawl in `directory` for its process `me`.

    Raises:
        ConfigError: the table cannot be read, or its processes are not those of the configuration.
    """
    names = process_names(config)
    table = Path(config.splitter.table_file) if config.splitter.table_file else directory / TABLE_FILE
    if config.splitter.table_file or table.exists():
        partition = Partition.read(table)
    else:
        partition = Partition.equal_ranges(names)
    if set(partition.names) != set(names):
        raise ConfigError(
            f"splitter: bucket table {table} is for {', '.join(partition.names)}, the crawl has {', '.join(names)}"
        )
    partition.index(me)
    return Topology(me, partition)


def check_processes(config: Config, directory: CrawlDirectory) -> None:
    """Check that the configuration has the same processes as the directory.

    Raises:
        UsageError: the number or the names of the processes differ.
    """
    if not directory.process_names() or not directory.settings.file.exists():
        # Either the directory is new, or a reshard has created the folder of this process. In the second case,
        # the bucket table is in the store of the process.
        return
    held, names = process_names(directory.settings.config()), process_names(config)
    if held != names:
        raise UsageError(
            f"{directory.path}: the processes of this crawl are {', '.join(held)}, not {', '.join(names)}; "
            "use `crawler reshard` to change them"
        )


def keep_topology(store: KeyValue, topology: Topology, folder: Path) -> None:
    """Record the name and the bucket table with which the process in `folder` is opened.

    Raises:
        DirectoryError: the process was opened with a different name or table earlier.
    """
    expected = {PROCESS: topology.me.encode(), BUCKET_TABLE: topology.partition.encode()}
    kept = {key: store.get(key) for key in expected}
    if kept == expected:
        return
    owner, table = kept[PROCESS], kept[BUCKET_TABLE]
    if owner not in (None, expected[PROCESS]):
        raise DirectoryError(
            f"{folder}: its data belongs to {owner.decode()}, not to {topology.me}; "
            "give the folders of the processes their former names"
        )
    if table not in (None, expected[BUCKET_TABLE]):
        raise DirectoryError(
            "the bucket table of this process differs from the one it was opened with; use `crawler reshard` to change it"
        )
    batch = store.batch(sync=True)
    for key, value in expected.items():
        batch.put(key, value)
    store.write(batch)
