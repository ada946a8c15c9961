"""Test which links of canned answers are followed, and with which depth and flags. The stages are real."""

import html
from collections.abc import Callable
from typing import Any

import pytest

from crawler.records import Extracted, LinkFlag, TaskKind
from crawler.storage.commit import Change
from tests.process.support import Joint, fetch, links_of, redirect

HOME = "http://a.org/"
SEED, SITEMAP, FEED = LinkFlag.SEED, LinkFlag.SITEMAP, LinkFlag.FEED
REQUISITE, REDIRECT, REFRESH = LinkFlag.REQUISITE, LinkFlag.REDIRECT, LinkFlag.REFRESH
EXTERNAL = LinkFlag.EXTERNAL
OpenJoint = Callable[..., Joint]


def extracted(*hrefs: str, **values: Any) -> Extracted:
    return Extracted(values.pop("base", HOME), hrefs=list(hrefs), **values)


@pytest.fixture
def home(joint: Joint) -> Joint:
    """Open a process whose scope is a.org."""
    joint.visit(fetch(HOME, b"home"))
    return joint


# ---- pages ----


def test_links_are_one_hop_further_and_come_from_their_page(home: Joint) -> None:
    change = home.follow(
        HOME + "p", fetch(HOME + "p"), extracted("x", base="http://a.org/q/"), depth=4, redirects=2
    )
    assert links_of(change) == [("http://a.org/q/x", 5, 0, 0)]
    assert change.links[0].via == home.fingerprint(HOME + "p")


def test_a_page_in_another_encoding(home: Joint) -> None:
    change = home.follow(HOME + "p", fetch(HOME + "p"), extracted("?ä", encoding="windows-1252"))
    assert change.links[0].url == "http://a.org/?%E4"


def test_requisites_come_with_their_flag(open_joint: OpenJoint) -> None:
    joint = open_joint(crawl={"requisites": True})
    joint.seeds(HOME)
    found = extracted("/x", requisites=["/s.css?ä", "http://cdn.org/s.png"], encoding="windows-1252")
    change = joint.page(joint.fetch_task(), fetch(HOME), found)
    assert links_of(change) == [
        ("http://a.org/x", 1, 0, 0),
        ("http://a.org/s.css?%E4", 0, 0, REQUISITE),
        ("http://cdn.org/s.png", 0, 0, REQUISITE),
    ]
    assert {link.via for link in change.links} == {joint.fingerprint(HOME)}
    assert joint.record(HOME).links == 3


def test_links_out_of_scope_are_checked_if_configured(open_joint: OpenJoint) -> None:
    """A link out of scope has the depth of its page, so no depth limit parks it.

    Such a link does not count as a page of the crawl.
    """
    joint = open_joint(crawl={"check_external": True, "depth": 0}, filter={"exclude": ["secret"]})
    joint.seeds(HOME)
    found = extracted("/x", "http://b.org/y.pdf", "http://b.org/secret", "mailto:me")
    change = joint.page(joint.fetch_task(), fetch(HOME), found)
    assert links_of(change) == [("http://a.org/x", 1, 0, 0), ("http://b.org/y.pdf", 0, 0, EXTERNAL)]
    # the external link is checked although it is out of scope, so it counts both as accepted and as filtered
    assert change.counts["urls.links"] == 5
    assert change.counts["urls.accepted"] == 2
    assert change.counts["urls.filtered.scope"] == 2


@pytest.mark.parametrize(
    ("target", "flags"), [("http://c.org/", EXTERNAL | REDIRECT), (HOME + "z", REDIRECT)]
)
def test_the_redirect_of_an_external_link(open_joint: OpenJoint, target: str, flags: int) -> None:
    joint = open_joint(crawl={"check_external": True})
    joint.store(HOME)
    url = "http://b.org/y"
    change = joint.follow(url, redirect(url, target), flags=EXTERNAL)
    assert links_of(change) == [(target, 0, 1, flags)]


def test_a_meta_refresh_is_a_redirect_relative_to_the_base(home: Joint) -> None:
    found = extracted("/x", refresh="y", base="http://a.org/q/")
    change = home.follow(HOME + "p", fetch(HOME + "p"), found, depth=2, redirects=3)
    assert links_of(change) == [("http://a.org/x", 3, 0, 0), ("http://a.org/q/y", 2, 4, REDIRECT)]
    assert home.record(HOME + "p").links == 2


def test_the_query_of_a_meta_refresh_is_in_the_encoding_of_the_page(home: Joint) -> None:
    found = extracted("/x?q=\u044b", refresh="/y?q=\u044b", encoding="windows-1251")
    change = home.follow(HOME + "p", fetch(HOME + "p"), found)
    assert [link.url for link in change.links] == ["http://a.org/x?q=%FB", "http://a.org/y?q=%FB"]


def test_links_of_a_page_with_nofollow_are_not_followed(home: Joint) -> None:
    change = home.follow(HOME + "p", fetch(HOME + "p"), extracted(nofollow=True))
    assert not change.links and "urls.links" not in change.counts
    assert change.counts["pages.links_not_taken"] == 1
    assert home.record(HOME + "p").links == 0


