"""Step 3: adds facts that the store or crawl.toml held under another name, or did not hold at all.

    m/ends                    number of clean ends: becomes the number of the state (m/state)
    m/ended                   what a process knew about the end of the crawl: dropped, since its form has changed; the
                              mark only shortens a wait at the end of a crawl on several machines
    stored.*                  counters of records and captures: set by counting the records and captures
    m/settled                 the settings on which stored state depends: copied from crawl.toml
    places of the seeds       hosts where relaxed settings apply: taken from the seeds that were tried

The store of each process is upgraded in one batch. Running the step again changes nothing.
"""

from collections.abc import Iterator
from contextlib import closing

from crawler.config import Config, convert
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.immutable_settings import encode_immutable, immutable_settings
from crawler.crawl.relaxed_settings import ANYWHERE, PLACES_MAX, slot_of
from crawler.pages.captures import unpack_record
from crawler.records import LinkFlag
from crawler.storage.commit import load_counters
from crawler.storage.engines import open_store
from crawler.storage.keys import COUNTERS, ENDED, KEPT, PAGE, SETTLED, STATE
from crawler.storage.kv import KeyValue, scan_prefix
from crawler.storage.reshard import load, pack
from crawler.upgrade.former_settings import renewed

ENDS = b"m/ends"


def renew_marks(directory: CrawlDirectory) -> None:
    """Upgrade the stores of all processes, then store the places of the seeds.

    Raises:
        DamageError: a store cannot be read.
        StoreError: the disk failed.
    """
    config = convert(renewed(directory.settings.load_former(), directory.settings.file.name))
    places: dict[str, None] = {}
    for name in directory.process_names():
        with closing(open_store(directory.process(name) / "store")) as store:
            _renew_store(store, config)
            places |= dict.fromkeys(_places(store, config))
    if places and directory.settings.file.exists() and not directory.settings.places():
        directory.settings.write(config, places if len(places) <= PLACES_MAX else [ANYWHERE])


def _renew_store(store: KeyValue, config: Config) -> None:
    batch = store.batch(sync=True)
    if store.get(STATE) is None and (ends := load(store, ENDS, int, 0)):
        batch.put(STATE, pack(ends))
    batch.delete(ENDS)
    batch.delete(ENDED)
    counters = load_counters(store)
    if missing := KEPT.keys() - counters.keys():
        counted = {name: sum(1 for _ in scan_prefix(store, KEPT[name])) for name in missing}
        batch.put(COUNTERS, pack(dict(counters) | counted))
    if store.get(SETTLED) is None:
        batch.put(SETTLED, encode_immutable(immutable_settings(config)))
    store.write(batch)


def _places(store: KeyValue, config: Config) -> Iterator[str]:
    """Yield the place of each seed that has a page record. Such a record means that the seed was tried."""
    for key, value in scan_prefix(store, PAGE):
        record = unpack_record(key, value)
        if record.flags & LinkFlag.SEED:
            yield slot_of(record.url, config.crawl.scope)
