"""Test the web behaviour described in `fetcher/README.md` from end to end, on a real server."""

import gzip
import ssl
from itertools import product
from pathlib import Path

import pytest

from tests.end_to_end.web import (
    Answer,
    ReceivedRequest,
    Web,
    crawl,
    lines,
    outcomes,
    page,
    redirect,
    run,
    tunnels,
)


def test_each_scope_accepts_the_right_links(tmp_path: Path) -> None:
    """For each scope, exactly the expected links are fetched."""
    with Web({}) as web:
        hosts = ("a.localhost", "www.a.localhost", "sub.a.localhost", "b.localhost")
        links = [web.url(path, host) for host in hosts for path in ("/dir/in", "/out")]
        web.routes["/dir/"] = page(*links)
        spans = {}
        for scope in ("prefix", "host", "domain", "any"):
            web.asked.clear()
            crawl(tmp_path / scope, web.url("/dir/", "a.localhost"), "--scope", scope)
            spans[scope] = {
                (asked.host, asked.path) for asked in web.asked if asked.path.endswith(("in", "out"))
            }
    assert spans["prefix"] == {("a.localhost", "/dir/in")}
    assert spans["host"] == {(host, path) for host in hosts[:2] for path in ("/dir/in", "/out")}
    assert spans["domain"] == {(host, path) for host in hosts[:3] for path in ("/dir/in", "/out")}
    assert spans["any"] == {(host, path) for host in hosts for path in ("/dir/in", "/out")}


def test_only_redirects_of_seeds_extend_the_scope(tmp_path: Path) -> None:
    """If a seed redirects, the target is added to the scope. If another page redirects, the target is not added."""
    with Web(
        {"b.localhost/": page("/more", "/away"), "b.localhost/away": redirect("http://c.localhost/")}
    ) as web:
        web.routes["a.localhost/"] = redirect(web.url("/", "b.localhost"), 301)
        web.routes["b.localhost/away"] = redirect(web.url("/", "c.localhost"))
        crawl(tmp_path, web.url("/", "a.localhost"))
        assert web.paths("b.localhost") == ["/", "/more", "/away"]
        assert web.paths("c.localhost") == []


def test_a_redirect_to_a_url_with_the_same_key_is_followed(tmp_path: Path) -> None:
    """Examples are a redirect that sets a cookie and leads to the same page, and one to another spelling of the path."""

    def wall(asked: ReceivedRequest) -> tuple[int, dict[str, str], str]:
        if "seen=1" in asked.headers.get("Cookie", ""):
            return 200, {}, page(text="behind the wall")
        return 302, {"Location": "/wall", "Set-Cookie": "seen=1"}, ""

    with Web({"/": page("/wall", "/%7Eu", "/plain"), "/wall": wall, "/~u": page(text="home")}) as web:
        web.routes["/%7Eu"] = redirect("/~u")
        web.routes["/plain"] = lambda asked: page(text=asked.headers.get("Cookie", "no cookie"))
        crawl(tmp_path, web.url())
        assert sorted(web.paths()) == ["/", "/%7Eu", "/plain", "/wall", "/wall", "/~u"]
        assert set(outcomes(tmp_path).values()) == {"fetched"}
        assert b"no cookie" in run("get", web.url("/plain"), "--dir", tmp_path).out
        assert b"behind the wall" in run("get", web.url("/wall"), "--dir", tmp_path).out


def test_redirect_loops_and_long_chains_end(tmp_path: Path) -> None:
    """A page that redirects to itself is fetched once or twice. A chain of redirects is followed for ten hops."""
    chain = {f"/chain{n}": redirect(f"/chain{n + 1}") for n in range(20)}
    with Web({"/": page("/self", "/ping", "/chain0"), "/self": redirect("/self"), **chain}) as web:
        web.routes |= {"/ping": redirect("/pong"), "/pong": redirect("/ping")}
        report = crawl(tmp_path, web.url())
        assert web.paths().count("/self") <= 2
        assert web.paths().count("/ping") == web.paths().count("/pong") == 1
        assert [path for path in web.paths() if "chain" in path] == [f"/chain{n}" for n in range(11)]
    assert outcomes(tmp_path)["/self"] == "bad_redirect"
    assert report["urls"]["filtered"]["redirect_chain"] == 1


