"""Test which differences count as a change of a page, by the rule of the crawl or by an override for some URLs."""

from typing import Any

import pytest

from crawler.config import Overrides, convert
from crawler.process.opening.change_comparison import ChangeComparison

PAGES = {"change": "text", "simhash_distance": 5, "ignore": ["[0-9]+ views"]}


def comparing(*tables: dict[str, Any]) -> ChangeComparison:
    config = convert({"pages": PAGES, "override": list(tables)})
    return ChangeComparison(config.pages, Overrides(config.override))


@pytest.mark.parametrize(
    ("table", "kind", "distance", "patterns"),
    [
        ({}, "text", 5, 1),
        ({"change": "raw"}, "raw", 5, 1),
        ({"simhash_distance": 0}, "text", 0, 1),
        ({"ignore": []}, "text", 5, 0),
        ({"ignore": ["a", "b"]}, "text", 5, 2),
    ],
)
def test_an_override_changes_what_it_names(
    table: dict[str, Any], kind: str, distance: int, patterns: int
) -> None:
    """A value in an override replaces that of the crawl, even if it is zero or an empty list."""
    made = comparing({"match": "a.org"} | table)
    for url, want in (("http://a.org/x", (kind, distance, patterns)), ("http://b.org/x", ("text", 5, 1))):
        found = made.comparison(url)
        assert (found.kind, found.distance, len(found.ignored)) == want


def test_the_patterns_of_a_rule_are_compiled_once() -> None:
    made = comparing({"match": "a.org", "change": "raw"})
    assert made.comparison("http://b.org/1") is made.comparison("http://b.org/2")
    assert made.comparison("http://a.org/1") is not made.comparison("http://b.org/2")
