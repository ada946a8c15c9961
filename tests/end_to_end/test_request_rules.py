"""Test that the same rules apply to all kinds of requests, as the table in `fetcher/README.md` states.

Each kind of request has a host of its own. The hosts are endless: page n links to page n + 1, so each host always
has a URL that could be requested next.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from crawler.cli.loopback import free_port
from crawler.render.browser import find_program
from crawler.render.protocol import BrowserError
from tests.end_to_end.test_live import Running, ask
from tests.end_to_end.web import FAST, ReceivedRequest, Web, page, redirect

try:
    BROWSER = find_program("")
except BrowserError:
    BROWSER = ""

KEY = "0123456789abcdef"
AGENT = "rules"
TEXT = {"Content-Type": "text/plain"}
BUSY = (429, {"Retry-After": "7200"}, "slow down")
# For each kind of request, the path of the request on the host of this kind.
PATHS = {
    "page": "/2",
    "robots": "/robots.txt",
    "sitemap": "/map.xml",
    "feed": "/feed.xml",
    "requisite": "/image.png",
    "hop": "/robots-of-another-host.txt",
    "file": "/.well-known/tdmrep.json",
    "licence": "/license.xml",
    "external": "/2",
    "key": f"/{KEY}.txt",
    "hub": "/hub",
}
if BROWSER:
    PATHS |= {"browser": "/own.json", "elsewhere": "/foreign.json"}
# These hosts cause the requests to the hosts of other kinds. They are endless, too.
CAUSES = ("hopping", "licensed", "linking", "scripted")


def host_of(kind: str) -> str:
    return f"{kind}.site.localhost"  # one domain, so that one process owns all of these hosts


def script(url: str) -> str:
    return f"<script>fetch('{url}')</script>"


def routes_to(target: Callable[[str], str]) -> dict[str, Any]:
    """Return the answers that cause a request of each kind. `target` returns the URL of the request of a kind."""
    feed = f'<link rel="alternate" type="application/rss+xml" href="{target("feed")}">'
    to_external = page(
        "/1", text="".join(f'<a href="{target("external")}{end}">x</a>' for end in ("", "1", "2"))
    )
    made = {
        "sitemap/robots.txt": (200, TEXT, f"Sitemap: {target('sitemap')}\n"),
        "feed/": page("/1", head=feed),
        "requisite/": page("/1", text=f'<img src="{target("requisite")}">'),
        "hopping/robots.txt": redirect(target("hop")),
        "licensed/robots.txt": (200, TEXT, f"User-agent: *\nLicense: {target('licence')}\n"),
        "linking/": to_external,
    }
    if BROWSER:
        made["browser/"] = page("/1", text=script("/own.json"))
        made["scripted/"] = page("/1", text=script(target("elsewhere")))
    return {path.replace("/", ".site.localhost/", 1): answer for path, answer in made.items()}


def endless(asked: ReceivedRequest) -> Any:
    if not asked.path[1:].isdigit() and asked.path != "/":
        return 404, TEXT, ""
    return page(f"/{int(asked.path[1:] or 0) + 1}", text=f"{asked.host} {asked.path}")


@contextmanager
def running(folder: Path, target: Callable[[str], str], port: int, *flags: str) -> Iterator[Running]:
    """Run a crawl that makes a request of each kind. `port` is the port of the hosts."""
    seeds = [f"http://{host_of(kind)}:{port}/" for kind in (*PATHS, *CAUSES) if kind != "external"]
    serve = free_port()
    topic = f"http://{host_of('hub')}:{port}/0 {target('hub')}"
    tables = "".join(
        f'[[override]]\nmatch = "{host_of(kind)}"\nrender = "always"\n' for kind in ("browser", "scripted")
    )
    settings = (
        f'serve.websub = ["{topic}"]\nserve.public_url = "http://127.0.0.1:{serve}"\n'
        f'consent.tdmrep = true\nidentity.token = "{AGENT}"\n{tables if BROWSER else ""}'
    )
    folder.mkdir(exist_ok=True)
    (folder / "settings.toml").write_text(settings)
    more = ("--config", str(folder / "settings.toml"), "--scope", "host", "--requisites", "--check-external")
    crawl = Running(folder, seeds, *FAST, *more, *flags, serve=serve)
    try:
        notice = quote(f"http://{host_of('key')}:{port}/0")
        crawl.until(lambda: ask(serve, f"/indexnow?url={notice}&key={KEY}")[0] == 202)
        yield crawl
    finally:
        crawl.end()


@pytest.mark.parametrize("processes", ["1", "3"])
def test_after_a_429_to_a_request_of_any_kind_its_host_gets_no_request(
    tmp_path: Path, processes: str
) -> None:
    """Each request is answered with a Retry-After of two hours.

    The robots.txt files of two ports of one host are requests of one host.
    """
    with Web({}, other=endless) as web, Web({}, other=endless) as second:
        second.asked = web.asked

        def target(kind: str) -> str:
            return web.url(PATHS[kind], host_of(kind))

        web.routes = routes_to(target) | {host_of(kind) + path: BUSY for kind, path in PATHS.items()}
        second.routes = dict(web.routes)
        port = second.url("/", host_of("robots"))
        with running(tmp_path, target, web.port, port, "--processes", processes) as crawl:
            asked = {(host_of(kind), path) for kind, path in PATHS.items()}
            crawl.until(lambda: asked <= {(each.host, each.path) for each in list(web.asked)})
            far = len(web.paths(host_of("linking"))) + 15
            crawl.until(lambda: len(web.paths(host_of("linking"))) > far)
        left = {}
        for kind, path in PATHS.items():
            of_host = [each.path for each in web.asked if each.host == host_of(kind)]
            left[kind] = of_host[of_host.index(path) + 1 :]
    assert left == dict.fromkeys(PATHS, [])


ELSEWHERE = {"page", "robots", "sitemap", "requisite", "hop", "licence", "external", "hub"} | (
    {"elsewhere"} if BROWSER else set()
)


@pytest.mark.parametrize("open_", [False, True])
def test_no_kind_of_request_reaches_a_denied_address(tmp_path: Path, open_: bool) -> None:
    with Web({}, other=endless) as web, Web({}, address="::1", other=endless) as denied:

        def target(kind: str) -> str:
            return f"http://[::1]:{denied.port}/{kind}"

        def reached() -> set[str]:
            return {each.path[1:].split(".")[0] or "page" for each in denied.asked}

        web.routes = routes_to(target)
        flags = ("--allow-network", "::1/128") if open_ else ()
        with running(tmp_path, target, web.port, target("page"), *flags) as crawl:
            if open_:
                crawl.until(lambda: reached() >= ELSEWHERE)
            for kind in ("licensed", "linking", *(["scripted"] if BROWSER else [])):
                crawl.until(lambda kind=kind: len(web.paths(host_of(kind))) > 5)
            # robots.txt that redirects to a denied address is unreachable, so nothing of its host may be fetched
            assert open_ or web.paths(host_of("hopping")) == []
    assert open_ or denied.asked == []


def test_requests_of_all_kinds_use_the_proxy_and_have_the_same_identity(tmp_path: Path) -> None:
    with Web({}, other=endless) as proxy:
        closed = free_port()

        def target(kind: str) -> str:
            return f"http://{host_of(kind)}:{closed}{PATHS[kind]}"

        proxy.routes = routes_to(target)
        with running(tmp_path, target, closed, "--proxy", f"http://127.0.0.1:{proxy.port}") as crawl:
            asked = {(host_of(kind), path) for kind, path in PATHS.items()}
            crawl.until(lambda: asked <= {(each.host, each.path) for each in list(proxy.asked)})
        agents = {each.headers["User-Agent"] for each in proxy.asked}
    assert len(agents) == 1 and agents.pop().startswith(f"{AGENT}/")
