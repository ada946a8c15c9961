"""Find lost URLs in stored pages and queue them through the DUE."""

from collections.abc import Iterable

import numpy as np

from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.relaxed_settings import ANYWHERE
from crawler.errors import DamageError
from crawler.export.stored_pages import StoredPages
from crawler.frontier.discovery.entries import decode
from crawler.pages.captures import record_key
from crawler.process.opening.stages import Stages
from crawler.records import Link, LinkFlag
from crawler.storage.commit import Change
from crawler.storage.keys import PARKED, SCOPE_STATE, TODO
from crawler.storage.kv import scan_prefix
from crawler.urls.canonical import canonical, resolve

_LINKS_AT_ONCE = 10_000


def refind(stages: Stages, lost: Iterable[int], links: Iterable[Link], *, reread: bool) -> list[str]:
    """Queue lost URLs again: pages without a copy, waiting links and, with `reread`, all links of stored pages."""
    lines = []
    if again := _again(stages, lost):
        lines.append(f"{again} pages whose copies are lost are queued to be fetched again")
    before = stages.due.new
    _queue(
        stages, [link for link in links if stages.topology.partition.owner(link.fingerprint) == stages.name]
    )
    if reread:
        _span_scope(stages)
        _reread(stages)
    if found := stages.due.new - before:
        lines.append(f"{found} forgotten URLs were found again in stored pages and waiting links")
    return lines


def _again(stages: Stages, lost: Iterable[int]) -> int:
    """Replace the records of the pages `lost` by to-do entries; return their number."""
    change = Change(sync=True)
    links = []
    for fingerprint in lost:
        record = stages.pages.record(fingerprint)
        if record is not None:
            links.append(
                Link(fingerprint, record.url, record.depth, record.via, record.redirects, record.flags)
            )
            change.delete(record_key(fingerprint))
    if links:
        queued = _queued(stages)
        fresh = [link for link in links if link.fingerprint not in queued]
        stages.frontier.enqueue(fresh, change, stages.clock.now())
        change.count("urls.done", -len(fresh))
        change.count("stored.records", -len(links))
        change.after.append(lambda: stages.frontier.committed(change, stages.clock.now()))
        stages.commits.commit(change)
    return len(links)


def _queued(stages: Stages) -> set[int]:
    return {
        decode(key, value).fingerprint
        for prefix in (TODO, PARKED)
        for key, value in scan_prefix(stages.store, prefix)
    }


def _span_scope(stages: Stages) -> None:
    """Rebuild a scope that was lost with the store: from the seeds, their hosts and their redirects.

    Without a scope every link of a stored page would be out of scope.
    """
    if stages.store.get(SCOPE_STATE) is not None:
        return
    change = Change(sync=True)
    seeds = [url for raw_url in stages.config.seeds if (url := canonical(raw_url)) is not None]
    for _ in stages.knowledge.given(change, seeds):
        pass
    if stages.config.crawl.scope in ("host", "domain"):
        places = CrawlDirectory(stages.directory.parent).seed_places()
        stages.knowledge.spread(
            change, [f"http://{name.removeprefix('*.')}/" for name in places if name != ANYWHERE]
        )
    seen = set(seeds)
    while seeds:
        url = seeds.pop()
        record = stages.pages.record(stages.fingerprinter.fingerprint(url))
        target = resolve(url, record.location) if record is not None and record.location else None
        if target is not None and target not in seen:
            stages.admission.spread(change, url, target, 0)
            seen.add(target)
            seeds.append(target)
    stages.commits.commit_now(change)


def _reread(stages: Stages) -> None:
    """Pass the links of every stored page, every redirect and the seeds through the DUE again."""
    waiting: list[Link] = []

    def take(base: str, urls: list[str], via: int, depth: int, flags: int) -> None:
        accepted = stages.intake.filter_links(base, urls, flags=flags)
        for place in stages.topology.partition.split(accepted.fingerprints).get(stages.name, []):
            fingerprint = int(accepted.fingerprints[place])
            waiting.append(Link(fingerprint, accepted.urls[place], depth, via, 0, flags))
        if len(waiting) >= _LINKS_AT_ONCE:
            _queue(stages, waiting)
            waiting.clear()

    seeds = list(stages.config.seeds)
    if seeds:
        take(seeds[0], seeds, 0, 0, LinkFlag.SEED)
    stored = StoredPages(stages.config)
    for fingerprint, capture in stages.pages.newest_captures(withdrawn=True):
        record = stages.pages.record(fingerprint)
        if record is not None:
            try:
                urls = stored.links(stages.pages.read(capture), record.flags)
            except DamageError:
                continue  # `check` reports it
            take(record.url, urls, fingerprint, record.depth + 1, 0)
    for fingerprint, read in stages.pages.stored_records():
        record = read()
        if record.location:
            take(record.url, [record.location], fingerprint, record.depth, LinkFlag.REDIRECT)
    _queue(stages, waiting)


def _queue(stages: Stages, links: list[Link]) -> None:
    """Append links to the DUE, and flush it."""
    if not links:
        return
    fresh = stages.due.admit(np.array([link.fingerprint for link in links], np.uint64))
    change = Change(sync=True)
    change.links = [link for link, is_fresh in zip(links, fresh, strict=True) if is_fresh]
    change.count("urls.resharded", len(change.links))
    change.count("urls.to_due", len(change.links))
    stages.commits.commit_now(change)
