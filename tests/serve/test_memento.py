"""Test that Memento answers equal those of pywb 2.10.0 (recorded on 2026-11-22), except for listed differences.

The crawler and pywb serve the same WARC file. The file contains six copies of the page /, a day apart. It
also contains one copy each of a 404, a redirect and a page with a query, and a page that was once found
unchanged. pywb was queried at `/coll/URL` with Accept-Datetime, at `/coll/TIMEmp_/URL` and at
`/coll/timemap/link/URL`. `/coll/URL` is pywb's timegate, which answers with 200 and shows the copy in a
frame.
"""

import re
from pathlib import Path

import pytest

from crawler.serve.dates import dates_of
from crawler.serve.header_fields import SANDBOX
from tests.pages.support import HTML, START
from tests.serve.support import Response, Served

PAGE = "http://site.example/"
DAY = 86_400.0
LINK = re.compile(r'<([^>]*)>((?:; [a-z]+="[^"]*")+)')


@pytest.fixture
def served(tmp_path: Path) -> Served:
    made = Served(tmp_path)
    for day in range(6):
        made.store(PAGE, b"<p>version %d</p>" % day, at=day * DAY)
    made.store(PAGE + "a?x=1&y=2", b"one copy", at=10.0)
    made.store(PAGE + "gone", b"nope", at=5.0, status=404, reason="Not Found")
    moved = (*HTML, (b"Location", PAGE.encode()))
    made.store(PAGE + "moved", b"", at=6.0, status=301, reason="Moved Permanently", headers=moved)
    made.store(PAGE + "same", b"same", at=1.0)
    made.store(PAGE + "same", b"same", at=90_000.0)
    made.now = START + 10 * DAY
    return made


def links(text: str) -> list[tuple[str, dict[str, str]]]:
    """Return the address and parameters of each link in a Link field or a link-format body."""
    return [
        (address, dict(re.findall(r'; ([a-z]+)="([^"]*)"', more))) for address, more in LINK.findall(text)
    ]


def relations(response: Response) -> set[str]:
    return {more["rel"] for _, more in links(response.fields["link"])}


# for each case: Accept-Datetime, and the day of the copy that pywb's timegate names
CHOSEN = [
    ("Thu, 16 Nov 2023 22:13:20 GMT", 2),
    ("Wed, 15 Nov 2023 11:00:00 GMT", 1),
    ("Tue, 14 Nov 2000 22:13:20 GMT", 0),
    ("Tue, 14 Nov 2030 22:13:20 GMT", 5),
    ("", 5),
]
# for each case: the time in the address, and the day of pywb's copy
STAMPED = [
    ("20231116221320", 2),
    ("2023", 5),
    ("202311", 5),
    ("20231117", 3),
    ("20231118", 4),
    ("20231115120000", 1),
]
# for each case: path, status, and the newest copy's time in seconds since the first copy
OTHERS = [("gone", 404, 5.0), ("moved", 301, 6.0), ("same", 200, 90_000.0), ("a?x=1&y=2", 200, 10.0)]


async def test_the_timegate_redirects_to_a_copy(served: Served) -> None:
    """The time gate redirects to the copy (RFC 7089, 4.2.1).

    If the server is used as a proxy, it answers with the copy itself (RFC 7089, 4.1.2).
    """
    for asked, day in CHOSEN:
        accepted = [f"Accept-Datetime: {asked}"] if asked else []
        gate = await served.get("/timegate/" + PAGE, *accepted)
        assert (gate.status, gate.body, gate.fields["vary"]) == (302, b"", "Accept-Datetime"), asked
        assert "memento-datetime" not in gate.fields, "a time gate is no memento (4.2.1)"
        assert relations(gate) == {"original", "timegate", "timemap", "memento"}
        copy, more = links(gate.fields["link"])[-1]
        assert copy == gate.fields["location"]
        at_copy = await served.get(copy.partition(f":{served.port}")[2])
        assert (at_copy.status, at_copy.body) == (200, b"<p>version %d</p>" % day), asked
        assert more["datetime"] == at_copy.fields["memento-datetime"] == dates_of(int(START + day * DAY)).http
        assert "vary" not in at_copy.fields, "the address of a copy names its time"
        proxied = await served.get(PAGE, *accepted)
        assert (proxied.status, proxied.body) == (200, at_copy.body)
        assert proxied.fields["memento-datetime"] == more["datetime"]
        assert proxied.fields["vary"] == "Accept-Datetime"
        assert proxied.fields["content-location"] in copy
    for target in ("/timegate/" + PAGE, PAGE):
        assert (await served.get(target, "Accept-Datetime: nonsense")).status == 400
    for stamp, day in STAMPED:
        response = await served.get(f"/page?url={PAGE}&at={stamp}")
        assert response.body == b"<p>version %d</p>" % day, stamp
        assert relations(response) == {"original", "timegate", "timemap", "memento"}
    for path, status, at in OTHERS:
        asked = "Accept-Datetime: Thu, 16 Nov 2023 22:13:20 GMT"
        gate = await served.get(f"/timegate/{PAGE}{path}", asked)
        assert gate.status == 302, "the gate redirects whatever the status of the copy"
        copy = await served.get(gate.fields["location"].partition(f":{served.port}")[2])
        assert copy.status == status and copy.fields["memento-datetime"] == dates_of(int(START + at)).http
    for target in (f"/timegate/{PAGE}none", f"{PAGE}none"):
        missing = await served.get(target)
        assert (missing.status, missing.fields["vary"]) == (404, "Accept-Datetime")
        assert relations(missing) == {"original", "timegate", "timemap"}


async def test_a_redirect_of_a_past_copy_stays_in_its_time(served: Served) -> None:
    """The time gate leads to the copy of a redirect, and this copy leads to the copy of its target at the same time."""
    gate = await served.get(f"/timegate/{PAGE}moved", f"Accept-Datetime: {dates_of(int(START)).http}")
    moved = await served.get(gate.fields["location"].partition(f":{served.port}")[2])
    assert moved.status == 301
    assert (await served.get(moved.fields["location"])).body == b"<p>version 0</p>"


async def test_time_maps_list_all_copies(served: Served) -> None:
    """Copies are listed in the order of their times. Unchanged copies are listed, too.

    Unlike pywb, the crawler adds `until`, `first` and `last` (RFC 7089, 5).
    """
    for path, instants in (
        ("", [day * DAY for day in range(6)]),
        ("same", [1.0, 90_000.0]),
        ("a?x=1&y=2", [10.0]),
    ):
        response = await served.get(f"/timemap/link/{PAGE}{path}")
        assert response.status == 200 and response.fields["content-type"] == "application/link-format"
        assert relations(response) == {"original", "timegate", "timemap"}
        restrictions = [name.decode().lower() for name, _ in SANDBOX]
        assert [name for name in restrictions if name in response.names] == restrictions[1:]
        found = links(response.body.decode())
        about = {more["rel"]: (address, more) for address, more in found[:3]}
        assert set(about) == {"self", "original", "timegate"} and about["original"][0] == PAGE + path
        dates = [dates_of(int(START + at)).http for at in instants]
        assert about["self"][1]["from"] == dates[0] and about["self"][1]["until"] == dates[-1]
        assert about["self"][1]["type"] == "application/link-format"
        assert [more["datetime"] for _, more in found[3:]] == dates
        assert all(more["rel"].split()[-1] == "memento" for _, more in found[3:])
        for address, more in found[3:]:
            copy = await served.get(address.partition(f":{served.port}")[2])
            assert copy.fields["memento-datetime"] == more["datetime"]
    assert (await served.get(f"/timemap/link/{PAGE}none")).status == 404
