"""Which pages are worth a browser."""

import pytest

from crawler.config import RenderConfig
from crawler.render.deciding import Deciding, Signs, adds, pattern_of, signs

SHELL = b'<html><head><script src="/app.js"></script></head><body><div id="root"></div></body></html>'
TEXT = b"<p>" + b"word " * 100 + b"</p>"
NEVER_BY_CHANCE = RenderConfig(when="auto", chance=0.0)
CANDIDATE = Signs(text_bytes=0, script=True, mark=True)
ORDINARY = Signs(text_bytes=5000, script=True, mark=False)


@pytest.mark.parametrize(
    ("page", "candidate"),
    [
        (SHELL, True),
        (b"<script>app()</script><p>Loading</p>", True),
        (b'<script src="x.js"></script><div id=app></div>' + TEXT, True),
        (b'<script src="x.js"></script><app-root></app-root>' + TEXT, True),
        (b'<script src="x.js"></script><redoc spec-url="a.json"></redoc>' + TEXT, True),
        (b"<script>window.$docsify = {}</script>" + TEXT, True),
        (
            b"<script>1</script><noscript>You need to enable JavaScript to run this app.</noscript>" + TEXT,
            True,
        ),
        (b'<script src="x.js"></script>' + TEXT, False),
        (b"<p>short</p>", False),
        (b'<p>short</p><script type="application/ld+json">{}</script>', False),
        (b'<div id="root"></div>' + TEXT, False),
    ],
)
def test_a_candidate_looks_as_if_a_browser_built_the_rest(page: bytes, candidate: bool) -> None:
    assert signs(page).candidate is candidate


def test_reading_the_signs_takes_linear_time_on_hostile_pages() -> None:
    for piece in (b"<div id=root ", b"<noscript ", b"<noscript><a>", b"<script ", b"<div id=root>loading"):
        assert signs(b"<script>1</script>" + piece * 30_000) is not None


def test_patterns_leave_numbers_and_names_out() -> None:
    assert pattern_of("http://a.test/item/17?x=1") == pattern_of("http://a.test/item/18") == "a.test/item/0"
    assert pattern_of("http://a.test/blog/a-long-title") == "a.test/blog/*"
    assert pattern_of("http://a.test/") == "a.test/"
    assert pattern_of("http://a.test/about") != pattern_of("http://a.test/contact")


def test_a_pattern_without_success_is_given_up_after_three() -> None:
    deciding = Deciding(NEVER_BY_CHANCE)
    for number in range(3):
        url = f"http://a.test/item/{number}"
        assert deciding.why(url, CANDIDATE) == "mark"
        deciding.learn(url, candidate=True, added=False)
    assert deciding.why("http://a.test/item/4", CANDIDATE) == ""
    assert deciding.why("http://b.test/item/4", CANDIDATE) == "mark", "another host is not concerned"


def test_a_pattern_with_success_goes_on_even_without_marks() -> None:
    deciding = Deciding(NEVER_BY_CHANCE)
    url = "http://a.test/item/1"
    assert deciding.why(url, ORDINARY) == ""
    deciding.learn(url, candidate=False, added=True)
    assert deciding.why("http://a.test/item/2", ORDINARY) == "learned"


def test_a_host_without_success_makes_new_patterns_unlikely() -> None:
    deciding = Deciding(NEVER_BY_CHANCE)
    for number in range(30):
        deciding.learn(f"http://a.test/{'x' * (number + 1)}", candidate=True, added=False)
    before = Deciding(NEVER_BY_CHANCE).probability("http://a.test/new", candidate=True)
    assert deciding.probability("http://a.test/new", candidate=True) == pytest.approx(before / 2)


def test_some_pages_are_drawn_by_chance_and_always_the_same_ones() -> None:
    urls = [f"http://a.test/{number}" for number in range(3000)]
    drawn = [url for url in urls if Deciding(RenderConfig(chance=0.01)).why(url, ORDINARY) == "chance"]
    assert 10 <= len(drawn) <= 60
    assert drawn == [url for url in urls if Deciding(RenderConfig(chance=0.01)).why(url, ORDINARY)]
    assert not Deciding(RenderConfig(chance=1.0)).why(urls[0], Signs(5000, script=False, mark=False))


def test_what_counts_as_something_new() -> None:
    before = Signs(1000, script=True, mark=False)
    assert adds(before, before, new_links=1)
    assert not adds(before, before, new_links=0)
    assert adds(before, Signs(1300, True, False), new_links=0)
    assert not adds(before, Signs(1150, True, False), new_links=0)
    assert not adds(Signs(10, True, True), Signs(60, True, True), new_links=0), "a clock is no content"


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.render.deciding._PATTERNS_MAX", 10)
    deciding = Deciding(NEVER_BY_CHANCE)
    for number in range(100):
        deciding.learn(f"http://h{number}.test/", candidate=True, added=True)
    assert len(deciding._seen) <= 10
