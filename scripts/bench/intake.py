"""Measure the CPU time of turning raw hrefs into accepted links, on real HTML.

    python scripts/bench/intake.py DIR... [--pages N] [--memo BYTES] [--rounds N]

Each DIR stands for a host. The .html files of each DIR are parsed once, outside the measurement. The hrefs of
these files are then processed as in a crawl, in which hosts take turns page by page. The script prints
microseconds per page and per link in three cases: for the intake with scope `any` and a memo (the link
filter's table of results), for a second pass in which all links are known, and for the intake without a memo.
For comparison, a bare `ada_url.join_url` of every href is measured in the same run. Then the script prints
the cost of the single steps.
"""

import os
from collections.abc import Callable
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path

import ada_url
from selectolax.lexbor import LexborHTMLParser

from crawler.bench import harness, meters
from crawler.urlfilter.link_filter import LinkFilter
from crawler.urlfilter.url_filter import Scope, UrlFilter
from crawler.urls.canonical import duplicate_key, hostname, resolve
from crawler.urls.fingerprint import Fingerprinter
from crawler.urls.suffixes import registrable_domain

Page = tuple[str, list[str]]
BODY_BYTES_MAX = 2 << 20


def pages_of(folder: Path, limit: int) -> list[Page]:
    """Return (URL, unique hrefs) of up to `limit` HTML files, in the order of their directories."""
    found = []
    for path in sorted(folder.rglob("*.html"))[:limit]:
        if path.is_file() and path.stat().st_size < BODY_BYTES_MAX:
            tree = LexborHTMLParser(path.read_bytes())
            hrefs = [node.attributes.get("href") or "" for node in tree.css("a[href]")]
            url = f"http://{folder.name.lower().replace('+', '-')}.example/{path.relative_to(folder)}"
            found.append((ada_url.normalize_url(url), list(dict.fromkeys(hrefs))))
    return found


def intake(memo_bytes_max: int) -> LinkFilter:
    return LinkFilter(UrlFilter(Scope("any")), Fingerprinter(os.urandom(16)), memo_bytes_max=memo_bytes_max)


def take_all(links: LinkFilter, pages: list[Page]) -> None:
    for base, hrefs in pages:
        links.filter_links(base, hrefs)


def bare_join(pages: list[Page]) -> None:
    for base, hrefs in pages:
        for href in hrefs:
            try:
                ada_url.join_url(base, href)
            except ValueError:
                pass


def race(pages: list[Page], memo_bytes_max: int, rounds: int) -> dict[str, float]:
    """Return the smallest CPU seconds of each contender for all pages.

    Contenders take turns. Each round begins with an empty memo.
    """
    best: dict[str, float] = {}
    for _ in range(rounds):
        kept = intake(memo_bytes_max)
        for name, work in (
            ("intake", partial(take_all, kept, pages)),
            ("intake, known", partial(take_all, kept, pages)),
            ("intake, no memo", partial(take_all, intake(0), pages)),
            ("ada_url.join_url", partial(bare_join, pages)),
        ):
            best[name] = min(best.get(name, float("inf")), meters.cpu_of(work))
    print(kept)
    return best


def steps(pages: list[Page]) -> None:
    """Print the cost of each step for links that are not in the memo."""
    pairs = [(base, href) for base, hrefs in pages[:200] for href in hrefs]
    urls = [url for base, href in pairs if (url := resolve(base, href))]
    url_filter, fingerprinter = UrlFilter(Scope("host", urls[:1])), Fingerprinter(bytes(16))
    work: dict[str, Callable[[], object]] = {
        "resolve": lambda: [resolve(base, href) for base, href in pairs],
        "verdict, scope host": lambda: [url_filter.verdict(url) for url in urls],
        "hostname": lambda: [hostname(url) for url in urls],
        "duplicate_key": lambda: [duplicate_key(url) for url in urls],
        "fingerprint": lambda: [fingerprinter.fingerprint(url) for url in urls],
        "fingerprints": lambda: fingerprinter.fingerprints(urls),
    }
    table = harness.Table(f"{'step':20}", "us a link")
    for name, took in meters.race(work, 3).items():
        table.row(name, took / len(urls) * 1e6)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.option("--pages", 60, "pages from each folder")
    parser.option("--memo", 24 << 20, "bytes")
    parser.option("--rounds", 3)
    options = parser.parse_args()
    sites = [pages for folder in options.folders if (pages := pages_of(folder, options.pages))]
    pages = [page for page in chain.from_iterable(zip_longest(*sites)) if page]
    links = sum(len(hrefs) for _, hrefs in pages)
    print(f"{len(sites)} hosts, {len(pages)} pages, {links / len(pages):.1f} distinct hrefs per page")
    registrable_domain("load.the.list.example")
    best = race(pages, options.memo, options.rounds)
    table = harness.Table(f"{'':20}", "us a page", "us a link")
    for name, took in best.items():
        table.row(name, took / len(pages) * 1e6, took / links * 1e6)
    steps(pages)


if __name__ == "__main__":
    main()