@pytest.mark.parametrize("values", [{"hrefs": ["/x"]}, {"requisites": ["/x"]}, {"refresh": "/x"}])
def test_links_that_the_extractor_returns_are_followed_despite_directives(
    open_joint: OpenJoint, values: dict[str, Any]
) -> None:
    """If robots.policy is "ignore", the extractor returns links in spite of `nofollow`, and they are followed."""
    joint = open_joint(crawl={"requisites": True})
    change = joint.visit(fetch(HOME), Extracted(HOME, nofollow=True, **values))
    assert change.counts["urls.accepted"] == 1 and "pages.links_not_taken" not in change.counts


def test_a_page_beyond_the_parsers_bound_is_counted(home: Joint) -> None:
    plain = home.follow(HOME + "p", fetch(HOME + "p"), extracted("/x"))
    assert "pages.parse_limit" not in plain.counts and "pages.links_not_taken" not in plain.counts
    change = home.follow(HOME + "q", fetch(HOME + "q"), extracted("/y", parse_limit=True))
    assert change.counts["pages.parse_limit"] == change.counts["urls.to_due"] == 1


def test_a_page_that_was_not_read_has_no_links(home: Joint) -> None:
    change = home.follow(HOME + "p", fetch(HOME + "p"))
    assert "urls.links" not in change.counts and "pages.links_not_taken" not in change.counts
    assert home.record(HOME + "p").links == 0


def test_links_of_too_many_copies_on_a_host_are_not_followed(open_joint: OpenJoint) -> None:
    """Pages of a host with the same content count as copies.

    The links of copies beyond the limit are not followed.
    """
    joint = open_joint(traps={"same_digest_pages_max": 2})
    joint.seeds(HOME, "http://b.org/")
    taken = []
    urls = [HOME, "http://b.org/"]
    for _ in range(2):
        fetch_task = joint.fetch_task()
        urls.remove(fetch_task.url)
        taken.append(
            "urls.links" in joint.page(fetch_task, fetch(fetch_task.url, b"same"), extracted("/x")).counts
        )
    for n in range(2):
        url = f"{HOME}{n}"
        taken.append("urls.links" in joint.follow(url, fetch(url, b"same"), extracted("/x")).counts)
    assert taken == [True, True, True, False]
    other = joint.follow(HOME + "o", fetch(HOME + "o", b"other"), extracted("/x"))
    assert "urls.links" in other.counts


def test_a_host_that_answers_200_for_missing_pages(open_joint: OpenJoint) -> None:
    """A soft 404 page quotes the requested URL and links to another URL below it.

    The crawler must not follow these links forever.
    """
    joint = open_joint(traps={"same_digest_pages_max": 2})
    joint.visit(fetch(HOME, b"home"), extracted("/x"))
    taken, copies = [], 0
    for path in ("lost", "lost/one", "lost/one/two?a=1&b=2", "lost/one/two/three"):
        body = f"<p>There is no /{html.escape(path)} here. <a href='/{html.escape(path)}/on'>on</a>".encode()
        counts = joint.follow(HOME + path, fetch(HOME + path, body), extracted("on")).counts
        taken.append("urls.links" in counts)
        copies += counts.get("pages.copies", 0)
    assert taken == [True, True, False, False] and copies == 2
    page = joint.follow(HOME + "real", fetch(HOME + "real", b"<p>/real, with its own text"), extracted("/y"))
    assert "urls.links" in page.counts


def test_an_authority_that_answers_with_a_page_is_no_alias(home: Joint) -> None:
    for n in range(6):
        url = f"{HOME}{n}"
        home.follow(url, redirect(url, f"https://a.org/{n}"))
    assert home.stages.equivalences.proven == {"http://a.org": "https://a.org"}
    answering = "http://b.org/"
    home.follow(answering, fetch(answering), extracted())
    for n in range(6):
        url = f"{answering}{n}"
        home.follow(url, redirect(url, f"https://b.org/{n}"))
    assert "http://b.org" not in home.stages.equivalences.proven


# ---- redirects ----


def test_a_redirect_is_a_hop_of_the_same_depth(home: Joint) -> None:
    change = home.follow(HOME + "p", redirect(HOME + "p", "q"), extracted("/x"), depth=3, redirects=1)
    assert links_of(change) == [("http://a.org/q", 3, 2, REDIRECT)]
    assert change.links[0].via == home.fingerprint(HOME + "p")
    assert change.counts["pages.redirect"] == change.counts["urls.links"] == 1
    assert home.record(HOME + "p").links == 1


@pytest.mark.parametrize("flag", [0, FEED, REQUISITE, SITEMAP, REDIRECT, REFRESH])
def test_a_redirect_target_keeps_some_flags_of_its_source(open_joint: OpenJoint, flag: int) -> None:
    joint = open_joint(crawl={"scope": "any", "requisites": True})
    change = joint.follow(HOME, redirect(HOME, "/q"), flags=flag)
    kept = flag if flag in (REQUISITE, SITEMAP) else 0
    assert links_of(change) == [("http://a.org/q", 0, 1, kept | REDIRECT)]


