"""Test the ground truth of the synthetic web: links, sitemaps, changes."""

import msgspec
import numpy as np
import pytest

from crawler.config import SitemapsConfig
from crawler.errors import UsageError
from crawler.extract.sitemap import read_sitemap
from crawler.lab.cluster.page_changes import RealChanges
from crawler.lab.cluster.synthetic_web import SyntheticWeb, WebSpec, token
from crawler.lab.league.histories import SiteHistory
from tests.lab.league.made import history


def test_a_web_is_a_tree_whose_odd_pages_have_one_link() -> None:
    web = SyntheticWeb(WebSpec(hosts=15, pages=400), 5)
    sizes = sorted((len(host.pages) for host in web.hosts), reverse=True)
    assert sum(sizes) == 400 and sizes[-1] >= 1 and sizes[0] > 4 * sizes[-1]
    linked = [web.links(page) for page in range(400)]
    for page in range(1, 400):
        assert web.parent[page] < page
        if web.is_orphan(page):
            assert not any({web.url(page), web.link_to(page)} & set(links) for links in linked)
            continue
        assert web.link_to(page) in linked[web.parent[page]]
        if page % 2:
            assert (
                sum(web.url(page) in set(links) or web.link_to(page) in set(links) for links in linked) == 1
            )


def test_a_sitemap_lists_unlinked_pages_and_change_dates() -> None:
    web = SyntheticWeb(WebSpec(hosts=15, pages=400, sitemaps=0.5, change_rate=0.001), 5, horizon=10_000.0)
    orphans = {page for page in range(400) if web.is_orphan(page)}
    with_maps = [host for host in web.hosts if host.sitemap]
    assert orphans and 0 < len(with_maps) < 15
    for host in web.hosts:
        robots = web.answer(host.name, "/robots.txt", 0.0).body.decode()
        found = web.answer(host.name, "/sitemap.xml", 5_000.0)
        assert (f"Sitemap: http://{host.name}/sitemap.xml" in robots) is host.sitemap
        assert found.status == (200 if host.sitemap else 404)
        if not host.sitemap:
            continue
        entries = read_sitemap(found.body, SitemapsConfig()).entries
        assert [entry.loc for entry in entries] == [web.url(page) for page in web.listed(host)]
        assert orphans & set(host.pages) <= set(web.listed(host)) and host.pages[0] not in orphans
        for page, entry in zip(web.listed(host), entries, strict=True):
            version = web.version(page, 5_000.0)
            since = web.current_until(page, version - 1) if version else web.start
            assert entry.lastmod == int(since)
        assert web.answer(host.name, "/sitemap.xml", 5_000.0, etag=found.etag).status == 304


def test_pages_change_like_real_pages_in_their_last_days() -> None:
    def site(born: list[int], died: list[int], changes: list[tuple[int, int]]) -> SiteHistory:
        page, time = np.array(changes, np.int64).reshape(-1, 2).T
        columns = {"born": np.array(born), "died": np.array(died), "page": page, "time": time}
        return msgspec.structs.replace(history([]), published=np.array([1000]), **columns)

    one = site([0, 950, 0, 10], [0, 0, 940, 0], [(0, 990), (3, 899), (0, 901), (1, 960), (2, 930), (0, 900)])
    other = site([800], [0], [(0, 950)])
    young = site([999], [0], [])
    changes = RealChanges([one, young, other], 100.0)
    assert changes(0, 0) == [1.0, 90.0] and changes(0, 1) == [] and changes(0, 2) == changes(0, 0)
    assert changes(1, 7) == [50.0] and changes(2, 0) == changes(0, 0)
    assert (changes.pages, changes.changes) == (3, 3)
    with pytest.raises(UsageError, match="no page"):
        RealChanges([young], 100.0)
    web = SyntheticWeb(WebSpec(hosts=2, pages=9), 1, start=5.0, changes_of=changes)
    page = web.hosts[0].pages[0]
    assert [web.version(page, 5.0 + at) for at in (0.9, 1.0, 89.0, 91.0)] == [0, 1, 1, 2]


def test_answers_depend_only_on_seed_instant_and_request_count() -> None:
    one, other = (SyntheticWeb(WebSpec(change_rate=0.01), 7, horizon=1000.0) for _ in range(2))
    for page in range(0, 400, 7):
        name, path = one.url(page).removeprefix("http://").split("/")
        for now in (1.0, 500.0):
            assert one.answer(name, f"/{path}", now, asked=1) == other.answer(name, f"/{path}", now, asked=1)
    page = 8
    version = one.version(page, 900.0)
    assert version > 0 and token(page, version).encode() in one.body(page, version)
    name, path = one.url(page).removeprefix("http://").split("/")
    found = one.answer(name, f"/{path}", 900.0, asked=1)
    assert one.answer(name, f"/{path}", 900.0, asked=1, etag=found.etag).status == 304
    assert one.current_until(page, version - 1) <= 900.0 < one.current_until(page, version)
