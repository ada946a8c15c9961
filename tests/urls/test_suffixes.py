"""Test that the crawler's fast reader of the public suffix list gives the same answers as the library."""

import random

import publicsuffixlist
import pytest

from crawler.urls.suffixes import registrable_domain, suffix_list, suffix_list_version

THEIRS = publicsuffixlist.PublicSuffixList()
NAMES = ("co.uk", "com.", "a.com.", "", ".", "a..com", ".com", "..", "a.", "unknown", "b.a.unknown", "a.b.ck")


def test_the_rules_are_those_of_the_library() -> None:
    """The library converts every rule to A-labels. The crawler's reader converts only the rules that need it."""
    assert suffix_list()._rules == THEIRS._publicsuffix


def test_names_below_the_rules_have_the_domains_that_the_library_finds() -> None:
    """The owner of a URL depends on its domain, so another answer would move hosts between processes."""
    rules = random.sample(sorted(THEIRS._publicsuffix), 1500)
    special = [rule for rule in THEIRS._publicsuffix if rule[0] in "!*"]
    roots = {rule.lstrip("!").removeprefix("*.") for rule in (*rules, *special)}
    for name in (*NAMES, *(before + root for root in roots for before in ("", "a.", "b.a.", "c.b.a."))):
        assert suffix_list().registrable_domain(name) == (THEIRS.privatesuffix(name) or name), name
        assert suffix_list().is_public(name) is THEIRS.is_public(name), name


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]", "[2001:db8::2]"])
def test_an_address_is_its_own_domain(address: str) -> None:
    assert registrable_domain(address) == address


def test_the_version_is_that_of_the_list() -> None:
    assert suffix_list_version()[0].isdigit()
