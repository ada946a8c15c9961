"""A synthetic web that knows which pages can be reached, and which versions each page has had.

Host sizes follow Zipf's law. Pages are numbered. Every page except the seed has one *parent*: a page with a
lower number that links to it. So the pages and the links from their parents form a tree. If a crawl loses a
link of this tree, it loses the whole subtree below the link. Further links follow the model of
`lab/caches/link_locality.py`: repeats, a few popular URLs of the host, a larger set of URLs of the host, a
set that all hosts share, and any page. Half of the pages are linked only by their parents, so no other link
hides the loss of the parent's link.

    /17               the page with that number on its host; some fail the first time (500, or a reset)
    /r17              301 to /17; one parent in 16 links this way
    /private/17       forbidden by robots.txt, linked from one page in 16
    /missing/17       404
    /broken/17        500, always, if the web has `broken` pages; linked from one page in 16
    /app.js /data/17  if the web has `scripted` pages: the script of one page in three, and the links that it shows
    /days/17          an endless calendar, on hosts that are traps
    /sitemap.xml      on some hosts: their pages with even numbers, with dates, and pages that nothing links to
    http://goneN...   a name that does not exist

Some hosts are slow. Some hosts are down for a while and then accept no connections. Pages change by Poisson
processes with log-normal rates, or as pages of real sites did (`page_changes.py`). The body of a page
contains its number and version. `answer` is a pure function of the request, the instant and the number of
earlier requests for the URL. `fetching.py` (in the virtual world) and `serving.py` (on loopback) transport
the bytes.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from crawler.lab.caches.link_locality import LinkLocality
from crawler.records import Outcome

RESET_EVERY, FLAKY_EVERY, REDIRECT_EVERY, PRIVATE_EVERY, MISSING_EVERY, ORPHAN_EVERY = 67, 23, 16, 16, 29, 31
SCRIPTED_EVERY = 3
SITEMAP, APP, DATA = "/sitemap.xml", "/app.js", "/data/"
DEAD_NAMES = 50
RATE_SPREAD = 1.0  # sigma of the log-normal distribution of change rates
LATENCY_SPREAD = 0.6  # sigma of the log-normal distribution of latencies
WORDS = [f"{random.Random(n).getrandbits(24):06x}"[: 3 + n % 6] for n in range(3000)]
PHRASES = [" ".join(random.Random(n).choices(WORDS, k=4)) for n in range(60)]
TAGS = ("p", "li", "td", "span", "code")
PARENT_ON_HOST = 0.75  # share of pages whose parent is on the same host
PARENT_WINDOW = 64  # a parent is one of this many preceding pages, so that the tree is deep


class WebSpec(msgspec.Struct, frozen=True):
    """The parameters of a web. `change_rate` is in changes per second and page; all shares are shares of hosts."""

    hosts: int = 20
    pages: int = 400
    zipf: float = 1.0
    latency: float = 0.1  # median of the answer times of all hosts, in seconds
    slow: float = 0.05
    slow_latency: float = 3.0
    down: float = 0.1
    down_within: float = 300.0  # hosts go down within this many seconds from the start
    down_for: float = 90.0
    traps: float = 0.05
    sitemaps: float = 0.25
    change_rate: float = 0.0
    links: LinkLocality = LinkLocality(links_median=4.0, links_mean=10.9)
    padding: int = 0  # bytes of additional text per page
    phrases: int = 1  # number of phrases of four words in each tag
    flaws: bool = True  # if true, some pages fail the first time
    broken: bool = False  # if true, some pages always fail
    scripted: bool = False  # if true, some pages show their links only in a browser
    scheme: str = "http"


class WebHost(msgspec.Struct, frozen=True):
    """A host: its pages in order, its latency in seconds, its downtime. With `trap`, it has an endless calendar."""

    name: str
    pages: list[int]
    latency: float
    down: tuple[float, float]
    trap: bool
    sitemap: bool


class WebReply(msgspec.Struct, frozen=True):
    """An answer, which arrives `delay` seconds after the request. If `failure` is set, the request fails instead."""

    delay: float
    status: int = 0
    body: bytes = b""
    content_type: str = "text/html"
    location: str = ""
    etag: str = ""
    failure: Outcome | None = None
    page: int = -1
    version: int = -1


class SyntheticWeb:
    """A synthetic web; see the module docstring.

    `changes_of(host, place)` returns the sorted instants of a page's changes, in seconds since `start`.
    """

    def __init__(
        self,
        spec: WebSpec,
        seed: int,
        *,
        start: float = 0.0,
        horizon: float = 86_400.0,
        changes_of: Callable[[int, int], Sequence[float]] | None = None,
        name: Callable[[int], str] = "site{}.test".format,
    ) -> None:
        self.spec, self.seed, self.start, self.horizon = spec, seed, start, horizon
        rng = random.Random(f"web {seed}")
        sizes = _zipf_sizes(spec.hosts, spec.pages, spec.zipf)
        owners = [host for host, size in enumerate(sizes) for _ in range(size)]
        rng.shuffle(owners)
        self.host_of = owners
        of_host: list[list[int]] = [[] for _ in sizes]
        self.place: list[int] = []  # the position of each page on its host
        for page, host in enumerate(owners):
            self.place.append(len(of_host[host]))
            of_host[host].append(page)
        self.hosts = [self._host(rng, k, name(k), pages) for k, pages in enumerate(of_host)]
        self.number = {host.name: k for k, host in enumerate(self.hosts)}
        self.parent = [-1] + [self._draw_parent(rng, page) for page in range(1, len(owners))]
        self.children: list[list[int]] = [[] for _ in owners]
        for page in range(1, len(owners)):
            self.children[self.parent[page]].append(page)
        self._changes_of = changes_of
        self._changes = lru_cache(maxsize=1 << 16)(self._times)

    def _host(self, rng: random.Random, number: int, name: str, pages: list[int]) -> WebHost:
        spec = self.spec
        small = len(pages) <= 8
        latency = spec.latency * rng.lognormvariate(0.0, LATENCY_SPREAD)
        if rng.random() < spec.slow and small:
            latency = spec.slow_latency
        at = self.start + rng.uniform(0.0, spec.down_within)
        down = (at, at + spec.down_for) if rng.random() < spec.down else (0.0, 0.0)
        # on a slow or large host, a trap would make the crawl last for hours
        trap = rng.random() < spec.traps and small and latency < spec.slow_latency
        sitemap = random.Random(f"sitemap {self.seed} {number}").random() < spec.sitemaps
        return WebHost(name, pages, latency, down, trap, sitemap)

    def _draw_parent(self, rng: random.Random, page: int) -> int:
        place = self.place[page]
        if place and rng.random() < PARENT_ON_HOST:
            pages = self.hosts[self.host_of[page]].pages
            return pages[rng.randrange(max(0, place - PARENT_WINDOW), place)]
        return rng.randrange(max(0, page - PARENT_WINDOW), page)

    # -- pages ------------------------------------------------------------------

    def url(self, page: int) -> str:
        return f"{self.spec.scheme}://{self.hosts[self.host_of[page]].name}/{self.place[page]}"

    def link_to(self, page: int) -> str:
        """Return the URL by which a page's parent links to the page; it may be the URL of a redirect."""
        if page and page % REDIRECT_EVERY == 5:
            return f"{self.spec.scheme}://{self.hosts[self.host_of[page]].name}/r{self.place[page]}"
        return self.url(page)

    def is_orphan(self, page: int) -> bool:
        """Return whether a page is only in the sitemap of its host, and no link leads to it.

        The first page of a host is never an orphan.
        """
        host = self.hosts[self.host_of[page]]
        return host.sitemap and self.place[page] > 0 and page % ORPHAN_EVERY == 13

    def listed(self, host: WebHost) -> list[int]:
        """Return the pages that a host's sitemap lists: orphans, and all pages that `_other_links` may choose."""
        return [page for page in host.pages if not page & 1 or self.is_orphan(page)]

    def links(self, page: int) -> list[str]:
        """Return all links on a page; they do not depend on its version."""
        found = [self.link_to(child) for child in self.children[page] if not self.is_orphan(child)]
        host = self.hosts[self.host_of[page]]
        rng = random.Random(f"links {self.seed} {page}")
        found += self._other_links(rng, host, page)
        if page % PRIVATE_EVERY == 3:
            found.append(f"{self.spec.scheme}://{host.name}/private/{page}")
        if page % MISSING_EVERY == 7:
            found.append(f"{self.spec.scheme}://{host.name}/missing/{page}")
            found.append(f"http://gone{page % DEAD_NAMES}.test/")
        if self.spec.broken and page % PRIVATE_EVERY == 6:
            found.append(f"{self.spec.scheme}://{host.name}/broken/{page}")
        if host.trap:
            found.append(f"{self.spec.scheme}://{host.name}/days/0")
        return found

    def depths(self, announced: Collection[str] = ()) -> list[float]:
        """Return, for each page, the smallest number of links from a start to it.

        Starts are the seed, announced pages, and pages in sitemaps.
        """
        numbers = {self.url(page): page for page in range(len(self.host_of))}
        numbers |= {self.link_to(page): page for page in range(len(self.host_of))}
        depths = [math.inf] * len(self.host_of)
        front = [0, *(page for host in self.hosts if host.sitemap for page in self.listed(host))]
        front += [numbers[url] for url in announced]
        depth = 0
        while front:
            following = []
            for page in front:
                if depths[page] == math.inf:
                    depths[page] = depth
                    following += [numbers[url] for url in self.links(page) if url in numbers]
            front, depth = following, depth + 1
        return depths

    def _other_links(self, rng: random.Random, host: WebHost, page: int) -> list[str]:
        """Return the links that do not belong to the tree.

        None of them leads to an orphan or to a page with an odd number.
        """
        model, found = self.spec.links, list[str]()
        for _ in range(min(200, int(rng.lognormvariate(0.0, model.links_sigma) * model.links_median))):
            if found and rng.random() < model.repeat:
                found.append(found[-1])
                continue
            draw = rng.random()
            if draw < model.global_share:
                target = int(len(self.host_of) ** rng.random()) - 1
            elif draw < model.global_share + model.popular_share:
                target = host.pages[rng.randrange(min(model.popular_urls, len(host.pages)))]
            elif draw < model.global_share + model.popular_share + model.wide_share:
                if rng.random() < model.wide_off_host:
                    target = rng.randrange(len(self.host_of))
                else:
                    target = host.pages[rng.randrange(min(model.wide_urls, len(host.pages)))]
            else:
                target = rng.randrange(len(self.host_of))
            if not target & 1 and not self.is_orphan(target):
                found.append(self.url(target))
        return found

    def is_scripted(self, page: int) -> bool:
        """Return whether a page shows its links only in a browser."""
        return self.spec.scripted and page % SCRIPTED_EVERY == 0

    def body(self, page: int, version: int) -> bytes:
        links = self._anchors(page)
        if self.is_scripted(page):
            links = f'<script src="{APP}"></script><div id="root"></div>'
        padding = _text(self.seed, page, self.spec.padding, self.spec.phrases) if self.spec.padding else ""
        return f"<!doctype html><title>{page}</title><p>{token(page, version)}<p>{padding}{links}".encode()

    def _anchors(self, page: int) -> str:
        return "".join(f'<a href="{url}">x</a> ' for url in self.links(page))

    # -- changes ------------------------------------------------------------------

    def _times(self, page: int) -> Sequence[float]:
        if self._changes_of is not None:
            return self._changes_of(self.host_of[page], self.place[page])
        if not self.spec.change_rate:
            return []
        rng = random.Random(f"changes {self.seed} {page}")
        rate = self.spec.change_rate * rng.lognormvariate(-(RATE_SPREAD**2) / 2, RATE_SPREAD)
        times, at = [], rng.expovariate(rate)
        while at < self.horizon:
            times.append(at)
            at += rng.expovariate(rate)
        return times

    def version(self, page: int, now: float) -> int:
        """Return the number of changes of a page until `now`."""
        return bisect_right(self._changes(page), now - self.start)

    def current_until(self, page: int, version: int) -> float:
        """Return the instant at which a version of a page is replaced; infinite if it is never replaced."""
        times = self._changes(page)
        return self.start + times[version] if version < len(times) else float("inf")

    # -- answers --------------------------------------------------------------------

    def exists(self, name: str) -> bool:
        """Return whether a host name resolves."""
        return name in self.number

    def answer(self, name: str, path: str, now: float, *, asked: int = 0, etag: str = "") -> WebReply:
        """Return a host's answer to a request for a URL that was requested `asked` times before."""
        host = self.hosts[self.number[name]]
        if host.down[0] <= now < host.down[1]:
            return WebReply(0.0, failure=Outcome.CONNECT_ERROR)
        delay = host.latency
        if path == "/robots.txt":
            named = f"Sitemap: {self.spec.scheme}://{name}{SITEMAP}\n" if host.sitemap else ""
            return WebReply(delay, 200, f"User-agent: *\nDisallow: /private/\n{named}".encode(), "text/plain")
        if path == SITEMAP and host.sitemap:
            return self._sitemap(host, delay, now, etag)
        if path.startswith("/days/") and host.trap:
            return self._calendar(host, path, delay)
        if path == APP:
            return WebReply(delay, 200, b"build()", "text/javascript")
        if path.startswith(DATA):
            page = host.pages[int(path.removeprefix(DATA))]
            return WebReply(delay, 200, f"<p>data of {page}.{self._anchors(page)}".encode(), page=page)
        if path.startswith("/broken/"):
            return WebReply(delay, 500, b"<title>500</title>")
        if path.startswith("/r"):
            return self._redirect(host, path, delay)
        place = path[1:]
        if not place.isdigit() or int(place) >= len(host.pages):
            return WebReply(delay, 404, b"<title>404</title>")
        return self._page(host.pages[int(place)], delay, now, asked, etag)

    def _page(self, page: int, delay: float, now: float, asked: int, etag: str) -> WebReply:
        flawed = self.spec.flaws and not asked
        if flawed and page % RESET_EVERY == 11:
            return WebReply(delay, failure=Outcome.RESET, page=page)
        if flawed and page % FLAKY_EVERY == 9:
            return WebReply(delay, 500, b"<title>500</title>", page=page)
        version = self.version(page, now)
        tag = f'"{page}-{version}"'
        if etag == tag:
            return WebReply(delay, 304, page=page, version=version, etag=tag)
        return WebReply(delay, 200, self.body(page, version), page=page, version=version, etag=tag)

    def _sitemap(self, host: WebHost, delay: float, now: float, etag: str) -> WebReply:
        """Return the answer with a host's sitemap, which lists pages with the instants of their latest changes."""
        listed = self.listed(host)
        tag = f'"map-{sum(self.version(page, now) for page in listed)}"'
        if etag == tag:
            return WebReply(delay, 304, etag=tag)
        entries = "".join(
            f"<url><loc>{self.url(page)}</loc><lastmod>{self._changed_at(page, now)}</lastmod></url>"
            for page in listed
        )
        body = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'
        return WebReply(delay, 200, body.encode(), "application/xml", etag=tag)

    def _changed_at(self, page: int, now: float) -> str:
        """Return the instant of a page's latest change, in the format of sitemaps.

        If the page has not changed, return the start of the run.
        """
        version = self.version(page, now)
        at = self.start + (self._changes(page)[version - 1] if version else 0.0)
        return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _redirect(self, host: WebHost, path: str, delay: float) -> WebReply:
        place = path[2:]
        if place.isdigit() and int(place) < len(host.pages):
            return WebReply(delay, 301, location=f"{self.spec.scheme}://{host.name}/{place}")
        return WebReply(delay, 404, b"<title>404</title>")

    def _calendar(self, host: WebHost, path: str, delay: float) -> WebReply:
        day = int(path[6:]) if path[6:].isdigit() else 0
        body = f'<title>day {day}</title><p>{host.name} {day}<a href="/days/{day + 1}">next</a>'
        return WebReply(delay, 200, body.encode())

    def __repr__(self) -> str:
        return f"SyntheticWeb({len(self.hosts)} hosts, {len(self.host_of)} pages, seed {self.seed})"


