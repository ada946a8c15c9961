"""Link graphs of pages on hosts, with the texts of the links.

A link graph is read from a folder of HTML, or generated.

A folder of documentation is read in the same way as the crawler reads pages (`extract/`). Each subfolder is a
host and each file a page. Links to missing files are left out. Absolute links between hosts are also left
out, because the original addresses of the hosts are unknown. The first page of a host is the page with the
shortest path. Each first page is given links to eight other first pages, which connect the hosts.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from crawler.config import ExtractConfig
from crawler.errors import UsageError
from crawler.extract.collected import Context
from crawler.extract.links import extract_page
from crawler.lab.cluster.synthetic_web import SyntheticWeb, WebSpec
from crawler.urls.canonical import resolve

NEIGHBOURS = 8  # the first page of each host links to this many other hosts
_DAMPING = 0.85  # of PageRank (Brin, Page 1998)
PAGES_LEAST = 8  # a host must have at least this number of pages


class LinkGraph(msgspec.Struct):
    """A graph of pages 0 .. n - 1.

    `links` holds pairs (page, anchor text) for each page, and `first` the first page of each host.
    """

    urls: list[str]
    titles: list[str]
    links: list[list[tuple[int, str]]]
    first: list[int]

    def depths(self) -> dict[int, int]:
        """Return the smallest number of links from a first page to each reachable page, in breadth-first order."""
        depth = dict.fromkeys(self.first, 0)
        queue = list(depth)
        for page in queue:
            for target, _ in self.links[page]:
                if target not in depth:
                    depth[target] = depth[page] + 1
                    queue.append(target)
        return depth


def page_rank(graph: LinkGraph, rounds: int = 60) -> NDArray[np.float64]:
    """Return the PageRank of all pages, (n,), with a mean of 1.

    The rank of a page without links is distributed over all pages.
    """
    count = len(graph.urls)
    source = np.array([page for page, links in enumerate(graph.links) for _ in links], np.intp)
    target = np.array([other for links in graph.links for other, _ in links], np.intp)
    out = np.bincount(source, minlength=count)
    rank = np.ones(count)
    for _ in range(rounds):
        given = (rank / np.maximum(out, 1))[source]
        lost = rank[out == 0].sum() / count
        rank = 1 - _DAMPING + _DAMPING * (np.bincount(target, given, count) + lost)
    return rank


def of_folder(folder: Path, pages_max: int, rng: random.Random) -> LinkGraph:
    """Read the graph of a documentation folder.

    At most `pages_max` pages of each host are read: those nearest to its first page.

    Raises:
        UsageError: the folder cannot be read, or no host has `PAGES_LEAST` pages.
    """
    try:
        hosts = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from error
    urls: list[str] = []
    titles: list[str] = []
    links: list[list[tuple[int, str]]] = []
    first: list[int] = []
    for number, host in enumerate(hosts):
        found = list(_host(host, f"http://h{number}.test/", pages_max))
        if len(found) < PAGES_LEAST:
            continue
        begin = len(urls)
        first.append(begin)
        place = {url: begin + n for n, (url, _, _) in enumerate(found)}
        for url, title, anchors in found:
            urls.append(url)
            titles.append(title)
            links.append([(place[to], text) for to, text in anchors.items() if to in place and to != url])
    if not first:
        raise UsageError(f"{folder}: no subfolder has {PAGES_LEAST} HTML files or more")
    for page in first:
        others = rng.sample(first, min(NEIGHBOURS, len(first)))
        links[page] += [(other, titles[other]) for other in others if other != page]
    return LinkGraph(urls, titles, links, first)


def _host(folder: Path, base: str, pages_max: int) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield (URL, title, anchor texts by URL) for each page of a host, in breadth-first order from its first page."""
    files = {
        base + path.relative_to(folder).as_posix(): path for path in folder.rglob("*.htm*") if path.is_file()
    }
    if not files:
        return
    config = ExtractConfig(links_max=500)
    start = min(files, key=lambda url: (url.count("/"), "index" not in url, len(url), url))
    queue, seen = [start], {start}
    at = 0
    while at < len(queue) and at < pages_max:
        url, at = queue[at], at + 1
        found = extract_page(files[url].read_bytes(), Context(url, want_anchors=True), config)
        anchors: dict[str, str] = {}
        for href, text in zip(found.hrefs, found.anchors or [""] * len(found.hrefs), strict=True):
            target = resolve(found.base, href)
            if target is not None and target.endswith("/"):
                target += "index.html"
            if target in files:
                anchors.setdefault(target, text)
                if target not in seen:
                    seen.add(target)
                    queue.append(target)
        yield url, found.title, anchors


def synthetic(pages: int, hosts: int, seed: int) -> LinkGraph:
    """Return the graph of the lab's synthetic web (`lab/cluster/synthetic_web.py`) without faults.

    Its links have no anchor texts.
    """
    web = SyntheticWeb(WebSpec(hosts=hosts, pages=pages, flaws=False, sitemaps=0.0, traps=0.0), seed)
    urls = [web.url(page) for page in range(pages)]
    number = {url: page for page, url in enumerate(urls)} | {web.link_to(page): page for page in range(pages)}
    links = [
        [(number[url], "") for url in dict.fromkeys(web.links(page)) if url in number and number[url] != page]
        for page in range(pages)
    ]
    return LinkGraph(urls, [""] * pages, links, [0])
