"""Test signed requests over real sockets.

The signatures are checked by a verifier of HTTP message signatures from another project.
"""

import json
from base64 import b64decode, b64encode, urlsafe_b64decode
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from fastwarc.warc import ArchiveIterator, WarcRecordType
from http_message_signatures import (
    HTTPMessageVerifier,
    HTTPSignatureKeyResolver,
    InvalidSignature,
    algorithms,
)

import crawler
from crawler.render.browser import find_program
from crawler.render.protocol import BrowserError
from crawler.signing.key_file import read_keys
from crawler.signing.message_signatures import key_id_of
from tests.end_to_end.web import Answer, ReceivedRequest, Web, crawl, lines, page, redirect, run, uncompressed

AGENT = "https://bot.example"
ASKS = {"Accept-Signature": 'sig1=("@authority" "signature-agent");tag="web-bot-auth"'}


class Published(HTTPSignatureKeyResolver):
    """The keys of a key directory, as a site has them after it fetched the directory."""

    def __init__(self, directory: str) -> None:
        self.rows = {row["kid"]: row for row in json.loads(directory)["keys"]}

    def resolve_public_key(self, key_id: str) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(urlsafe_b64decode(self.rows[key_id]["x"] + "="))

    def resolve_private_key(self, key_id: str) -> Any:
        raise AssertionError


class Message:
    """A received request in the form that the verifier reads."""

    def __init__(self, asked: ReceivedRequest, authority: str) -> None:
        self.method, self.headers = asked.method, dict(asked.headers)
        self.url = f"http://{authority}{asked.path}"


class Site:
    """A site that verifies requests.

    A request is judged as True if its signature is valid, False if it is invalid, and None if the request is
    not signed.
    """

    def __init__(self, directory: str) -> None:
        resolver = Published(directory)
        self._verifier = HTTPMessageVerifier(signature_algorithm=algorithms.ED25519, key_resolver=resolver)

    def judge(self, asked: ReceivedRequest) -> bool | None:
        if "Signature" not in asked.headers:
            return None
        member = asked.headers["Signature-Agent"].startswith("sig=")
        agent = '"signature-agent";key="sig"' if member else '"signature-agent"'
        try:
            (result,) = self._verifier.verify(
                Message(asked, asked.headers["Host"]),
                expect_tag="web-bot-auth",
                require_components=('"@authority"', agent),
            )
        except InvalidSignature:
            return False
        return AGENT in result.covered_components[agent]


