"""Test the page server over real sockets: copies, conditions, ranges, Memento, and rejected requests."""

import gzip
import re
import zlib
from pathlib import Path
from typing import Any

import brotli
import pytest

from crawler.config import ConsentConfig, RobotsConfig
from crawler.consent.site_book import SiteBook
from crawler.consent.stamping import Stamping
from crawler.fetcher.framing import head_of
from crawler.fetcher.outcome import location_of
from crawler.records import Extracted, Outcome, Rendering
from crawler.robots.cache import RobotsCache
from crawler.serve import copy_selection
from crawler.serve.interfaces import Ahead, AheadState
from crawler.storage.commit import Change
from crawler.urls.canonical import authority, resolve
from tests.pages.support import HTML, START, fetch, not_modified
from tests.serve.support import NAMES, Response, Served

PAGE = "http://site.example/"
AT = "/page?url=" + PAGE
TYPE = (b"Content-Type", b"text/html; charset=utf-8")


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


async def test_a_copy_is_served_with_its_fields(served: Served) -> None:
    served.store(headers=(*HTML, (b"Allow", b"GET"), (b"Set-Cookie", b"a=b"), (b"ETag", b'"theirs"')))
    served.crawl.probability = 0.8123
    response = await served.get(AT)
    assert (response.status, response.body) == (200, b"<p>page</p>")
    fields = response.fields
    assert fields["content-type"] == "text/html; charset=utf-8" and fields["allow"] == "GET"
    assert fields["age"] == "100" and fields["x-fresh-probability"] == "0.812"
    assert fields["x-crawled-at"] == fields["x-changed-at"] == "2023-11-14T22:13:20Z"
    assert fields["memento-datetime"] == fields["last-modified"] == "Tue, 14 Nov 2023 22:13:20 GMT"
    assert fields["content-security-policy"].startswith("sandbox; default-src 'self'")
    assert fields["x-content-type-options"] == "nosniff" and fields["referrer-policy"] == "no-referrer"
    assert fields["cross-origin-resource-policy"] == "same-origin"
    assert "set-cookie" not in fields and fields["etag"] != '"theirs"'
    assert len(response.names) == len(set(response.names)), response.names
    head = await served.get(AT, method="HEAD")
    assert head.body == b"" and head.fields["content-length"] == "11"
    assert {**head.fields, "date": ""} == {**fields, "date": ""}
    for target in (PAGE, "http://SITE.example:80/x/.."):
        assert (await served.get(target)).body == b"<p>page</p>", target
    assert (await served.get("/timegate/" + PAGE)).status == 302
    assert len(served.crawl.asked) == 5 and set(served.crawl.asked) == {NAMES.fingerprint(PAGE)}
    await served.get(AT, "User-Agent: examplebot/1")
    assert len(served.crawl.asked) == 5, "requests of declared robots are not counted as readers"


async def test_a_newer_copy_replaces_the_cached_answer(served: Served) -> None:
    served.store(body=b"old")
    assert (await served.get(AT)).body == b"old"
    served.store(body=b"new", at=10.0)
    response = await served.get(AT)
    assert response.body == b"new" and response.fields["age"] == "90"
    assert (await served.get(AT + "&at=20231114221320")).body == b"old"
    assert (await served.get(AT + "&at=2030")).body == b"new"
    dated = await served.get(PAGE, "Accept-Datetime: Tue, 14 Nov 2023 22:13:21 GMT")
    assert dated.body == b"old" and dated.fields["content-location"] == AT + "&at=20231114221320"
    assert "accept-datetime" in dated.fields["vary"].lower()
    assert (await served.get("/timegate/" + PAGE, "Accept-Datetime: nonsense")).status == 400


async def test_conditional_requests(served: Served) -> None:
    served.store()
    first = await served.get(AT)
    etag, modified = first.fields["etag"], first.fields["last-modified"]
    for line in (
        f"If-None-Match: {etag}",
        f"If-None-Match: W/{etag}",
        f"If-Modified-Since: {modified}",
        "If-None-Match: *",
    ):
        response = await served.get(AT, line)
        assert (response.status, response.body) == (304, b""), line
        assert response.fields["etag"] == etag and "age" in response.fields
        assert "content-length" not in response.fields and "content-type" not in response.fields
    for line in (
        'If-None-Match: "other"',
        "If-Modified-Since: Tue, 14 Nov 2023 22:13:19 GMT",
        "If-Modified-Since: junk",
    ):
        assert (await served.get(AT, line)).status == 200, line