def test_the_end_of_a_chain(open_joint: OpenJoint) -> None:
    joint = open_joint(fetch={"redirects_max": 3}, crawl={"scope": "any"})
    last = joint.follow(HOME + "p", redirect(HOME + "p", "/q"), redirects=2)
    assert links_of(last) == [("http://a.org/q", 0, 3, REDIRECT)]
    over = joint.follow(HOME + "r", redirect(HOME + "r", "/s"), redirects=3)
    assert not over.links and over.counts["urls.filtered.redirect_chain"] == 1
    assert "urls.links" not in over.counts
    assert joint.record(HOME + "r").links == 0


def test_the_target_of_a_seed_is_a_seed_and_widens_the_scope(joint: Joint) -> None:
    change = joint.visit(redirect(HOME, "http://b.org/home"))
    assert links_of(change) == [("http://b.org/home", 0, 1, SEED | REDIRECT)]
    assert joint.admission.in_scope("http://b.org/x")
    assert change.operations


def test_the_redirect_target_of_a_page_that_is_no_seed_does_not_widen_the_scope(home: Joint) -> None:
    change = home.follow(HOME + "p", redirect(HOME + "p", "http://b.org/"))
    assert not change.links and change.counts["urls.filtered.scope"] == 1
    assert not home.admission.in_scope("http://b.org/")


# ---- sitemaps ----


def sitemap(joint: Joint, *hrefs: str, depth: int = 0, **values: Any) -> Change:
    url = HOME + "map.xml"
    return joint.follow(url, fetch(url, b"<urlset>"), extracted(*hrefs, **values), depth=depth, flags=SITEMAP)


def test_a_map_names_pages_of_its_host_and_of_those_that_name_it(joint: Joint) -> None:
    joint.seeds(HOME, "http://named.org/", "http://foreign.org/")
    for _ in range(3):
        fetch_task = joint.fetch_task(TaskKind.ROBOTS)
        answer = fetch(fetch_task.url)
        joint.commit(joint.results.robots(fetch_task, answer, joint.clock.now()))
    for _ in range(3):
        fetch_task = joint.fetch_task()
        joint.page(fetch_task, fetch(fetch_task.url))
    pages = ["http://a.org/1", "http://named.org/1", "http://foreign.org/1"]
    change = sitemap(joint, *pages, depth=2, submitters=["http://named.org"])
    assert links_of(change) == [(pages[0], 1, 0, 0), (pages[1], 1, 0, 0)]
    assert {link.via for link in change.links} == {joint.fingerprint(HOME + "map.xml")}


def test_the_maps_of_an_index(open_joint: OpenJoint) -> None:
    joint = open_joint(sitemaps={"depth_max": 2})
    joint.store(HOME)
    maps = ["http://a.org/1.xml", "http://b.org/2.xml"]
    change = sitemap(joint, "/x", maps=maps, depth=1)
    assert links_of(change) == [("http://a.org/x", 1, 0, 0), ("http://a.org/1.xml", 2, 0, SITEMAP)]
    assert {link.via for link in change.links} == {joint.fingerprint(HOME + "map.xml")}
    assert joint.record(HOME + "map.xml").links == 1, "linked sitemaps are not counted as pages"


def test_an_index_too_deep(open_joint: OpenJoint) -> None:
    joint = open_joint(sitemaps={"depth_max": 2})
    joint.store(HOME)
    change = sitemap(joint, maps=["http://a.org/1.xml"], depth=2)
    assert not change.links and "urls.links" not in change.counts


def test_a_map_is_not_in_the_trace(open_joint: OpenJoint) -> None:
    joint = open_joint(crawl={"scope": "any", "trace": True})
    sitemap(joint, "/x")
    trace = joint.stages.trace
    assert trace is not None and trace.pages == 0
    url = HOME + "p"
    joint.follow(url, fetch(url), extracted("/x", "/y"))
    assert trace.pages == 1


# ---- robots.txt ----


MAP = b"Sitemap: http://a.org/map.xml"


def test_sitemaps_may_be_guessed(open_joint: OpenJoint) -> None:
    joint = open_joint(sitemaps={"guess": True})
    joint.seeds(HOME)
    assert links_of(joint.robots(MAP)) == [
        ("http://a.org/map.xml", 0, 0, SITEMAP),
        ("http://a.org/sitemap.xml", 0, 0, SITEMAP),
    ]


def test_sitemaps_of_robots_txt_are_not_followed_if_disabled(open_joint: OpenJoint) -> None:
    joint = open_joint(sitemaps={"robots": False, "guess": True})
    joint.seeds(HOME)
    assert not joint.robots(MAP).links


def test_sitemaps_of_a_host_outside_the_scope_are_not_followed(home: Joint) -> None:
    home.add("http://b.org/", flags=SEED)
    change = home.robots(b"Sitemap: http://b.org/map.xml")
    assert not change.links and "urls.links" not in change.counts
