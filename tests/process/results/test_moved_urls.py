"""Test for which page a change signal about a URL that redirects counts."""

import pytest

from crawler.change_signals import SIGNAL_SOURCES, source_number
from crawler.process.results.moved_urls import HOPS_MAX, moved_to
from crawler.records import Outcome, PageRecord, PageState

A, B, C = (f"http://a.org/{name}" for name in "abc")
OTHER = "http://b.org/"


def moved(url: str, redirects: dict[str, str], source: str = "indexnow") -> str:
    """Follow a table of redirects; all other URLs are stored pages, except those of c.org, which are not known."""

    def record(url: str) -> PageRecord | None:
        if "c.org" in url:
            return None
        if url not in redirects:
            return PageRecord(url, PageState.STORED, Outcome.FETCHED)
        return PageRecord(url, PageState.REDIRECTED, Outcome.REDIRECT, 308, location=redirects[url])

    return moved_to(url, record(url), source_number(source), record)


def test_a_signal_counts_for_the_page_at_the_end_of_the_redirects() -> None:
    assert moved(A, {A: "/b?x=1#top"}) == B + "?x=1"
    assert moved(A, {A: B, B: C}) == C
    assert moved(A, {}) == moved("http://c.org/", {}) == ""


def test_loops_and_long_chains_lead_nowhere() -> None:
    assert moved(A, {A: A}) == moved(A, {A: B, B: A}) == moved(A, {A: B, B: C, C: B}) == ""
    chain = {f"http://a.org/{n}": f"http://a.org/{n + 1}" for n in range(20)}
    assert moved(f"http://a.org/{20 - HOPS_MAX + 1}", chain) == "http://a.org/20"
    assert moved(f"http://a.org/{20 - HOPS_MAX}", chain) == ""


def test_a_target_that_is_no_url_is_not_followed() -> None:
    assert moved(A, {A: "mailto:a@a.org"}) == moved(A, {A: "http://["}) == ""


@pytest.mark.parametrize("source", [each.name for each in SIGNAL_SOURCES])
def test_only_senders_that_may_name_any_url_reach_another_site_by_a_redirect(source: str) -> None:
    """Otherwise, a site could have the pages of another site fetched by redirecting to them."""
    may = source in ("signal", "headers", "other")
    assert moved(A, {A: OTHER}, source) == (OTHER if may else "")
    assert moved(A, {A: B, B: OTHER}, source) == (OTHER if may else "")
    assert moved(A, {A: "https://www.a.org/"}, source) == "https://www.a.org/", "the same site"
    assert moved("http://x.github.io/", {"http://x.github.io/": "http://y.github.io/"}, source) == (
        "http://y.github.io/" if may else ""
    )


def test_a_url_that_another_process_owns_ends_the_chain_here() -> None:
    assert moved(A, {A: "http://c.org/", "http://c.org/": B}, "signal") == "http://c.org/"