async def test_failed_preconditions_give_412(served: Served) -> None:
    """If-Match uses the strong comparison and takes precedence (RFC 9110, 13.1.1, 13.2.2).

    If the condition is false, the answer is neither 304 nor 206.
    """
    served.store()
    served.store(PAGE + "gone", b"no", status=404, reason="Not Found", outcome=Outcome.GONE)
    first = await served.get(AT)
    etag, modified = first.fields["etag"], first.fields["last-modified"]
    before = "Tue, 14 Nov 2023 22:13:19 GMT"
    for lines, status in (
        ([f"If-Match: {etag}"], 200),
        ([f'If-Match: "other", {etag}'], 200),
        (["If-Match: *"], 200),
        (['If-Match: "other"'], 412),
        ([f"If-Match: W/{etag}"], 412),
        ([f"If-Unmodified-Since: {modified}"], 200),
        ([f"If-Unmodified-Since: {before}"], 412),
        (["If-Unmodified-Since: junk"], 200),
        ([f"If-Match: {etag}", f"If-Unmodified-Since: {before}"], 200),
        (['If-Match: "other"', f"If-None-Match: {etag}"], 412),
        ([f"If-Match: {etag}", f"If-None-Match: {etag}"], 304),
        (['If-Match: "other"', "Range: bytes=0-1"], 412),
        ([f"If-Match: {etag}", "Range: bytes=0-1"], 206),
    ):
        response = await served.get(AT, *lines)
        assert response.status == status, lines
        if status == 412:
            assert response.json["state"] == "changed" and response.fields["etag"] == etag
    assert (await served.get(AT + "gone", 'If-Match: "other"')).status == 404


async def test_range_requests(served: Served) -> None:
    served.store(body=b"0123456789")
    part = await served.get(AT, "Range: bytes=2-4")
    assert (part.status, part.body) == (206, b"234") and part.fields["content-range"] == "bytes 2-4/10"
    assert (await served.get(AT, "Range: bytes=-3")).body == b"789"
    past = await served.get(AT, "Range: bytes=10-")
    assert past.status == 416 and past.fields["content-range"] == "bytes */10"
    several = await served.get(AT, "Range: bytes=0-1,3-4")
    assert (several.status, several.body) == (200, b"0123456789")
    other = await served.get(AT, "Range: bytes=0-1", 'If-Range: "other"')
    assert other.status == 200


async def test_answers_are_counted_by_their_status(tmp_path: Path) -> None:
    """Answers with a range of a streamed body are counted, too, and so are time maps."""
    async with Served(tmp_path, held_bytes_max=65_536) as served:
        body = bytes(range(256)) * 1024
        served.store(body=body)
        part = await served.get(AT, "Range: bytes=100-199999")
        assert (part.status, part.body) == (206, body[100:200_000])
        assert (await served.get("/timemap/link/http://site.example/")).status == 200
        assert (await served.get(AT + "missing")).status == 404
        assert served.server.answers == {206: 1, 200: 1, 404: 1}


CODINGS = {
    b"gzip": gzip.compress(b"coded " * 1000),
    b"deflate": zlib.compress(b"coded " * 1000),
    b"br": brotli.compress(b"coded " * 1000),
}


@pytest.mark.parametrize("coding", CODINGS)
async def test_content_codings(served: Served, coding: bytes) -> None:
    """A client that accepts the coding gets the stored bytes. Other clients and range requests get decoded bytes."""
    content, wire = b"coded " * 1000, CODINGS[coding]
    served.store(body=wire, content=content, headers=(TYPE, (b"Content-Encoding", coding)))
    coded = await served.get(AT, f"Accept-Encoding: {coding.decode()}")
    plain = await served.get(AT)
    assert coded.body == wire and coded.fields["content-encoding"] == coding.decode()
    assert plain.body == content and "content-encoding" not in plain.fields
    assert coded.fields["etag"] != plain.fields["etag"]
    assert "Accept-Encoding" in plain.fields["vary"]
    part = await served.get(AT, "Range: bytes=6-10", f"Accept-Encoding: {coding.decode()}")
    assert part.body == content[6:11] and part.fields["content-range"] == "bytes 6-10/6000"
    assert (await served.get(AT, "Accept-Encoding: identity")).body == content


