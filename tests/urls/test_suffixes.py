"""Test that the crawler's faster reader of the public suffix list returns the same list as the library."""

import publicsuffixlist

from crawler.urls.suffixes import suffix_list, suffix_list_version


def test_the_list_is_that_of_the_library() -> None:
    """The library converts every rule to A-labels. The crawler's reader converts only the rules that need it."""
    ours, theirs = suffix_list(), publicsuffixlist.PublicSuffixList()
    assert ours._publicsuffix == theirs._publicsuffix and ours._maxlabel == theirs._maxlabel
    assert ours.privatesuffix("a.b.example.co.uk") == "example.co.uk"
    assert ours.privatesuffix("www.xn--85x722f.xn--55qx5d.cn") == "xn--85x722f.xn--55qx5d.cn"


def test_the_version_is_that_of_the_list() -> None:
    assert suffix_list_version()[0].isdigit()
