"""Test that seeds that are added with the field `render` produce the same tables as a seeds file."""

import msgspec
import pytest

from crawler.config import Config, convert
from crawler.crawl.rendered_parts import separated
from crawler.crawl.safe_settings import PARTS, changed, with_live_changes
from crawler.crawl.seed_lines import seed_lines, tables_of
from crawler.errors import ConfigError, UsageError

URLS = ["http://a.example/shop/x", "http://b.example/"]


@pytest.mark.parametrize("scope", ["host", "domain", "prefix", "page"])
def test_the_option_means_the_same_as_the_column_of_a_seeds_file(scope: str) -> None:
    tables, _ = tables_of(seed_lines(["url render", *(f"{url} always" for url in URLS)], "file"), scope)
    settings, rest = separated({"command": "seed", "urls": URLS, "render": "always"}, scope)
    assert rest == {"command": "seed", "urls": URLS}
    assert changed(Config(), settings).override == convert({"override": tables}).override


def test_a_later_value_for_a_part_replaces_the_earlier_one_and_nothing_else() -> None:
    tables = [{"match": "a.example", "delay": 9}, {"match": "a.example", "render": "never"}]
    before = convert({"override": [*tables, {"match": "b.example", "render": "auto"}]})
    after = changed(before, {PARTS: '{"a.example": "always"}'})
    found = [(own.match, own.delay, own.render) for own in after.override]
    assert found == [("a.example", 9.0, None), ("b.example", None, "auto"), ("a.example", None, "always")]
    saved = msgspec.to_builtins(after, enc_hook=lambda value: value + 0)
    assert with_live_changes(before, {}, saved).override == after.override, (
        "a process that is restarted has it, too"
    )


def test_requests_without_the_option_change_no_setting() -> None:
    for request in ({"command": "seed", "urls": URLS}, {"command": "pause"}):
        assert separated(request, "host") == ({}, request)


@pytest.mark.parametrize(("render", "scope"), [("sometimes", "host"), (1, "host"), ("always", "any")])
def test_a_wrong_value_or_a_scope_without_parts_is_refused(render: object, scope: str) -> None:
    with pytest.raises(UsageError):
        separated({"command": "seed", "urls": URLS, "render": render}, scope)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}', '{"a": "sometimes"}'])
def test_a_setting_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        changed(Config(), {PARTS: text})


def test_a_part_that_contains_no_url_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"override\[1\].match: 'A.org:81' matches no URL; did you mean"):
        changed(convert({"override": [{"match": "a.org"}]}), {PARTS: '{"A.org:81": "always"}'})
