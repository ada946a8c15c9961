"""Builds the state that exists after `scale.py` has loaded its URLs: compacted queues, hosts and known set.

A load of 1e8 URLs takes hours on a busy machine. This module instead writes the keys of the store in sorted
order, so that LevelDB has nothing to merge, and writes the known set as one run. Building the state takes
about 5 us per URL. `scale.py --filled 1e8` then continues with an ordinary load, in which each link is
processed as in a crawl of that size.
"""

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from crawler.due.eliminator import Appended, Flushed
from crawler.due.run_list import Manifest
from crawler.due.runs import DiskRuns
from crawler.frontier.discovery.entries import make_key, make_order
from crawler.frontier.hosts.registry import Meta
from crawler.frontier.hosts.table import SHORT, host_key_bytes
from crawler.storage.engines import open_store
from crawler.storage.keys import COUNTERS, DUE_FLUSHED, DUE_LINKS, DUE_RUNS, FRONTIER, TODO
from crawler.storage.kv import KeyValue, seal, unseal
from crawler.urls.canonical import duplicate_key
from crawler.urls.fingerprint import Fingerprinter
from crawler.urls.suffixes import registrable_domain

BATCH = 5000  # keys
PRIORITY, DEPTH = 128, 1
MIX = 0x9E3779B97F4A7C15
PAGE_LINKS = 3300  # number of consecutive URLs that were found on the same page
CHUNK = 1 << 22
_LOW_48 = (1 << 48) - 1

Tail = Callable[[int, int], str]  # (number of a URL, length of its scheme and host name) -> path


def hosts_of(numbers: np.ndarray, hosts: int) -> np.ndarray:
    """Return the number of the host of each URL, int32 (n,). The numbers are the same as in `scale.url`."""
    draws = numbers.astype(np.uint64) * np.uint64(MIX)
    skewed = (hosts * (draws.astype(np.float64) / 2.0**64) ** 2).astype(np.int32)
    return np.where(numbers < hosts, numbers, skewed).astype(np.int32)


def fill(
    process: Path,
    urls: int,
    hosts: int,
    *,
    fingerprinter: Fingerprinter,
    name: Callable[[int], str],
    tail: Tail,
    told: Callable[[str], None],
) -> None:
    """Write the URLs 0 to `urls` - 1 to the store and DUE in the folder `process`.

    The store and DUE must be closed and empty.
    """
    begun = time.perf_counter()
    names = [name(host) for host in range(hosts)]
    keys = np.array([fingerprinter.host_key(each) for each in names], np.uint64)
    ranked = np.argsort(keys)
    rank = np.empty(hosts, np.int32)
    rank[ranked] = np.arange(hosts, dtype=np.int32)
    ranks = np.concatenate(
        [rank[hosts_of(np.arange(start, min(urls, start + CHUNK)), hosts)] for start in range(0, urls, CHUNK)]
    )
    order = np.argsort(ranks, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(ranks, minlength=hosts))]).tolist()
    del ranks
    told(f"drawn in {time.perf_counter() - begun:.0f} s")
    store = open_store(process / "store", write_buffer_bytes=64 << 20)
    by_rank = [(names[host], int(keys[host])) for host in ranked.tolist()]
    fingerprints = np.empty(urls, np.uint64)
    _put(store, _host_records(by_rank, order, ends, fingerprinter), told)
    _put(store, _entries(by_rank, order, ends, fingerprinter, tail, fingerprints), told)
    told(f"queues built in {time.perf_counter() - begun:.0f} s")
    fingerprints.sort()
    assert (fingerprints[1:] > fingerprints[:-1]).all(), "two URLs have the same fingerprint"
    _put(store, _metas(store, process, fingerprints, fingerprinter), told)
    store.close()
    told(f"all in {time.perf_counter() - begun:.0f} s")


def _put(store: KeyValue, items: Iterator[tuple[bytes, bytes]], told: Callable[[str], None]) -> None:
    batch = store.batch(sync=False)
    for count, (key, value) in enumerate(items, 1):
        batch.put(key, value)
        if count % BATCH == 0:
            store.write(batch)
            batch = store.batch(sync=False)
        if count % 10_000_000 == 0:
            told(f"{count:,} keys")
    store.write(batch)


def _host_records(
    by_rank: list[tuple[str, int]], order: np.ndarray, ends: list[int], fingerprinter: Fingerprinter
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the records of hosts to which no request has been sent, in the order of their keys."""
    for (name, key), (begin, end) in zip(by_rank, pairwise(ends), strict=True):
        if begin == end:
            continue
        cursor = make_order(PRIORITY, DEPTH, int(order[begin]) + 1)
        domain = fingerprinter.domain_key(registrable_domain(name))
        fixed = SHORT.pack(~key & 0xFFFF_FFFF, cursor, end - begin, end - begin, domain)
        yield host_key_bytes(key), seal(fixed + name.encode())


def _entries(
    by_rank: list[tuple[str, int]],
    order: np.ndarray,
    ends: list[int],
    fingerprinter: Fingerprinter,
    tail: Tail,
    fingerprints: np.ndarray,
) -> Iterator[tuple[bytes, bytes]]:
    """Yield queue entries in the order of their keys. Write the fingerprints of their URLs to `fingerprints`."""
    hash_of, base = fingerprinter.hash, make_order(PRIORITY, DEPTH, 0)
    for (name, key), (begin, end) in zip(by_rank, pairwise(ends), strict=True):
        bits, start, length = key & ~_LOW_48, f"https://{name}", len(name) + 8
        found = []
        for number in order[begin:end].tolist():
            path = tail(number, length)
            low = hash_of(duplicate_key(start + path)) & _LOW_48
            found.append(bits | low)
            via = number // PAGE_LINKS * MIX & (1 << 64) - 1
            value = path.encode() + via.to_bytes(8, "little") + low.to_bytes(6, "little")
            yield make_key(TODO, key, base + number + 1), seal(value)
        fingerprints[begin:end] = found


def _metas(
    store: KeyValue, process: Path, fingerprints: np.ndarray, fingerprinter: Fingerprinter
) -> Iterator[tuple[bytes, bytes]]:
    """Write the fingerprints of the URLs to disk as one run of the DUE.

    Yield the records about this run, the links log and the sequence numbers.
    """
    count = len(fingerprints)
    chunks = (fingerprints[start : start + CHUNK] for start in range(0, count, CHUNK))
    run = DiskRuns(process / "due", []).write(chunks, count, step="flush")
    manifest = Manifest("mmh3", fingerprinter.check_value, [run.entry])
    value = store.get(FRONTIER)
    assert value is not None, "the frontier was never opened on this store"
    meta = msgspec.msgpack.decode(unseal(FRONTIER, value), type=Meta)
    meta.sequence = count
    counters = {"urls.accepted": count, "urls.to_due": count}
    for key, found in (
        (DUE_RUNS, manifest),
        (DUE_LINKS, Appended(0, count)),
        (DUE_FLUSHED, Flushed(0, 0, count)),
        (FRONTIER, meta),
        (COUNTERS, counters),
    ):
        yield key, seal(msgspec.msgpack.encode(found))