def test_links_in_meta_refresh_and_feeds_and_robots_directives(tmp_path: Path) -> None:
    """Links are read from meta refresh and feeds, but not from nofollow pages.

    Noarchive pages are stored but not shown.
    """
    with Web(
        {
            "/": page("/nofollow", "/noindex", "/noarchive", "/feed"),
            "/nofollow": page("/hidden", head="<meta name=robots content=nofollow>"),
            "/noindex": (200, {"X-Robots-Tag": "noindex"}, page("/found", text="noindex")),
            "/noarchive": page(
                "/",
                head='<meta name="crawler" content="noarchive"><meta http-equiv=refresh content="0;url=/next">',
            ),
            "/feed": (
                200,
                {"Content-Type": "application/rss+xml"},
                "<rss><item><link>/item</link></item></rss>",
            ),
        }
    ) as web:
        crawl(tmp_path, web.url())
        asked = web.paths()
        assert {"/found", "/next", "/item"} <= set(asked)
        assert "/hidden" not in asked
        assert "noindex: True" in run("why", web.url("/noindex"), "--dir", tmp_path).text
        assert run("get", web.url("/noarchive"), "--dir", tmp_path).code == 4
        assert run("get", web.url("/noarchive"), "--dir", tmp_path, "--with-noarchive").code == 0
        for form in ("warc", "links", "cdxj"):
            shown = run("export", "--dir", tmp_path, "--format", form).out
            every = run("export", "--dir", tmp_path, "--format", form, "--with-noarchive").out
            assert len(shown) < len(every), form


@pytest.mark.parametrize("kept", ["304", "200"])
def test_a_later_noarchive_withholds_the_copies(tmp_path: Path, kept: str) -> None:
    """Once, if a page began to forbid copies without changing its text, it was still shown.

    This happened with every document that is not HTML, such as a PDF.
    """
    said: dict[str, str] = {}
    meta = ""

    def answer(asked: ReceivedRequest) -> Answer:
        if kept == "304" and "If-None-Match" in asked.headers:
            return 304, {"ETag": '"1"'} | said, ""
        return 200, {"ETag": '"1"'} | said, page("/meta", "/document", text=asked.path)

    def own(asked: ReceivedRequest) -> Answer:
        return page(text="the text", head=meta)

    def document(asked: ReceivedRequest) -> Answer:
        return 200, {"Content-Type": "application/pdf"} | said, b"%PDF-1.4"

    shown = {"/": 0, "/meta": 0, "/document": 0}
    with Web({"/": answer, "/meta": own, "/document": document}) as web:
        flags = ("--set", "pages.change=text", "--timestamping")
        crawl(tmp_path, web.url(), *flags[:2])
        assert {path: run("get", web.url(path), "--dir", tmp_path).code for path in shown} == shown
        said["X-Robots-Tag"], meta = "noarchive", "<meta name=robots content=noarchive>"
        crawl(tmp_path, *flags)
        assert {run("get", web.url(path), "--dir", tmp_path).code for path in shown} == {4}
        assert b"/meta" not in run("export", "--dir", tmp_path, "--format", "cdxj").out
        said["X-Robots-Tag"], meta = "all", ""
        crawl(tmp_path, *flags)
        assert {path: run("get", web.url(path), "--dir", tmp_path).code for path in shown} == shown


