"""Run `crawler report` on a crawl of a site with one planted fault for each check."""

import json
from pathlib import Path
from typing import Any

import pytest

from crawler.audit.check_table import CHECKS, Severity, named, page_table, word
from crawler.errors import UsageError
from tests.end_to_end.web import Route, Web, crawl, redirect, run

# This site cannot test two checks, because one needs slow answers and the other needs https. These checks are
# tested in tests/audit/test_on_page.py and tests/audit/test_findings.py.
OTHERWISE = {"slow_pages", "mixed_content"}
WORDS = "tea " * 210


def _page(
    name: str,
    *links: str,
    head: str = "",
    title: str | None = None,
    description: str | None = None,
    h1: str = "",
    body: str = WORDS,
) -> str:
    """Return a page that has only the faults given by the arguments."""
    title = f"About {name}" if title is None else title
    about = f"All about {name}." if description is None else description
    anchors = "".join(f'<a href="{link}">{link}</a> ' for link in links)
    return (
        f"<!doctype html><html lang=en><head><title>{title}</title><meta name=description content='{about}'>{head}"
        f"</head><body>{h1 or f'<h1>{name}</h1>'}{anchors}<p>{name} {body}</body></html>"
    )


def _routes(web: Web) -> dict[str, Route]:
    mapped = ("/", "/lone", "/dead", "/moved")
    urls = "".join(f"<url><loc>{web.url(path)}</loc></url>" for path in mapped)
    same = _page("copy", title="Copy one", description="Copy one.")
    site = {
        "/robots.txt": f"User-agent: *\nDisallow: /private\nSitemap: {web.url('/map.xml')}",
        "/map.xml": (200, {"Content-Type": "application/xml"}, f"<urlset>{urls}</urlset>"),
        "/lone": _page("lone"),
        "/moved": redirect("/hop"),
        "/hop": redirect("/end"),
        "/round": redirect("/round?again"),
        "/round?again": redirect("/round"),
        "/itself": redirect("/itself"),
        "/lost": _page("lost", title="Page not found"),
        "/conflict": _page("conflict", head="<link rel=canonical href=/end><link rel=canonical href=/1>"),
        "/canonical": _page("canonical", head="<link rel=canonical href=/moved>"),
        "/code": _page("code", head="<link rel=alternate hreflang=en-UK href=/code>"),
        "/translated": _page("translated", head="<link rel=alternate hreflang=de href=/dead>"),
        "/one-way": _page("one-way", head="<link rel=alternate hreflang=de href=/end>"),
        "/refresh": _page("refresh", head='<meta http-equiv=refresh content="0; url=/end">'),
        "/untitled": _page("untitled", title=""),
        "/same-title-1": _page("first", title="Both"),
        "/same-title-2": _page("second", title="Both"),
        "/long-title": _page("long", title="A title of more than sixty characters, which search engines cut off"),
        "/undescribed": _page("undescribed", description=""),
        "/same-description-1": _page("third", description="Both."),
        "/same-description-2": _page("fourth", description="Both."),
        "/long-description": _page("fifth", description="A long description. " * 8),
        "/headless": _page("headless", h1=" "),
        "/two-headed": _page("two-headed", h1="<h1>One</h1><h1>Two</h1>"),
        "/image": _page("image", body=WORDS + "<img src=/x.png>"),
        "/copy": same,
        "/copy?2": same,
        "/thin": _page("thin", body="few words"),
        "/hidden": _page("hidden", head="<meta name=robots content=noindex>"),
        "/1": _page("1", "/2"),
        "/2": _page("2", "/3"),
        "/3": _page("3", "/4"),
        "/4": _page("4"),
        "/end": _page("end", web.url("/dead", "other.localhost"), "http://other.localhost:25/", "http://localhost:22/"),
    }  # fmt: skip
    unlinked = ("/robots.txt", "/map.xml", "/lone", "/hop", "/round?again", "/2", "/3", "/4")
    links = [path for path in site if path not in unlinked]
    return site | {"/": _page("start", *links, "/dead", "/private/x")}


