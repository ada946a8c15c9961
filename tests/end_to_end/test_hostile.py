"""Test that the whole crawl is neither stopped nor slowed by any server, or by a bug that a page triggers."""

import asyncio
import contextlib
import gc
import ssl
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler.admin.control import ControlServer
from crawler.cli.loopback import free_port
from crawler.fetcher.client import Client
from crawler.fetcher.resolver import Resolver
from crawler.frontier.hosts import slot_shares
from crawler.frontier.outcomes import Outcomes
from crawler.pages.page_cache import PageCache
from crawler.process.committing import commit_loop, portions
from crawler.process.fetching.fetch_requests import FetchRequests
from crawler.process.fetching.reader import Reader
from crawler.robots.cache import RobotsCache
from crawler.urlfilter.link_filter import LinkFilter
from tests.end_to_end.hostile_server import address
from tests.end_to_end.web import Web, crawl, lines, page
from tests.fetcher.test_unexpected import large_certificate


def test_a_tls_session_that_cannot_be_copied(tmp_path: Path) -> None:
    """A leaf certificate of 85 kB once made the crawl hang. The crawl must end by itself and fetch all pages."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(large_certificate(tmp_path))
    with Web({"/": page("/a", "/b"), "/a": page(text="a"), "/b": page(text="b")}, tls=context) as web:
        report = crawl(tmp_path / "crawl", f"https://localhost:{web.port}/", "--set", "fetch.tls=record")
        assert sorted(set(web.paths())) == ["/", "/a", "/b"]
    assert report["stopped_by"] == "done" and report["pages"]["fetched"] == 3


BAD = "bad.localhost"

# The methods in which a bug is planted. They are called in a fetch task, or in the decisions at the end of a
# task.
PLACES: list[tuple[Any, str]] = [
    (Resolver, "resolve"),
    (Client, "fetch"),
    (FetchRequests, "make"),
    (Reader, "read"),
    (RobotsCache, "recording"),
    (PageCache, "capture"),
    (Outcomes, "record_outcome"),
    (LinkFilter, "filter_links"),
]


@pytest.mark.parametrize(("where", "name"), PLACES, ids=lambda value: getattr(value, "__name__", value))
def test_a_bug_on_one_host_does_not_affect_others(
    where: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a planted bug raises an error for one host, the crawl finishes the other hosts with correct counts."""
    whole = getattr(where, name)
    raised = 0

    def broken(self: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal raised
        internal = any(getattr(argument, "outcome", "") == "internal_error" for argument in arguments)
        about = repr((arguments, options.get("body")))
        if BAD in about and "good." not in about and not internal and options.get("status", 1):
            raised += 1
            raise RuntimeError("planted")
        return whole(self, *arguments, **options)

    pages = {"/": page("/a", "/b"), "/a": page(text="a"), "/b": page(text="b")}
    with Web(pages) as web:
        web.routes["/robots.txt"] = lambda asked: f"# {asked.host}\nUser-agent: *\nDisallow: /b\n"
        monkeypatch.setattr(where, name, broken)
        report = crawl(
            tmp_path, web.url("/", "good.localhost"), web.url("/", BAD), "--set", "frontier.tries=1"
        )
        assert sorted(web.paths("good.localhost")) == ["/", "/a"]
    assert raised and report["stopped_by"] in ("done", "patience")
    good = {
        line["url"].rsplit("/", 1)[1]: line["outcome"] for line in lines(tmp_path) if BAD not in line["url"]
    }
    assert good == {"": "fetched", "a": "fetched", "b": "robots_denied"}


def test_sitemaps_do_not_count_against_the_page_limit_of_a_host(tmp_path: Path) -> None:
    """A host has ten times more sitemaps than its page limit.

    All pages of the host are fetched. Sitemaps have a separate limit.
    """
    with Web(
        {"/": page(*(f"/{n}" for n in range(9))), **{f"/{n}": page(text=str(n)) for n in range(9)}}
    ) as web:
        web.routes["/robots.txt"] = "".join(f"Sitemap: {web.url(f'/map{n}.xml')}\n" for n in range(100))
        limits = (
            "--pages-per-host",
            "10",
            "--set",
            "robots.sitemaps_max=60",
            "--set",
            "sitemaps.maps_per_host_max=40",
        )
        report = crawl(tmp_path, web.url(), *limits)
        maps = [path for path in web.paths() if path.startswith("/map")]
        assert sorted(set(web.paths()) - set(maps)) == ["/", *(f"/{n}" for n in range(9))]
    assert len(maps) == 40
    assert report["robots"]["sitemaps_ignored"] == 40
    assert report["frontier"]["parked_maps_per_host"] == 20


@pytest.mark.parametrize(
    ("where", "name"), [(Client, "close"), (Resolver, "close"), (Reader, "close"), (ControlServer, "close")]
)
def test_a_shutdown_step_that_hangs_is_abandoned(
    where: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step has a time limit, so the crawl ends cleanly. The log names the step that did not end.

    The limit is long enough for all other steps, even on a busy machine.
    """

    async def hang(_: Any) -> None:
        await asyncio.Event().wait()

    # the hanging step never closes its resources, so `gc.collect` would print warnings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        with Web({"/": page("/a"), "/a": page(text="a")}) as web:
            monkeypatch.setattr(where, name, hang)
            report = crawl(tmp_path, web.url(), "--set", "crawl.shutdown_step_max=2")
        gc.collect()
    assert report["stopped_by"] == "done" and report["pages"]["fetched"] == 2
    assert "did not end within 2 s" in (tmp_path / "crawler.log").read_text()


def test_the_links_of_a_page_are_one_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other work may interrupt the change after every two links. Even so, no link is lost or counted twice."""
    monkeypatch.setattr(portions, "PORTION_LINKS", 2)
    monkeypatch.setattr(commit_loop, "TURN", 0.0)
    paths = [f"/{n}" for n in range(60)]
    with Web(
        {"/": page(*paths, *paths[:30]), **{path: page("/", *paths, text=path) for path in paths}}
    ) as web:
        report = crawl(tmp_path, web.url())
        assert sorted(web.paths()) == sorted(["/", *paths])
    assert report["pages"]["fetched"] == 61 and report["urls"]["accepted"] == 1 + 60 + 60 * 61


def test_a_full_disk_gives_exit_code_75_and_keeps_the_seeds(tmp_path: Path) -> None:
    """The exit code was once 0, and the seed was lost."""
    full = ("--set", "store.stop_water_bytes=100000 GiB")
    report = crawl(tmp_path, "http://localhost:8/", *full, code=75)
    assert report["stopped_by"] == "disk" and report["frontier"]["todo"] == 1
    assert "store.stop_water_bytes" in (tmp_path / "crawler.log").read_text()


def test_truncated_bodies_are_counted(tmp_path: Path) -> None:
    with Web({"/": page("/a"), "/a": page(text="a" * 300_000)}) as web:
        report = crawl(tmp_path, f"http://localhost:{web.port}/", "--set", "fetch.body_bytes_max=100000")
    assert report["bodies"]["cut"] == 1 and report["run"]["bodies"]["cut"] == 1
    assert all(0.0 <= share <= 1.0 for share in report["why_slow"].values())


@contextlib.contextmanager
def hostile(kind: str, hosts: int, port: int) -> Iterator[None]:
    """Run `hosts` hosts of `tests/end_to_end/hostile_server.py` in a separate process."""
    command = [sys.executable, "-m", "tests.end_to_end.hostile_server", "--kind", kind]
    with subprocess.Popen(
        [*command, "--hosts", str(hosts), "--port", str(port)], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.terminate()


@pytest.mark.parametrize("concurrency", [10, 100])
def test_hosts_that_hang_hold_neither_all_fetch_slots_nor_the_last_pages_of_a_run(
    concurrency: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 hosts are crawled although 20 hanging hosts come first, and requests have no time limit.

    With 100 slots, requests to the hanging hosts once held all 20 pages that the run may fetch.
    """
    monkeypatch.setattr(slot_shares, "PROMPT_MAX", 0.1)
    port = free_port(address(80, 0))
    with hostile("hang", 20, port), hostile("healthy", 20, port):
        urls = [f"http://{address(network, n)}:{port}/" for network in (90, 80) for n in range(20)]
        limits = ("header_timeout", "silence_timeout", "total_timeout", "crowded_timeout")
        patient = [word for name in limits for word in ("--set", f"fetch.{name}=1000")]
        report = crawl(
            tmp_path,
            *urls,
            *patient,
            "--concurrency",
            concurrency,
            "--depth",
            "0",
            "--max-pages",
            20,
            "--max-time",
            300,
        )
    assert report["stopped_by"] == "max_pages" and report["pages"]["fetched"] == 20
