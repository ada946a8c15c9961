"""The web of `crawler demo`: six small hosts on loopback, each of which shows a feature of the real web.

manual    127.0.0.11    a manual: chapters, sections, one navigation on every page, gzip
shop      127.0.0.12    redirects, dead links, session ids; robots.txt forbids /cart; a sitemap
news      127.0.0.13    a feed, meta refresh, pages in windows-1252
busy      127.0.0.14    answers 429 with Retry-After to requests that come too fast
endless   127.0.0.15    a calendar without end, which only a depth limit stops
app       127.0.0.16    a tea shop that a script builds: without a browser its first page has neither text nor links

Articles change every few seconds (those with higher numbers less often), and the price of every fourth
product changes. Each page that may change has an ETag, and the server answers 304 until the page changes.
"""

import gzip
import time
from collections import deque
from collections.abc import Callable

from aiohttp import web

from crawler.cli.loopback import LoopbackSites

HOSTS = {
    "manual": "127.0.0.11",
    "shop": "127.0.0.12",
    "news": "127.0.0.13",
    "busy": "127.0.0.14",
    "endless": "127.0.0.15",
    "app": "127.0.0.16",
}
CHAPTERS, SECTIONS = 8, 6
PRODUCTS = 40
ARTICLES = 30
BUSY_PAGES = 20
BUSY_PER_SECOND = 8
TEAS = ("Assam", "Ceylon", "Darjeeling", "Gunpowder", "Keemun", "Lapsang", "Oolong", "Sencha", "Yunnan")

_APP_PAGE = '<!doctype html><title>Tea</title><div id="root"></div><script src="/app.js"></script>'
_APP_SCRIPT = """const root = document.getElementById("root");
fetch("/teas.json").then((answer) => answer.json()).then((teas) => {
  const shown = teas.find((tea) => `/tea/${tea.name}` === location.pathname);
  document.title = shown ? shown.name : "The tea shop";
  root.innerHTML = `<h1>${document.title}</h1><p>${shown ? shown.text : "All teas"}</p>` +
    teas.map((tea) => `<a href="/tea/${tea.name}">${tea.name}</a>`).join(" ");
});
"""


def page(title: str, *links: str, text: str = "") -> str:
    """Return an HTML page with a list of links."""
    items = "".join(f'<li><a href="{link}">{link}</a></li>' for link in links)
    words = text or f"{title} is a page of the demonstration. " * 20
    return f"<!doctype html><title>{title}</title><h1>{title}</h1><p>{words}</p><ul>{items}</ul>"


def _period(host: str, name: str) -> float:
    """Return the seconds between two changes of a page; 0 if it never changes."""
    digits = name.rpartition("/" if host == "news" else " ")[2]
    number = int(digits) if digits.isascii() and digits.isdigit() else 0
    if host == "news":
        return 2.0 + 0.5 * number
    return 6.0 + 0.25 * number if host == "shop" and number % 4 == 1 else 0.0


