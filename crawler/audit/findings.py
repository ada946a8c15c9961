"""Collects facts about a site, record by record and page by page, and then derives the findings from them.

The auditor takes four kinds of facts: the record of a URL (`Auditor.record`), a URL that was not fetched
(`Auditor.waiting`), the URLs of a sitemap (`Auditor.sitemap`), and a stored page (`Auditor.page`).
`Auditor.audit` then returns the result. A *section* contains the number of findings of one check
(`check_table.py`), and the first of these findings.
"""

import heapq
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import mmh3
import msgspec
import numpy as np

from crawler.audit.check_table import CHECKS, DEEP_HOPS, SLOW_SECONDS, Source
from crawler.audit.hreflang import ReturnLinks
from crawler.audit.on_page import SOURCES_MAX, Finding, PageFacts
from crawler.records import NO_PAGE, REDIRECT_LOOP, LinkFlag, Outcome, PageState
from crawler.urls.canonical import hostname
from crawler.urls.media_type import is_html
from crawler.wording import describe_outcome, several

TO_DO = "to do"  # the key of `Audit.unfetched` for URLs that just wait
LISTED_MAX = 1000  # default number of findings that are listed per section
# maximum number of URLs of unreachable servers that are remembered one by one; further ones are only counted
UNREACHABLE_MAX = 100_000
_HOPS_MAX = 50  # maximum length of a redirect chain

_EXTERNAL, _REDIRECT = LinkFlag.EXTERNAL, LinkFlag.REDIRECT
_NOT_ASKED = frozenset({Outcome.ROBOTS_DENIED, Outcome.ADDRESS_DENIED})
# Why the checks that need a source cannot be made.
_MISSING = {
    Source.PAGES: "no HTML page is stored (--spider)",
    Source.EXTERNAL: "external links are requested only with --check-external",
}
# A description of each cause for which a host is given up (`frontier/hosts/politeness.py`).
_CAUSES = {"no_answer": "no answer for days", "refusals": "refuses all requests"}


class Section(msgspec.Struct):
    """All findings of one kind: the number of findings, and a list of the first ones."""

    total: int = 0
    listed: list[Finding] = []


class Audit(msgspec.Struct):
    """The report: totals, and the sections that have findings."""

    started: str
    ended: str
    hosts: dict[str, int]
    urls: int
    pages: int
    statuses: dict[str, int]
    types: dict[str, int]
    depths: dict[int, int]
    seconds: dict[str, float]
    sitemap: dict[str, int]
    unfetched: dict[str, int]
    sections: dict[str, Section]
    compared_with: str = ""  # the earlier crawl
    comparison: dict[str, Section] = {}  # sections of `comparison.py`
    # lines about missing or short segments and about unreadable copies; the report lacks their pages
    damage: list[str] = []
    external: dict[str, int] = {}  # number of checked links out of scope, by status or outcome
    unstored: int = 0  # number of HTML pages without a stored copy
    not_made: dict[str, str] = {}  # the checks that could not be made, with the reason
    not_compared: dict[str, str] = {}  # the checks that could not be made for the earlier crawl
    settings: dict[str, str] = {}  # settings of the crawl that a comparison looks at (`comparison.py`)
    compared_left: int = 0  # number of URLs that the earlier crawl had not fetched yet


class Repeated:
    """Groups of URLs that share a key. To save memory, only the 8-byte hash of a key that occurred once is stored."""

    def __init__(self) -> None:
        self._first: dict[int, str] = {}
        # key -> (number of URLs with this key, the first of these URLs)
        self.repeated: dict[str, tuple[int, list[str]]] = {}

    def add(self, key: str, url: str) -> None:
        if key in self.repeated:
            _count_in(self.repeated, key, url)
            return
        digest = mmh3.hash64(key)[0]
        first = self._first.get(digest)
        if first is None:
            self._first[digest] = url
        else:
            self.repeated[key] = 2, [first, url]

    def ranked(self) -> list[tuple[str, int, list[str]]]:
        """Return (key, number of URLs, first URLs) for each key that several URLs share, the most frequent first."""
        ranked = sorted(self.repeated.items(), key=lambda item: -item[1][0])
        return [(key, count, urls) for key, (count, urls) in ranked]


