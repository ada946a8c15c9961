"""Small crawls made by earlier commits, and a function to unpack them.

Each tarball is named for its day and commit. All were crawled through a proxy, with
http://a.test/ as their seed, `--scope any --depth 2 --max-pages 12`, so they do not
depend on a port. The root page links to /0, /1, /2, those link to /00 and so on; b.test
and c.test have the same pages.
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