def test_robots_txt_is_obeyed_and_sitemaps_are_read(tmp_path: Path) -> None:
    """Rules are obeyed.

    Sitemaps that robots.txt names are read, even if gzipped. /sitemap.xml is read only if guessing is
    allowed.
    """

    def urlset(*paths: str) -> str:
        return f"<urlset>{''.join(f'<url><loc>{web.url(path)}</loc></url>' for path in paths)}</urlset>"

    with Web({"/": page("/private/x", "/public")}) as web:
        web.routes |= {
            "/robots.txt": f"User-agent: *\nDisallow: /private\nSitemap: {web.url('/index.xml')}\n",
            "/index.xml": f"<sitemapindex><sitemap><loc>{web.url('/map.xml.gz')}</loc></sitemap></sitemapindex>",
            "/map.xml.gz": gzip.compress(urlset("/from-map", "/private/y").encode()),
            "/sitemap.xml": urlset("/guessed"),
        }
        crawl(tmp_path / "named", web.url())
        assert "/from-map" in web.paths() and "/guessed" not in web.paths()
        assert not [path for path in web.paths() if path.startswith("/private")]
        assert outcomes(tmp_path / "named")["/private/y"] == "robots_denied"
        crawl(tmp_path / "guessed", web.url(), "--set", "sitemaps.guess=true")
        assert "/guessed" in web.paths()
        crawl(tmp_path / "ignored", web.url(), "--robots", "ignore")
        assert "/private/x" in web.paths()


def test_traps_and_duplicate_pages(tmp_path: Path) -> None:
    """Paths with repeating segments are cut off.

    Once two pages have equal content, links of further copies are ignored.
    """
    with Web({"/": page(*(f"/copy?n={n}" for n in range(6)), "/loop/", text="start")}) as web:
        web.routes |= {f"/copy?n={n}": page("/copied", text="copy") for n in range(6)}
        web.routes |= {"/" + "loop/" * (n + 1): page("loop/", text=str(n)) for n in range(9)}
        report = crawl(tmp_path, web.url(), "--set", "traps.same_digest_pages_max=2")
        assert max(path.count("loop/") for path in web.paths()) <= 3
    assert report["pages"]["links_not_taken"] == 4
    assert report["urls"]["filtered"]["repeated_segments"] == 1


@pytest.mark.parametrize("processes", ["1", "3"])
def test_a_soft_404_trap_gets_forty_requests(tmp_path: Path, processes: str) -> None:
    """Each URL of the host shows the same page with four relative links, which lead to new URLs.

    By default, the links of ten copies are followed. One of them, /a/a/a/, repeats a segment too often.
    """
    paths = [
        f"/{''.join(f'{name}/' for name in names)}" for n in range(5) for names in product("abcd", repeat=n)
    ]
    with Web(dict.fromkeys(paths, page("a/", "b/", "c/", "d/", text="Not found"))) as web:
        crawl(tmp_path, web.url(), "--processes", processes)
        assert len(web.paths()) == len(set(web.paths())) == 1 + 10 * 4 - 1


def test_session_ids_do_not_make_new_pages(tmp_path: Path) -> None:
    spellings = (f"/p?id=1&PHPSESSID={n:032x}" for n in range(5))
    with Web({"/": page(*spellings)}) as web:
        crawl(tmp_path, web.url())
        assert len([path for path in web.paths() if path.startswith("/p?")]) == 1


def test_requisites_are_fetched_from_any_host(tmp_path: Path) -> None:
    """Requisites of a page are fetched from any host. Other pages of the hosts of requisites are not crawled."""
    with Web({}) as web:
        image = web.url("/i.png", "cdn.localhost")
        web.routes["a.localhost/"] = f'<link rel=stylesheet href=/s.css><img src="{image}">'
        crawl(tmp_path / "without", web.url("/", "a.localhost"))
        assert web.paths() == ["/"]
        crawl(tmp_path / "with", web.url("/", "a.localhost"), "--requisites")
        assert set(web.paths()) == {"/", "/s.css", "/i.png"}


