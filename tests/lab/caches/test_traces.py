"""Test traces, which the crawl writes and the lab reads.

A trace may be torn, renamed, truncated or imported.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from crawler.errors import DamageError, DirectoryError, StoreError, UsageError
from crawler.lab.caches import crawl_order, traces
from crawler.lab.caches.link_locality import LinkLocality, counted, fit, generate
from crawler.lab.caches.traces import Trace
from crawler.lab.caches.url_caches import Stream, misses
from crawler.urls.trace import LINKS_FILE, PAGES_FILE, TraceWriter, is_cross

INFO = {"source": "crawl", "tags": ["a", "area"]}


def written(folder: Path, pages: list[tuple[int, list[int], list[bool]]], **bounds: int) -> TraceWriter:
    writer = TraceWriter(folder, INFO, **bounds)
    for host, fingerprints, cross in pages:
        writer.write_page(host, np.array(fingerprints, np.uint64), cross)
    writer.close()
    return writer


PAGES = [(7, [1, 1, 2, 2**64 - 1], [False, False, True, False]), (9, [], []), (7, [2, 3], [True, False])]


def test_a_trace_round_trips_with_repeats_order_and_cross_bits(tmp_path: Path) -> None:
    written(tmp_path / "t", PAGES, buffer_bytes=1)
    trace = Trace.open(tmp_path / "t")
    words = trace.words()
    assert Stream(words).ids.tolist() == [0, 0, 1, 2, 1, 3]
    assert is_cross(words).tolist() == [False, False, True, False, True, False]
    assert trace.words("cross").tolist() == [words[2], words[4]]
    assert trace.starts.tolist() == [0, 4, 4, 6]
    assert trace.pages["host"][0] == trace.pages["host"][2] != trace.pages["host"][1]
    assert trace.info["tags"] == INFO["tags"]


def test_neither_fingerprints_nor_hosts_of_the_crawl_are_in_a_trace(tmp_path: Path) -> None:
    """The secret seed of the crawl could be computed from fingerprints, so a trace contains none.

    Two traces must not have names in common, either.
    """
    fingerprints = np.arange(1000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for name in ("a", "b"):
        written(tmp_path / name, [(fingerprints[1], fingerprints.tolist(), [False] * 1000)])
    first, second = (set(Trace.open(tmp_path / name).words().tolist()) for name in ("a", "b"))
    crawl = set((fingerprints & ~np.uint64(1)).tolist())
    assert len(first) == len(second) == 1000
    assert not first & second and not first & crawl
    assert Trace.open(tmp_path / "a").pages["host"][0] != fingerprints[1]


def test_names_are_stable_after_eviction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of names is bounded. After a name was evicted, the same name is computed from the key again."""
    monkeypatch.setattr("crawler.urls.trace._NAMES_MAX", 3)
    rounds = [*range(10), *range(10)]
    written(tmp_path / "t", [(1, rounds, [False] * 20)])
    assert Stream(Trace.open(tmp_path / "t").words()).ids.tolist() == rounds


def test_torn_pages_are_not_read(tmp_path: Path) -> None:
    """After a crash, a trace may have links without their page, an incomplete word, or a page without its links."""
    written(tmp_path / "t", PAGES)
    links, pages = tmp_path / "t" / LINKS_FILE, tmp_path / "t" / PAGES_FILE
    whole = links.read_bytes()
    links.write_bytes(whole + b"\x01" * 11)
    assert len(Trace.open(tmp_path / "t").links) == 6
    links.write_bytes(whole[:-3])
    assert Trace.open(tmp_path / "t").starts.tolist() == [0, 4, 4]
    links.write_bytes(whole)
    pages.write_bytes(pages.read_bytes()[:-1])
    assert len(Trace.open(tmp_path / "t").links) == 4


def test_first_reads_to_the_end_of_a_page(tmp_path: Path) -> None:
    written(tmp_path / "t", PAGES)
    assert [len(Trace.open(tmp_path / "t", first).links) for first in (1, 4, 5, 6, 100)] == [4, 4, 6, 6, 6]
    trace = Trace.open(tmp_path / "t")
    assert [len(trace.head(links).links) for links in (0, 1, 4, 5, 6, 100)] == [0, 4, 4, 6, 6, 6]


def test_a_trace_is_bounded(tmp_path: Path) -> None:
    writer = written(tmp_path / "t", PAGES, bytes_max=100)
    assert (writer.pages, writer.skipped) == (3, 0)
    writer = written(tmp_path / "u", PAGES, bytes_max=70)
    assert (writer.pages, writer.skipped, writer.links) == (2, 1, 4)
    assert len(Trace.open(tmp_path / "u").links) == 4


def test_runs_are_numbered(tmp_path: Path) -> None:
    for name in ("0001", "0002"):
        writer = TraceWriter.next_in(tmp_path / "p0" / "trace", INFO)
        writer.close()
        assert writer.folder.name == name
    assert [folder.name for folder in traces.of_crawl(tmp_path)] == ["0001", "0002"]


