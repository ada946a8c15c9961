"""Test robots directives of whole pages."""

import pytest

from crawler.extract.directives import Directives, page_directives


@pytest.mark.parametrize(
    ("tags", "metas", "expected"),
    [
        ([], [], Directives()),
        (["noindex"], [], Directives(noindex=True)),
        (["NoIndex, NOFOLLOW"], [], Directives(nofollow=True, noindex=True)),
        (["none"], [], Directives(True, True, True)),
        (["noarchive"], [], Directives(noarchive=True)),
        (["me: nofollow"], [], Directives(nofollow=True)),
        (["ME : nofollow, noarchive"], [], Directives(nofollow=True, noarchive=True)),
        (["*: nofollow"], [], Directives(nofollow=True)),
        (["otherbot: nofollow, noindex"], [], Directives()),
        (["otherbot: nofollow, me: noindex"], [], Directives(noindex=True)),
        (["otherbot: nofollow", "noindex"], [], Directives(noindex=True)),
        (["unavailable_after: 25 Jun 2010 15:00:00 PST, nofollow"], [], Directives(nofollow=True)),
        (["max-snippet:20, noindex"], [], Directives(noindex=True)),
        ([], ["noindex,nofollow"], Directives(nofollow=True, noindex=True)),
        ([], ["index, follow"], Directives()),
        ([], ["all", " noarchive "], Directives(noarchive=True)),
        (["noindex"], ["nofollow"], Directives(nofollow=True, noindex=True)),
        (["nofollowers"], ["no follow"], Directives()),
        (["", ",", ":"], [""], Directives()),
    ],
)
def test_directives(tags: list[str], metas: list[str], expected: Directives) -> None:
    assert page_directives(tags, metas, "Me") == expected