def _text(seed: int, page: int, size: int, phrases: int = 1) -> str:
    """Return about `size` characters of marked-up text.

    As in documentation, there is a tag per 28 bytes, and the text compresses to a fifth. With more `phrases`
    per tag, there are fewer tags.
    """
    rng, found, length = random.Random(f"text {seed} {page}"), list[str](), 0
    while length < size:
        tag = rng.choice(TAGS)
        words = " ".join([rng.choice(PHRASES) for _ in range(phrases)])
        found.append(f'<{tag} class="{tag} text">{words} {rng.choice(WORDS)}</{tag}>\n')
        length += len(found[-1])
    last = found.pop()
    return "".join(found) + " " * (size - length + len(last))


def is_subresource(path: str) -> bool:
    """Return whether a path is requested only when a browser shows a page."""
    return path == APP or path.startswith(DATA)


def token(page: int, version: int) -> str:
    """Return text that occurs only in this version of this page."""
    return f"page {page} version {version}."


def _zipf_sizes(hosts: int, pages: int, exponent: float) -> list[int]:
    """Return the number of pages of each host by Zipf's law.

    Each host has at least one page, and all hosts together have `pages`.
    """
    weights = [1.0 / (k + 1) ** exponent for k in range(hosts)]
    whole = sum(weights)
    sizes = [1 + int((pages - hosts) * weight / whole) for weight in weights]
    for k in range(pages - sum(sizes)):  # distribute the pages that are left over after rounding
        sizes[k % hosts] += 1
    return sizes
