"""The seeds of a run, checked, canonical, in pieces.

command line, configuration, file --> Seeds --(one process, a node)----------------> process/results/seed_intake.py
                                        |                                                ^
                                        +--> SeedFile, DIR/seeds.run --(each of several)-+
"""

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from crawler.config import Config
from crawler.crawl.identity import Contact
from crawler.crawl.relaxed_settings import SeedPlaces
from crawler.storage.files import new_file
from crawler.urls.canonical import canonical, hostname

log = logging.getLogger("crawler")

SEEDS_AT_ONCE = 400  # seeds queued for one commit; read in one turn of the loop, some 8 ms
REFUSED_SHOWN = 10  # a file that is no list of URLs must not fill screen and log


def _ignore(_places: Iterable[str]) -> None:
    """Nobody wants to know where seeds lie."""


class Seeds:
    """Those of the configuration and of `raw_urls`, read once; what is no URL is logged and counted.

    `places` is told of each; when all are read and there are new ones, `note` is called.

    Raises:
        UsageError: while they are read, a host whose owner could not reach who asks, or for which looser
            settings were not given.
    """

    def __init__(self, config: Config, raw_urls: Iterable[str], places: SeedPlaces | None = None) -> None:
        self._raw_urls = itertools.chain(config.seeds, raw_urls)
        self.places = places or SeedPlaces(config.crawl.scope)
        self.note: Callable[[Iterable[str]], None] = _ignore
        self._contact = Contact(config)
        self.refused = 0

    def __iter__(self) -> Iterator[list[str]]:
        while piece := list(itertools.islice(self._raw_urls, SEEDS_AT_ONCE)):
            yield [url for raw_url in piece if (url := self._accept(raw_url))]
        if self.places.grown:
            self.places.grown = False
            self.note(self.places.names)

    def _accept(self, raw_url: str) -> str:
        url = canonical(raw_url) or ""
        if url:
            self._contact.check(hostname(url))
            self.places.add(url)
        else:
            self._refuse(raw_url)
        return url

    def _refuse(self, raw_url: str) -> None:
        self.refused += 1
        if self.refused <= REFUSED_SHOWN:
            log.error("seed %r is no http(s) URL", raw_url[:200])
        if self.refused == REFUSED_SHOWN:
            log.error("further seeds of this kind are only counted")


class SeedFile:
    """Canonical seeds, one a line, for all processes of a run; a file that is not there holds none."""

    refused = 0  # whoever wrote the file has counted them

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, pieces: Iterable[Iterable[str]]) -> None:
        """Put the seeds there in place of others; no file if there are none."""
        with new_file(self.path) as file:
            for urls in pieces:
                file.writelines(b"%b\n" % url.encode("ascii") for url in urls)
            empty = file.tell() == 0
        if empty:
            self.remove()

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def __iter__(self) -> Iterator[list[str]]:
        if not self.path.exists():
            return
        with self.path.open(encoding="ascii") as file:
            while piece := list(itertools.islice(file, SEEDS_AT_ONCE)):
                yield [line.rstrip("\n") for line in piece]