class DemoWeb(LoopbackSites):
    """Serves the six hosts on one port until it is closed. Use it as an async context manager."""

    def __init__(self) -> None:
        super().__init__(self._answer, HOSTS.values())
        self._busy: deque[float] = deque()
        # Pages change from the start, so that the crawl's forecast rests on change rates that stay the same.
        self._started = time.monotonic()
        self._sent: dict[tuple[str, str], int] = {}  # (host, page) -> the version that was sent last
        self._answers: dict[str, Callable[[web.BaseRequest], web.Response]] = {
            "manual": self._manual,
            "shop": self._shop,
            "news": self._news,
            "busy": self._busy_host,
            "endless": self._endless,
            "app": self._app,
        }

    def url(self, host: str, path: str = "/") -> str:
        return f"http://{HOSTS[host]}:{self.port}{path}"

    def seeds(self) -> list[str]:
        return [self.url("manual")]

    # -- change

    def current(self) -> tuple[int, int, int]:
        """Return three numbers: the number of current pages, of pages that change, and of changes so far.

        A page is current if its latest version was sent. Only pages that change and were sent are counted.
        """
        now = {key: self._version(*key) for key in self._sent if _period(*key)}
        return sum(self._sent[key] == version for key, version in now.items()), len(now), sum(now.values())

    def _version(self, host: str, name: str) -> int:
        period = _period(host, name)
        return int((time.monotonic() - self._started) / period) if period else 0

    def _versioned(self, request: web.BaseRequest, host: str, title: str, text: str) -> web.Response:
        """Return the present version of a page, or 304 if the client has it."""
        version = self._version(host, title)
        self._sent[host, title] = version
        tag = f'"{title}-{version}"'.replace(" ", "-")
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        shown = page(title, "/", text=f"Version {version}. {text}")
        kind = "text/html; charset=windows-1252" if host == "news" else "text/html; charset=utf-8"
        body = shown.encode("cp1252" if host == "news" else "utf-8")
        return web.Response(body=body, headers={"Content-Type": kind, "ETag": tag})

    # -- answers

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        name = next((name for name, address in HOSTS.items() if request.host.startswith(address + ":")), "")
        return self._answers[name](request) if name else web.Response(status=404)

    @staticmethod
    def _html(text: str, **more: object) -> web.Response:
        return web.Response(text=text, content_type="text/html", **more)  # type: ignore[arg-type]

    def _manual(self, request: web.BaseRequest) -> web.Response:
        chapters = [f"/chapter{n}/" for n in range(1, CHAPTERS + 1)]
        others = [self.url(name) for name in HOSTS]
        parts = request.path.strip("/").split("/")
        if request.path == "/":
            text = page("The manual", *chapters, *others)
        elif f"/{parts[0]}/" not in chapters or len(parts) > 2:
            return web.Response(status=404)
        elif len(parts) == 1:
            text = page(
                f"Chapter {parts[0][7:]}",
                "/",
                *chapters,
                *(f"section{n}.html" for n in range(1, SECTIONS + 1)),
            )
        else:
            text = page(f"{parts[0]}, {parts[1]}", "./", "/", *chapters)
        body = gzip.compress(text.encode(), 1)
        return web.Response(body=body, content_type="text/html", headers={"Content-Encoding": "gzip"})

    def _shop(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/robots.txt":
            return web.Response(
                text=f"User-agent: *\nDisallow: /cart\nSitemap: {self.url('shop', '/sitemap.xml')}\n"
            )
        if request.path == "/sitemap.xml":
            urls = "".join(f"<url><loc>{self.url('shop', f'/hidden/{n}')}</loc></url>" for n in range(10))
            return web.Response(text=f"<urlset>{urls}</urlset>", content_type="application/xml")
        if request.path == "/old":
            raise web.HTTPMovedPermanently("/product?id=1")
        if request.path == "/":
            products = [f"/product?id={n}&amp;PHPSESSID=0123456789abcdef{n:016x}" for n in range(PRODUCTS)]
            return self._html(page("The shop", "/old", "/cart", "/gone", *products))
        if request.path == "/product" or request.path.startswith("/hidden/"):
            title = f"{request.path} {request.query.get('id', '')}".strip()
            return self._versioned(request, "shop", title, "Two for the price of three. " * 20)
        return web.Response(status=404)

    def _news(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/":
            text = '<!doctype html><title>News</title><link rel="alternate" type="application/rss+xml" href="/feed.xml">'
            return self._html(text + '<meta http-equiv="refresh" content="60; url=/today">')
        if request.path == "/feed.xml":
            items = "".join(
                f"<item><link>{self.url('news', f'/article/{n}')}</link></item>" for n in range(ARTICLES)
            )
            return web.Response(
                text=f"<rss><channel>{items}</channel></rss>", content_type="application/rss+xml"
            )
        if request.path == "/today" or request.path.startswith("/article/"):
            return self._versioned(request, "news", request.path, "Caf\xe9 cr\xe8me. " * 60)
        return web.Response(status=404)

    def _busy_host(self, request: web.BaseRequest) -> web.Response:
        now = time.monotonic()
        while self._busy and now - self._busy[0] > 1.0:
            self._busy.popleft()
        if len(self._busy) >= BUSY_PER_SECOND:
            return web.Response(status=429, headers={"Retry-After": "1"})
        self._busy.append(now)
        return self._html(page(f"Busy {request.path}", *(f"/page/{n}" for n in range(BUSY_PAGES))))

    def _endless(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/robots.txt":
            return web.Response(status=404)
        day = int(request.query.get("day", "0")) if request.query.get("day", "0").isdigit() else 0
        return self._html(page(f"Day {day}", f"/calendar?day={day + 1}"))

    def _app(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/app.js":
            return web.Response(text=_APP_SCRIPT, content_type="text/javascript")
        if request.path == "/teas.json":
            return web.json_response([{"name": tea, "text": f"{tea} is a tea. " * 20} for tea in TEAS])
        if request.path == "/" or request.path.removeprefix("/tea/") in TEAS:
            return self._html(_APP_PAGE)
        return web.Response(status=404)