_Dead = tuple[str, str, str]  # (url, description, via) of a dead link


class Auditor:
    """Collects findings, as the module's docstring describes. A section lists at most `listed_max` findings.

    `checks_external` says whether the crawl requests external links.
    """

    def __init__(self, listed_max: int = LISTED_MAX, *, checks_external: bool = True) -> None:
        self._listed_max = listed_max
        self._checks_external = checks_external
        self._unstored = 0
        self._first, self._last = "", ""
        self._hosts: Counter[str] = Counter()
        self._statuses: Counter[str] = Counter()
        self._types: Counter[str] = Counter()
        self._depths: Counter[int] = Counter()
        self._took = array("f")
        self._slow: list[tuple[float, str]] = []
        self._slow_total = 0
        self._urls = self._pages = 0
        self._sections = {name: Section(listed=[]) for name in CHECKS}
        self._dead: dict[int, _Dead] = {}
        # fingerprint of a redirect -> (its URL, fingerprint of its target, URL of its target)
        self._redirects: dict[int, tuple[str, int, str]] = {}
        self._found: dict[int, tuple[str, str, int]] = {}  # indexable pages: fingerprint -> (url, via, depth)
        self._noindex: set[int] = set()
        self._denied: set[int] = set()
        self._unfetched: Counter[str] = Counter()
        self._external: Counter[str] = Counter()
        self._dead_external: dict[int, _Dead] = {}
        self._external_redirects: dict[int, tuple[str, int, str]] = {}  # fingerprint -> (url, target, via)
        self._external_hops: set[int] = set()  # fingerprints in `_dead_external` that a redirect led to
        self._external_ends: set[int] = set()  # fingerprints that redirects of external links led to
        self._mapped: dict[int, str] = {}  # URLs in a sitemap
        self._linked: set[int] = set()  # fingerprints of the URLs in `_mapped` to which a page links
        self._sources: dict[int, tuple[int, list[str]]] = {}
        self._contents = Repeated()
        self._titles = Repeated()
        self._descriptions = Repeated()
        self._translations = ReturnLinks()
        self._wanted: np.ndarray | None = None

    # -- first pass

    def record(
        self, row: Mapping[str, Any], fingerprint: int, target: tuple[int, str] | None, flags: int
    ) -> None:
        """Note a URL that the crawl tried to fetch. `target` is the (fingerprint, URL) to which it redirects."""
        if flags & _EXTERNAL:
            return self._note_external(row, fingerprint, target, flags)
        self._urls += 1
        if instant := row["fetched_at"]:
            self._first = min(self._first or instant, instant)
            self._last = max(self._last, instant)
        self._hosts[row["host"]] += 1
        state, outcome = row["state"], Outcome(row["outcome"])
        self._statuses[str(row["status"] or outcome.value)] += 1
        if outcome not in _NOT_ASKED:
            self._note_took(row["took"], row["url"])
        # The URL redirects to the same URL, or to an equivalent URL.
        if row["error"] == REDIRECT_LOOP:
            self._redirects[fingerprint] = (row["url"], fingerprint, row["url"])
        elif state == PageState.REDIRECTED and target is not None:
            self._redirects[fingerprint] = (row["url"], *target)
        elif state == PageState.DENIED or outcome is Outcome.ROBOTS_DENIED:
            self._denied.add(fingerprint)
            self._add("robots_blocked", _found_on(row["url"], row["via"]))
        elif _is_dead(row):
            self._dead[fingerprint] = _dead(row)
        elif state == PageState.STORED and not flags & NO_PAGE:
            self._stored(row, fingerprint, flags)

    def _note_external(
        self, row: Mapping[str, Any], fingerprint: int, target: tuple[int, str] | None, flags: int
    ) -> None:
        """Note the URL of an external link that was checked. It is not a page of the site."""
        self._external[str(row["status"] or row["outcome"])] += 1
        if row["state"] == PageState.REDIRECTED and target is not None:
            self._external_redirects[fingerprint] = (row["url"], target[0], row["via"] or "")
        elif row["state"] != PageState.DENIED and _is_dead(row):
            self._dead_external[fingerprint] = _dead(row)
            if flags & _REDIRECT:
                self._external_hops.add(fingerprint)

    def _stored(self, row: Mapping[str, Any], fingerprint: int, flags: int) -> None:
        kind = row["content_type"] or "unknown"
        self._types[kind] += 1
        if digest := row["digest"]:
            self._contents.add(digest, row["url"])
        if not (is_html(kind) or flags & LinkFlag.SNIFFED):
            return
        self._pages += 1
        self._unstored += row["warc_file"] is None
        self._depths[row["depth"]] += 1
        self._found[fingerprint] = (row["url"], row["via"] or "", row["depth"])
        if row["noindex"]:
            self._noindex.add(fingerprint)
            self._add("noindex_pages", _found_on(row["url"], row["via"]))

    def _note_took(self, took: float, url: str) -> None:
        self._took.append(took)
        if took > SLOW_SECONDS:
            self._slow_total += 1
            keep = heapq.heappush if len(self._slow) < self._listed_max else heapq.heappushpop
            keep(self._slow, (took, url))

    def waiting(self, url: str, fingerprint: int, verdict: str, via: str, flags: int = 0) -> None:
        """Note a URL that was not fetched. `verdict` says why its server is unreachable; "" if the URL just waits."""
        external = flags & _EXTERNAL
        counts, dead = (self._external, self._dead_external) if external else (self._unfetched, self._dead)
        counts["unreachable" if verdict else TO_DO] += 1
        if verdict and counts["unreachable"] <= UNREACHABLE_MAX:
            dead.setdefault(fingerprint, (url, verdict, via))

    def sitemap(self, urls: Iterable[tuple[int, str]]) -> None:
        """Note the (fingerprint, URL) pairs that a sitemap lists."""
        self._mapped.update(urls)

    # -- second pass

    def wanted(self) -> np.ndarray:
        """Return the sorted fingerprints of the URLs for which the links from other pages are collected."""
        if self._wanted is None:
            self._end_external_redirects()
            names = {*self._dead, *self._dead_external, *self._redirects, *self._mapped}
            self._wanted = np.array(sorted(names), np.uint64)
        return self._wanted

    def _end_external_redirects(self) -> None:
        """Count external links as dead if their redirects end at a dead URL."""
        ended = {}
        for fingerprint, (url, target, via) in self._external_redirects.items():
            for _ in range(_HOPS_MAX):
                if target not in self._external_redirects:
                    break
                target = self._external_redirects[target][1]
            if target in self._dead_external:
                ended[fingerprint] = url, f"redirects to {self._dead_external[target][1]}", via
                self._external_ends.add(target)
        self._dead_external |= ended

    def page(self, page: PageFacts) -> None:
        """Note a stored HTML page. `page.links` contains only links to URLs in `wanted`."""
        for name, finding in page.findings:
            self._add(name, finding)
        # To save memory, use the string object that is already stored.
        url, *_ = self._found.get(page.fingerprint, (page.url,))
        if page.canonical is None:  # a page that names another page as canonical is an intended copy
            for text, groups in ((page.title, self._titles), (page.description, self._descriptions)):
                if text:
                    groups.add(text, url)
        else:
            self._judge_target("canonical_targets", page.url, *page.canonical)
        self._translations.add(page.fingerprint, [fingerprint for fingerprint, _ in page.alternates])
        for fingerprint, translation in page.alternates:
            self._judge_target("hreflang_targets", page.url, fingerprint, translation)
        for fingerprint, target in page.refused:  # the crawl rejected the link, so it has no record
            flags = 0 if hostname(target) == hostname(page.url) else _EXTERNAL
            if flags and not self._checks_external:
                continue
            if fingerprint not in (self._dead_external if flags else self._dead):
                self.waiting(target, fingerprint, "port that browsers refuse", page.url, flags)
            _count_in(self._sources, fingerprint, page.url)
        for link in np.frombuffer(page.links, np.uint64).tolist():
            if link in self._mapped:
                self._linked.add(link)
            if link in self._dead or link in self._redirects or link in self._dead_external:
                _count_in(self._sources, link, page.url)

    # -- result

    def audit(self) -> Audit:
        """Return the audit of all URLs and pages that were noted."""
        self.wanted()
        self._judge_dead("dead_links", self._dead)
        self._judge_dead("external_dead_links", self._dead_external)
        self._judge_redirects()
        self._judge_copies()
        self._judge_sitemaps()
        self._judge_translations()
        self._judge_slow()
        self._judge_depths()
        return Audit(
            self._first,
            self._last,
            dict(self._hosts.most_common(100)),
            self._urls,
            self._pages,
            dict(sorted(self._statuses.items())),
            dict(self._types.most_common(30)),
            dict(sorted(self._depths.items())),
            _percentiles(self._took),
            self._coverage(),
            dict(self._unfetched),
            {name: section for name, section in self._sections.items() if section.total},
            external=dict(sorted(self._external.items())),
            unstored=self._unstored,
            not_made=self._not_made(),
        )

    def _not_made(self) -> dict[str, str]:
        """Return the checks whose source is missing, with the reason."""
        missing = set()
        if self._pages and self._unstored == self._pages:
            missing.add(Source.PAGES)
        if not self._external and not self._checks_external:
            missing.add(Source.EXTERNAL)
        return {name: _MISSING[check.source] for name, check in CHECKS.items() if check.source in missing}

    def _add(self, name: str, finding: Finding) -> None:
        section = self._sections[name]
        section.total += 1
        if len(section.listed) < self._listed_max:
            section.listed.append(finding)

    def _judge_slow(self) -> None:
        slowest = sorted(self._slow, reverse=True)
        found = [Finding(url, f"{took:.2f}") for took, url in slowest]
        self._sections["slow_pages"] = Section(self._slow_total, found)

    def _judge_depths(self) -> None:
        deep = (found for found in self._found.values() if found[2] >= DEEP_HOPS)
        for url, via, depth in sorted(deep, key=lambda found: -found[2]):
            self._add("deep_pages", _found_on(url, via, str(depth)))

    def _judge_dead(self, name: str, dead: Mapping[int, _Dead]) -> None:
        """Add a finding for each dead URL. URLs with the most incoming links come first."""
        ranked = sorted(dead.items(), key=lambda item: -self._sources.get(item[0], (0, []))[0])
        for fingerprint, (url, behind, via) in ranked:
            count, sources = self._sources.get(fingerprint, (0, []))
            if not sources and fingerprint in self._external_ends & self._external_hops:
                continue  # the link that redirects to this page is listed, so the page itself is left out
            if not sources and via:  # the page `via` is not stored
                count, sources = 1, [via]
            self._add(name, Finding(url, behind, tuple(sources), count))

    def _judge_redirects(self) -> None:
        loops: set[int] = set()
        for fingerprint, (url, target, target_url) in self._redirects.items():
            way, looped = self._way(fingerprint, target_url)
            if looped:
                if fingerprint not in loops:
                    loops.update(looped)
                    self._add("redirect_loops", Finding(url, "", tuple(way), len(way)))
            elif len(way) > 1:
                self._add("redirect_chains", Finding(url, str(len(way)), tuple(way), len(way)))
            count, sources = self._sources.get(fingerprint, (0, []))
            if count and not looped and target != fingerprint:
                self._add("redirected_links", Finding(url, way[-1], tuple(sources), count))

    def _way(self, fingerprint: int, target_url: str) -> tuple[list[str], list[int]]:
        """Follow a chain of redirects; return its URLs, and also their fingerprints if the chain ends in a loop."""
        way = [target_url]
        met = [fingerprint]
        at = self._redirects[fingerprint][1]
        while at in self._redirects and len(way) < _HOPS_MAX:
            if at in met:
                return way, met
            met.append(at)
            _, at, url = self._redirects[at]
            way.append(url)
        return way, []

    def _judge_copies(self) -> None:
        groups = {"duplicate_titles": self._titles, "duplicate_descriptions": self._descriptions}
        for name, texts in groups.items():
            for text, count, urls in texts.ranked():
                self._add(name, Finding(text, str(count), tuple(urls), count))
        for _, count, urls in self._contents.ranked():
            self._add("duplicate_contents", Finding(urls[0], str(count), tuple(urls[1:]), count))

    def _judge_translations(self) -> None:
        """Add findings for the pages whose translations do not link back to them."""
        for page, translations in self._translations.missing(self._found.__contains__):
            if page in self._found:
                urls = tuple(self._found[each][0] for each in translations[:SOURCES_MAX])
                count = len(translations)
                self._add("hreflang_returns", Finding(self._found[page][0], str(count), urls, count))

    def _judge_sitemaps(self) -> None:
        if not self._mapped:
            return
        for fingerprint, url in self._mapped.items():
            if fingerprint in self._redirects:
                self._add("sitemap_redirects", Finding(url, self._redirects[fingerprint][2]))
            elif why := self._why_not(fingerprint):
                self._add("sitemap_errors", Finding(url, why))
            elif (
                fingerprint in self._found and fingerprint not in self._linked and self._found[fingerprint][2]
            ):
                self._add("orphans", Finding(url))
        for fingerprint, (url, via, _) in self._found.items():
            if fingerprint not in self._mapped and fingerprint not in self._noindex:
                self._add("not_in_sitemap", _found_on(url, via))

    def _judge_target(self, name: str, url: str, fingerprint: int, target: str) -> None:
        if why := self._why_not(fingerprint):
            self._add(name, Finding(url, why, (target,), 1))

    def _why_not(self, fingerprint: int) -> str:
        """Return the reason why a URL is not an indexable page; "" if it is indexable, or if the URL is unknown."""
        if fingerprint in self._dead:
            return self._dead[fingerprint][1]
        if fingerprint in self._redirects:
            return f"redirects to {self._redirects[fingerprint][2]}"
        if fingerprint in self._denied:
            return "blocked by robots.txt"
        return "says noindex" if fingerprint in self._noindex else ""

    def _coverage(self) -> dict[str, int]:
        listed = self._found.keys() & self._mapped.keys()
        not_crawled = self._mapped.keys() - self._found.keys() - self._dead.keys() - self._redirects.keys()
        return {
            "listed": len(self._mapped),
            "listed_pages": len(listed),
            "pages_not_listed": len(self._found) - len(listed) if self._mapped else 0,
            "listed_not_crawled": len(not_crawled),
        }


