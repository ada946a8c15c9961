"""Makes the audit of a crawl from its records and its stored pages."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from crawler.audit.comparison import (
    ComparedPage,
    PageFate,
    compare_findings,
    compare_pages,
    compare_settings,
    compared_settings,
    decode,
)
from crawler.audit.findings import LISTED_MAX, TO_DO, Audit, Auditor, Section, answer_in_words, unreachable
from crawler.audit.on_page import PageFacts, facts
from crawler.config import Config
from crawler.errors import DamageError, UsageError, reason_of
from crawler.export.archives import Crawled, opened
from crawler.export.page_tasks import Done, read_known
from crawler.export.stored_pages import StoredPages
from crawler.export.worker_pool import WorkerPool, batches
from crawler.export.writing import PIECE_PAGES
from crawler.extract.sitemap import read_sitemap
from crawler.frontier.waiting_urls import waiting_urls
from crawler.input_files import read_bytes
from crawler.pages.formats.mirror import redirect_target
from crawler.pages.formats.rows import Known, known_rows, url_finder
from crawler.pages.formats.selection import Say, Selection
from crawler.records import NO_PAGE, LinkFlag, Outcome, PageState
from crawler.urls.canonical import canonical
from crawler.urls.media_type import may_be_page
from crawler.urls.page_urls import resolved
from crawler.urls.ports import BAD_PORTS, port_of

_SITEMAP = LinkFlag.SITEMAP
_PART = LinkFlag.REQUISITE


def audit(
    path: Path,
    *,
    processes: int = 1,
    listed_max: int = LISTED_MAX,
    progress: Callable[[int], None] = lambda n: None,
) -> Audit:
    """Return the audit of the crawl in the directory `path`. The crawl may be running.

    `Audit.damage` names at most `listed_max` of the copies that cannot be read, and counts the others.
    """
    with opened(path) as crawled:
        auditor = Auditor(listed_max, checks_external=crawled.config.crawl.check_external)
        unread = Unread(listed_max)
        for known in _all_known(crawled):
            _take_record(crawled, auditor, known, unread.add)
        _take_waiting(crawled, auditor)
        work = PageReader(
            crawled.config,
            [archive.folder for archive in crawled.archives],
            crawled.fingerprint,
            auditor.wanted(),
        )
        count = 0
        with WorkerPool(work, processes) as worker_pool:
            for done in worker_pool.results(batches(html_pages(crawled), PIECE_PAGES)):
                for problem in done.problems:
                    unread.add(problem)
                for page in done.values:
                    auditor.page(page)
                count += len(done.values)
                progress(count)
        return msgspec.structs.replace(
            auditor.audit(),
            damage=[*crawled.damage(), *unread.lines()],
            settings=compared_settings(crawled.config),
        )


class Unread:
    """Messages about copies that cannot be read. At most `listed_max` of them are kept; the others are counted."""

    def __init__(self, listed_max: int) -> None:
        self._listed_max = listed_max
        self._listed: list[str] = []
        self._count = 0

    def add(self, problem: str) -> None:
        """Add the message about one copy."""
        self._count += 1
        if len(self._listed) < self._listed_max:
            self._listed.append(problem)

    def lines(self) -> list[str]:
        """Return the messages."""
        unlisted = self._count - len(self._listed)
        return (
            [*self._listed, f"unreadable copies that are not listed: {unlisted:,}"]
            if unlisted
            else self._listed
        )


def compare(audit_of: Audit, path: Path, earlier: Path, **options: Any) -> None:
    """Compare the audit with an earlier crawl (a directory or a JSON report), and add the result to the audit.

    Damage of the earlier crawl is listed, too, because pages that are missing there appear as new.

    Raises:
        UsageError: the file is not a report.
    """
    audit_of.compared_with = str(earlier)
    pages: dict[str, Section] = {}
    if earlier.is_dir():
        with opened(path) as ours, opened(earlier) as theirs:
            pages = compare_pages(StoredHtml(ours), StoredHtml(theirs), _fates(ours))
        other = audit(earlier, **options)
    else:
        other = _from_file(earlier)
    audit_of.damage += [f"{earlier}: {line}" for line in other.damage]
    audit_of.not_compared = other.not_made
    audit_of.compared_left = other.unfetched.get(TO_DO, 0)
    audit_of.comparison = compare_settings(audit_of, other) | pages
    with opened(path) as ours:
        audit_of.comparison |= compare_findings(audit_of, other, (page.url for page in StoredHtml(ours)))


def _fates(crawled: Crawled) -> Iterator[tuple[str, PageFate]]:
    """Yield each URL that was tried but is not an HTML page, with its redirect or its answer."""
    for known in _all_known(crawled):
        row = known.row
        if row["state"] == PageState.REDIRECTED:
            yield row["url"], PageFate(redirect_target(row["url"], row["location"] or "") or "")
        elif row["state"] != PageState.STORED:
            yield row["url"], PageFate("", answer_in_words(row["status"], Outcome(row["outcome"])))
        elif not may_be_page(row["content_type"] or ""):
            yield row["url"], PageFate("", row["content_type"])


def _from_file(path: Path) -> Audit:
    try:
        return decode(read_bytes(path))
    except (OSError, msgspec.MsgspecError) as error:
        why = reason_of(error)
        raise UsageError(
            f"report: --compare {path}: neither a crawl directory nor a file of `report --format json`: {why}"
        ) from error


class StoredHtml:
    """The stored HTML pages of a crawl, which can be iterated several times."""

    def __init__(self, crawled: Crawled) -> None:
        self._crawled = crawled

    def __iter__(self) -> Iterator[ComparedPage]:
        for known in _all_known(self._crawled, want_via=False):
            row = known.row
            stored = row["state"] == PageState.STORED and not known.flags & NO_PAGE
            if stored and may_be_page(row["content_type"] or ""):
                yield ComparedPage(row["url"], row["digest"] or "")


def _all_known(crawled: Crawled, *, want_via: bool = True) -> Iterator[Known]:
    return known_rows(crawled.archives, Selection(with_noarchive=True), crawled.owner, want_via=want_via)


def html_pages(crawled: Crawled) -> Iterator[Known]:
    """Yield the stored pages of a crawl that may be HTML, except frames and other requisites."""
    for known in _all_known(crawled, want_via=False):
        if known.capture is not None and may_be_page(known.capture.content_type) and not known.flags & _PART:
            yield known


def _take_record(crawled: Crawled, auditor: Auditor, known: Known, report: Say) -> None:
    row, target = known.row, None
    if url := redirect_target(row["url"], row["location"] or ""):
        target = crawled.fingerprint(url), url
    auditor.record(row, int(row["id"], 16), target, known.flags)
    if known.flags & _SITEMAP and row["state"] == PageState.STORED:
        try:
            auditor.sitemap(_listed(crawled, known))
        except DamageError as error:
            report(str(error))


def _take_waiting(crawled: Crawled, auditor: Auditor) -> None:
    """Give the auditor the URLs that were not fetched."""
    via_url = url_finder(crawled.archives)
    for archive in crawled.archives:
        for waiting in waiting_urls(archive.store):
            verdict = unreachable(waiting.failing.outcome, waiting.failing.tries) if waiting.failing else ""
            via = via_url(waiting.via) if verdict else ""
            auditor.waiting(waiting.url, waiting.fingerprint, verdict, via, waiting.flags)


def _listed(crawled: Crawled, known: Known) -> list[tuple[int, str]]:
    """Return the URLs that a stored sitemap lists."""
    page = read_known([archive.folder for archive in crawled.archives], known)
    if page is None:
        return []
    found = read_sitemap(page.content, crawled.config.sitemaps)
    urls = filter(None, (canonical(entry.loc) for entry in found.entries))
    return [(crawled.fingerprint(url), url) for url in urls]


class PageReader:
    """Reads the facts of stored pages. Links to the URLs with the (sorted) fingerprints `wanted` are collected."""

    def __init__(
        self, config: Config, folders: Sequence[Path], fingerprint: Callable[[str], int], wanted: np.ndarray
    ) -> None:
        self._pages = StoredPages(config, want_all=True, want_markup=True)
        self._folders = folders
        self._fingerprint = fingerprint
        self._wanted = wanted
        self._bad_ports = BAD_PORTS.difference(config.network.allow_ports)

    def __call__(self, piece: list[Known], careful: bool) -> Done:
        """Return the facts of each page that can be read."""
        done = Done([], [])
        for known in piece:
            try:
                if (page := self._page(known, careful)) is not None:
                    done.values.append(page)
            except DamageError as error:
                done.problems.append(str(error))
        return done

    def _page(self, known: Known, careful: bool) -> PageFacts | None:
        stored = read_known(self._folders, known)
        if stored is None:
            return None
        found = self._pages.read(stored, known.flags, careful=careful)
        if found is None:
            return None
        url = known.row["url"]
        targets = resolved(found, [*found.hrefs, *found.requisites])
        links = np.array([self._fingerprint(link) for link in targets], np.uint64)
        matters = np.unique(links[np.isin(links, self._wanted)]) if len(self._wanted) else links[:0]
        page = facts(int(known.row["id"], 16), url, found, matters.tobytes(), self._fingerprint)
        refused = dict.fromkeys(link for link in targets if port_of(link) in self._bad_ports)
        page.refused = [(self._fingerprint(link), link) for link in refused]
        return page