async def test_a_large_body_is_streamed(tmp_path: Path) -> None:
    async with Served(tmp_path, held_bytes_max=1000) as served:
        content = bytes(range(256)) * 4000  # 1 MB
        wire = gzip.compress(content)
        served.store(PAGE, content)
        served.store(PAGE + "coded", wire, content=content, headers=(TYPE, (b"Content-Encoding", b"gzip")))
        whole = await served.get(AT)
        assert whole.body == content and whole.fields["content-length"] == str(len(content))
        coded = await served.get(AT + "coded")
        assert coded.body == content and coded.fields["transfer-encoding"] == "chunked"
        old = await served.get(AT + "coded", version="1.0")
        assert old.body == content and "transfer-encoding" not in old.fields
        for suffix in ("", "coded"):
            part = await served.get(AT + suffix, "Range: bytes=-300000")
            assert part.body == content[-300000:]
            assert (
                part.fields["content-range"]
                == f"bytes {len(content) - 300000}-{len(content) - 1}/{len(content)}"
            )
        assert len(served.handler.response_cache) == 0


async def test_revisits_show_the_content_that_they_repeat(served: Served) -> None:
    served.store(body=b"same")
    served.store(body=b"same", at=10.0)
    served.site.visit(not_modified(PAGE, began=START + 20.0), NAMES.fingerprint(PAGE))
    response = await served.get(AT)
    assert (response.status, response.body) == (200, b"same")
    assert response.fields["age"] == "80" and response.fields["x-changed-at"] == "2023-11-14T22:13:20Z"
    assert response.fields["content-type"].startswith("text/html")


async def test_stored_statuses_are_served(served: Served) -> None:
    served.store(PAGE + "gone", b"no", status=404, reason="Not Found", outcome=Outcome.GONE)
    served.store(
        PAGE + "moved",
        b"",
        status=301,
        reason="Moved",
        outcome=Outcome.REDIRECT,
        location=PAGE,
        headers=((b"Location", b"http://site.example/"),),
    )
    served.store(PAGE + "odd", b"x", status=206, reason="", outcome=Outcome.UNEXPECTED_STATUS)
    gone = await served.get(AT + "gone")
    assert (gone.status, gone.body) == (404, b"no") and "memento-datetime" in gone.fields
    moved = await served.get(AT + "moved")
    assert moved.status == 301 and moved.fields["location"] == "/page?url=http://site.example/"
    assert (await served.get(AT + "odd")).status == 502


REDIRECTS = [
    # for each case: the stored Location, and the page that it names, with the fragment
    (b"/a?x=1&y=2", "http://site.example/a?x=1&y=2", "http://site.example/a%3Fx%3D1%26y%3D2"),
    (b"../b", "http://site.example/b", "http://site.example/b"),
    (b"//other.example", "http://other.example/", "http://other.example/"),
    (b"https://Other.Example:443/", "https://other.example/", "https://other.example/"),
    (b"/c#part", "http://site.example/c#part", "http://site.example/c"),
    ("/\u00fc".encode(), "http://site.example/%C3%BC", "http://site.example/%25C3%25BC"),
    (b"mailto:a@site.example", "", ""),
    (b"javascript:alert(1)", "", ""),
]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(("location", "target", "quoted"), REDIRECTS)
async def test_a_redirect_leads_to_the_copy_of_its_target(
    served: Served, status: int, location: bytes, target: str, quoted: str
) -> None:
    """The redirect keeps the parameter `rewrite` and the time.

    A client that uses the server as a proxy is redirected to the original target.
    """
    headers = ((b"Location", location),)
    served.store(PAGE + "d/moved", b"", status=status, outcome=Outcome.REDIRECT, headers=headers)
    for asked, more in (("", ""), ("&rewrite=1", "&rewrite=1"), ("&at=2024", "&at=20241231235959")):
        moved = await served.get(AT + "d/moved" + asked)
        mark = "#part" if target.endswith("#part") else ""
        expected = f"/page?url={quoted}{more}{mark}" if target else None
        assert (moved.status, moved.fields.get("location")) == (status, expected), asked
    proxied = await served.get(PAGE + "d/moved")
    assert (proxied.status, proxied.fields.get("location", "")) == (status, target)


