"""`[[override]]`: other values for a part of the web."""

from collections.abc import Sequence
from typing import Any

import msgspec

from crawler.config.schema import Override


class Overrides:
    """The `[[override]]` tables, asked by URL; where several match, the later one wins key by key.

    A table matches a host by its name, a domain with all hosts below it by
    `*.domain`, and a part of a site by a URL prefix (with `://` in it).
    """

    def __init__(self, tables: Sequence[Override]) -> None:
        self.tables = tuple(tables)
        self._values = [set_values(table) for table in tables]

    def __bool__(self) -> bool:
        return bool(self.tables)

    def for_url(self, url: str, hostname: str) -> Override:
        """The values for a URL; None where no table sets one."""
        values: dict[str, Any] = {}
        for table, own in zip(self.tables, self._values, strict=True):
            if _override_matches(table.match, url, hostname):
                values.update(own)
        return Override(**values)


def set_values(table: Override) -> dict[str, Any]:
    return {key: value for key, value in msgspec.structs.asdict(table).items() if value is not None}


def _override_matches(match: str, url: str, hostname: str) -> bool:
    if "://" in match:
        return url.startswith(match)
    if match.startswith("*."):
        return hostname == match[2:] or hostname.endswith(match[1:])
    return hostname == match
