"""The processes of a crawl and the buckets that each of them owns.

    crawl --processes N    p0 ... pN-1, all in one directory
    node                   the names of `splitter.peers`, each in a directory of its own

The bucket table is a file of the configuration (`splitter.table_file`), else
DIR/buckets.json, which a reshard leaves, else equal ranges. Every process keeps the
table it was opened with. Another table is refused until `crawler reshard` has moved
the buckets: otherwise two processes would ask one host.
"""

from pathlib import Path

import msgspec

from crawler.config import Config, convert
from crawler.config.forms import named_addresses
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import ConfigError, DirectoryError, UsageError
from crawler.splitter.partition import Partition
from crawler.storage.keys import BUCKET_TABLE
from crawler.storage.kv import KeyValue

TABLE_FILE = "buckets.json"


class Topology(msgspec.Struct, frozen=True):
    """Who shares the crawl, as the process `me` sees it."""

    me: str
    partition: Partition

    @property
    def names(self) -> tuple[str, ...]:
        return self.partition.names

    @property
    def peers(self) -> tuple[str, ...]:
        """All processes but this one."""
        return tuple(name for name in self.names if name != self.me)


def process_names(config: Config) -> list[str]:
    """The names of all processes of a crawl."""
    if config.splitter.peers:
        return sorted(named_addresses(config.splitter.peers))
    return [f"p{index}" for index in range(max(1, config.crawl.processes))]


def topology(config: Config, directory: Path, me: str) -> Topology:
    """The topology of the crawl in `directory`, whose process `me` this is.

    Raises:
        ConfigError: the table cannot be read, or it does not hold these processes.
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
    """Refuse a configuration with other processes than those that the directory was crawled with.

    Raises:
        UsageError: the number or the names of its processes would change.
    """
    if not directory.process_names() or not directory.config_file.exists():
        return  # new, or a folder that was moved here from the directory of a reshard: its store keeps the table
    held, names = process_names(convert(directory.saved_config())), process_names(config)
    if held != names:
        raise UsageError(
            f"{directory.path}: the processes of this crawl are {', '.join(held)}, not {', '.join(names)}; "
            "`crawler reshard` moves it to others"
        )


def keep_table(store: KeyValue, partition: Partition) -> None:
    """Note the table that a process is opened with.

    Raises:
        DirectoryError: it was opened with another one before.
    """
    kept, table = store.get(BUCKET_TABLE), partition.encode()
    if kept == table:
        return
    if kept is not None:
        raise DirectoryError(
            "the buckets of this process are not those it was opened with before; `crawler reshard` moves them"
        )
    batch = store.batch(sync=True)
    batch.put(BUCKET_TABLE, table)
    store.write(batch)
