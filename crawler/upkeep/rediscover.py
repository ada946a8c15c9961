"""Find lost URLs in stored pages and queue them through the DUE."""

import itertools
from collections.abc import Iterable

import numpy as np

from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.relaxed_settings import ANYWHERE
from crawler.due.eliminator import Eliminator
from crawler.frontier.discovery.entries import decode
from crawler.pages.captures import record_key
from crawler.process.committing.commits import Commits
from crawler.process.opening.stages import Stages
from crawler.records import Link
from crawler.storage.commit import Change
from crawler.storage.keys import PARKED, SCOPE_STATE, TODO
from crawler.storage.kv import KeyValue, scan_prefix
from crawler.upkeep.stored_links import StoredLinks
from crawler.urls.canonical import canonical, resolve

_LINKS_AT_ONCE = 10_000


def refind(stages: Stages, lost: Iterable[int], links: Iterable[Link]) -> list[str]:
    """Queue the `lost` pages again, and pass `links` and all links of stored pages to the DUE; return what was done."""
    lines, due, commits, owner = [], stages.due, stages.commits, stages.topology.partition.owner
    if again := _again(stages, lost):
        lines.append(f"pages queued to be fetched again for lack of a copy: {again:,}")
    before = due.new
    _queue(due, commits, [link for link in links if owner(link.fingerprint) == stages.name])
    _span_scope(stages)
    # skip pages that cannot be read; `check` reports them
    found = StoredLinks(stages).owned_by(stages.name)
    while portion := list(itertools.islice(found, _LINKS_AT_ONCE)):
        _queue(due, commits, portion)
    if new := due.new - before:
        lines.append(f"forgotten URLs found again in stored pages and waiting links: {new:,}")
    return lines


def _again(stages: Stages, lost: Iterable[int]) -> int:
    """Replace the records of the lost pages by to-do entries. Return the number of entries."""
    links = []
    for fingerprint in lost:
        record = stages.pages.record(fingerprint)
        if record is not None:
            links.append(record.link(fingerprint, record.flags))
    if links:
        queued = _queued(stages.store)
        change = stages.commits.queue_again([link for link in links if link.fingerprint not in queued])
        for link in links:
            change.delete(record_key(link.fingerprint))
        change.count("stored.records", -len(links))
        stages.commits.commit(change)
    return len(links)


def _queued(store: KeyValue) -> set[int]:
    return {
        decode(key, value).fingerprint
        for prefix in (TODO, PARKED)
        for key, value in scan_prefix(store, prefix)
    }


def _span_scope(stages: Stages) -> None:
    """If the scope was lost with the store, rebuild it from the seeds, their hosts and their redirects."""
    store, config, knowledge, pages = stages.store, stages.config, stages.decisions.knowledge, stages.pages
    fingerprinter, admission, commits = stages.fingerprinter, stages.decisions.admission, stages.commits
    if store.get(SCOPE_STATE) is not None:
        return
    change = Change(sync=True)
    seeds = [url for raw_url in config.seeds if (url := canonical(raw_url)) is not None]
    for _ in knowledge.given(change, seeds):
        pass
    if config.crawl.scope in ("host", "domain"):
        places = CrawlDirectory(stages.directory.parent).settings.places()
        knowledge.spread(
            change, [f"http://{name.removeprefix('*.')}/" for name in places if name != ANYWHERE]
        )
    seen = set(seeds)
    while seeds:
        url = seeds.pop()
        record = pages.record(fingerprinter.fingerprint(url))
        target = resolve(url, record.location) if record is not None and record.location else None
        if target is not None and target not in seen:
            admission.spread(change, url, target, 0)
            seen.add(target)
            seeds.append(target)
    commits.commit_now(change)


def _queue(due: Eliminator, commits: Commits, links: list[Link]) -> None:
    """Append links to the DUE, and flush it."""
    if not links:
        return
    fresh = due.admit(np.array([link.fingerprint for link in links], np.uint64))
    change = Change(sync=True)
    change.links = [link for link, is_fresh in zip(links, fresh, strict=True) if is_fresh]
    change.count("urls.resharded", len(change.links))
    change.count("urls.to_due", len(change.links))
    commits.commit_now(change)
