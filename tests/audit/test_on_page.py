"""Test the findings on a single page."""

from typing import Any

import pytest

from crawler.audit.on_page import Finding, PageFacts, facts
from crawler.records import Extracted, Markup

URL = "https://h.example/a"
GOOD = Markup(descriptions=["About tea"], headings=["Tea"], words=500)


def _facts(title: str = "Tea", markup: Markup | None = GOOD, **values: Any) -> PageFacts:
    return facts(1, URL, Extracted(URL, title=title, markup=markup, **values), b"", hash)


def _with(**values: Any) -> Markup:
    return Markup(**{name: getattr(GOOD, name) for name in GOOD.__struct_fields__} | values)


def test_a_good_page_has_no_findings() -> None:
    assert _facts().findings == []


@pytest.mark.parametrize(
    ("page", "name", "finding"),
    [
        ({"title": ""}, "missing_titles", Finding(URL)),
        ({"title": "x" * 61}, "long_titles", Finding(URL, "61")),
        ({"refresh": "/b"}, "meta_refreshes", Finding(URL, "https://h.example/b")),
        (
            {"refresh": "/b?\u044b", "encoding": "windows-1251"},
            "meta_refreshes",
            Finding(URL, "https://h.example/b?%FB"),
        ),
        (
            {"requisites": ["http://h.example/x.js", "/y.js"]},
            "mixed_content",
            Finding(URL, "1", ("http://h.example/x.js",), 1),
        ),
        ({"markup": _with(descriptions=[])}, "missing_descriptions", Finding(URL)),
        ({"markup": _with(descriptions=["x" * 156])}, "long_descriptions", Finding(URL, "156")),
        ({"markup": _with(headings=[])}, "missing_headings", Finding(URL)),
        ({"markup": _with(headings=["", " "[:0]])}, "missing_headings", Finding(URL)),
        ({"markup": _with(headings=["A", "B"])}, "several_headings", Finding(URL, "2", ("A", "B"), 2)),
        ({"markup": _with(images=["x.png"], unnamed_images=3)}, "missing_alts", Finding(URL, "3", ("x.png",), 3)),
        ({"markup": _with(words=199)}, "thin_pages", Finding(URL, "199")),
        ({"markup": _with(alternates=[("en-UK", "/b")])}, "hreflang_codes", Finding(URL, "en-UK")),
        (
            {"markup": _with(canonicals=["/a", "/b"])},
            "canonical_conflicts",
            Finding(URL, "2", (URL, "https://h.example/b"), 2),
        ),
        ({"title": "Page not found", "markup": _with(words=240)}, "soft_404", Finding(URL, "Page not found")),
        ({"title": "Error 404"  , "markup": _with(words=201)}, "soft_404", Finding(URL, "Error 404")),
        ({"markup": _with(headings=["Seite nicht gefunden"], words=210)}, "soft_404",
         Finding(URL, "Seite nicht gefunden")),
    ],
)  # fmt: skip
def test_each_fault_gives_exactly_one_finding(page: dict[str, Any], name: str, finding: Finding) -> None:
    assert _facts(**page).findings == [(name, finding)]


@pytest.mark.parametrize("title", ["Room 4040", "What 404 means", "Foundations", "Errors in Python"])
def test_a_long_page_about_errors_is_no_soft_404(title: str) -> None:
    assert _facts(title=title).findings == []


@pytest.mark.parametrize(
    ("title", "soft"),
    [
        ("404", True),
        ("404 - Tea shop", True),
        ("Tea shop | 404", True),
        ("404 Not Found", True),
        ("Oops! 404", True),
        ("Fehler 404", True),
        ("Page gone (404)", True),
        ("HTTP Error 404.0", True),
        ("Peugeot 404", False),
        ("Room 404, second floor", False),
        ("404 Main Street", False),
        ("Month 404 | Calendar", False),
        ("1404", False),
    ],
)
def test_404_in_a_title_is_an_error_only_where_error_pages_write_it(title: str, soft: bool) -> None:
    found = _facts(title=title, markup=_with(words=210)).findings
    assert found == ([("soft_404", Finding(URL, title))] if soft else [])


def test_canonical_and_hreflang_links_are_recorded() -> None:
    page = _facts(
        markup=_with(canonicals=["/b", "https://h.example/b"], alternates=[("de", "/de"), ("en", "/a")])
    )
    other, german = "https://h.example/b", "https://h.example/de"
    assert page.canonical == (hash(other), other)
    assert page.alternates == [(hash(german), german), (hash(URL), URL)]
    assert (
        facts(hash(URL), URL, Extracted(URL, title="t", markup=_with(canonicals=["/a"])), b"", hash).canonical
        is None
    )


def test_a_page_without_a_parsed_tree_has_no_findings_that_need_one() -> None:
    assert _facts(markup=None).findings == []