def settings(profile: str = "dictionary", **more: str) -> tuple[str, ...]:
    values = {"signature": profile, "signature_agent": AGENT} | more
    return tuple(part for name, value in values.items() for part in ("--set", f"identity.{name}={value}"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a crawl directory with a key."""
    made = run("key", "new", "--dir", tmp_path / "crawl")
    assert made.code == 0, made
    return tmp_path / "crawl"


def site_of(directory: Path) -> Site:
    return Site(run("key", "show", "--json", "--dir", directory).text)


@pytest.mark.parametrize(("profile", "processes"), [("dictionary", 3), ("string", 1)])
def test_another_verifier_accepts_every_request(directory: Path, profile: str, processes: int) -> None:
    """Requests for pages, robots.txt, sitemaps and redirect targets are signed.

    All requests to a host have the same signature.
    """
    hosts = [f"h{number}.localhost" for number in range(6)]
    with Web({"/in": page(text="in"), "/robots.txt": (404, {}, "")}) as web:
        web.routes["/"] = page("/in", "/moved", *(web.url("/", host) for host in hosts))
        web.routes["/moved"] = redirect(web.url("/moved-in", "other.localhost"))
        web.routes["other.localhost/moved-in"] = page(text="moved")
        web.routes["/robots.txt"] = (200, {"Content-Type": "text/plain"}, f"Sitemap: {web.url('/map.xml')}\n")
        web.routes["/map.xml"] = (
            200, {"Content-Type": "application/xml"}, f"<urlset><url><loc>{web.url('/in')}</loc></url></urlset>",
        )  # fmt: skip
        crawl(
            directory, *(web.url("/", host) for host in hosts), "--processes", processes, *settings(profile),
            "--scope", "any",
        )  # fmt: skip
        site = site_of(directory)
        assert {asked.path for asked in web.asked} >= {"/", "/in", "/robots.txt", "/map.xml", "/moved-in"}
        assert {asked.host for asked in web.asked} >= {*hosts, "other.localhost"}
        assert [asked for asked in web.asked if site.judge(asked) is not True] == []
        by_host: dict[str, set[str]] = {}
        for asked in web.asked:
            by_host.setdefault(asked.headers["Host"], set()).add(asked.headers["Signature"])
        assert all(len(signatures) == 1 for signatures in by_host.values())
        moved = web.asked[0]._replace(headers=dict(web.asked[0].headers) | {"Host": "impostor.example"})
        assert site.judge(moved) is False, "a signature is valid for one authority"


def test_requests_are_unsigned_by_default(tmp_path: Path) -> None:
    with Web({"/": page()}) as web:
        crawl(tmp_path / "crawl", web.url())
        assert not any(name.startswith("Signature") for asked in web.asked for name in asked.headers)


def test_only_sites_that_ask_get_signatures(directory: Path) -> None:
    """If an answer asks for a signature, the request is repeated with one. Other sites get no signature."""
    with Web({"/robots.txt": (404, {}, "")}) as web:
        site = site_of(directory)

        def guarded(answer: Answer) -> Any:
            return lambda asked: answer if site.judge(asked) else (403, ASKS, "sign, please")

        web.routes["a.localhost/robots.txt"] = guarded(
            (200, {"Content-Type": "text/plain"}, "User-agent: *\nDisallow: /secret\n")
        )
        web.routes["a.localhost/"] = guarded(page("/in", "/secret"))
        web.routes["a.localhost/in"] = guarded(page(text="in"))
        web.routes["b.localhost/"] = guarded(page("/b"))
        web.routes["b.localhost/b"] = guarded(page(text="b"))
        web.routes["c.localhost/"] = page(text="c")
        web.routes["d.localhost/"] = redirect(web.url("/in", "a.localhost"))
        seeds = (web.url("/", f"{name}.localhost") for name in "abcd")
        crawl(directory, *seeds, "--processes", 2, *settings(sign_when="challenge"))
        found = {line["url"]: line["outcome"] for line in lines(directory)}
        for path, host in (("/", "a"), ("/in", "a"), ("/", "b"), ("/b", "b"), ("/", "c")):
            assert found[web.url(path, f"{host}.localhost")] == "fetched", (host, path)
        assert "/secret" not in web.paths(), "the rules of a robots.txt that needs a signature are obeyed"
        verdicts = {host: [site.judge(asked) for asked in web.asked if asked.host == f"{host}.localhost"]
                    for host in "abc"}  # fmt: skip
        assert verdicts["a"][0] is None and all(verdicts["a"][1:]), "only the first request has no signature"
        assert verdicts["b"][:2] == [None, None] and all(verdicts["b"][2:]), "two requests have no signature"
        assert not any(verdicts["c"])


def test_a_site_that_refuses_signatures_gets_one_repeated_request(directory: Path) -> None:
    with Web({"/robots.txt": (404, {}, ""), "/": page("/in")}) as web:
        web.routes["/in"] = (403, ASKS, "no")
        web.routes["/"] = page("/in", "/in2")
        web.routes["/in2"] = (403, ASKS, "no")
        crawl(directory, web.url(), *settings(sign_when="challenge"))
        asked = [path for path in web.paths() if path != "/"]
        assert len(asked) == 3 and sorted(set(asked)) == ["/in", "/in2"]
        assert {line["outcome"] for line in lines(directory)} == {"fetched", "client_error"}


def test_a_challenged_sitemap_is_read(directory: Path) -> None:
    """The first answer asks for a signature. The crawler parses the answer to the second request, which is signed."""
    with Web({"/robots.txt": (404, {}, ""), "/": page(), "/in": page(text="in")}) as web:
        site = site_of(directory)
        maps = f"<urlset><url><loc>{web.url('/in')}</loc></url></urlset>"
        web.routes["/robots.txt"] = (200, {"Content-Type": "text/plain"}, f"Sitemap: {web.url('/map.xml')}\n")
        web.routes["/map.xml"] = lambda asked: (
            (200, {"Content-Type": "application/xml"}, maps) if site.judge(asked) else (403, ASKS, "<p>no")
        )
        crawl(directory, web.url(), *settings(sign_when="challenge"))
        assert "/in" in web.paths()


def test_the_key_is_in_no_record_log_or_export(
    directory: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The private key is not recorded.

    Signatures are not recorded either, because they could be replayed for a while. The id of the key is
    recorded.
    """
    with Web({"/": page("/in"), "/in": page(text="in")}) as web:
        crawl(directory, web.url(), *settings(), "--set", "pages.gzip_level=0", "-v")
        signature = web.asked[0].headers["Signature"].split(":")[1]
        for form in ("warc", "wacz", "jsonl", "crawl-log", "cdxj"):
            out = tmp_path / f"{form}.out"
            assert run("export", "--dir", directory, "--format", form, "--output", out).code == 0
        shown = "".join(
            run(*command, "--dir", directory).text
            for command in (
                ("why", web.url()), ("get", web.url(), "--headers"), ("status", "-v"), ("config", "show"),
                ("report",), ("key", "show"), ("key", "show", "--json"), ("check",),
            )
        )  # fmt: skip
        said = capfd.readouterr()
        shown += said.out + said.err
    (key,) = read_keys(directory / "signing.key")
    row = json.loads((directory / "signing.key").read_bytes())["keys"][0]
    raw = urlsafe_b64decode(row["d"] + "=")
    secrets = [row["d"].encode(), b64encode(raw), raw, raw.hex().encode(), signature.encode()]
    secrets.append(b64decode(signature))
    assert not any(secret in shown.encode() for secret in secrets)
    holding = {
        path.name
        for path in tmp_path.rglob("*")
        if path.is_file() and any(secret in uncompressed(path) for secret in secrets)
    }
    assert holding == {"signing.key"}
    store = b"".join(path.read_bytes() for path in (directory / "p0" / "store").iterdir())
    assert key.id.encode() in store, "the consent receipts of the pages name the key"
    heads = []
    for segment in directory.rglob("*.warc.gz"):
        with segment.open("rb") as file:
            for record in ArchiveIterator(file, record_types=WarcRecordType.request, parse_http=False):
                heads.append(record.reader.read())
    assert heads and {key_id_of(head) for head in heads} == {key.id}
    assert all(b"\r\nSignature: [redacted]\r\n" in head for head in heads)


def test_a_crawl_without_its_key_says_what_to_do(tmp_path: Path) -> None:
    for processes in ("1", "2"):
        ran = run("crawl", "--dir", tmp_path / processes, "http://localhost:9/", "--processes", processes, "-q",
                  "--progress", "none", *settings())  # fmt: skip
        assert ran.code == 2 and "`crawler key new` makes it" in ran.err.splitlines()[-1], ran
        assert len(ran.err.splitlines()) == 1


def test_a_new_crawl_in_the_same_place_keeps_the_key(directory: Path) -> None:
    with Web({"/": page()}) as web:
        crawl(directory, web.url(), *settings())
        before = read_keys(directory / "signing.key")[0].id
        crawl(directory, web.url(), "--fresh", *settings())
        assert read_keys(directory / "signing.key")[0].id == before
        assert not (directory.with_name("crawl.1") / "signing.key").exists()
        site = site_of(directory)
        assert all(site.judge(asked) for asked in web.asked)


def test_a_dry_run_and_a_single_fetch_sign_too(directory: Path) -> None:
    with Web({"/": page("/in")}) as web:
        ran = run(
            "crawl", "--dir", directory, web.url(), "--dry-run", "--allow-network", "127.0.0.0/8", *settings()
        )
        assert ran.code == 0, ran
        config = crawler.configure(
            {
                "network": {"allow_networks": ["127.0.0.0/8"]},
                "identity": {
                    "signature": "string", "signature_agent": AGENT, "key_file": str(directory / "signing.key"),
                },
            }
        )  # fmt: skip
        assert crawler.fetch(web.url(), config).status == 200
        site = site_of(directory)
        assert web.asked and all(site.judge(asked) for asked in web.asked)


def test_requests_of_rendered_pages_are_signed(directory: Path) -> None:
    """The browser has no network. The crawl's fetcher sends the browser's requests, and signs them."""
    try:
        find_program("")
    except BrowserError:
        pytest.skip("no browser")
    shell = '<!doctype html><title>Shop</title><script src="/app.js"></script><div id="root"></div>'
    app = "fetch('/data.json').then(a => a.json()).then(a => document.getElementById('root').textContent = a.text)"
    with Web(
        {"/robots.txt": (404, {}, ""), "/": shell, "/app.js": (200, {"Content-Type": "text/javascript"}, app)}
    ) as web:
        web.routes["/data.json"] = (
            200,
            {"Content-Type": "application/json"},
            json.dumps({"text": "words " * 50}),
        )
        crawl(directory, web.url(), "--render", "always", *settings())
        site = site_of(directory)
        assert {"/", "/app.js", "/data.json"} <= {asked.path for asked in web.asked}
        assert all(site.judge(asked) for asked in web.asked)
