"""Find all links in an archive: the links of its pages, the targets of its redirects, and the seeds.

The seeds are those of the configuration, and those that the process has sent to their owners.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from crawler.errors import DamageError
from crawler.export.stored_pages import StoredPages
from crawler.process.opening.stages import Stages
from crawler.process.results.sent_seeds import sent_seed_urls
from crawler.records import Link, LinkFlag


class StoredLinks:
    """Finds the links in the archive of one process. `problems` has a line for each page that could not be read."""

    def __init__(self, stages: Stages) -> None:
        self._seeds, self._store = list(stages.config.seeds), stages.store
        self._reader = StoredPages(stages.config)
        self._pages, self._filter_links = stages.pages, stages.intake.filter_links
        self._split = stages.topology.partition.split
        self.problems: list[str] = []

    def owned_by(self, name: str) -> Iterator[Link]:
        """Yield the accepted links that the process `name` owns. A link on several pages occurs several times."""
        for seeds in chain([self._seeds], sent_seed_urls(self._store)):
            if seeds:
                yield from self._accepted(name, seeds[0], seeds, 0, 0, LinkFlag.SEED)
        for fingerprint, capture in self._pages.newest_captures(withdrawn=True):
            record = self._pages.record(fingerprint)
            if record is None:
                continue
            try:
                urls = self._reader.links(self._pages.read(capture), record.flags)
            except DamageError as error:
                self.problems.append(str(error))
                continue
            yield from self._accepted(name, record.url, urls, fingerprint, record.depth + 1, 0)
        for fingerprint, read in self._pages.stored_records():
            record = read()
            if record.location:
                redirect = LinkFlag.REDIRECT
                yield from self._accepted(
                    name, record.url, [record.location], fingerprint, record.depth, redirect
                )

    def _accepted(
        self, name: str, base: str, urls: Sequence[str], via: int, depth: int, flags: int
    ) -> Iterator[Link]:
        accepted = self._filter_links(base, urls, flags=flags)
        for place in self._split(accepted.fingerprints).get(name, []):
            yield Link(int(accepted.fingerprints[place]), accepted.urls[place], depth, via, 0, flags)
