"""`crawler check --repair`: rebuilds damaged data from the remaining data.

Every fact is written in at least two places, so little is lost permanently:

    lost                             rebuilt from
    records u/, captures c/, g/, w/  the WARC records, read from end to end
    DUE runs and their manifest      the keys u/, t/ and p/: every known URL is in one of them
    to-do entries, links log         the links of all stored pages, through the DUE: new ones are queued again
    host records' queue lengths      the queues
    scope m/scope                    the seeds and the URLs to which they redirected
    blocks of hosts                  DIR/blocked.json
    a stored page's copy             the web: its URL is queued again
    links that peers have sent       their archives (`behind_peers.py`)

First, `recapture.py` repairs the WARC files and their keys. Then `requeue.py` repairs the queues, the DUE and
the counters. Once the repaired process can be opened, `rediscover.py` searches the stored pages for lost
links. A value that still cannot be read is removed and reported, and its page is fetched again. Each step may
be repeated. Some facts can be found only before the repair has changed the store, for example which pages
have lost their copies. These facts are stored (`repair.py`). So the next run completes an interrupted repair.

Three kinds of data are not rebuilt: what was learned about the politeness of hosts whose record is lost, URLs
that only a sitemap or feed listed, and counters of fetches.
"""

from collections import Counter
from pathlib import Path

from crawler.config import Config
from crawler.errors import DamageError
from crawler.records import Link
from crawler.storage.engines import open_store
from crawler.storage.keys import PAGE, family
from crawler.storage.kv import unseal
from crawler.upkeep.recapture import Recapture
from crawler.upkeep.repair import Repair
from crawler.upkeep.requeue import Requeue
from crawler.urls.fingerprint import Fingerprinter


def rebuild(
    config: Config, folder: Path, fingerprinter: Fingerprinter, *, store_damaged: bool
) -> tuple[Repair, list[Link]]:
    """Repair the store, segments and DUE of a closed process.

    Return two values: the `Repair`, which describes what was done, and the links that waited in the log.

    Raises:
        DamageError: the store still cannot be read.
        StoreError: the disk failed.
    """
    store = open_store(folder / "store", config.store.engine)
    try:
        repair = Repair.of(config, folder, fingerprinter, store, store_damaged=store_damaged)
        _remove_garbage(repair)
        recapture, requeue = Recapture(repair), Requeue(repair)
        recapture.mend_segments()
        recapture.remove_orphans()
        requeue.mend_queues()
        requeue.forget_peers()
        links = requeue.renew_due()
        repair.writer.flush()
    finally:
        store.close()
    return repair, links


def _remove_garbage(repair: Repair) -> None:
    """Remove damaged values and unknown keys."""
    gone: Counter[str] = Counter()
    for key, value in repair.store.scan(b""):
        found = family(key)
        try:
            if found is not None and found.sealed:
                unseal(key, value)
            if found is not None:
                continue
        except DamageError:
            repair.store_damaged = True
        gone[key[:2].decode("ascii", "replace")] += 1
        if key[:2] == PAGE and len(key) == 10:
            repair.lost.add(int.from_bytes(key[2:], "big"))
        repair.writer.delete(key)
    repair.writer.flush()
    repair.done += [f"store: unreadable values {prefix} removed: {n:,}" for prefix, n in gone.items()]