def test_requisites_of_style_sheets_and_frames_are_fetched(tmp_path: Path) -> None:
    """Requisites of style sheets and frames are fetched.

    Links in frames are not followed. Endless chains are limited.
    """

    def sheet(asked: ReceivedRequest) -> tuple[int, dict[str, str], str]:
        number = int(asked.path.removeprefix("/endless"))
        return 200, {"Content-Type": "text/css"}, f'@import "/endless{number + 1}";'

    css = {"Content-Type": "text/css"}
    with Web({f"/endless{n}": sheet for n in range(30)}) as web:
        frame = web.url("/frame", "other.localhost")
        web.routes |= {
            "a.localhost/": f'<link rel=stylesheet href=/a.css><iframe src="{frame}"></iframe>'
            "<style>@import '/endless0'; p{background:url(/inline.png)}</style><p style='background:url(/p.png)'>",
            "/a.css": (200, css, "@import url(/b.css?v=1); /* url(/no.png) */ p{background:url('/a.png')}"),
            "/b.css?v=1": (200, css, "@font-face{src:url(f.woff?#iefix),url(f.woff) format('woff')}"),
            "/frame": "<a href=/no><img src=in-frame.png>",
        }
        crawl(tmp_path, web.url("/", "a.localhost"), "--requisites", "--depth", "0")
        asked = web.paths()
    needed = [
        "/a.css",
        "/b.css?v=1",
        "/a.png",
        "/f.woff?",
        "/f.woff",
        "/inline.png",
        "/p.png",
        "/in-frame.png",
    ]
    assert set(needed) <= set(asked)
    assert not {"/no", "/no.png"} & set(asked)
    # the first request and `fetch.redirects_max` further hops
    assert len([path for path in asked if path.startswith("/endless")]) == 11


def test_with_a_proxy_no_host_is_resolved_locally(tmp_path: Path) -> None:
    """Hosts that the local resolver does not know are fetched, because the proxy resolves them."""
    with Web({"/": page("/next")}) as web:
        crawl(tmp_path, "http://no-such-host.invalid/", "--proxy", web.url())
        assert [(asked.host, asked.path) for asked in web.asked] == [
            ("no-such-host.invalid", path) for path in ("/robots.txt", "/", "/next")
        ]


def test_overrides_apply_to_matching_requests(tmp_path: Path) -> None:
    """The headers, body limit and robots policy of an [[override]] apply only to URLs that it matches."""
    config = tmp_path / "config.toml"
    config.write_text(
        '[[override]]\nmatch = "b.localhost"\nheaders = ["X-Part: b"]\n'
        'body_bytes_max = 100\nrobots = "ignore"\n'
        '[[override]]\nmatch = "*.localhost"\ntotal_timeout = 30\ndepth = 1\n'
    )
    with Web({"/robots.txt": "User-agent: *\nDisallow: /private"}) as web:
        web.routes |= {
            "/": page("/private"),
            "/private": page(text="x" * 5000),
            "/long": page(text="x" * 5000),
        }
        seeds = [web.url(path, host) for host in ("a.localhost", "b.localhost") for path in ("/", "/long")]
        crawl(tmp_path / "crawl", "--config", config, *seeds)
        assert "/private" in web.paths("b.localhost") and "/private" not in web.paths("a.localhost")
        assert {asked.headers.get("X-Part") for asked in web.asked if asked.host == "b.localhost"} == {"b"}
        assert {asked.headers.get("X-Part") for asked in web.asked if asked.host == "a.localhost"} == {None}
    ended = {line["url"]: line["outcome"] for line in lines(tmp_path / "crawl")}
    assert ended[seeds[1]] == "fetched"
    assert "truncated" in next(line for line in lines(tmp_path / "crawl") if line["url"] == seeds[3])


def test_https_through_a_proxy_tunnel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client checks the site's certificate, so the proxy cannot read the content. Pages are stored as usual."""
    data = Path(__file__).parent.parent / "data" / "fetcher"
    monkeypatch.setenv("SSL_CERT_FILE", str(data / "authority.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(data / "host.test.pem")
    with (
        Web({"/": page("/a"), "/a": page(text="a")}, tls=context) as web,
        tunnels(web.port) as (proxy, asked),
    ):
        site = f"https://host.test:{web.port}"
        crawl(tmp_path, f"{site}/", "--proxy", proxy)
        assert web.paths("host.test") == ["/", "/a"]
    assert set(asked) == {f"host.test:{web.port}"}
    assert outcomes(tmp_path) == {"/": "fetched", "/a": "fetched"}
    assert run("get", f"{site}/a", "--dir", tmp_path).text == page(text="a")
