"""Test stored pages in a real Chromium: their links lead to other stored pages, and a hostile page is confined."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crawler.records import Outcome
from tests.browser.chromium import PROGRAM, Page, browser
from tests.serve.support import Served

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium")

SITE = "http://site.example/"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
HOSTILE = b"""<!doctype html><title>quiet</title>
<meta http-equiv=refresh content="0;url=http://elsewhere.example/refreshed">
<script>document.title = 'script ran'; top.location = 'http://elsewhere.example/busted';
navigator.serviceWorker.register('/page?url=http://site.example/sw.js');
fetch('/do', {method: 'POST'}); document.cookie = 'a=b';</script>
<script src=sw.js></script><script src=http://elsewhere.example/x.js></script>
<img src=x onerror="document.title = 'handler ran'"><svg onload="document.title = 'svg ran'"></svg>
<iframe src="javascript:parent.document.title='frame ran'"></iframe>
<iframe srcdoc="<script>top.document.title = 'srcdoc ran'</script>"></iframe>
<object data=data:text/html,x></object><embed src=sw.js>
<link rel=stylesheet href=http://elsewhere.example/x.css><link rel=preload as=image href=http://elsewhere.example/p.png>
<form id=f action=http://elsewhere.example/form><input name=a></form><base target=_top>
<body onload="document.title = 'load ran'; f.submit()"><p id=p>still here</p>"""


@asynccontextmanager
async def show(tmp_path: Path, *flags: str) -> AsyncIterator[tuple[Served, Page]]:
    served = Served(tmp_path / "cache")
    pages = {
        "": b"<title>one</title><link rel=stylesheet href=s.css><img id=i src=i.png><a id=a href=two#x>two</a>",
        "two": b"<title>two</title><h1 id=x>two</h1>",
        "hostile": HOSTILE,
    }
    for name, body in pages.items():
        served.store(SITE + name, body)
    kinds = {
        "s.css": (b"text/css", b"@import 'more.css';"),
        "more.css": (b"text/css", b"body { color: rgb(1, 2, 3); background: url(i.png) }"),
        "i.png": (b"image/png", PNG),
        "sw.js": (b"text/javascript", b"document.title = 'file ran'"),
    }
    for name, (kind, body) in kinds.items():
        headers = ((b"Content-Type", kind), (b"Service-Worker-Allowed", b"/"))
        served.store(SITE + name, body, headers=headers, content_type=kind.decode())
    async with served, browser(tmp_path / "profile", *flags) as page:
        yield served, page


async def test_links_and_resources_of_stored_pages_come_from_the_cache(tmp_path: Path) -> None:
    """Images, style sheets, their imports and followed links come from the cache.

    The browser requests nothing else.
    """

    async with show(tmp_path) as (served, page):
        base = f"http://127.0.0.1:{served.port}"
        await page.open(f"{base}/page?url={SITE}&rewrite=1")
        assert await page.evaluate("document.title") == "one"
        await page.until("getComputedStyle(document.body).color === 'rgb(1, 2, 3)'")
        assert await page.until("document.getElementById('i').naturalWidth") == 1
        target = await page.evaluate("document.getElementById('a').href")
        assert target.endswith("&rewrite=1#x")
        await page.open(target)
        await page.until("document.title === 'two'")
        assert {url.split("/")[2] for url in page.requests if url.startswith("http")} == {base[7:]}
        for url in page.requests:
            assert url.startswith((f"{base}/page?url=", f"{base}/favicon.ico", "data:")), url


@pytest.mark.parametrize("more", ["", "&rewrite=1"])
async def test_a_hostile_page_is_confined(tmp_path: Path, more: str) -> None:
    """The page is displayed, but runs no script, frame, refresh, form or worker, and contacts no other host."""

    async with show(tmp_path, "--host-resolver-rules=MAP elsewhere.example 127.0.0.1:9") as (served, page):
        address = f"http://127.0.0.1:{served.port}/page?url={SITE}hostile{more}"
        await page.open(address)
        await page.settled()  # the attacks start when the page loads
        assert await page.evaluate("location.href") == address
        assert await page.evaluate("document.title") == "quiet"
        assert await page.evaluate("document.getElementById('p').textContent") == "still here"
        assert not [url for url in page.requests if "/do" in url]
        foreign = [
            url for url in page.requests if url.startswith("http") and f"127.0.0.1:{served.port}" not in url
        ]
        assert not any("elsewhere.example/" in url and "/page?" not in url for url in page.frames)
        assert foreign == [] or set(foreign) <= set(page.blocked), foreign


@pytest.mark.parametrize("more", ["", "&rewrite=1"])
async def test_a_stored_redirect_leads_to_the_copy_of_its_target(tmp_path: Path, more: str) -> None:
    """For a stored 302 answer, the browser once showed a blank page or left the cache."""

    async with show(tmp_path) as (served, page):
        moved = ((b"Location", b"/two"),)
        served.store(SITE + "moved", b"", status=302, reason="Found", outcome=Outcome.REDIRECT, headers=moved)
        base = f"http://127.0.0.1:{served.port}"
        await page.open(f"{base}/page?url={SITE}moved{more}")
        assert await page.evaluate("document.title") == "two"
        assert await page.evaluate("location.href") == f"{base}/page?url={SITE}two{more}"


@pytest.mark.parametrize(
    ("body", "kind", "field"),
    [
        (b"<title>moved</title><meta http-equiv=refresh content='0; url=two'>", b"text/html", b""),
        (b"<title>moved</title>", b"text/html", b"5; url=/two"),
        (
            b"<html xmlns='http://www.w3.org/1999/xhtml'><head><title>moved</title>"
            b"<meta http-equiv='refresh' content='0; url=two'/></head><body><p>moved</p></body></html>",
            b"application/xhtml+xml",
            b"",
        ),
        ("<title>moved</title><meta http-equiv=refresh content='0; url=two'>".encode("utf-16"), b"text/html", b""),
    ],
    ids=["meta", "field", "XHTML", "UTF-16"],
)  # fmt: skip
async def test_a_page_that_sends_its_readers_on_links_to_its_target(
    tmp_path: Path, body: bytes, kind: bytes, field: bytes
) -> None:
    """Chromium ignores a refresh in a sandbox without scripts, so such a page was once a dead end."""

    async with show(tmp_path) as (served, page):
        fields = ((b"Content-Type", kind), *(((b"Refresh", field),) if field else ()))
        served.store(SITE + "moved", body, headers=fields, content_type=kind.decode())
        base = f"http://127.0.0.1:{served.port}"
        await page.open(f"{base}/page?url={SITE}moved&rewrite=1")
        assert await page.evaluate("document.title") == "moved"
        assert await page.evaluate("document.body.innerText") in (
            f"This page sends its readers on to {SITE}two",
            f"moved\n\nThis page sends its readers on to {SITE}two",
        )
        await page.evaluate("document.links[0].click()")
        await page.until("document.title === 'two'")
        assert await page.evaluate("location.href") == f"{base}/page?url={SITE}two&rewrite=1"
        served.store(SITE + "news", b"<title>news</title><meta http-equiv=refresh content='300; url=news'>")
        await page.open(f"{base}/page?url={SITE}news&rewrite=1")
        assert await page.evaluate("document.body.innerText") == "", "a page that reloads itself"


async def test_a_browser_that_uses_the_cache_as_a_proxy(tmp_path: Path) -> None:
    """The cache acts as a proxy for stored pages.

    For other pages, it returns an error and fetches nothing.
    """

    async def talk(served: Served, page: Page) -> None:
        await page.open(f"{SITE}two")
        assert await page.evaluate("document.querySelector('h1').textContent") == "two"
        await page.open(f"{SITE}missing")
        assert "This page is not in the cache" in await page.evaluate("document.body.textContent")

    served = Served(tmp_path / "cache")
    served.store(SITE + "two", b"<title>two</title><h1>two</h1>")

    async with served:
        flag = f"--proxy-server=http://127.0.0.1:{served.port}"
        async with browser(tmp_path / "profile", flag) as page:
            await talk(served, page)
