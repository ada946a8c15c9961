"""Moves scopes in a reshard: each new process gets the union of the scopes of all old processes."""

from typing import Any

import msgspec

from crawler.storage.keys import SCOPE_STATE
from crawler.storage.kv import seal
from crawler.storage.reshard import NewProcess, load_json


def move(to: NewProcess) -> None:
    """Store the union of the scopes of all old processes."""
    scopes = [state for source in to.sources if (state := load_json(source.store, SCOPE_STATE)) is not None]
    if scopes:
        entries = sorted({entry for state in scopes for entry in state["entries"]})
        union: dict[str, Any] = {"kind": scopes[0]["kind"], "entries": entries}
        if given := sorted({url for state in scopes for url in state.get("given", ())}):
            union["given"] = given
        to.put(SCOPE_STATE, seal(msgspec.json.encode(union)))
