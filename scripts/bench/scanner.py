"""Check that the link scanner gives the same results as lexbor's tree, on random tag soup and on real pages.

    python scripts/bench/scanner.py [--soups 100000] [--first 0] [--pages 2000] [DIR...]

The script draws `--soups` random pages (`tests/extract/soup.py`), then reads up to `--pages` HTML files below
the directories. For each kind of page, it prints the number of pages with different results and the number of
pages that the scanner leaves to the parser. It also prints the CPU time per page of scanner and parser. A
soup with different results is printed in its shortest form. The exit code is 1 if any page differs. Each file
is also tested in truncated form, and with its bytes decoded as windows-1252 and as UTF-16. Of every six pages, two
are read for their links alone, two also for requisites, and two also for rare attributes.
"""

import random
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import programs  # noqa: F401

from crawler.bench import harness
from crawler.config import ExtractConfig
from crawler.extract.collected import Context
from crawler.extract.links import parse, prepare
from crawler.extract.parser_guard import Judgement, judge
from crawler.extract.scanned import scanned
from tests.extract.soup import soup

URL = "http://h.example/dir/page.html"
# the kinds of wanted results: only links, or also requisites, or also rare attributes
KINDS = [
    (
        Context(URL, token="me", obey_robots=obey, want_requisites=requisites),
        ExtractConfig(all_attributes=rare),
    )
    for requisites, rare in ((False, False), (True, False), (False, True))
    for obey in (True, False)
]
SHOWN_MAX = 10
# If the results of a page differ, pieces of the page are removed as long as the results still differ. These
# are the sizes of the pieces in bytes.
STEPS = (64, 16, 4, 1)


class Tally:
    """The counts of one kind of page."""

    def __init__(self) -> None:
        self.pages = self.bytes = self.parsed = self.excessive = 0
        self.differing: list[bytes] = []
        self.scanning = self.parsing = 0.0

    def take(self, content: bytes, kind: int, encoding: str = "utf-8") -> None:
        """Scan and parse one page, and compare the results. Skip pages that a crawl would not parse."""
        page, config = KINDS[kind % len(KINDS)]
        self.pages += 1
        self.bytes += len(content)
        if judge(content, config) is Judgement.EXCESSIVE:
            self.excessive += 1
            return
        began = time.process_time()
        found = scanned(content, encoding, page, config)
        between = time.process_time()
        if found is None:
            self.parsed += 1
        elif found != parse(content, encoding, page, config):
            self.differing.append(content)
        self.parsing += time.process_time() - between
        self.scanning += between - began

    def show(self, name: str) -> None:
        """Print one line."""
        count = max(self.pages, 1)
        print(
            f"{name}: {self.pages:,} pages of {self.bytes / count:,.0f} bytes, {len(self.differing)} differ, "
            f"{self.parsed / count:.2%} left to the parser, {self.excessive} not compared; "
            f"scanner {self.scanning / count * 1e6:.1f} us, parser {self.parsing / count * 1e6:.1f} us a page",
            flush=True,
        )


def differs(content: bytes) -> bool:
    """Return whether the scanner and the parser give different results for a page."""
    results = ((scanned(content, "utf-8", *kind), kind) for kind in KINDS)
    return any(found is not None and found != parse(content, "utf-8", *kind) for found, kind in results)


def shortened(content: bytes) -> bytes:
    """Return the page without the parts that do not affect the difference between scanner and parser."""
    for step in STEPS:
        at = 0
        while at < len(content):
            shorter = content[:at] + content[at + step :]
            if differs(shorter):
                content = shorter
            else:
                at += step
    return content


def files(folders: Iterable[Path], count: int) -> Iterator[bytes]:
    """Yield up to `count` HTML files, in random order."""
    found = sorted(
        path
        for folder in folders
        for path in folder.rglob("*.htm*")
        if path.is_file() and not path.is_symlink()
    )
    random.Random(1).shuffle(found)
    for path in found[:count]:
        yield path.read_bytes()


def main() -> int:
    """Print a line for each kind of page."""
    parser = harness.parser(__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.option("--soups", 100_000)
    parser.option("--first", 0, "seed of the first soup")
    parser.option("--pages", 2000)
    options = parser.parse_args()
    soups, whole, cut, other = Tally(), Tally(), Tally(), Tally()
    for seed in range(options.first, options.first + options.soups):
        soups.take(soup(seed), seed)
    soups.show("tag soup")
    for content in {shortened(each) for each in soups.differing[:SHOWN_MAX]}:
        print(" ", content)
    chance = random.Random(1)
    for kind, content in enumerate(files(options.folders, options.pages)):
        utf8, encoding = prepare(content, KINDS[0][0])
        whole.take(utf8, kind, encoding)
        cut.take(utf8[: chance.randrange(len(utf8) + 1)], kind, encoding)
        for charset in ("windows-1252", "utf-16le"):
            utf8, encoding = prepare(content, Context(URL, charset, "me"))
            other.take(utf8, kind, encoding)
    if whole.pages:
        whole.show("files")
        cut.show("files cut off")
        other.show("files in other encodings")
    return 1 if any(tally.differing for tally in (soups, whole, cut, other)) else 0


if __name__ == "__main__":
    sys.exit(main())
