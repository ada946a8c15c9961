"""Test the decision whether a page is rendered in a browser."""

import pytest

from crawler.config import RenderConfig
from crawler.render.deciding import Deciding, Signs, adds, pattern_of, signs
from crawler.storage import keys
from crawler.storage.commit import Change
from crawler.storage.kv import MemoryStore, scan_prefix

SHELL = b'<html><head><script src="/app.js"></script></head><body><div id="root"></div></body></html>'
TEXT = b"<p>" + b"word " * 100 + b"</p>"
NEVER_BY_CHANCE = RenderConfig(when="auto", chance=0.0)
HOST = 7 << 48 | 3
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
def test_pages_with_signs_of_client_side_rendering_are_candidates(page: bytes, candidate: bool) -> None:
    assert signs(page).candidate is candidate


def test_reading_the_signs_takes_linear_time_on_hostile_pages() -> None:
    for piece in (b"<div id=root ", b"<noscript ", b"<noscript><a>", b"<script ", b"<div id=root>loading"):
        assert signs(b"<script>1</script>" + piece * 30_000) is not None


def test_url_patterns_replace_numbers_and_names() -> None:
    assert pattern_of("http://a.test/item/17?x=1") == pattern_of("http://a.test/item/18") == "a.test/item/0"
    assert pattern_of("http://a.test/blog/a-long-title") == "a.test/blog/*"
    assert pattern_of("http://a.test/") == "a.test/"
    assert pattern_of("http://a.test/about") != pattern_of("http://a.test/contact")


def test_a_pattern_without_success_is_given_up_after_three_pages() -> None:
    deciding = Deciding(NEVER_BY_CHANCE)
    for number in range(3):
        url = f"http://a.test/item/{number}"
        assert deciding.why(HOST, url, CANDIDATE) == "mark"
        deciding.learn(HOST, url, candidate=True, added=False, batch=Change())
    assert deciding.why(HOST, "http://a.test/item/4", CANDIDATE) == ""
    assert deciding.why(HOST + 1, "http://b.test/item/4", CANDIDATE) == "mark", (
        "another host is not concerned"
    )


def test_a_pattern_with_success_is_rendered_even_without_marks() -> None:
    deciding = Deciding(NEVER_BY_CHANCE)
    url = "http://a.test/item/1"
    assert deciding.why(HOST, url, ORDINARY) == ""
    deciding.learn(HOST, url, candidate=False, added=True, batch=Change())
    assert deciding.why(HOST, "http://a.test/item/2", ORDINARY) == "learned"


def test_failures_on_a_host_lower_the_probability_of_its_new_patterns() -> None:
    deciding = Deciding(NEVER_BY_CHANCE)
    for number in range(30):
        url = f"http://a.test/{'x' * (number + 1)}"
        deciding.learn(HOST, url, candidate=True, added=False, batch=Change())
    before = Deciding(NEVER_BY_CHANCE).probability(HOST, "http://a.test/new", candidate=True)
    assert deciding.probability(HOST, "http://a.test/new", candidate=True) == pytest.approx(before / 2)


def test_a_fixed_random_sample_of_pages_is_rendered() -> None:
    urls = [f"http://a.test/{number}" for number in range(3000)]
    drawn = [url for url in urls if Deciding(RenderConfig(chance=0.01)).why(HOST, url, ORDINARY) == "chance"]
    assert 10 <= len(drawn) <= 60
    assert drawn == [url for url in urls if Deciding(RenderConfig(chance=0.01)).why(HOST, url, ORDINARY)]
    assert not Deciding(RenderConfig(chance=1.0)).why(HOST, urls[0], Signs(5000, script=False, mark=False))


def test_rendering_adds_content_if_it_gives_links_or_enough_text() -> None:
    before = Signs(1000, script=True, mark=False)
    assert adds(before, before, new_links=1)
    assert not adds(before, before, new_links=0)
    assert adds(before, Signs(1300, True, False), new_links=0)
    assert not adds(before, Signs(1150, True, False), new_links=0)
    assert not adds(Signs(10, True, True), Signs(60, True, True), new_links=0), (
        "a few characters, such as a clock, are no content"
    )


def apply(store: MemoryStore, change: Change) -> None:
    batch = store.batch()
    for key, value in change.operations:
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value)
    store.write(batch)


def test_learned_patterns_survive_a_restart() -> None:
    store, first = MemoryStore(), Deciding(NEVER_BY_CHANCE)
    for number in range(3):
        change = Change()
        url = f"http://a.test/item/{number}"
        first.learn(HOST, url, candidate=True, added=False, batch=change)
        first.learn(HOST, "http://a.test/shop", candidate=False, added=True, batch=change)
        apply(store, change)
    second = Deciding(NEVER_BY_CHANCE)
    second.load(store)
    for url, seen in (("http://a.test/item/9", CANDIDATE), ("http://a.test/shop", ORDINARY)):
        assert second.why(HOST, url, seen) == first.why(HOST, url, seen)
        assert second.probability(HOST, url, candidate=seen.candidate) == first.probability(
            HOST, url, candidate=seen.candidate
        )
    assert second.why(HOST, "http://a.test/item/9", CANDIDATE) == "", (
        "the pattern is not tried three times again"
    )


def test_keys_begin_with_the_bucket_of_the_host() -> None:
    change = Change()
    Deciding(NEVER_BY_CHANCE).learn(HOST, "http://a.test/1", candidate=True, added=True, batch=change)
    assert {keys.bucket(key) for key, _ in change.operations} == {HOST >> 48}
    assert all(keys.family(key) is not None for key, _ in change.operations)


def test_a_damaged_value_is_ignored_and_learned_again() -> None:
    store, change = MemoryStore(), Change()
    Deciding(NEVER_BY_CHANCE).learn(HOST, "http://a.test/1", candidate=False, added=True, batch=change)
    change.operations = [(key, b"\0" + (value or b"")) for key, value in change.operations]
    apply(store, change)
    deciding = Deciding(NEVER_BY_CHANCE)
    deciding.load(store)
    assert deciding.why(HOST, "http://a.test/1", ORDINARY) == ""


def test_patterns_are_bounded_in_memory_and_in_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit holds even if a process starts with more patterns than it may keep, for example after a reshard."""
    store, deciding = MemoryStore(), Deciding(NEVER_BY_CHANCE)

    def learn(numbers: range) -> None:
        for number in numbers:
            change = Change()
            url = f"http://h{number}.test/"
            deciding.learn(HOST + number, url, candidate=True, added=True, batch=change)
            apply(store, change)

    learn(range(50))
    monkeypatch.setattr("crawler.render.deciding.PATTERNS_MAX", 10)
    deciding = Deciding(NEVER_BY_CHANCE)
    deciding.load(store)
    learn(range(50, 60))
    assert len(deciding._seen) == len(list(scan_prefix(store, keys.RENDERED))) == 10
