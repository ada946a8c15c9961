"""Rebuilds queues, DUE and counters from the keys that remain."""

import shutil
from collections import Counter

import msgspec
import numpy as np

from crawler.due.eliminator import Appended
from crawler.due.links_log import salvage
from crawler.due.plans import Flushed
from crawler.due.run_list import Manifest
from crawler.due.runs import DiskRuns
from crawler.errors import DamageError
from crawler.frontier.discovery.entries import SEQUENCE_MAX, decode
from crawler.frontier.hosts.budget import RULES
from crawler.frontier.hosts.registry import Meta
from crawler.frontier.hosts.table import RECORD, full_record
from crawler.pages.captures import unpack_record
from crawler.process.committing.counters import FROM_PEERS
from crawler.records import Link
from crawler.storage.commit import load_counters
from crawler.storage.files import rename
from crawler.storage.keys import (
    COUNTERS,
    DUE_FLUSHED,
    DUE_LINKS,
    DUE_RUNS,
    FRONTIER,
    HOST,
    INBOX,
    KEPT,
    PAGE,
    PARKED,
    TODO,
)
from crawler.storage.kv import scan_prefix, seal, unseal
from crawler.storage.reshard import load, pack
from crawler.upkeep.repair import WAITING_LINKS, Repair
from crawler.wording import several


class Requeue:
    """First repairs the queues (`mend_queues`), and then the DUE (`renew_due`, which needs the queue lengths)."""

    def __init__(self, repair: Repair) -> None:
        self._repair, self._store, self._writer = repair, repair.store, repair.writer
        self._queued: set[int] = set()  # fingerprints of queued URLs
        self._todo = self._parked = 0

    def mend_queues(self) -> None:
        """Keep one queue entry per URL, for known hosts only. Correct the queue lengths in host records and totals."""
        stored = scan_prefix(self._store, HOST)
        hosts = {key[2:]: full_record(key, unseal(key, value)) for key, value in stored}
        todo, parked, rules = Counter[bytes](), Counter[bytes](), Counter[str]()
        cursor: dict[bytes, int] = {}
        meta = load(self._store, FRONTIER, Meta, Meta())
        dropped = 0
        for prefix, counts in ((TODO, todo), (PARKED, parked)):
            for key, value in scan_prefix(self._store, prefix):
                host, order, entry = key[2:10], int.from_bytes(key[10:], "big"), decode(key, value)
                meta.sequence = max(meta.sequence, order & SEQUENCE_MAX)
                if host not in hosts or entry.fingerprint in self._queued:
                    self._writer.delete(key)
                    dropped += 1
                    continue
                self._queued.add(entry.fingerprint)
                counts[host] += 1
                if prefix == TODO:
                    cursor[host] = min(cursor.get(host, order), order)
                else:
                    rules[RULES[entry.rule]] += 1
        if dropped:
            self._repair.done.append(
                f"queue entries removed, as duplicates or for lack of their host record: {dropped:,}"
            )
        for host, payload in hosts.items():
            fields = list(RECORD.unpack_from(payload))
            fields[5:8] = [min(fields[5], cursor.get(host, fields[5])), todo[host], parked[host]]
            value = RECORD.pack(*fields) + payload[RECORD.size :]
            if value != payload:
                self._writer.put(HOST + host, seal(value))
        meta.parked = dict(rules)
        self._writer.put(FRONTIER, pack(meta))
        self._todo, self._parked = todo.total(), parked.total()
        self._writer.flush()

    def forget_peers(self) -> None:
        """If the store is damaged, delete the counts of links from peers. Then all are recovered (`behind_peers.py`)."""
        if self._repair.store_damaged:
            for key, _ in scan_prefix(self._store, INBOX):
                self._writer.delete(key)
            self._writer.flush()

    def renew_due(self) -> list[Link]:
        """Write one run of all known URLs, an empty links log and matching counters. Return the links of the old log."""
        pages = {int.from_bytes(key[2:], "big") for key, _ in scan_prefix(self._store, PAGE)}
        known, config = pages | self._queued, self._repair.config
        manifest = Manifest(config.urls.fingerprint, self._repair.fingerprinter.check_value)
        links = self._waiting_links()
        if known:
            keys = np.sort(np.fromiter(known, np.uint64, len(known)))
            run = DiskRuns(self._repair.folder / "due", []).write([keys], len(keys), step="repair")
            manifest.runs.append(run.entry)
            run.close()
        try:
            repeats = load(self._store, DUE_FLUSHED, Flushed, Flushed()).known
        except (DamageError, msgspec.MsgspecError):
            repeats = Flushed().known
        self._writer.put(DUE_RUNS, pack(manifest))
        self._writer.put(DUE_LINKS, pack(Appended(0, repeats + len(known))))
        self._writer.put(DUE_FLUSHED, pack(Flushed(0, repeats, len(known))))
        self._writer.put(COUNTERS, pack(self._counters(repeats, len(known))))
        self._repair.done.append(f"due: one run of {several(len(known), 'known URL')} was written")
        return links

    def _waiting_links(self) -> list[Link]:
        """Return the links of the links log, which are not queued yet. Move the log away, so that a new log starts."""
        log, aside = self._repair.folder / "links", self._repair.folder / WAITING_LINKS
        if log.exists() and not aside.exists():
            rename(log, aside)
        links = [*salvage(aside), *salvage(log)]
        # after an interrupted repair, both `aside` and a new `log` may exist; the links of `log` were just
        # read, so it is removed
        shutil.rmtree(log, ignore_errors=True)
        return links

    def _counters(self, repeats: int, known: int) -> dict[str, int]:
        counters = dict(load_counters(self._store))
        for name, at_least in self._count_outcomes().items():
            counters[name] = max(counters.get(name, 0), at_least)
        counters["urls.to_due"] = repeats + known
        if self._repair.store_damaged:
            counters |= dict.fromkeys(FROM_PEERS, 0)
        counters["urls.done"] = known - self._todo - self._parked
        count = counters.get
        gone_on = count("urls.cache_hits", 0) + count("urls.to_outbox", 0) + repeats + known
        counters["urls.resharded"] = gone_on - count("urls.accepted", 0) - count("urls.received", 0)
        for name, prefix in KEPT.items():
            counters[name] = sum(1 for _ in scan_prefix(self._store, prefix))
        return counters

    def _count_outcomes(self) -> dict[str, int]:
        """Count the page records by the outcome of the last fetch. The stored counters may be lost or outdated."""
        records = (unpack_record(key, value) for key, value in scan_prefix(self._store, PAGE))
        return dict(Counter(f"pages.{record.outcome}" for record in records))
