"""What `crawler status` and the live screen show: one plain mapping, made from a process's stages."""

from collections.abc import Mapping
from typing import Any

from crawler.admin.report import nested


def rates(before: Mapping[str, int], after: Mapping[str, int], seconds: float) -> dict[str, float]:
    """Pages and bytes per second between two sets of counters."""
    if seconds <= 0.0:
        return {"pages": 0.0, "bytes": 0.0}

    def grown(name: str) -> float:
        return (after.get(name, 0) - before.get(name, 0)) / seconds

    return {"pages": grown("pages.fetched"), "bytes": grown("bytes.wire")}


def merge(parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up mappings of the same shape: numbers are summed, lists joined, other values taken from the first.

    Of the instant `now` the latest counts.
    """
    merged: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            if isinstance(value, Mapping):
                merged[name] = merge([merged.get(name, {}), value])
            elif name == "now":
                merged[name] = max(merged.get(name, value), value)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                merged[name] = merged.get(name, 0) + value
            elif isinstance(value, list):
                merged[name] = [*merged.get(name, []), *value]
            else:
                merged.setdefault(name, value)
    return merged


def build(counters: Mapping[str, int], **sections: Any) -> dict[str, Any]:
    """Counters as a tree, with the stages' own sections beside them."""
    return {**nested(counters), **sections}
