"""Small crawls that earlier commits have made, and a command that is run on one.

Each tarball is named for its day and commit. All were crawled through a proxy, with
http://a.test/ as their seed, `--scope any --depth 2 --max-pages 12`, so nothing of them
depends on a port: pages link to /0, /1, /2, those to /00 and so on; b.test and c.test are
the same.
"""

import tarfile
from pathlib import Path

DATA = Path(__file__).parent / "data"
FORMER = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz"))


def unpacked(name: str, into: Path) -> Path:
    """The crawl directory in the tarball of that name."""
    with tarfile.open(DATA / f"{name}.tar.xz") as tarball:
        tarball.extractall(into, filter="data")
    return into / "crawl"
