#!/usr/bin/env python3
"""Write the products of a shop on loopback to a JSONL file with Scrapy and with `crawler.run`, and compare both.

    pip install scrapy      (in any environment)
    scripts/bench/items.py --scrapy ENVIRONMENT/bin/python [--products 500] [--latency 0.02] [--rounds 3]

Both programs have one callback for lists and one for products, send one request at a time to the host, obey
robots.txt and wait for nothing between requests. The crawler also stores the pages in WARC files and can be killed
at any time without losing a page. The exit code is 1 if an items file lacks a product, or if the crawler took
longer than Scrapy.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from programs import ROOT
from wget import Took, run, serve

from crawler.bench import harness

LISTED = 20  # products per list

SPIDER = """\
import sys
import scrapy
from scrapy.crawler import CrawlerProcess


class Shop(scrapy.Spider):
    name = "shop"
    start_urls = [sys.argv[1]]

    def parse(self, response):
        yield from response.follow_all(css=".products a", callback=self.product)
        yield from response.follow_all(css="a.next", callback=self.parse)

    def product(self, response):
        yield {"url": response.url, "name": response.css("h1::text").get(), "price": response.css(".price::text").get()}


process = CrawlerProcess({
    "FEEDS": {sys.argv[2]: {"format": "jsonlines"}}, "LOG_LEVEL": "ERROR", "ROBOTSTXT_OBEY": True,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 1, "DOWNLOAD_DELAY": 0, "TELNETCONSOLE_ENABLED": False,
})
process.crawl(Shop)
process.start()
"""

CALLBACKS = """\
import sys
import crawler


def parse(page):
    for link in page.css(".products a").attrs("href"):
        yield crawler.Request(link, product)
    for link in page.css("a.next").attrs("href"):
        yield crawler.Request(link, parse)


def product(page):
    yield {"url": page.url, "name": page.css("h1").text, "price": page.css(".price").text}


settings = {"network": {"allow_networks": ["127.0.0.0/8"]}, "politeness": {"delay": 0, "delay_factor": 0}}
crawler.run(sys.argv[1], parse, items=sys.argv[2], follow=False, directory=sys.argv[2] + ".crawl", config=settings)
"""


def shop(products: int) -> dict[str, tuple[str, bytes]]:
    """Return media type and content of each path: lists of products that link to the next list, and products."""
    pages = {"/robots.txt": ("text/plain", b"User-agent: *\nDisallow: /cart\n")}
    for first in range(0, products, LISTED):
        rows = "".join(
            f"<li><a href=/tea/{n}>Tea {n}</a>" for n in range(first, min(first + LISTED, products))
        )
        after = f"<a class=next href=/list/{first + LISTED}>next</a>" if first + LISTED < products else ""
        pages[f"/list/{first}"] = (
            "text/html",
            f"<title>Teas</title><ul class=products>{rows}</ul>{after}".encode(),
        )
    filler = "<p>Fine leaves from high gardens." * 250
    for n in range(products):
        text = f"<title>Tea {n}</title><h1>Tea {n}</h1><span class=price>{n}.50</span>{filler}"
        pages[f"/tea/{n}"] = "text/html", text.encode()
    return pages


def missing(items: Path, products: int) -> int:
    """Return how many products are not in an items file exactly once."""
    rows = [json.loads(line)["name"] for line in items.read_text().splitlines()] if items.exists() else []
    return sum(rows.count(f"Tea {n}") != 1 for n in range(products))


def main() -> int:
    parser = harness.parser(__doc__)
    parser.option("--scrapy", sys.executable, "Python with Scrapy (this one)", metavar="PYTHON")
    parser.option("--products", 500)
    parser.option("--latency", 0.02)
    parser.option("--rounds", 3)
    args = parser.parse_args()
    version = [args.scrapy, "-c", "import scrapy; print(scrapy.__version__)"]
    asked = subprocess.run(version, capture_output=True, text=True, check=False)
    if asked.returncode:
        sys.exit(f"items.py: {args.scrapy} has no Scrapy; give --scrapy ENVIRONMENT/bin/python")
    pythons = {"scrapy": args.scrapy, "crawler": sys.executable}
    programs = {"scrapy": SPIDER, "crawler": CALLBACKS}
    took: dict[str, list[Took]] = {name: [] for name in programs}
    whole = True
    os.environ["PYTHONPATH"] = str(ROOT)
    with serve(shop(args.products), args.latency) as web, tempfile.TemporaryDirectory() as folder:
        url = web.url("/list/0", "127.0.0.1")
        for number in range(args.rounds):
            for name, times in took.items():
                program, items = Path(folder) / f"{name}_program.py", Path(folder) / f"{name}{number}.jsonl"
                program.write_text(programs[name])
                times.append(run([pythons[name], str(program), url, str(items)]))
                if lost := missing(items, args.products):
                    whole = False
                    print(f"{name}: {lost} of {args.products} products are missing or occur twice")
    print(f"Scrapy {asked.stdout.strip()}, {args.products} products, {args.latency:g} s per answer")
    table = harness.Table("program", "     wall s, median", "CPU s, median", "lines of code")
    for name, times in took.items():
        walls = [each.wall for each in times]
        lines = sum(bool(line.strip()) for line in programs[name].splitlines())
        table.row(name, harness.spread(walls), statistics.median(each.cpu for each in times), lines)
    wall, cpu = (
        statistics.median(getattr(each, what) for each in took["crawler"])
        / statistics.median(getattr(each, what) for each in took["scrapy"])
        for what in ("wall", "cpu")
    )
    print(f"\nthe crawler took {wall:.2f} x the wall time and {cpu:.2f} x the CPU time of Scrapy")
    return 0 if whole and wall <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
