"""The scope is one for all processes: a new one has what all old ones had."""

import msgspec

from crawler.storage.keys import SCOPE_STATE
from crawler.storage.kv import seal
from crawler.storage.moving import Move, load_json


def move(to: Move) -> None:
    """Put the union of all scopes."""
    scopes = [state for source in to.sources if (state := load_json(source.store, SCOPE_STATE)) is not None]
    if scopes:
        entries = sorted({entry for state in scopes for entry in state["entries"]})
        union = {"kind": scopes[0]["kind"], "entries": entries}
        to.put(SCOPE_STATE, seal(msgspec.json.encode(union)))
