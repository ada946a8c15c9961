"""Small crawls made by earlier commits, and a function to unpack them.

Each tarball is named for its day and commit. All were crawled from the seed http://a.test/ with `--scope any
--depth 2 --max-pages 12`, through a proxy, so that they do not depend on a port. The root page links to /0,
/1 and /2, these pages link to /00 and so on. b.test and c.test have the same pages.
"""

import tarfile
from pathlib import Path

DATA = Path(__file__).parent / "data"
FORMER = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz"))


def unpacked(name: str, into: Path) -> Path:
    """Unpack a tarball; return the crawl directory in it."""
    with tarfile.open(DATA / f"{name}.tar.xz") as tarball:
        tarball.extractall(into, filter="data")
    return into / "crawl"
