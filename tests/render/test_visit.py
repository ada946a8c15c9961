"""Test a visit of one page in the browser: how requests are answered, and when the visit ends."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.config import ByteCount, RenderConfig, Seconds
from crawler.render.visit import RESTLESS, Answering, Paused, Visit

URL = "http://a.test/page"
CONFIG = RenderConfig(quiet=Seconds(0.5), wall_max=Seconds(30), cpu_max=Seconds(10), requests_max=5)


def paused(url: str = "http://a.test/x.js", method: str = "GET", kind: str = "Script") -> Paused:
    return Paused(url, method, kind, main_frame=False)


def begun(config: RenderConfig = CONFIG) -> Visit:
    """Return a visit whose main document has been requested."""
    visit = Visit(URL, config, now=100.0)
    assert visit.decide(Paused(URL, "GET", "Document", main_frame=True), 100.1) is Answering.DOCUMENT
    return visit


def test_a_visit_ends_after_the_load_event_and_a_quiet_time() -> None:
    visit = begun()
    assert visit.decide(paused(), 100.2) is Answering.FETCH
    visit.loaded(100.3)
    assert not visit.is_over(105.0), "a request is outstanding"
    visit.answered(10, 105.0, usable=True)
    assert not visit.is_over(105.4)
    assert visit.next_wakeup() == 105.5
    assert visit.is_over(105.5)
    assert not visit.broke


def test_a_load_event_before_the_document_request_does_not_count() -> None:
    visit = Visit(URL, CONFIG, now=100.0)
    visit.loaded(100.0)
    assert not visit.is_over(110.0)


def test_the_visit_of_a_page_that_never_loads_ends_at_its_time_limit() -> None:
    visit = begun()
    assert visit.next_wakeup() == 130.0
    assert not visit.is_over(129.9)
    assert visit.is_over(130.0)
    assert visit.broke == "time"


def test_the_visit_of_a_restless_page_ends_some_time_after_the_load_event() -> None:
    visit = begun(RenderConfig(requests_max=1000))
    visit.loaded(101.0)
    now = 101.0
    while not visit.is_over(now):
        visit.decide(paused(), now)
        visit.answered(1, now + 0.1, usable=True)
        now += 0.2
    assert now == pytest.approx(101.0 + RESTLESS, abs=0.3)


@pytest.mark.parametrize(
    "request_",
    [
        paused(method="POST"),
        paused(method="OPTIONS"),
        paused(url="file:///etc/passwd"),
        paused(url="chrome://version"),
        paused(url="ws://a.test/"),
        paused(kind="EventSource"),
        paused(kind="Ping"),
        paused(url="http://a.test/" + "x" * 9000),
    ],
)
def test_requests_other_than_http_gets_are_refused(request_: Paused) -> None:
    visit = begun()
    assert visit.decide(request_, 101.0) is Answering.REFUSE
    assert visit.missing == 1


def test_image_requests_get_empty_answers_by_default() -> None:
    picture = paused("http://a.test/i.png", kind="Image")
    assert begun().decide(picture, 101.0) is Answering.EMPTY
    assert begun(RenderConfig(images=True)).decide(picture, 101.0) is Answering.FETCH


def test_navigation_is_blocked_and_its_target_recorded() -> None:
    visit = begun()
    away = Paused("http://b.test/next", "GET", "Document", main_frame=True)
    assert visit.decide(away, 101.0) is Answering.STAY
    assert visit.left_for == "http://b.test/next"
    assert visit.is_over(103.0), "the load event of a page that was left may never come"
    reload = begun()
    assert reload.decide(Paused(URL, "GET", "Document", main_frame=True), 101.0) is Answering.STAY
    assert reload.left_for == ""


def test_limits_end_the_visit() -> None:
    many = begun()
    answers = [many.decide(paused(), 101.0) for _ in range(6)]
    assert answers == [Answering.FETCH] * 5 + [Answering.REFUSE]
    assert many.broke == "requests"
    assert many.is_over(101.0)

    large = begun(RenderConfig(bytes_max=ByteCount(1000)))
    large.decide(paused(), 101.0)
    large.answered(1001, 101.5, usable=True)
    assert large.broke == "bytes"

    busy = begun()
    busy.worked(9.9)
    assert not busy.broke
    busy.worked(10.1)
    assert busy.broke == "cpu"


@given(st.lists(st.sampled_from(["ask", "answer", "load", "wait"]), max_size=60))
@settings(deadline=None)
def test_a_visit_always_ends(events: list[str]) -> None:
    """Whatever happens, a visit ends at its time limit or earlier, and its counts of requests are consistent."""
    visit = begun()
    now = 101.0
    for event in events:
        if event == "ask":
            visit.decide(paused(), now)
        elif event == "answer" and visit.outstanding:
            visit.answered(1, now, usable=True)
        elif event == "load":
            visit.loaded(now)
        now += 0.3
        visit._check()
    assert visit.next_wakeup() <= 130.0 or visit.is_over(now)
    assert visit.is_over(max(now, 130.0))