# Maps each check to the subjects of the findings that it must report: paths, or a text that several pages
# share.
PLANTED = {
    "dead_links": {"/dead", "http://localhost:22/"},
    "external_dead_links": {"other.localhost/dead", "http://other.localhost:25/"},
    "redirect_loops": {"/round", "/itself"},
    "soft_404": {"/lost"},
    "canonical_conflicts": {"/conflict"},
    "canonical_targets": {"/canonical"},
    "hreflang_codes": {"/code"},
    "hreflang_targets": {"/translated"},
    "hreflang_returns": {"/one-way"},
    "sitemap_errors": {"/dead"},
    "sitemap_redirects": {"/moved"},
    "redirect_chains": {"/moved"},
    "redirected_links": {"/moved"},
    "meta_refreshes": {"/refresh"},
    "missing_titles": {"/untitled"},
    "duplicate_titles": {"Both", "Copy one"},
    "long_titles": {"/long-title"},
    "missing_descriptions": {"/undescribed"},
    "duplicate_descriptions": {"Both.", "Copy one."},
    "long_descriptions": {"/long-description"},
    "missing_headings": {"/headless"},
    "several_headings": {"/two-headed"},
    "missing_alts": {"/image"},
    "duplicate_contents": {"/copy"},
    "thin_pages": {"/thin"},
    "noindex_pages": {"/hidden"},
    "robots_blocked": {"/private/x"},
    "orphans": {"/lone"},
    "deep_pages": {"/4"},
}


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Web]:
    folder = tmp_path_factory.mktemp("planted")
    with Web({}) as web:
        web.routes |= _routes(web)
        crawl(folder / "crawl", web.url(), "--check-external")
    return folder / "crawl", web


@pytest.fixture(scope="module")
def sections(crawled: tuple[Path, Web]) -> dict[str, Any]:
    directory, _ = crawled
    return json.loads(run("report", "--dir", directory, "--format", "json").out)["sections"]


def test_every_check_has_a_planted_fault() -> None:
    assert set(PLANTED) | OTHERWISE | {"not_in_sitemap"} == set(CHECKS)


@pytest.mark.parametrize("name", PLANTED)
def test_each_check_finds_its_planted_faults_and_nothing_else(
    crawled: tuple[Path, Web], sections: dict[str, Any], name: str
) -> None:
    _, web = crawled
    subjects = (each["subject"].partition("?")[0] for each in sections[name]["listed"])
    found = {
        subject.removeprefix(web.url("")).replace(web.url("", "other.localhost"), "other.localhost")
        for subject in subjects
    }
    assert found == PLANTED[name]


def test_pages_missing_from_the_sitemap(crawled: tuple[Path, Web], sections: dict[str, Any]) -> None:
    _, web = crawled
    subjects = {each["subject"] for each in sections["not_in_sitemap"]["listed"]}
    assert web.url("/thin") in subjects and not subjects & {
        web.url("/"),
        web.url("/lone"),
        web.url("/hidden"),
    }


def test_the_readme_lists_all_checks() -> None:
    page = Path(__file__).resolve().parents[2] / "crawler" / "audit" / "README.md"
    assert page_table() in page.read_text(encoding="utf-8")


def test_arguments_of_fail_on() -> None:
    assert named(["dead-links"]) == {"dead_links"}
    assert named(["notice"]) == set(CHECKS)
    assert named(["error"]) == {name for name, check in CHECKS.items() if check.severity is Severity.ERROR}
    assert named(["warning", "thin-pages"]) == named(["warning"]) | {"thin_pages"}
    assert all(named([word(name)]) == {name} for name in CHECKS)
    with pytest.raises(UsageError, match="dead-link: no such check"):
        named(["dead-link"])
