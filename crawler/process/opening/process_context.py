"""The values that every part of a process can use: settings, place in the crawl, clock and environment."""

from pathlib import Path

import msgspec

from crawler.clock import Clock
from crawler.config import Config
from crawler.crawl.topology import Topology
from crawler.process.opening.environment import Environment


class ProcessContext(msgspec.Struct, eq=False):
    """The context of the process `name`. The files of the process are in `directory`.

    For a reader, `copy` is the folder with its private copy of the store and the DUE. For the process itself,
    it is None. `config` is replaced when settings change while the process runs. The other fields do not
    change. `boot_id` identifies this start of the process.
    """

    config: Config
    directory: Path
    clock: Clock
    name: str
    topology: Topology
    environment: Environment
    boot_id: str
    copy: Path | None = None

    @property
    def opened(self) -> Path:
        """The folder in which the store and the DUE are opened."""
        return self.copy or self.directory

    @property
    def outlasts_power_cut(self) -> bool:
        """True if commits are synced to the disk."""
        return self.config.store.durability == "power"
