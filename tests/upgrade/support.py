"""Small crawls made by earlier commits, and a function to unpack them.

The commits wrote crawl directories of the formats 0 and 4. No commit wrote the formats 1 to 3, which only an
interrupted upgrade leaves. So directories of all other formats, including the current one, are made from a
crawl of format 0: the steps of the upgrade are applied up to the wanted format.

Each tarball is named for its day and commit. Crawls of format 0 have the seed http://a.test/; all others also
have the seeds http://b.test/ and http://c.test/. All crawls were made with
`--scope any --depth 2 --max-pages 12`, through a proxy, so that they do not depend on a port. The
crawl named `spider` was then continued for two pages with `--spider`. The root page links to /0, /1 and /2.
These pages link to /00 and so on. The hosts b.test and c.test have the same pages.
"""

import tarfile
from pathlib import Path

from crawler.crawl.directory import CrawlDirectory
from crawler.upgrade.steps import STEPS

DATA = Path(__file__).parent / "data"
FORMER = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz"))
PARTLY_UPGRADED = [f"2026-11-22-93aa052-refreshed:{steps}" for steps in range(1, len(STEPS) + 1)]


def unpacked(name: str, into: Path) -> Path:
    """Unpack a tarball, and return the directory.

    If `name` ends with a colon and a number n, apply the first n steps of the upgrade.
    """
    name, _, steps = name.partition(":")
    with tarfile.open(DATA / f"{name}.tar.xz") as tarball:
        tarball.extractall(into, filter="data")
    directory = CrawlDirectory(into / "crawl")
    for number, step in enumerate(STEPS[: int(steps or 0)], 1):
        step(directory)
        directory.note_format(number)
    return directory.path
