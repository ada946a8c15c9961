"""Test the demands of clients for young copies: the field Cache-Control of requests, over real sockets."""

import math
from pathlib import Path

import pytest
from multidict import CIMultiDict

from crawler.serve.freshness_demand import FreshnessDemand, demand_of
from crawler.serve.interfaces import Ahead, AheadState
from tests.serve.support import Served
from tests.serve.test_again import answers

PAGE = "http://site.example/"
AT = "/page?url=" + PAGE
REVALIDATE = FreshnessDemand(revalidate=True)


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


@pytest.mark.parametrize(
    ("lines", "demand"),
    [
        ([], None),
        (["Cache-Control: no-transform, no-store"], None),
        (["Cache-Control: max-stale"], None),
        (["Cache-Control: min-fresh=5"], None),
        (["Cache-Control: no-cache"], REVALIDATE),
        (["Cache-Control: NO-CACHE"], REVALIDATE),
        (["Cache-Control: max-age=0"], REVALIDATE),
        (["Cache-Control: max-age=0, max-stale=60"], FreshnessDemand(60.0)),
        (["Cache-Control: max-age=60"], FreshnessDemand(60.0)),
        (['Cache-Control: foo="a, max-age=1", Max-Age="60"'], FreshnessDemand(60.0)),
        (["Cache-Control: max-age=60,max-age=5"], FreshnessDemand(60.0)),
        (["Cache-Control: no-store", "Cache-Control: max-age=60"], FreshnessDemand(60.0)),
        (["Cache-Control: max-age=60, max-stale=30"], FreshnessDemand(90.0)),
        (["Cache-Control: max-age=60, max-stale"], None),
        (["Cache-Control: max-age=60, min-fresh=30"], FreshnessDemand(30.0)),
        (["Cache-Control: max-age=60, min-fresh=90"], FreshnessDemand(-30.0)),
        (["Cache-Control: max-age=-1"], None),
        (["Cache-Control: max-age=1e9"], None),
        (["Cache-Control: max-age=9999999999999"], None),
        (["Cache-Control: max-age"], None),
        (["Cache-Control: only-if-cached"], FreshnessDemand(math.inf, only_cached=True)),
        (["Cache-Control: only-if-cached, max-age=0"], FreshnessDemand(0.0, only_cached=True)),
        (["Cache-Control: only-if-cached, no-cache"], FreshnessDemand(0.0, only_cached=True)),
        (["Pragma: no-cache"], REVALIDATE),
        (["Pragma: no-cache", "Cache-Control: max-stale"], None),
    ],
)
def test_directives(lines: list[str], demand: FreshnessDemand | None) -> None:
    """RFC 9111, 5.2.1 and 5.4; directive names are case-insensitive, arguments may be quoted (5.2)."""
    fields = CIMultiDict(line.split(": ", 1) for line in lines)
    assert demand_of(fields) == demand


@pytest.mark.parametrize("target", [AT, PAGE])
@pytest.mark.parametrize(
    ("directives", "status", "queued"),
    [
        ("max-age=100", 200, False),  # the copy is 100 s old
        ("max-age=99", 504, True),
        ("max-age=99, max-stale=1", 200, False),
        ("max-age=99, max-stale", 200, False),
        ("max-age=110, min-fresh=20", 504, True),
        ("max-age=99, only-if-cached", 504, False),
        ("only-if-cached", 200, False),
        ("max-age=0", 200, True),
        ("no-cache", 200, True),
        ("no-store", 200, False),
    ],
)
async def test_a_copy_that_is_too_old(
    served: Served, target: str, directives: str, status: int, queued: bool
) -> None:
    """The probability of being fresh does not matter: the client has named an age.

    The answer is the same after a request that put the copy into the caches.
    """
    served.store()
    served.crawl.probability = 0.999
    assert (await served.get(target)).status == 200
    for _ in range(2):
        served.crawl.queued.clear()
        answer = await served.get(target, f"Cache-Control: {directives}")
        assert answer.status == status
        assert served.crawl.queued == [PAGE] * queued
        if status == 504:
            assert answer.json["state"] == "stale" and answer.json["queued"] == queued
            assert answer.json["age"] == 100
        else:
            assert answer.fields["age"] == "100"
            assert answer.fields.get("x-refresh") == ("queued" if queued else None)
    served.crawl.queued.clear()
    assert (await served.get(target)).status == 200 and not served.crawl.queued


async def test_requests_of_one_connection_keep_their_demands(served: Served) -> None:
    """A server remembers header blocks. A block with a demand differs from the same block without one."""
    served.store()
    statuses = []
    async with served.connected() as (reader, writer):
        for field in ("", "Cache-Control: max-age=1\r\n") * 3:
            writer.write(f"GET {AT} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n{field}\r\n".encode())
            statuses.append((await answers(reader, 1))[0].status)
    assert statuses == [200, 504] * 3


async def test_a_reload_with_a_condition_is_answered_with_304(served: Served) -> None:
    served.store()
    tag = (await served.get(AT)).fields["etag"]
    answer = await served.get(AT, f"If-None-Match: {tag}", "Cache-Control: max-age=0")
    assert answer.status == 304 and answer.fields["x-refresh"] == "queued" and served.crawl.queued == [PAGE]


async def test_a_reload_states_why_nothing_is_queued(served: Served) -> None:
    served.store()
    served.crawl.verdict = Ahead(AheadState.LATER)
    answer = await served.get(AT, "Cache-Control: no-cache")
    assert answer.status == 200 and answer.fields["x-refresh"] == "later"


async def test_a_demand_does_not_apply_to_the_copy_of_a_time(served: Served) -> None:
    served.store()
    for target, lines in (
        (AT + "&at=2030", ["Cache-Control: max-age=1"]),
        (AT + "&at=2030", ["Cache-Control: no-cache"]),
        (PAGE, ["Cache-Control: no-cache", "Accept-Datetime: Tue, 14 Nov 2023 22:13:21 GMT"]),
    ):
        assert (await served.get(target, *lines)).status == 200
    assert not served.crawl.queued


async def test_pages_of_other_origins_cannot_make_the_server_queue_pages(served: Served) -> None:
    """A script may call `fetch(url, {cache: "no-cache"})`, so the browser sends the field for it."""
    served.store()
    for directive in ("no-cache", "max-age=1"):
        for line in ("Origin: http://evil.example", "Sec-Fetch-Site: cross-site"):
            answer = await served.get(AT, f"Cache-Control: {directive}", line)
            assert answer.status == 200 and "x-refresh" not in answer.fields
    assert not served.crawl.queued


async def test_a_missing_page_is_a_gateway_timeout_only_for_clients_that_say_only_if_cached(
    served: Served,
) -> None:
    for directives, status in (("only-if-cached", 504), ("no-cache", 404)):
        answer = await served.get(AT + "unknown", f"Cache-Control: {directives}")
        assert (answer.status, answer.json["state"]) == (status, "unknown")
    assert not served.crawl.queued