async def test_a_redirect_to_several_targets_leads_nowhere_as_in_the_crawl(served: Served) -> None:
    for name, targets in (("same", (b"/a", b"/a")), ("several", (b"/a", b"/b"))):
        headers = tuple((b"Location", target) for target in targets)
        served.store(PAGE + name, b"", status=302, outcome=Outcome.REDIRECT, headers=headers)
        head = head_of(headers, version="HTTP/1.1", status=302, reason="Found")
        shown = (await served.get(PAGE + name)).fields.get("location", "")
        assert shown == (resolve(PAGE, location_of(head)) if location_of(head) else "")


async def test_a_copy_has_the_last_usable_type_as_in_the_crawl(served: Served) -> None:
    values = (b"text/plain", b"text/html; charset=windows-1251", b"nonsense")
    headers = tuple((b"Content-Type", value) for value in values)
    served.store(PAGE, b"<a href='/b?\xfb'>b</a>", headers=headers)
    assert b"/page?url=http://site.example/b%3F%25FB" in (await served.get(AT + "&rewrite=1")).body


async def test_clients_must_revalidate_copies_without_a_stated_lifetime(served: Served) -> None:
    """The server sends `no-cache` with copies that have no lifetime.

    Without it, a client derives a lifetime from Last-Modified (RFC 9111, 4.2.2), and misses newer copies.
    """
    served.store()
    lifetimes = {"cache-control": "max-age=60", "expires": "Tue, 14 Nov 2023 23:13:20 GMT"}
    for name, value in lifetimes.items():
        served.store(PAGE + name, headers=(TYPE, (name.encode(), value.encode())))
    assert (await served.get(AT)).fields["cache-control"] == "no-cache"
    for name, value in lifetimes.items():
        fields = (await served.get(AT + name)).fields
        assert {each: fields[each] for each in lifetimes if each in fields} == {name: value}


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (206, Outcome.UNEXPECTED_STATUS),
        (304, Outcome.UNEXPECTED_STATUS),
        (416, Outcome.UNEXPECTED_STATUS),
        (200, Outcome.TRUNCATED),
        (503, Outcome.HOST_BUSY),
    ],
)
async def test_an_incomplete_answer_hides_no_earlier_copy(
    served: Served, status: int, outcome: Outcome
) -> None:
    """After a refresh that receives only a part of the page, or nothing, the last complete copy is still served."""
    served.store(body=b"whole")
    served.store(body=b"wh", at=10.0, status=status, outcome=outcome)
    response = await served.get(AT)
    assert (response.status, response.body) == (200, b"whole")
    gate = await served.get("/timegate/" + PAGE)
    assert gate.status == 302 and gate.fields["location"].endswith("&at=20231114221320")
    served.store(body=b"newer", at=20.0)
    assert (await served.get(AT)).body == b"newer"


async def test_missing_withheld_and_stale_pages(served: Served) -> None:
    served.store()
    served.store(PAGE + "private", extracted=Extracted(PAGE, noarchive=True))
    unknown = await served.get(AT + "unknown")
    assert unknown.status == 404 and unknown.json["state"] == "unknown" and unknown.json["why"]
    assert (await served.get("/page?url=http://else.example/")).json["state"] == "filtered"
    for target in (
        AT + "private",
        AT + "private&at=2023",
        "/timemap/link/" + PAGE + "private",
        PAGE + "private",
    ):
        private = await served.get(target)
        assert private.status == 451 and "noarchive" in private.json["state"], target
    assert (await served.get(AT + "&max-stale=100")).status == 200
    stale = await served.get(AT + "&max-stale=99")
    assert stale.status == 504 and stale.json["age"] == 100 and stale.json["queued"]
    assert served.crawl.queued == [PAGE]
    served.crawl.probability = 0.99
    assert (await served.get(AT + "&max-stale=99")).status == 200
    again = await served.get(AT + "&refresh=1")
    assert again.status == 200 and again.fields["x-refresh"] == "queued"
    later = await served.get(AT + "later&refresh=1")
    assert later.status == 202 and served.crawl.queued == [PAGE, PAGE, PAGE + "later"]
    assert (await served.get("/page?url=http://169.254.169.254/&refresh=1")).status == 403
    served.crawl.elsewhere = True
    other = await served.get(AT)
    assert other.status == 421 and other.json["owner"] == "p1"


async def test_a_server_for_one_use_shows_only_copies_that_permit_it(tmp_path: Path) -> None:
    """The site of the copies has not said anything about the use, which counts as a refusal here."""
    async with Served(tmp_path, allow="train-ai") as served:
        served.store()
        for target in (AT, "/timegate/" + PAGE, "/timemap/link/" + PAGE, PAGE):
            refused = await served.get(target)
            assert refused.status == 451 and refused.json["state"] == "consent", target


