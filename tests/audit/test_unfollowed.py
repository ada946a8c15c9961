"""Test `crawler why` for a URL if all links to it are nofollow."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.web import Web, crawl, page, run


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Web]:
    directory = tmp_path_factory.mktemp("unfollowed") / "crawl"
    with Web({}) as web:
        web.routes |= {
            "/": page(
                "/a",
                "/quiet",
                text='<a rel="external nofollow" href="/sponsor">s</a><a rel=nofollow href="/?q=1">',
            ),
            "/a": page(text="It names /sponsor and /nowhere without a link."),
            "/quiet": page("/unfollowed", head="<meta name=robots content=nofollow>"),
        }
        crawl(directory, web.url())
    return directory, web


@pytest.mark.parametrize(
    ("path", "begin"),
    [
        (
            "/sponsor",
            "Never fetched: the link on {home} has rel=nofollow; `--set robots.nofollow_links=false`",
        ),
        ("/?q=1", "Never fetched: the link on {home} has rel=nofollow"),
        ("/unfollowed", "Never fetched: {home}quiet says nofollow for all of its links."),
        ("/nowhere", "Not found yet: no link that is followed leads to it"),
        ("/a", "Stored: 200"),
    ],
)
def test_why_names_the_page_with_the_nofollow_link(crawled: tuple[Path, Web], path: str, begin: str) -> None:
    directory, web = crawled
    said = run("why", web.url(path), "--dir", directory).text
    assert said.startswith(begin.format(home=web.url())), said


def test_the_search_is_bounded(crawled: tuple[Path, Web]) -> None:
    directory, web = crawled
    ran = run("why", web.url("/sponsor"), "--dir", directory, "--search", "0", "--json")
    assert json.loads(ran.out)["verdict"].startswith("Not found yet")
