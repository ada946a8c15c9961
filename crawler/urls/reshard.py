"""Moves proven equivalences and traces when a crawl is resharded."""

import msgspec

from crawler.storage.files import link_or_copy
from crawler.storage.keys import EQUIVALENCES
from crawler.storage.kv import seal
from crawler.storage.reshard import NewProcess, load_json


def move(to: NewProcess) -> None:
    """Store the equivalences that any of the old processes has proven.

    One of the new processes, the heir, also gets the traces of all old processes (the folders in `trace/`).
    """
    proven: dict[str, str] = {}
    for source in to.sources:
        proven |= load_json(source.store, EQUIVALENCES) or {}
    if proven:
        to.put(EQUIVALENCES, seal(msgspec.json.encode(proven)))
    if to.heir:
        for source in to.sources:
            for path in sorted((source.folder / "trace").glob("*/*")):
                link_or_copy(path, to.folder / "trace" / f"{source.name}-{path.parent.name}" / path.name)
