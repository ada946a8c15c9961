"""Step 2: encode the runs of the DUE.

A plain run is a file of ascending uint64 numbers, little-endian, 8 bytes per URL. The entry of a plain run in
the list of runs has coding 0 and the CRC-32 of the whole file. Each plain run is written as a coded run under
a new number. One batch then replaces the list, and the plain files are removed. Until the list is replaced,
the plain files are valid. So a kill at any point either changes nothing or leaves files that are not in the
list.
"""

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from isal import isal_zlib

from crawler import bus_errors
from crawler.crawl.directory import CrawlDirectory
from crawler.due.runs import CODED, Fingerprints, RunEntry, write_run
from crawler.errors import DamageError, reason_of
from crawler.storage.engines import open_store
from crawler.storage.files import sync_directory
from crawler.storage.keys import DUE_RUNS
from crawler.storage.reshard import load, pack

log = logging.getLogger("crawler")

PLAIN = 0  # the coding
_CHUNK_KEYS = 1 << 18
FORMER_FIELDS = 4  # number of fields of `FormerManifest`; the current form has 3


class FormerManifest(msgspec.Struct, array_like=True):
    """Value of `d/runs` up to format 4."""

    method: str = ""
    check_value: int = 0
    in_memory: bool = False
    runs: list[RunEntry] = []


def code_runs(directory: CrawlDirectory) -> None:
    """Encode the plain runs of every process.

    A damaged run stays in the list. So opening the process fails, and a repair rewrites the run.

    Raises:
        DamageError: a store cannot be read.
        StoreError: the disk failed.
    """
    for name in directory.process_names():
        _code_runs(directory.process(name))


def _code_runs(folder: Path) -> None:
    due = folder / "due"
    with closing(open_store(folder / "store")) as store:
        if len(load(store, DUE_RUNS, list[Any], [])) != FORMER_FIELDS:
            return
        manifest = load(store, DUE_RUNS, FormerManifest, FormerManifest())
        plain = [entry for entry in manifest.runs if entry.coding == PLAIN]
        if not plain:
            return
        number = max(_number(path) for path in [*due.glob("*.run*"), Path("0.run")])
        coded = {}
        for entry in plain:
            number += 1
            if (made := _coded(due, entry, number)) is not None:
                coded[entry.number] = made
        runs = [coded.get(entry.number, entry) for entry in manifest.runs]
        batch = store.batch(sync=True)
        batch.put(DUE_RUNS, pack(msgspec.structs.replace(manifest, runs=runs)))
        store.write(batch)
    for entry in plain:
        if entry.number in coded:
            (due / entry.name).unlink()
    sync_directory(due)


def _number(path: Path) -> int:
    digits = path.name.partition(".")[0]
    return int(digits) if digits.isdigit() else 0


def _coded(due: Path, entry: RunEntry, number: int) -> RunEntry | None:
    """Write a plain run as a coded run; return the entry of the coded run, or None if the plain run is damaged."""
    try:
        keys = read_plain(due, entry)
    except DamageError as error:
        log.error("%s", error)
        return None
    chunks: Iterator[Fingerprints] = (
        keys[at : at + _CHUNK_KEYS] for at in range(0, entry.count, _CHUNK_KEYS)
    )
    made = write_run(due, number, chunks)
    assert made.coding == CODED and made.count == entry.count, (made, entry)
    return made


def read_plain(due: Path, entry: RunEntry) -> Fingerprints:
    """Return the keys of a plain run as a memory-mapped array, uint64 (n,).

    Raises:
        DamageError: the file is damaged.
    """
    path = due / entry.name
    bus_errors.install()
    try:
        keys = np.memmap(path, "<u8", "r")
    except (OSError, ValueError) as error:
        raise DamageError(f"{path}: cannot be read: {reason_of(error)}") from error
    if len(keys) != entry.count or isal_zlib.crc32(keys.data) != entry.crc32:
        raise DamageError(f"{path}: its checksum is wrong; `crawler check --repair` rewrites it")
    return keys