@pytest.mark.parametrize(
    ("verdict", "status", "fields", "shown"),
    [
        (Ahead(AheadState.QUEUED, "soon", 30.5), 202, {"retry-after": "31"}, "queued; wait=31"),
        (Ahead(AheadState.QUEUED, "soon", 0.5), 202, {"retry-after": "1"}, "queued; wait=1"),
        (Ahead(AheadState.QUEUED, "soon"), 202, {}, "queued"),
        (Ahead(AheadState.BLOCKED, "its host is blocked"), 409, {}, "blocked"),
        (Ahead(AheadState.PARKED, "its host has enough"), 409, {}, "parked"),
        (Ahead(AheadState.DISALLOWED, "`Disallow: /`"), 403, {}, "disallowed"),
        (Ahead(AheadState.RETIRED, "it was retired"), 410, {}, "retired"),
        (Ahead(AheadState.FULL, "too many", 60.0), 503, {"retry-after": "60"}, "full; wait=60"),
        (Ahead(AheadState.NOT_REFRESHED, "known"), 404, {}, "not_refreshed"),
        (Ahead(AheadState.AT_REST, "it does not run"), 404, {}, "at_rest"),
    ],
)
async def test_the_answer_to_a_request_for_a_refresh(
    served: Served, verdict: Ahead, status: int, fields: dict[str, str], shown: str
) -> None:
    served.store()
    served.crawl.verdict = verdict
    missing = await served.get(AT + "missing&refresh=1")
    assert missing.status == status, missing.body
    assert {name: missing.fields[name] for name in fields} == fields
    assert ("retry-after" in missing.fields) == bool(fields)
    if status != 404:
        assert missing.json == {"state": verdict.state, "why": verdict.why, "queued": verdict.queued}
    else:
        assert (missing.json["state"], missing.json["refresh"]) == ("unknown", verdict.state)
    copy = await served.get(AT + "&refresh=1")
    assert (copy.status, copy.fields["x-refresh"]) == (200, shown)
    assert (await served.get(AT + "&refresh=1&max-stale=0")).json["queued"] == verdict.queued


async def test_a_copy_of_a_page_that_robots_txt_now_forbids_says_so(served: Served) -> None:
    """The note ends with the next fetch. Only the newest copy of a stored page may be called fresh."""
    served.store()
    served.crawl.probability = 0.5
    denied: dict[str, Any] = {"status": 0, "reason": "", "headers": (), "content_type": ""}
    assert "x-note" not in (await served.get(AT)).fields
    served.store(body=b"", outcome=Outcome.ROBOTS_DENIED, at=50.0, **denied)
    response = await served.get(AT)
    assert (response.status, response.body) == (200, b"<p>page</p>")
    assert response.fields["x-note"].startswith("robots.txt forbade this page")
    assert "x-fresh-probability" not in response.fields
    served.store(body=b"<p>new</p>", at=60.0)
    response = await served.get(AT)
    assert "x-note" not in response.fields and response.fields["x-fresh-probability"] == "0.500"
    past = await served.get(AT + "&at=2023-11-14T22:13:20Z")
    assert past.body == b"<p>page</p>" and "x-fresh-probability" not in past.fields


async def test_a_copy_states_the_uses_that_its_site_permits(served: Served) -> None:
    """The statement is that of the site when the copy was fetched."""
    site, page = served.site, NAMES.fingerprint(PAGE)
    robots = RobotsCache(site.store, RobotsConfig(), "crawler", 100)
    book = SiteBook(
        site.store, robots, ConsentConfig(), token="crawler", fingerprint=lambda url: page,
        record_of=lambda url, at: b"",
    )  # fmt: skip
    stamping = Stamping(site.store, book, "crawler")

    def visit(rules: bytes, body: bytes) -> None:
        robots.record(PAGE[:-1], status=200, outcome=Outcome.FETCHED, body=rules, complete=True, now=site.now)
        answer, change = fetch(PAGE, body, began=site.now), Change()
        answer.site = book.note(authority(PAGE))
        capturing = site.decide(answer, page, Extracted(PAGE))
        capturing.stamp = stamping.stamp(answer, page, Extracted(PAGE), None, change)
        batch = site.store.batch()
        for key, value in change.operations:
            assert value is not None
            batch.put(key, value)
        site.store.write(batch)
        site.commit(capturing)

    visit(b"User-agent: *\nContent-Usage: train-ai=y\n", b"one")
    assert "train-ai=y" in (await served.get(AT)).fields["x-consent"]
    visit(b"User-agent: *\nContent-Usage: train-ai=n\n", b"two")
    assert "train-ai=n" in (await served.get(AT)).fields["x-consent"]
    past = await served.get(AT + "&at=2023-11-14T22:13:20Z")
    assert past.body == b"one" and "train-ai=y" in past.fields["x-consent"]


