"""Test over HTTP, by the server's log, that URLs whose first tries failed are tried again later, without a signal."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.test_outages import refreshing, until
from tests.end_to_end.test_refreshing import FAST, WHOLE, crawl
from tests.end_to_end.web import Answer, Web, page, run

DOWN: dict[str, Answer] = {"/broken": (500, {}, ""), "/cut": (200, {"Content-Length": "9000"}, "begun")}
OTHERS: dict[str, Answer] = {"/missing": (404, {}, ""), "/refused": (403, {}, "")}
DUE = ("--set", "refresh.retry_age=0", "--set", "refresh.gone_age=0")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_later_run_tries_urls_again_whose_first_tries_failed(tmp_path: Path, processes: int) -> None:
    """A run does not wait for a later try, nor make it before it is due. URLs that are gone are not tried again."""
    directory = tmp_path / "crawl"
    flags = ("--admin", "off", "--set", "frontier.tries=1", "--processes", str(processes))
    with Web({"/": page(*DOWN, *OTHERS)} | DOWN | OTHERS) as web:
        crawl(directory, web.url("/"), *flags)
        first = sorted(web.paths())
        crawl(directory, *flags)
        assert sorted(web.paths()) == first, "the next try is due in an hour"
        why = run("why", web.url("/broken"), "--dir", directory).text
        assert "; a run that begins after 20" in why and " will try it again." in why
        crawl(directory, *flags, *DUE)
        assert {path: web.paths().count(path) for path in (*DOWN, *OTHERS)} == (
            dict.fromkeys(DOWN, 2) | dict.fromkeys(OTHERS, 1)
        )
        web.routes |= dict.fromkeys(DOWN, WHOLE)
        crawl(directory, *flags, *DUE)
        told = json.loads((directory / "report.json").read_bytes())["run"]["refresh"]
        assert told["first_copies"] == len(DOWN) and not told.get("content_changed")
        for path in DOWN:
            assert run("get", web.url(path), "--dir", directory).text == WHOLE
        crawl(directory, *flags, *DUE)
        assert all(web.paths().count(path) == 3 for path in DOWN)
        assert run("check", "--dir", directory).code == 0


def test_a_refreshing_crawl_tries_urls_again_that_a_finite_crawl_left(tmp_path: Path) -> None:
    directory = tmp_path / "crawl"
    flags = ("--admin", "off", "--set", "frontier.tries=1", "--set", "refresh.min_age=3600")
    with Web({"/": page(*DOWN, *OTHERS)} | DOWN | OTHERS) as web:
        crawl(directory, web.url("/"), *flags)
        often = ("--set", "refresh.retry_age=0.2", "--set", "refresh.gone_age=1")
        refresh = ("--dir", str(directory), *FAST[: FAST.index("--progress")], *flags, *often)
        with refreshing(*refresh) as process:
            until(lambda: all(web.paths().count(path) > 1 for path in DOWN), process)
        assert all(web.paths().count(path) == 1 for path in OTHERS)
        why = run("why", web.url("/broken"), "--dir", directory).text
        assert "; its next refresh is due at 20" in why.splitlines()[0]
        web.routes |= dict.fromkeys(DOWN, WHOLE)
        down = len(web.paths())
        with refreshing(*refresh) as process:
            until(lambda: all(path in web.paths()[down:] for path in DOWN), process)
            until(
                lambda: all(run("get", web.url(path), "--dir", directory).code == 0 for path in DOWN), process
            )
        for path in DOWN:
            assert run("get", web.url(path), "--dir", directory).text == WHOLE
        assert run("check", "--dir", directory).code == 0
