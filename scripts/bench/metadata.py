#!/usr/bin/env python3
"""Measure the time to read the metadata that a page declares, beside the time to parse the page.

    scripts/bench/metadata.py [--rounds 40] [--paragraphs 120]

Each row is one kind of declaration on the same made page. `parse` is the time that resiliparse (lexbor) takes to parse
the page. All times are medians of CPU time in one run.
"""

import functools
import json
import statistics
import time
from collections.abc import Callable

from crawler.bench import harness
from crawler.pages.formats import text
from crawler.pages.formats.metadata import read_metadata

URL = "https://news.example/2026/11/roses"
TITLE, TEXT = (
    "Roses that flower in November",
    "We visited a nursery that lifts its roses when the leaves have dropped.",
)
NAMES = ("description", "author", "keywords", "viewport", "generator", "robots", "theme-color", "referrer")
GRAPH = {
    "og:title": TITLE, "og:type": "article", "og:url": URL, "og:site_name": "The News", "og:description": TEXT,
    "og:image": "https://news.example/roses.jpg", "og:image:width": "1200", "og:image:height": "630",
    "og:locale": "en_GB", "article:published_time": "2026-11-27T08:00:00+01:00",
    "article:modified_time": "2026-11-27T09:30:00+01:00", "article:author": "Ann Gardener",
    "article:section": "Garden", "article:tag": "roses", "twitter:card": "summary_large_image",
    "twitter:site": "@news", "twitter:title": TITLE, "twitter:description": TEXT,
    "twitter:image": "https://news.example/roses.jpg",
}  # fmt: skip
ARTICLE = {
    "@context": "https://schema.org", "@type": "NewsArticle", "headline": TITLE, "description": TEXT, "url": URL,
    "datePublished": "2026-11-27T08:00:00+01:00", "dateModified": "2026-11-27T09:30:00+01:00",
    "author": [{"@type": "Person", "name": "Ann Gardener", "url": "https://news.example/ann"}],
    "publisher": {"@type": "Organization", "name": "The News", "logo": {"@type": "ImageObject", "url": "/l.png"}},
    "image": {"@type": "ImageObject", "url": "https://news.example/roses.jpg", "width": 1200, "height": 630},
    "mainEntityOfPage": {"@type": "WebPage", "@id": URL}, "inLanguage": "en-GB",
}  # fmt: skip
MICRODATA = f"""<article itemscope itemtype="https://schema.org/Article"><h1 itemprop=headline>{TITLE}</h1>
<span itemprop=author itemscope itemtype="https://schema.org/Person"><b itemprop=name>Ann Gardener</b></span>
<time itemprop=datePublished datetime="2026-11-27T08:00:00+01:00">today</time>
<meta itemprop=dateModified content=2026-11-28>
<p itemprop=description>{TEXT}</p><img itemprop=image src=/roses.jpg><a itemprop=url href=/2026/11/roses>here</a>
<div itemprop=publisher itemscope itemtype="https://schema.org/Organization"><span itemprop=name>The News</span></div>
<div itemprop=articleBody>"""


def pages(paragraphs: int) -> dict[str, bytes]:
    """Return one page for each kind of declaration."""
    links = "".join(
        f'<li class="item"><a href="/s/{n}" title="Section {n}">Section {n}</a></li>' for n in range(60)
    )
    body = f"<nav><ul>{links}</ul></nav><main>" + "".join(
        f'<p class="text" id="p{n}">{TEXT} <a href="/p/{n}">More about <em>roses</em></a>, {TEXT}</p>'
        for n in range(paragraphs)
    )
    named = "".join(f'<meta name="{name}" content="{TEXT}">' for name in NAMES)
    graph = "".join(f'<meta property="{name}" content="{value}">' for name, value in GRAPH.items())
    linked = f'<script type="application/ld+json">{json.dumps(ARTICLE)}</script>'
    styles = "".join(
        f'<link rel="stylesheet" href="/s{n}.css"><script src="/s{n}.js"></script>' for n in range(6)
    )
    common = f'<meta charset="utf-8"><title>{TITLE}</title><link rel="canonical" href="{URL}">{styles}'

    def page(head: str, before: str = "", after: str = "") -> bytes:
        return (
            f'<!doctype html><html lang="en-GB"><head>{common}{head}</head>'
            f"<body>{before}{body}</main>{after}</body></html>"
        ).encode()

    return {
        "none": page(""),
        "meta": page(named),
        "OpenGraph": page(graph),
        "JSON-LD": page(linked),
        "microdata": page("", MICRODATA, "</div></article>"),
        "all": page(named + graph + linked, MICRODATA, "</div></article>"),
    }


def median_time(work: Callable[[], object], rounds: int) -> float:
    """Return the median CPU time of a call, in milliseconds."""
    times = []
    for _ in range(rounds):
        began = time.process_time_ns()
        for _ in range(5):
            work()
        times.append((time.process_time_ns() - began) / 5e6)
    return statistics.median(times)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.option("--rounds", 40)
    parser.option("--paragraphs", 120)
    args = parser.parse_args()
    print(f"{'page':<10} {'bytes':>7} {'parse':>9} {'metadata':>9} {'ratio':>6} {'columns':>8}")
    for kind, page in pages(args.paragraphs).items():
        tree = text.tree_of(page, tame=True)
        found = read_metadata(tree, page, URL)
        parse = median_time(functools.partial(text.tree_of, page, tame=True), args.rounds)
        read = median_time(functools.partial(read_metadata, tree, page, URL), args.rounds)
        columns = sum(value is not None for value in found.values())
        print(
            f"{kind:<10} {len(page):>7,} {parse:>6.3f} ms {read:>6.3f} ms {read / parse:>6.1%} {columns:>8}"
        )


if __name__ == "__main__":
    main()
