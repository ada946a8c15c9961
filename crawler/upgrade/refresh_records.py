"""Step 4: lengthens the refresh schedule's records of sites and directories, to hold numbers about new pages.

    s/<host key>        24 numbers become 28: 1 for the score of the neighbourhood clock, 3 for new pages
    n/<directory key>   a host key and 3 numbers become a host key and 6 numbers: 3 more for new pages

The added numbers are 0, because nothing is known about new pages yet. The store of each process is upgraded
in one batch. Records that already have the new length are left unchanged.
"""

from contextlib import closing

from crawler.crawl.directory import CrawlDirectory
from crawler.storage.engines import open_store
from crawler.storage.keys import REFRESH_DIRECTORY, REFRESH_SITE
from crawler.storage.kv import scan_prefix, seal, unseal

SIZES = {REFRESH_SITE: (24 * 8, 28 * 8), REFRESH_DIRECTORY: (8 + 3 * 8, 8 + 6 * 8)}


def lengthen_refresh_records(directory: CrawlDirectory) -> None:
    """Upgrade the stores of all processes.

    Raises:
        DamageError: a store or a record cannot be read.
        StoreError: the disk failed.
    """
    for name in directory.process_names():
        with closing(open_store(directory.process(name) / "store")) as store:
            batch = store.batch(sync=True)
            for prefix, (former, size) in SIZES.items():
                for key, value in scan_prefix(store, prefix):
                    payload = unseal(key, value)
                    if len(payload) == former:
                        batch.put(key, seal(payload.ljust(size, b"\0")))
            store.write(batch)
