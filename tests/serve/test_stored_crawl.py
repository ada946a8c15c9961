"""Test which process answers a page server's questions about a URL. The processes are real and share nothing."""

from collections.abc import Callable

import pytest

from crawler.process.answering.served_process import served_process
from crawler.records import Extracted, Outcome
from crawler.serve.interfaces import Ahead, AheadState
from crawler.serve.stored_crawl import StoredCrawl
from tests.process.conftest import open_joint  # noqa: F401
from tests.process.support import Joint, fetch

Open = Callable[..., Joint]
NAMES = ("p0", "p1")
REFRESH = {"endless": True, "share": 0.5}


@pytest.fixture(params=[1, 2])
def joints(request: pytest.FixtureRequest, open_joint: Open) -> list[Joint]:  # noqa: F811
    """Open the processes of a crawl."""
    names = NAMES[: request.param]
    return [open_joint(names=names, me=name, refresh=REFRESH) for name in names]


def owned(joint: Joint) -> str:
    """Return the URL of a page of this process."""
    hosts = (f"http://h{n}.org/" for n in range(100))
    owner, me = joint.stages.topology.partition.owner, joint.stages.name
    return next(url for url in hosts if owner(joint.fingerprint(url)) == me)


def served(joints: list[Joint], **live: Callable) -> StoredCrawl:  # type: ignore[type-arg]
    return StoredCrawl({joint.stages.name: served_process(joint.stages) for joint in joints}, **live)


def test_the_owner_of_a_url_answers_all_questions_about_it(joints: list[Joint]) -> None:
    crawl = served(joints)
    for joint in joints:
        url, now = owned(joint), joint.clock.now()
        joint.seeds(url)
        joint.page(joint.fetch_task(), fetch(url), Extracted(url))
        joint.seeds(f"{url}waits")
        number = joint.fingerprint(url)
        place = crawl.locate(url)
        assert (place.fingerprint, place.archive) == (number, joint.stages.pages)
        assert place.owner == (joint.stages.name if len(joints) > 1 else "")
        fresh = crawl.fresh_probability(number, now, now + 3600.0)
        views = joint.stages.refresh.views
        assert fresh == views.probability(number, now, now + 3600.0) and 0.0 < fresh < 1.0
        assert crawl.missing(f"{url}waits", joint.fingerprint(f"{url}waits"))[0] == "todo"
        assert crawl.missing(f"{url}never", joint.fingerprint(f"{url}never"))[0] == "unknown"
        assert crawl.disallowed(f"{url}secret") == ""
        robots = fetch(f"{url}robots.txt", b"User-agent: *\nDisallow: /secret\n", content_type="text/plain")
        joint.stages.robots.record(
            url.rstrip("/"), status=200, outcome=Outcome.FETCHED, body=robots.body, complete=True, now=now
        )
        assert "/secret" in crawl.disallowed(f"{url}secret") and not crawl.disallowed(f"{url}open")
    assert crawl.ready() == ""


def test_a_page_of_a_process_that_is_not_served_has_a_known_owner(open_joint: Open) -> None:  # noqa: F811
    first, second = (open_joint(names=NAMES, me=name) for name in NAMES)
    place = served([first]).locate(owned(second))
    assert (place.archive, place.owner) == (None, "p1")


def test_a_running_crawl_fetches_ahead_and_counts_requests(joints: list[Joint]) -> None:
    url, counted, said = owned(joints[0]), [], Ahead(AheadState.QUEUED, "soon")
    number = joints[0].fingerprint(url)
    resting = served(joints)
    resting.note_request(number)
    assert resting.request_fetch(url, number).state is AheadState.AT_REST
    running = served(
        joints, ahead=lambda *page: said if page == (url, number) else None, count=counted.append
    )
    running.note_request(number)
    assert running.request_fetch(url, number) is said and counted == [number]


def test_a_crawl_without_refreshes_states_no_probability(open_joint: Open) -> None:  # noqa: F811
    assert served([open_joint()]).fresh_probability(1, 0.0, 1.0) is None
