"""The steps that bring a crawl directory from each former format to the next.

Each store is upgraded in one batch. Running a step again does not change the stores that are upgraded already.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from isal import isal_zlib

from crawler import bus_errors
from crawler.config import convert
from crawler.crawl.directory import FORMAT, CrawlDirectory
from crawler.crawl.immutable_settings import encode_immutable, immutable_settings
from crawler.crawl.relaxed_settings import ANYWHERE, PLACES_MAX, slot_of
from crawler.due.plans import Flushed
from crawler.due.runs import CODED, DiskRuns, Fingerprints, RunEntry, write_run
from crawler.errors import DamageError, reason_of
from crawler.frontier.discovery.entries import decode
from crawler.pages.captures import unpack_record
from crawler.records import LinkFlag
from crawler.storage.commit import load_counters
from crawler.storage.engines import open_store
from crawler.storage.files import sync_directory
from crawler.storage.keys import (
    COUNTERS,
    DUE_FLUSHED,
    DUE_RUNS,
    ENDED,
    KEPT,
    PAGE,
    PARKED,
    REFRESH_DIRECTORY,
    REFRESH_SITE,
    SETTLED,
    STATE,
    TODO,
)
from crawler.storage.kv import KeyValue, scan_prefix, seal, unseal
from crawler.storage.reshard import load, pack
from crawler.upgrade.former_settings import (
    drop_former_defaults,
    drop_former_share,
    drop_run_settings,
    renew_settings,
    renewed,
)

log = logging.getLogger("crawler")

_ENDS = b"m/ends"
_PLAIN = 0  # the coding of a plain run
_CHUNK_KEYS = 1 << 18
# former and present length of the records of sites and directories
_REFRESH_SIZES = {REFRESH_SITE: (24 * 8, 28 * 8), REFRESH_DIRECTORY: (8 + 3 * 8, 8 + 6 * 8)}


def _stores(directory: CrawlDirectory) -> Iterator[tuple[Path, KeyValue]]:
    """Yield the folder and the store of each process."""
    for name in directory.process_names():
        folder = directory.process(name)
        with closing(open_store(folder / "store")) as store:
            yield folder, store


# -- step 2: the runs of the DUE are coded


class _FormerManifest(msgspec.Struct, array_like=True):
    """Value of `d/runs` up to format 4."""

    method: str = ""
    check_value: int = 0
    in_memory: bool = False
    runs: list[RunEntry] = []


def _former_manifest(store: KeyValue) -> _FormerManifest | None:
    """Return the list of runs; None if the DUE was never flushed, or if the list has its present form already."""
    if len(load(store, DUE_RUNS, list[Any], [])) != len(_FormerManifest.__struct_fields__):
        return None
    return load(store, DUE_RUNS, _FormerManifest, _FormerManifest())


def _code_runs(directory: CrawlDirectory) -> None:
    """Encode the plain runs of every process.

    A plain run is a file of ascending uint64 numbers, little-endian, 8 bytes per URL. Its entry in the list of
    runs has coding 0 and the CRC-32 of the whole file. Each plain run is written as a coded run under a new
    number. One batch then replaces the list, and the plain files are removed. A kill at any point either changes
    nothing or leaves files that are not in the list. A damaged run stays in the list. So opening the process
    fails, and a repair rewrites the run.
    """
    for folder, store in _stores(directory):
        due, manifest = folder / "due", _former_manifest(store)
        plain = [entry for entry in manifest.runs if entry.coding == _PLAIN] if manifest else []
        if not manifest or not plain:
            continue
        number = max(_number(path) for path in [*due.glob("*.run*"), Path("0.run")])
        coded = {}
        for entry in plain:
            number += 1
            if (made := _coded(due, entry, number)) is not None:
                coded[entry.number] = made
        manifest.runs = [coded.get(entry.number, entry) for entry in manifest.runs]
        batch = store.batch(sync=True)
        batch.put(DUE_RUNS, pack(manifest))
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
        keys = _read_plain(due, entry)
    except DamageError as error:
        log.error("%s", error)
        return None
    made = write_run(due, number, (keys[at : at + _CHUNK_KEYS] for at in range(0, entry.count, _CHUNK_KEYS)))
    assert made.coding == CODED and made.count == entry.count, (made, entry)
    return made


def _read_plain(due: Path, entry: RunEntry) -> Fingerprints:
    """Return the keys of a plain run as a memory-mapped array, uint64 (n,)."""
    path = due / entry.name
    bus_errors.install()
    try:
        keys = np.memmap(path, "<u8", "r")
    except (OSError, ValueError) as error:
        raise DamageError(f"{path}: cannot be read: {reason_of(error)}") from error
    if len(keys) != entry.count or isal_zlib.crc32(keys.data) != entry.crc32:
        raise DamageError(f"{path}: its checksum is wrong; `crawler check --repair` rewrites it")
    return keys


# -- step 3: facts that the store or crawl.toml held under another name, or did not hold at all


def _renew_marks(directory: CrawlDirectory) -> None:
    """Renew these facts.

    m/ends                 number of clean ends: becomes the number of the state (m/state)
    m/ended                what a process knew about the end of the crawl: dropped, since its form has changed; the
                           mark only shortens a wait at the end of a crawl on several machines
    stored.*               counters of records and captures: set by counting the records and captures
    m/settled              the settings on which stored state depends: copied from crawl.toml
    places of the seeds    hosts where relaxed settings apply: taken from the seeds that were tried
    """
    config = convert(renewed(directory.settings.load_former(), directory.settings.file.name))
    places: dict[str, None] = {}
    for _, store in _stores(directory):
        batch = store.batch(sync=True)
        if store.get(STATE) is None and (ends := load(store, _ENDS, int, 0)):
            batch.put(STATE, pack(ends))
        batch.delete(_ENDS)
        batch.delete(ENDED)
        counters = load_counters(store)
        if missing := KEPT.keys() - counters.keys():
            counted = {name: sum(1 for _ in scan_prefix(store, KEPT[name])) for name in missing}
            batch.put(COUNTERS, pack(counters | counted))
        if store.get(SETTLED) is None:
            batch.put(SETTLED, encode_immutable(immutable_settings(config)))
        store.write(batch)
        for key, value in scan_prefix(store, PAGE):
            record = unpack_record(key, value)
            if record.flags & LinkFlag.SEED:  # the seed was tried, because it has a record
                places[slot_of(record.url, config.crawl.scope)] = None
    if places and directory.settings.file.exists() and not directory.settings.places():
        directory.settings.write(config, places if len(places) <= PLACES_MAX else [ANYWHERE])


# -- step 4: records of sites and directories have room for numbers about new pages


def _lengthen_refresh_records(directory: CrawlDirectory) -> None:
    """Lengthen the records of the refresh schedule. The added numbers are 0: nothing is known about new pages yet.

    s/<host key>        24 numbers become 28: 1 for the score of the neighbourhood clock, 3 for new pages
    n/<directory key>   a host key and 3 numbers become a host key and 6 numbers: 3 more for new pages
    """
    for _, store in _stores(directory):
        batch = store.batch(sync=True)
        for prefix, (former, size) in _REFRESH_SIZES.items():
            for key, value in scan_prefix(store, prefix):
                payload = unseal(key, value)
                if len(payload) == former:
                    batch.put(key, seal(payload.ljust(size, b"\0")))
        store.write(batch)


# -- step 5: the known URLs are always in runs on disk


def _keep_due_on_disk(directory: CrawlDirectory) -> None:
    """Drop the setting `due.method`, and write known URLs that were in no file as a run.

    With `due.method = "memory"`, every start took the known URLs from the page records and the queues. The list of
    runs (`d/runs`) no longer says where the known URLs are. If the step was killed between writing a run and
    upgrading the store, the run is written again. Opening the DUE deletes runs that no store names.
    """
    renew_settings(directory)
    for folder, store in _stores(directory):
        if (former := _former_manifest(store)) is None:
            continue
        runs, batch = former.runs, store.batch(sync=True)
        if former.in_memory:
            known = _known(store)
            runs = _written(folder, known)
            flushed = load(store, DUE_FLUSHED, Flushed, Flushed())
            repeats = flushed.known + flushed.new - len(known)
            batch.put(DUE_FLUSHED, pack(Flushed(flushed.position, repeats, len(known))))
        batch.put(DUE_RUNS, pack([former.method, former.check_value, runs]))
        store.write(batch)


def _known(store: KeyValue) -> np.ndarray:
    """Return the fingerprints of all tried, to-do and parked URLs, ascending."""
    known = {int.from_bytes(key[2:], "big") for key, _ in scan_prefix(store, PAGE)}
    for prefix in (TODO, PARKED):
        known |= {decode(key, value).fingerprint for key, value in scan_prefix(store, prefix)}
    return np.sort(np.fromiter(known, np.uint64, len(known)))


def _written(folder: Path, known: np.ndarray) -> list[RunEntry]:
    if not len(known):
        return []
    run = DiskRuns(folder / "due", []).write([known], len(known), step="upgrade")
    run.close()
    return [run.entry]


STEPS: tuple[Callable[[CrawlDirectory], None], ...] = (
    partial(renew_settings, change=drop_former_defaults),
    _code_runs,
    _renew_marks,
    _lengthen_refresh_records,
    _keep_due_on_disk,
    partial(renew_settings, change=drop_run_settings),
    renew_settings,
    partial(renew_settings, change=drop_former_share),
    # In format 9, the number of changes of a page (`freshness/change_rates.py`) is below 0 if each crawl has found a
    # change. Earlier readers fail on it, so the number keeps them out. Every record of format 8 is valid.
    renew_settings,
)
assert len(STEPS) == FORMAT