async def test_a_list_of_copies_is_withheld_with_the_newest_copy(served: Served) -> None:
    private = Extracted(PAGE, noarchive=True)
    for name, directives in (("a", (None, private)), ("b", (private, None))):
        for at, each in enumerate(directives):
            served.store(PAGE + name, b"%d" % at, at=float(at), extracted=each)
    for name, status in (("a", 451), ("b", 200)):
        assert (await served.get("/timemap/link/" + PAGE + name)).status == status, name


async def test_a_list_of_copies_contains_the_newest_ones(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_selection, "CAPTURES_MAX", 2)
    for at in range(3):
        served.store(body=b"%d" % at, at=float(at))
    listed = (await served.get("/timemap/link/" + PAGE)).body.decode()
    assert re.findall(r'memento"; datetime="Tue, 14 Nov 2023 (.*) GMT', listed) == ["22:13:21", "22:13:22"]


async def test_rewritten_links_point_into_the_cache(served: Served) -> None:
    page = (
        b'<base href="/d/"><a href="x?a=1&amp;b=2">x</a><img src=//other.example/i.png><a href="#f">f</a>'
        b'<meta http-equiv=refresh content="5; url=next">'
    )
    served.store(body=page)
    served.store(
        PAGE + "s.css",
        b"body{background:url(i.png)}",
        headers=((b"Content-Type", b"text/css"),),
        content_type="text/css",
    )
    response = await served.get(AT + "&rewrite=1")
    text = response.body.decode()
    assert "/page?url=http://site.example/d/x%3Fa%3D1%26b%3D2&amp;rewrite=1" in text
    assert "/page?url=http://other.example/i.png&amp;rewrite=1" in text
    assert 'content="5; url=/page?url=http://site.example/d/next&amp;rewrite=1"' in text
    assert response.fields["content-length"] == str(len(response.body))
    assert "sandbox allow-same-origin;" in response.fields["content-security-policy"]
    assert "script-src 'none'" in response.fields["content-security-policy"]
    assert response.fields["etag"].endswith('-r"')
    style = await served.get(AT + "s.css&rewrite=1")
    assert b"url(/page?url=http://site.example/i.png&rewrite=1)" in style.body.replace(b'"', b"").replace(
        b"'", b""
    )
    assert (await served.get(AT)).body == page


async def test_the_front_page_has_a_form_for_people(served: Served) -> None:
    """The address that `crawler serve` prints was answered with 404."""
    shown = await served.get("/")
    assert shown.status == 200 and b"<form action=/page>" in shown.body
    policy = shown.fields["content-security-policy"]
    assert "default-src 'none'" in policy and "form-action 'self'" in policy
    for path in ("/", "/healthz", "/readyz"):
        assert (await served.get(path, method="POST")).status == 405, path
    assert (await served.get("/nothing")).status == 404


async def test_health_checks_and_allowed_methods(served: Served) -> None:
    assert (await served.get("/healthz")).status == 200
    assert (await served.get("/readyz")).status == 200
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        refusal = await served.get(AT, method=method)
        assert (refusal.status, refusal.fields["allow"]) == (405, "GET, HEAD"), method
    refusal = await served.get("/nothing", method="DELETE")
    assert (refusal.status, "allow" in refusal.fields) == (404, False)
    for path in (AT, "/signal", "/nothing"):
        assert (await served.get(path, method="BREW")).status == 501, path
    for path, allow in (
        ("/signal", "POST"),
        ("/indexnow?a=1", "GET, HEAD, POST"),
        ("/websub/x", "GET, HEAD, POST"),
    ):
        for method in ("GET", "POST", "PUT"):
            answer = await served.get(path, method=method)
            expected = (503, None) if method in allow.split(", ") else (405, allow)
            assert (answer.status, answer.fields.get("allow")) == expected, (path, method)