_Key = TypeVar("_Key")


def _count_in(groups: dict[_Key, tuple[int, list[str]]], key: _Key, url: str) -> None:
    count, urls = groups.get(key) or (0, [])
    if len(urls) < SOURCES_MAX:
        urls.append(url)
    groups[key] = count + 1, urls


def _found_on(url: str, via: str | None, value: str = "") -> Finding:
    """Return a finding about a URL, with the page on which the URL was first found."""
    return Finding(url, value, (via,) if via else (), int(bool(via)))


def unreachable(cause: str, tries: int) -> str:
    """Return the verdict on a URL whose server does not answer: the reason, and the number of tries."""
    reason = _CAUSES.get(cause) or describe_outcome(cause) or "no answer"
    return f"{reason} after {several(tries, 'try')}"


def _is_dead(row: Mapping[str, Any]) -> bool:
    return row["state"] in (PageState.GONE, PageState.FAILED) or (row["status"] or 0) >= 400


def _dead(row: Mapping[str, Any]) -> _Dead:
    return row["url"], answer_in_words(row["status"], Outcome(row["outcome"])), row["via"] or ""


def answer_in_words(status: int | None, outcome: Outcome) -> str:
    """Return the answer to a request that returned no page, such as "404 not found"."""
    reason = "not found" if outcome is Outcome.GONE and status != 410 else describe_outcome(outcome)
    return f"{status} {reason}" if status else reason


def _percentiles(took: array) -> dict[str, float]:
    """Return the median, the 90th and 99th percentile, and the maximum of the answer times, in seconds."""
    if not took:
        return {}
    values = np.percentile(np.frombuffer(took, np.float32), (50, 90, 99, 100))
    names = ("median", "p90", "p99", "longest")
    return {name: round(float(value), 3) for name, value in zip(names, values, strict=True)}
