"""Measure how much CPU time extraction adds to bare parsing, on real pages.

    python scripts/bench/extract.py [--pages 200] [--least 20000] [--most 100000] DIR...

The script reads the HTML files below the directories. For each part of extraction, the script prints the CPU
time per page, which is the smallest of several rounds. The script also prints the ratio of this time to the
CPU time of bare parsing in the same run.
"""

import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from selectolax.lexbor import LexborHTMLParser

from crawler.bench import harness
from crawler.bench.meters import race
from crawler.config import ExtractConfig
from crawler.extract.collected import Collected, Context
from crawler.extract.decode import to_utf8
from crawler.extract.links import _take_elements, extract_page
from crawler.extract.parser_guard import Judgement, judge
from crawler.extract.scan import scan

CONFIG = ExtractConfig()
PAGE = Context("http://h.example/dir/page.html", "", "crawler")
ROUNDS = 15


def _pages(folders: list[Path], count: int, least: int, most: int) -> list[bytes]:
    files = sorted(path for folder in folders for path in folder.rglob("*.html") if not path.is_symlink())
    random.Random(1).shuffle(files)
    pages = (path.read_bytes() for path in files if least <= path.stat().st_size <= most)
    return [page for page, _ in zip(pages, range(count), strict=False)]


def _each(part: Callable[[int], object], count: int) -> None:
    for number in range(count):
        part(number)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.option("--pages", 200)
    parser.option("--least", 20_000)
    parser.option("--most", 100_000)
    options = parser.parse_args()
    pages = _pages(options.folders, options.pages, options.least, options.most)
    count = len(pages)
    utf8 = [to_utf8(page)[0] for page in pages]
    trees = [LexborHTMLParser(page) for page in utf8]
    links = sum(len(extract_page(page, PAGE, CONFIG).hrefs) for page in pages) / count
    anchors = sum(len(tree.css("a[href]")) for tree in trees) / count
    size = sum(map(len, pages)) / count
    print(f"{count} pages, mean {size:,.0f} bytes, {anchors:.0f} anchors, {links:.0f} distinct links")
    print("judged:", {kind.value: sum(judge(page, CONFIG) is kind for page in utf8) for kind in Judgement})
    parts: dict[str, Callable[[int], object]] = {
        "bare parse": lambda n: LexborHTMLParser(utf8[n]),
        "parse and css('a') with attributes": lambda n: [
            node.attributes.get("href") for node in LexborHTMLParser(utf8[n]).css("a")
        ],
        "charset": lambda n: to_utf8(pages[n]),
        "judge": lambda n: judge(utf8[n], CONFIG),
        "elements": lambda n: _take_elements(trees[n], Collected(PAGE)),
        "extract_page in all": lambda n: extract_page(pages[n], PAGE, CONFIG),
        "plain scan": lambda n: scan(pages[n], PAGE, CONFIG),
    }
    work = {name: partial(_each, part, count) for name, part in parts.items()}
    costs = {name: took / count for name, took in race(work, ROUNDS).items()}
    table = harness.Table(f"{'':34}", "    us", "to the bare parse")
    for name, cost in costs.items():
        table.row(name, cost * 1e6, cost / costs["bare parse"])


if __name__ == "__main__":
    main()
