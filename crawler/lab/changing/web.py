"""A web whose pages change; a seed reproduces it. The web logs all requests and knows the true instant of each change.

A host has directories of pages; each page has a change process of a known rate:

    poisson    changes come independently at the page's rate
    bursty     bursts of 5 changes on average, spread over a quarter of the mean gap
    together   half of a page's changes come with its directory: at an event of the
               directory each of its pages changes with probability 1/2

The change rates of the pages of a host are log-normal, with sigma `spread`, and their mean is the host's
rate. A host may offer

    lastmod     honest: a sitemap with the time of the last change; lying: the time of the last
                change anywhere on the host; constant: never changes; none: no dates
    feed        an Atom feed of the last changes
    noise       the rate of false signals, at which a page's lastmod moves without a change
    recall      the share of its changes that it pushes (`signals`); false signals are pushed as well
    validators  right: ETag and Last-Modified; always-304: 304 to every condition; bare-304: the same, without
                validators in the 304; etag-fixed: an ETag that never changes; etag-new: a new one in each
                answer; etag-unknown: an ETag that the server does not recognise, with a right date (like a
                server that compresses); date-fixed: a right ETag and a date that never changes, either of which makes a
                304; none: no validators
    exceptions  other validators for some pages (one page, or one directory), chosen by the first part of their path
    stamp       an HTML comment that differs in each answer: the raw bytes change, the text does not
    articles    pages born at random instants of the web's time (404 before). Each is shown by one of
                `hubs`, among the hub's 20 newest, and by the hub's archive, which shows all its articles;
                the activity of hubs is log-normal
    slow        the seconds that each answer takes in the second half of each `slow_period`

`ChangingWeb.answer` is a plain function of the request and `now`. The server (`lab/changing/server.py`) only
transports bytes. A page's text contains `token(page, version)`, so a copy shows its version. The log contains
every request and its time. `freshness` is the share of the pages' total time in which the last version sent
in full (200) was the current version. Freshness is computed from the log alone, so a false 304 counts against
the crawl.

Times are seconds on the web's own clock. `start` is the first instant on this clock; every page then has
version 0.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from email.utils import formatdate, parsedate_to_datetime
from hashlib import blake2b
from html import escape

import msgspec
import numpy as np

from crawler.lab.copies import fresh_time
from crawler.lab.league.world import DAY

PROCESSES = ("poisson", "bursty", "together")
LASTMODS = ("honest", "lying", "constant", "none")
VALIDATORS = (
    "right", "always-304", "bare-304", "etag-fixed", "etag-new", "etag-unknown", "date-fixed", "none",
)  # fmt: skip
BURST = 5.0  # mean number of changes per burst
BURST_SPAN = 0.25  # length of a burst, as a share of the mean gap between changes
SHARED = 0.5  # if changes happen together, the share of a page's changes that are events of its directory
JOINS = 0.5  # probability that a page changes at an event of its directory
FEED_ENTRIES = 20
ARCHIVE = "archive.html"
NEWEST = 20  # number of articles that a hub shows; its archive shows all its articles
CHANGES_MAX = 10_000_000
LOG_MAX = 10_000_000  # maximum number of requests in the log; later requests are not logged


class HostSpec(msgspec.Struct, frozen=True):
    """The properties of a host.

    `rate` is the number of changes, `noise` the number of false signals, both per second and page.
    """

    name: str
    pages: int = 100
    directories: int = 10
    process: str = "poisson"
    rate: float = 1.0 / (60 * DAY)
    spread: float = 1.0
    lastmod: str = "honest"
    feed: bool = False
    noise: float = 0.0
    recall: float = 0.0
    validators: str = "right"
    exceptions: tuple[tuple[str, str], ...] = ()
    stamp: bool = False
    articles: int = 0
    hubs: int = 1
    slow: float = 0.0
    slow_period: float = 60.0

    def __post_init__(self) -> None:
        if not 1 <= self.directories <= self.pages or not self.rate >= 0.0 or not self.noise >= 0.0:
            raise ValueError(f"{self.name}: each directory needs a page, and rates must be at least 0")
        if self.articles < 0 or self.hubs < 1:
            raise ValueError(f"{self.name}: articles need a hub, and their number must be at least 0")
        if not 0.0 <= self.slow < math.inf or not 0.0 < self.slow_period < math.inf:
            raise ValueError(f"{self.name}: slow must be at least 0, slow_period above 0, and both finite")
        if not 0.0 <= self.recall <= 1.0:
            raise ValueError(f"{self.name}: recall {self.recall} is not within 0 .. 1")
        for value, known in (
            (self.process, PROCESSES),
            (self.lastmod, LASTMODS),
            (self.validators, VALIDATORS),
            *((kind, VALIDATORS) for _, kind in self.exceptions),
        ):
            if value not in known:
                raise ValueError(f"{self.name}: unknown value {value!r}; choose from {', '.join(known)}")

    def delay(self, elapsed: float) -> float:
        """Return the seconds that the host takes to answer a request, `elapsed` seconds after the start of the web."""
        return self.slow if int(elapsed / (0.5 * self.slow_period)) % 2 else 0.0


class WebAnswer(msgspec.Struct, frozen=True):
    """An answer to send: status, headers and body."""

    status: int
    headers: dict[str, str]
    body: bytes = b""


class WebRequest(msgspec.Struct, frozen=True):
    """One request; `page` is -1 for an index, a sitemap, a feed or a missing path."""

    at: float
    host: int
    path: str
    page: int
    version: int
    status: int
    conditional: bool


class ChangingWeb:
    """A web of hosts and pages. The same seed makes the same web.

    Pages are numbered from 0 over all hosts. `changes[page]` are the sorted instants of a page's changes
    until `start + horizon`. `born[page]` is the instant at which the page appears: `start`, or later for an
    article. Articles are numbered after the other pages of their host.
    """

    def __init__(
        self, hosts: Sequence[HostSpec], *, horizon: float, start: float = 0.0, seed: int = 1
    ) -> None:
        sizes = [host.pages + host.articles for host in hosts]
        expected = horizon * sum(
            size * (host.rate + host.noise) for size, host in zip(sizes, hosts, strict=True)
        )
        if not 0.0 < horizon < float("inf") or not expected < CHANGES_MAX:
            raise ValueError(
                f"{expected:.3g} changes; the limit is {CHANGES_MAX:,}, and the horizon must be above 0"
            )
        self.hosts = tuple(hosts)
        self.start, self.horizon, self.seed = start, horizon, seed
        self.first = np.cumsum([0, *sizes]).tolist()  # the number of each host's first page
        self.host_of: list[int] = []
        self.directory_of: list[int] = []  # the number of each page's directory in its host
        self.rates: list[float] = []
        self.born: list[float] = []
        self.changes: list[list[float]] = []
        self.noise: list[list[float]] = []
        self.log: list[WebRequest] = []
        self.origins = [f"http://{host.name}" for host in hosts]  # the prefix of URLs; the server sets it
        for number, host in enumerate(hosts):
            self._build(number, host)
        self._signals = self._told()
        self._of_host = [sorted(self._all(range(*self.first[k : k + 2]))) for k in range(len(hosts))]

    def __len__(self) -> int:
        return len(self.changes)

    # -- change

    def _build(self, number: int, host: HostSpec) -> None:
        rng = random.Random(f"{self.seed}/{number}/{host.name}")
        drawn = [rng.lognormvariate(0.0, host.spread) for _ in range(host.pages)]
        scale = host.rate * host.pages / sum(drawn)
        directories = [page * host.directories // host.pages for page in range(host.pages)]
        # Pages of a directory share its events, so they all have the same rate.
        if host.process == "together":
            drawn = [sum(drawn) / host.pages] * host.pages
        events = [list(self._poisson(rng, host.rate * SHARED / JOINS)) for _ in range(host.directories)]
        for page in range(host.pages):
            rate = drawn[page] * scale
            if host.process == "poisson":
                times = list(self._poisson(rng, rate))
            elif host.process == "bursty":
                times = self._bursts(rng, rate)
            else:
                shared = [at for at in events[directories[page]] if rng.random() < JOINS]
                times = shared + list(self._poisson(rng, rate * (1.0 - SHARED)))
            self._enter(number, directories[page], rate, self.start, sorted(times), rng)
        activity = [rng.lognormvariate(0.0, host.spread) for _ in range(host.hubs)]
        for _ in range(host.articles):
            born = self.start + rng.random() * self.horizon
            times = [at for at in self._poisson(rng, host.rate) if at > born]
            self._enter(
                number,
                host.directories + rng.choices(range(host.hubs), activity)[0],
                host.rate,
                born,
                times,
                rng,
            )

    def _enter(
        self, host: int, directory: int, rate: float, born: float, changes: list[float], rng: random.Random
    ) -> None:
        self.host_of.append(host)
        self.directory_of.append(directory)
        self.rates.append(rate)
        self.born.append(born)
        self.changes.append(changes)
        self.noise.append([at for at in self._poisson(rng, self.hosts[host].noise) if at >= born])

    def _poisson(self, rng: random.Random, rate: float) -> Iterable[float]:
        at = self.start
        while rate > 0.0:
            at += rng.expovariate(rate)
            if at >= self.start + self.horizon:
                return
            yield at

    def _bursts(self, rng: random.Random, rate: float) -> list[float]:
        times = []
        for begin in self._poisson(rng, rate / BURST):
            times.append(begin)
            while rng.random() < 1.0 - 1.0 / BURST:
                times.append(begin + rng.random() * BURST_SPAN / rate)
        return [at for at in times if at < self.start + self.horizon]

    def _told(self) -> list[tuple[float, int]]:
        """Return all pushed signals as pairs (instant, page), in order of time."""
        rng = random.Random(f"{self.seed}/told")
        told = [(at, page) for page in range(len(self)) for at in self.noise[page]]
        for page in range(len(self)):
            recall = self.hosts[self.host_of[page]].recall
            told += [(at, page) for at in self.changes[page] if rng.random() < recall]
        return sorted(told)

    def signals(self, begin: float, end: float) -> list[int]:
        """Return the pages for which a true or false signal is pushed after `begin` and until `end`, inclusive."""
        after, by = (bisect_right(self._signals, (at, len(self))) for at in (begin, end))
        return [page for _, page in self._signals[after:by]]

    def _all(self, pages: Iterable[int]) -> Iterable[tuple[float, int]]:
        """Yield all entries of a feed, which are changes and births of articles, as pairs (instant, page)."""
        for page in pages:
            yield from ((at, page) for at in self.changes[page])
            if self.born[page] > self.start:
                yield self.born[page], page

    def version(self, page: int, now: float) -> int:
        """Return the number of the page's changes up to `now`."""
        return bisect_right(self.changes[page], now)

    def modified(self, page: int, now: float) -> float:
        """Return the time of the page's last change, or of its birth if it never changed."""
        version = self.version(page, now)
        return self.changes[page][version - 1] if version else self.born[page]

    def token(self, page: int, version: int) -> str:
        """Return the word that marks a version of a page. No other version of any page has the same word."""
        return blake2b(f"{self.seed}/{page}/{version}".encode(), digest_size=8).hexdigest()

    # -- addresses

    def path(self, page: int) -> str:
        return f"{self._folder(page)}p{page - self.first[self.host_of[page]]}.html"

    def _folder(self, page: int) -> str:
        """Return the path of the listing that shows a page: the listing of its directory or, for an article, its hub."""
        hub = self.directory_of[page] - self.hosts[self.host_of[page]].directories
        return f"/d{self.directory_of[page]}/" if hub < 0 else f"/n{hub}/"

    def url(self, page: int) -> str:
        return self.origins[self.host_of[page]] + self.path(page)

    def _page_at(self, host: int, path: str) -> int:
        """Return the page of a path, or -1 if there is none."""
        name = path.rpartition("/")[2]
        digits = name.removeprefix("p").removesuffix(".html")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 9):
            return -1
        page = self.first[host] + int(digits)
        return page if page < self.first[host + 1] and self.path(page) == path else -1

    # -- answers

    def answer(self, host: int, path: str, headers: dict[str, str], now: float) -> WebAnswer:
        """Return the host's answer to a GET, and log the request; header names are in lower case."""
        page = self._page_at(host, path)
        page = page if page < 0 or self.born[page] <= now else -1
        given = self._page(page, headers, now) if page >= 0 else self._other(host, path, now)
        version = self.version(page, now) if page >= 0 else 0
        conditional = "if-none-match" in headers or "if-modified-since" in headers
        if len(self.log) < LOG_MAX:
            self.log.append(WebRequest(now, host, path, page, version, given.status, conditional))
        return given

    def _page(self, page: int, headers: dict[str, str], now: float) -> WebAnswer:
        host, version = self.hosts[self.host_of[page]], self.version(page, now)
        kind, validators = self.validators_of(page), self._validators(page, version, now)
        if self._unmodified(kind, validators, headers):
            return WebAnswer(304, {} if kind == "bare-304" else validators)
        links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in ("/", self._folder(page)))
        stamp = f"<!-- request {len(self.log)} -->" if host.stamp else ""
        body = (
            f"<!doctype html><title>Page {escape(self.path(page))}</title>{stamp}"
            f"<p>{self.token(page, version)}</p><p>version {version}</p><ul>{links}</ul>"
        )
        return WebAnswer(200, {"Content-Type": "text/html; charset=utf-8", **validators}, body.encode())

    def _validators(self, page: int, version: int, now: float) -> dict[str, str]:
        kind = self.validators_of(page)
        if kind == "none":
            return {}
        if kind == "etag-fixed":
            return {"ETag": f'"{page}"'}
        if kind == "etag-new":
            return {"ETag": f'"{page}-{len(self.log)}"'}
        modified = self.start if kind == "date-fixed" else self.modified(page, now)
        return {"ETag": f'"{self.token(page, version)}"', "Last-Modified": formatdate(modified, usegmt=True)}

    def validators_of(self, page: int) -> str:
        """Return the kind of a page's validators, as described in the module docstring."""
        host, path = self.hosts[self.host_of[page]], self.path(page)
        return next((kind for begin, kind in host.exceptions if path.startswith(begin)), host.validators)

    @staticmethod
    def _unmodified(kind: str, validators: dict[str, str], headers: dict[str, str]) -> bool:
        """Return whether the answer is 304.

        If-None-Match takes precedence over If-Modified-Since (RFC 9110, 13.2.2).
        """
        tags, since = headers.get("if-none-match"), headers.get("if-modified-since")
        if kind in ("always-304", "bare-304"):
            return tags is not None or since is not None
        if tags is not None:
            known = validators.get("ETag") if kind != "etag-unknown" else None
            if any(tag.strip().removeprefix("W/") == known for tag in tags.split(",")):
                return True
            if kind != "date-fixed":
                return False
        if since is None or "Last-Modified" not in validators:
            return False
        try:
            return parsedate_to_datetime(validators["Last-Modified"]) <= parsedate_to_datetime(since)
        except (ValueError, TypeError):
            return False

    def _other(self, host: int, path: str, now: float) -> WebAnswer:
        spec, origin = self.hosts[host], self.origins[host]
        if path == "/robots.txt":
            sitemap = f"Sitemap: {origin}/sitemap.xml\n"
            return WebAnswer(
                200, {"Content-Type": "text/plain"}, f"User-agent: *\nAllow: /\n{sitemap}".encode()
            )
        if path == "/sitemap.xml":
            return WebAnswer(200, {"Content-Type": "application/xml"}, self._sitemap(host, now).encode())
        if path == "/feed.xml" and spec.feed:
            return WebAnswer(200, {"Content-Type": "application/atom+xml"}, self._feed(host, now).encode())
        if path == "/":
            links = [f"/d{number}/" for number in range(spec.directories)]
            links += [f"/n{number}/" for number in range(spec.hubs if spec.articles else 0)]
            return _index(spec.name, links, "/feed.xml" if spec.feed else "")
        folder = path.removesuffix(ARCHIVE)
        shown = [page for page in self._pages_of(host, now) if self._folder(page) == folder]
        is_hub = folder in (f"/n{number}/" for number in range(spec.hubs if spec.articles else 0))
        if is_hub and folder == path:
            shown.sort(key=lambda page: -self.born[page])
            return _index(path, [*map(self.path, shown[:NEWEST]), f"{folder}{ARCHIVE}"], "")
        if is_hub or (shown and folder == path):
            return _index(path, map(self.path, shown), "")
        return WebAnswer(404, {"Content-Type": "text/plain"}, b"not here\n")

    def _pages_of(self, host: int, now: float) -> list[int]:
        return [page for page in range(self.first[host], self.first[host + 1]) if self.born[page] <= now]

    def lastmod(self, page: int, now: float) -> float | None:
        """Return the date that the sitemap gives for a page, or None if it gives none."""
        kind = self.hosts[self.host_of[page]].lastmod
        if kind == "none":
            return None
        if kind == "constant":
            return self.start
        latest = self.modified(page, now)
        if kind == "lying":
            told = self._of_host[self.host_of[page]]
            place = bisect_right(told, (now, len(self)))
            latest = told[place - 1][0] if place else self.start
        false = bisect_right(self.noise[page], now)
        return max(latest, self.noise[page][false - 1]) if false else latest

    def _sitemap(self, host: int, now: float) -> str:
        rows = []
        for page in self._pages_of(host, now):
            at = self.lastmod(page, now)
            date = "" if at is None else f"<lastmod>{w3c_date(at)}</lastmod>"
            rows.append(f"<url><loc>{escape(self.url(page))}</loc>{date}</url>")
        space = "http://www.sitemaps.org/schemas/sitemap/0.9"
        return f'<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="{space}">{"".join(rows)}</urlset>'

    def _feed(self, host: int, now: float) -> str:
        told = self._of_host[host]
        place = bisect_right(told, (now, len(self)))
        latest = {page: at for at, page in told[max(0, place - FEED_ENTRIES) : place]}
        entries = "".join(
            f"<entry><id>{escape(self.url(page))}</id><title>{escape(self.path(page))}</title>"
            f'<link href="{escape(self.url(page))}"/><updated>{w3c_date(at)}</updated></entry>'
            for page, at in sorted(latest.items(), key=lambda item: -item[1])
        )
        updated = w3c_date(max(latest.values(), default=self.start))
        return (
            '<?xml version="1.0" encoding="UTF-8"?><feed xmlns="http://www.w3.org/2005/Atom">'
            f"<id>{escape(self.origins[host])}/</id><title>{escape(self.hosts[host].name)}</title>"
            f"<updated>{updated}</updated>{entries}</feed>"
        )

    # -- judgement

    def freshness(self, begin: float, end: float, weights: Sequence[float] | None = None) -> float:
        """Return the share of the pages' total time from `begin` to `end` in which the client's copy was current.

        The result depends only on the log. The client's copy of a page is the last answer with status 200.
        Time before the first such answer counts as not current. The time of a page begins with its birth.
        `weights` holds a weight per page; the default is 1 for all pages.
        """
        sent: list[list[WebRequest]] = [[] for _ in self.changes]
        for asked in self.log:
            if asked.page >= 0 and asked.status == 200:
                sent[asked.page].append(asked)
        current = whole = 0.0
        for page, answers in enumerate(sent):
            weight = 1.0 if weights is None else weights[page]
            whole += weight * max(end - max(begin, self.born[page]), 0.0)
            replaced = [*(asked.at for asked in answers[1:]), end]
            for asked, until in zip(answers, replaced, strict=False):
                fresh = fresh_time(self.changes[page], asked.version, max(asked.at, begin), min(end, until))
                current += weight * fresh
        return current / whole

    def delays(self, begin: float, end: float) -> list[float]:
        """Return, for each article born from `begin` to `end`, the seconds from its birth to its first copy.

        Without a copy, the result is infinite.
        """
        copied: dict[int, float] = {}
        for asked in self.log:
            if asked.page >= 0 and asked.status == 200:
                copied.setdefault(asked.page, asked.at)
        return [
            copied.get(page, math.inf) - born
            for page, born in enumerate(self.born)
            if born > self.start and begin <= born < end
        ]

    def requests(self, begin: float, end: float) -> int:
        return sum(begin <= asked.at < end for asked in self.log if asked.page >= 0)

    def __repr__(self) -> str:
        return f"ChangingWeb({len(self.hosts)} hosts, {len(self)} pages, {len(self.log)} requests)"


def w3c_date(at: float) -> str:
    """Format an instant for sitemaps and Atom, in UTC to the millisecond."""
    return str(np.datetime64(int(at * 1000.0), "ms")) + "Z"


def _index(title: str, links: Iterable[str], feed: str) -> WebAnswer:
    items = "".join(f'<li><a href="{link}">{link}</a></li>' for link in links)
    head = f'<link rel="alternate" type="application/atom+xml" href="{feed}">' if feed else ""
    body = f"<!doctype html><title>{escape(title)}</title>{head}<ul>{items}</ul>"
    return WebAnswer(200, {"Content-Type": "text/html; charset=utf-8"}, body.encode())