def test_a_folder_without_a_trace_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DirectoryError, match="no trace here"):
        Trace.open(tmp_path)
    with pytest.raises(DirectoryError, match="--trace"):
        traces.of_crawl(tmp_path)
    (tmp_path / "info.json").write_text("{")
    with pytest.raises(DamageError):
        Trace.open(tmp_path)
    (tmp_path / "info.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(DirectoryError, match="not a trace"):
        Trace.open(tmp_path)
    written(tmp_path / "t", PAGES)
    (tmp_path / "t" / LINKS_FILE).unlink()
    with pytest.raises(DamageError, match="links"):
        Trace.open(tmp_path / "t")
    with pytest.raises(StoreError):
        TraceWriter(tmp_path / "t", INFO)
    with pytest.raises(UsageError):
        traces.write(tmp_path / "t", {}, [])


def test_link_lines_become_pages(tmp_path: Path) -> None:
    lines = [
        "http://a.example/1\thttp://a.example/2\n",
        "http://a.example/1\thttp://b.example/\n",
        "http://a.example/1\tmailto:x@a.example\n",
        "http://b.example/\thttp://a.example/2#part\n",
    ]
    made = traces.import_link_lines(tmp_path / "t", lines, processes=1 << 16, key=bytes(16))
    assert (made.pages, made.links) == (2, 3)
    trace = Trace.open(tmp_path / "t")
    assert Stream(trace.words() >> np.uint64(1)).ids.tolist() == [0, 1, 0]
    assert is_cross(trace.words()).tolist() == [False, True, True]
    with pytest.raises(UsageError, match="line 1"):
        traces.import_link_lines(
            tmp_path / "u", ["http://a.example/ http://b.example/"], processes=1, key=bytes(16)
        )


# -- the model of a crawl and the experiments with it


@pytest.fixture(scope="module")
def synthetic() -> Trace:
    return Trace.joined(generate(LinkLocality(), 20, 150_000, seed=3), {"source": "model", "threads": 20})


def test_the_generator_follows_its_parameters(synthetic: Trace) -> None:
    """A trace has the requested repeats, links per page, cross links and threads. Equal seeds yield equal traces."""
    model, threads = counted(synthetic)
    assert model.repeat == pytest.approx(0.30, abs=0.02)
    assert model.links_median == pytest.approx(23, abs=2)
    assert model.links_mean == pytest.approx(62.55, rel=0.12)
    assert is_cross(synthetic.words()).mean() == pytest.approx(0.195, abs=0.015)
    assert threads == pytest.approx(20, abs=3) and synthetic.threads == 20
    again = Trace.joined(generate(LinkLocality(), 20, 150_000, seed=3), {})
    assert (again.words() == synthetic.words()).all()
    assert len(np.intersect1d(synthetic.words(), next(generate(LinkLocality(), 20, 1000, seed=4))[0])) == 0


def test_a_page_has_no_url_of_the_wide_set_twice() -> None:
    """With `repeat=0`, all links of a page differ, even if there are more links than URLs in the wide set."""
    model = LinkLocality(
        repeat=0.0,
        global_share=0.0,
        popular_share=0.0,
        wide_share=1.0,
        wide_urls=10,
        new=1.0,
        links_median=20.0,
    )
    trace = Trace.joined(generate(model, 3, 5000, seed=1), {})
    for begin, end in zip(trace.starts[:-1], trace.starts[1:], strict=True):
        page = trace.links[begin:end]
        assert len(np.unique(page)) == len(page)


def test_all_orders_contain_the_same_pages(synthetic: Trace) -> None:
    for name, order in crawl_order.ORDERS.items():
        chosen = order(synthetic, 1)
        assert sorted(chosen) == list(range(len(synthetic.pages))), name
        words = crawl_order.reordered(synthetic, chosen)
        assert (np.sort(words) == np.sort(synthetic.words())).all()
        first = slice(synthetic.starts[chosen[0]], synthetic.starts[chosen[0] + 1])
        assert (words[: first.stop - first.start] == synthetic.links[first]).all()


def test_crawling_host_after_host_misses_least(synthetic: Trace) -> None:
    found = crawl_order.by_order(synthetic, [1 << 9])
    assert found["host after host"] < 0.8 * found["as crawled"]
    hosts = synthetic.pages["host"][crawl_order.ORDERS["host after host"](synthetic, 1)]
    assert (np.diff(hosts.astype(np.float64)) != 0).sum() == len(np.unique(hosts)) - 1
    hosts = synthetic.pages["host"][crawl_order.ORDERS["all hosts in turn"](synthetic, 1)]
    count = len(np.unique(hosts))
    assert len(np.unique(hosts[:count])) == count


def test_one_cache_per_thread_with_one_thread_is_a_global_cache(synthetic: Trace) -> None:
    alone = Trace(synthetic.links, synthetic.pages.copy(), {"threads": 1}, "alone")
    alone.pages["thread"] = 0
    sizes = [16, 1000]
    assert (
        crawl_order.one_cache_a_thread(alone, sizes, 1)
        == misses("CLOCK", Stream(synthetic.words()), sizes).sum(axis=1)
    ).all()


def test_separate_caches_of_threads_duplicate_common_urls(synthetic: Trace) -> None:
    """If caches are unlimited, a URL misses once in each thread that requests it."""
    apart = crawl_order.one_cache_a_thread(synthetic, [1 << 18], 20)[0]
    threads = np.repeat(synthetic.pages["thread"], np.diff(synthetic.starts))
    assert apart == len({*zip(threads.tolist(), synthetic.links.tolist(), strict=True)})


def test_the_fit_finds_the_wide_set_again(synthetic: Trace) -> None:
    found = fit(synthetic, threads=20, evaluations=40)
    assert found.error < 0.01
    assert found.model.wide_urls == pytest.approx(200, rel=0.25)
    assert found.model.wide_share == pytest.approx(0.74, abs=0.1)
