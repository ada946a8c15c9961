"""Counts the stored pages of each host by use and answer, for `report --consent` and the dashboard."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from crawler.consent.resolving import Consent
from crawler.consent.statements import USES, Preference

ANSWERS = tuple(str(answer) for answer in Preference)
Row = dict[str, Any]


class Summary:
    """Counts pages by host, use and answer, as {host: {(use, answer): pages}}, and counts pages without a receipt."""

    def __init__(self) -> None:
        self._hosts: dict[str, Counter[str]] = {}

    def add(self, host: str, uses: Consent | None) -> None:
        """Count a page. `uses` is None if the page has no receipt."""
        counts = self._hosts.setdefault(host, Counter())
        counts["pages"] += 1
        if uses is None:
            counts["without_receipt"] += 1
            uses = Consent()
        for use in USES:
            counts[f"{use}.{getattr(uses, use).preference}"] += 1

    def rows(self) -> list[Row]:
        """Return one row per host, beginning with the host that has the most pages."""
        rows = [_row(host, counts) for host, counts in self._hosts.items()]
        return sorted(rows, key=_order)


def merged(parts: Iterable[Iterable[Mapping[str, Any]]]) -> list[Row]:
    """Merge the rows of several processes into one table. Each host occurs in the rows of only one process."""
    return sorted((dict(row) for part in parts for row in part), key=_order)


def total(rows: Iterable[Mapping[str, Any]]) -> Row:
    """Return the sum of all rows, with the host "all"."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts["pages"] += row["pages"]
        counts["without_receipt"] += row["without_receipt"]
        for use in USES:
            for answer in ANSWERS:
                counts[f"{use}.{answer}"] += row[use][answer]
    return _row("all", counts)


def _row(host: str, counts: Mapping[str, int]) -> Row:
    return {
        "host": host,
        "pages": counts.get("pages", 0),
        **{use: {answer: counts.get(f"{use}.{answer}", 0) for answer in ANSWERS} for use in USES},
        "without_receipt": counts.get("without_receipt", 0),
    }


def _order(row: Mapping[str, Any]) -> tuple[int, str]:
    return -row["pages"], row["host"]
