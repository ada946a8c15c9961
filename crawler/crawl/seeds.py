"""Checks the seeds of a run, brings them into canonical form, and yields them in batches.

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
from crawler.urls.typed_url import LOGIN_REFUSED, not_a_url, percent_encoded, split_login

log = logging.getLogger("crawler")

# number of seeds that are queued for one commit; they are read in one turn of the loop, which takes about 8
# ms
SEEDS_AT_ONCE = 400
REFUSED_SHOWN = 10  # limits the number of log lines for a file that is not a list of URLs


def _ignore(_places: Iterable[str]) -> None:
    """Ignore the new places (the default of `Seeds.note`)."""


class Seeds:
    """The seeds of the configuration and of `raw_urls`.

    The seeds can be read only once. Invalid URLs are logged and counted. The place of each seed is added to
    `places`. After the last seed, `note` is called if places were added.

    Raises:
        UsageError: raised while reading, if the host's owner could not contact the operator, or if relaxed settings were
            not given for the host.
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
        plain, login = split_login(percent_encoded(raw_url))
        url = "" if login else canonical(plain) or ""
        if url:
            self._contact.check(hostname(url))
            self.places.add(url)
        else:
            self._refuse(plain, LOGIN_REFUSED if login else not_a_url(plain))
        return url

    def _refuse(self, raw_url: str, why: str) -> None:
        self.refused += 1
        if self.refused <= REFUSED_SHOWN:
            log.error("seed %r is refused: %s", raw_url[:200], why)
        if self.refused == REFUSED_SHOWN:
            log.error("further invalid seeds are counted but not listed")


class SeedFile:
    """A file of canonical seeds, one per line, for all processes of a run.

    If the file is missing, there are no seeds.
    """

    refused = 0  # the process that wrote the file has already counted the invalid seeds

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, pieces: Iterable[Iterable[str]]) -> None:
        """Replace the file by a file with these seeds. If there are no seeds, remove the file."""
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
