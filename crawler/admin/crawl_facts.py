"""Facts that identify a crawl: its directory, the hosts of its seeds, its id and the version of the crawler."""

from pathlib import Path
from typing import Any

from crawler.crawl.directory import CrawlDirectory
from crawler.errors import CrawlerError
from crawler.version import __version__

SEEDS_SHOWN = 5


class CrawlFacts:
    """Reads the facts of the crawl in a directory, and reads them again when the crawl's configuration has changed."""

    def __init__(self, path: Path) -> None:
        self._directory = CrawlDirectory(path)
        self._read_at = 0
        self._facts: dict[str, Any] = {}

    def plain(self) -> dict[str, Any]:
        """Return {"directory", "id", "version", "seeds": the first hosts, "seeds_total"}."""
        try:
            changed_at = self._directory.settings.file.stat().st_mtime_ns
        except OSError:
            changed_at = 0
        if not self._facts or changed_at != self._read_at:
            self._read_at, self._facts = changed_at, self._read()
        return self._facts

    def _read(self) -> dict[str, Any]:
        try:
            seeds = self._directory.settings.places()
            crawl_id = self._directory.crawl_id() if self._directory.exists() else ""
        except (OSError, CrawlerError):  # show the facts that can be read
            seeds, crawl_id = [], ""
        return {
            "directory": str(self._directory.path.absolute()),
            "id": crawl_id,
            "version": __version__,
            "seeds": seeds[:SEEDS_SHOWN],
            "seeds_total": len(seeds),
        }