async def test_a_range_counts_only_for_get(served: Served) -> None:
    """A server must ignore Range in a HEAD request (RFC 9110, 14.2)."""
    served.store(body=b"page")
    whole = await served.get(AT, "Accept-Encoding: gzip", method="HEAD")
    for field in ("Range: bytes=0-1", "Range: bytes=999999-", "Range: bytes=-0"):
        answer = await served.get(AT, field, "Accept-Encoding: gzip", method="HEAD")
        assert (answer.status, answer.fields) == (200, whole.fields), field
    assert (await served.get(AT, "Range: bytes=0-1")).status == 206
    etag = f"If-None-Match: {whole.fields['etag']}"
    assert (await served.get(AT, "Range: bytes=0-1", etag, method="HEAD")).status == 304


async def test_an_absolute_target_needs_a_host_field_too(served: Served) -> None:
    """A server must reject a request of HTTP/1.1 without Host, or with two of them, in every form (RFC 9112, 3.2)."""
    served.store(body=b"page")
    for fields, version, status in (
        ("", "1.1", 400),
        ("Host: a\r\nHost: b\r\n", "1.1", 400),
        ("Host: a\r\n", "1.1", 200),
        ("", "1.0", 200),
    ):
        request = f"GET {PAGE} HTTP/{version}\r\n{fields}Connection: close\r\n\r\n"
        assert Response(await served.raw(request.encode())).status == status, (fields, version)


async def test_a_rendered_page_is_served_as_its_dom(served: Served) -> None:
    """A DOM has a separate entity tag, because the DOM may change while the web server's answer stays the same."""
    url, shell = "http://site.example/app", b"<script src=app.js></script>"
    tags = []
    for at, text in enumerate((b"<h1>one</h1>", b"<h1>" + b"two " * 30_000)):
        served.store(url, shell, at=at, rendering=Rendering(dom=text))
        answer = await served.get(f"/page?url={url}")
        assert (answer.status, answer.body) == (200, text)
        assert answer.fields["content-type"] == "text/html; charset=utf-8"
        tags.append(answer.fields["etag"])
    assert len(set(tags)) == 2


async def test_the_picture_of_a_page_is_served_like_its_copy(served: Served) -> None:
    """A picture is served only as an image.

    The picture is withheld if its page is withheld. Each copy has its own picture.
    """
    view = "/view?url=" + PAGE
    for at in (0.0, 1000.0):
        served.store(at=at, rendering=Rendering(dom=b"<p>shown", view=b"\x89PNG %d" % at))
    served.store("http://site.example/static")
    served.store("http://site.example/shown", b"<p>answer", rendering=Rendering(dom=b"<p>shown"))
    response = await served.get(view)
    assert (response.status, response.body) == (200, b"\x89PNG 1000")
    fields = response.fields
    assert fields["content-type"] == "image/png" and fields["x-content-type-options"] == "nosniff"
    assert fields["content-security-policy"].startswith("sandbox; default-src 'self'")
    assert fields["cross-origin-resource-policy"] == "same-origin"
    assert (await served.get(view + "&at=20231114221321")).body == b"\x89PNG 0"
    assert (await served.get(view, f"If-None-Match: {fields['etag']}")).status == 304
    assert (await served.get(view, "Range: bytes=1-3")).body == b"PNG"
    assert (await served.get(view, method="HEAD")).fields["content-length"] == "9"
    link = f'<http://127.0.0.1:{served.port}{view}>; rel="preview"; type="image/png"'
    assert f"Link: {link}\r\n".encode() in await served.raw(
        f"GET {AT} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nConnection: close\r\n\r\n".encode()
    )
    for form, body in (("", b"<p>shown"), ("&static=1", b"<p>answer"), ("&static=0", b"<p>shown")):
        assert (await served.get(f"/page?url=http://site.example/shown{form}")).body == body
    for target, status, state in (
        ("/view?url=http://site.example/static", 404, "no_picture"),
        ("/view?url=http://site.example/new", 404, "unknown"),
        ("/view", 400, "bad_request"),
        ("/view?url=ftp://x", 400, "bad_request"),
    ):
        response = await served.get(target)
        assert (response.status, response.json["state"]) == (status, state), target
    served.store(at=2000.0, extracted=Extracted(PAGE, noarchive=True))
    assert (await served.get(view)).status == 451
