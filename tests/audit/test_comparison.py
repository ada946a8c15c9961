"""Test the comparison of a report with the report of an earlier crawl, and the exit code for CI."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.web import Web, crawl, page, redirect, run


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, Web]]:
    folder = tmp_path_factory.mktemp("compared")
    with Web({}) as web:
        web.routes |= {
            "/": page("/a", "/gone", "/dead", "/repaired", "/unlinked", "/moved", "/file"),
            "/a": page(text="One"),
            "/gone": page(text="Bye"),
            **dict.fromkeys(("/unlinked", "/moved", "/file"), page(text="Bye")),
        }
        assert crawl(folder / "before", web.url())["stopped_by"] == "done"
        del web.routes["/gone"]
        web.routes |= {
            "/": page("/a", "/gone", "/new", "/dead", "/broken", "/repaired", "/moved", "/file"),
            "/a": page(text="Two", head="<meta name=description content=d>"),
            "/moved": redirect("/new"),
            "/file": (200, {"Content-Type": "application/pdf"}, "%PDF"),
            "/new": page(text="Hello"),
            "/repaired": page(text="Here"),
        }
        assert crawl(folder / "after", web.url())["stopped_by"] == "done"
    yield folder / "before", folder / "after", web


def test_a_report_is_compared_with_an_earlier_directory(crawled: tuple[Path, Path, Web]) -> None:
    before, after, web = crawled
    ran = run("report", "--dir", after, "--compare", before, "--format", "json")
    compared = json.loads(ran.out)["comparison"]
    subjects = {
        name: {each["subject"].removeprefix(web.url("")) for each in section["listed"]}
        for name, section in compared.items()
    }
    assert subjects["new_pages"] == {"/new", "/repaired"}
    values = {
        name: {each["subject"].removeprefix(web.url("")): each["value"] for each in section["listed"]}
        for name, section in compared.items()
    }
    assert values["gone_pages"] == {
        "/gone": "404 not found",
        "/unlinked": "no link to it was followed",
        "/file": "application/pdf",
    }
    assert values["moved_pages"] == {"/moved": web.url("/new")}
    assert subjects["changed_pages"] == {"/", "/a"}
    assert subjects["new_dead_links"] == {"/broken", "/gone"}
    # findings about pages that are gone or have moved are not repaired
    assert subjects["repaired_missing_descriptions"] == {"/a"}
    assert subjects["repaired_dead_links"] == {"/repaired"}
    text = run("report", "--dir", after, "--compare", before).text
    assert f"Since {before}: " in text and "Dead links, new: 2" in text and "Dead links, repaired: 1" in text
    assert (
        "Dead links, repaired" in run("report", "--dir", after, "--compare", before, "--format", "html").text
    )
    table = run("report", "--dir", after, "--compare", before, "--format", "csv").text
    assert f"repaired_dead_links,{web.url('/repaired')}," in table


def test_a_report_is_compared_with_an_earlier_json_report(
    crawled: tuple[Path, Path, Web], tmp_path: Path
) -> None:
    before, after, _ = crawled
    file = tmp_path / "before.json"
    assert run("report", "--dir", before, "--format", "json", "-o", file).code == 0
    text = run("report", "--dir", after, "--compare", file).text
    assert "Dead links, new: 2" in text and "New pages" not in text
    assert "Missing descriptions, repaired: 1" in text
    file.write_text("{}")
    for wrong in (file, tmp_path / "missing"):
        ran = run("report", "--dir", after, "--compare", wrong)
        assert (
            ran.code == 2
            and "neither a crawl directory nor a file of" in ran.err
            and ran.err.count("\n") == 1
        )
        assert "Errno" not in ran.err


def test_the_same_crawl_has_no_differences(crawled: tuple[Path, Path, Web]) -> None:
    before, _, _ = crawled
    assert "nothing has changed" in run("report", "--dir", before, "--compare", before).text


@pytest.mark.parametrize(
    ("words", "code", "found"),
    [
        (["dead-links"], 10, "found dead-links 3"),
        (["redirect-loops,soft-404"], 0, ""),
        (["redirect-loops", "error"], 10, "found dead-links 3"),
        (["new-dead-links"], 10, "found new-dead-links 2"),
        (["new-redirect-loops"], 0, ""),
        (["typo"], 2, "no such check"),
    ],
)
def test_fail_on_sets_the_exit_code(
    crawled: tuple[Path, Path, Web], words: list[str], code: int, found: str
) -> None:
    before, after, _ = crawled
    flags = [part for word in words for part in ("--fail-on", word)]
    ran = run("report", "--dir", after, "--compare", before, "--limit", "1", *flags)
    assert ran.code == code and found in ran.err


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return two crawls of one site, of which the first was stopped early and had other settings."""
    folder = tmp_path_factory.mktemp("configured")
    with Web({}) as web:
        web.routes |= {"/": page("/a"), "/a": page("/b"), "/b": page()}
        crawl(
            folder / "before", web.url(), "--max-pages", "1", "--http-user", "me", "--http-password", "hidden"
        )
        flags = ("--depth", "1", "--exclude", "/c", "--set", "logs.log_files=3")
        crawl(folder / "after", web.url(), *flags)
    return folder / "before", folder / "after"


@pytest.mark.parametrize("saved", [False, True], ids=["directory", "report"])
def test_settings_that_differ_are_named(configured: tuple[Path, Path], tmp_path: Path, saved: bool) -> None:
    """A difference that the settings cause must not be read as one of the site. Secrets are not shown."""
    before, after = configured
    other = tmp_path / "before.json" if saved else before
    if saved:
        assert run("report", "--dir", before, "--format", "json", "-o", other).code == 0
    made = run("report", "--dir", after, "--compare", other, "--format", "json").text
    listed = json.loads(made)["comparison"]["different_settings"]["listed"]
    found = {each["subject"]: (each["value"], *each["others"]) for each in listed}
    assert found.keys() == {"crawl.depth", "filter.exclude", "identity.headers"} and "hidden" not in made
    assert found["crawl.depth"] == ("1", "-1") and found["filter.exclude"] == ('["/c"]', "[]")
    text = run("report", "--dir", after, "--compare", other).text
    assert "Different settings: 3\n" in text and "  crawl.depth   [1]\n      earlier: -1\n" in text
    assert f"Some pages may only seem to be new: {other} left 1 URL to do.\n" in text
    assert "<th>setting</th>" in run("report", "--dir", after, "--compare", other, "--format", "html").text
    assert "Different settings" not in run("report", "--dir", after, "--compare", after).text


def test_a_report_of_an_earlier_version_has_no_settings(
    configured: tuple[Path, Path], tmp_path: Path
) -> None:
    before, after = configured
    report = json.loads(run("report", "--dir", before, "--format", "json").out)
    del report["settings"], report["compared_left"]
    other = tmp_path / "before.json"
    other.write_text(json.dumps(report))
    ran = run("report", "--dir", after, "--compare", other)
    assert ran.code == 0 and "Different settings" not in ran.text


def test_new_findings_need_a_comparison(crawled: tuple[Path, Path, Web]) -> None:
    ran = run("report", "--dir", crawled[1], "--fail-on", "new-dead-links")
    assert ran.code == 2 and "needs --compare" in ran.err


@pytest.fixture(scope="module")
def spidered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a crawl with `--spider` and an earlier one that stored its pages and checked external links."""
    folder = tmp_path_factory.mktemp("spidered")
    with Web({}) as web:
        web.routes |= {
            "/": page("/soft", web.url("/gone", "other.localhost")),
            "/soft": "<title>404 not found</title>",
        }
        crawl(folder / "before", web.url(), "--check-external")
        crawl(folder / "after", web.url(), "--spider")
    return folder / "before", folder / "after"


def test_checks_that_could_not_be_made_are_named(spidered: tuple[Path, Path]) -> None:
    """They have no findings, so they are neither passed nor repaired."""
    before, after = spidered
    full = json.loads(run("report", "--dir", before, "--format", "json").out)
    assert full["not_made"] == {} and {"soft_404", "external_dead_links"} <= full["sections"].keys()
    found = json.loads(run("report", "--dir", after, "--compare", before, "--format", "json").out)
    assert {"soft_404", "orphans", "external_dead_links"} <= found["not_made"].keys()
    assert not {"dead_links", "redirect_chains", "duplicate_contents"} & found["not_made"].keys()
    assert not [name for name in found["comparison"] if name.startswith("repaired_")]
    for form in ("text", "html"):
        text = run("report", "--dir", after, "--format", form).text
        assert "Not checked, because no HTML page is stored (--spider): soft-404, mixed-content" in text
    text = run("report", "--dir", before, "--compare", after).text
    assert f"Not compared, because in {after} no HTML page is stored (--spider): soft-404" in text
    assert "Not checked" not in text


@pytest.mark.parametrize("word", ["soft-404", "external-dead-links", "new-soft-404"])
def test_fail_on_refuses_a_check_that_could_not_be_made(spidered: tuple[Path, Path], word: str) -> None:
    """Such a check would always pass. A severity selects only the checks that were made."""
    before, after = spidered
    for ours, theirs in ((after, before), (before, after)):
        ran = run("report", "--dir", ours, "--compare", theirs, "--fail-on", word)
        refused = ours == after or word.startswith("new-")
        assert (ran.code == 2) is refused and ran.err.count("\n") == 1
        assert (f"report: --fail-on {word}: " in ran.err) is refused
    assert run("report", "--dir", after, "--fail-on", "warning").code == 0


def test_a_report_that_is_too_large_is_refused(crawled: tuple[Path, Path, Web], tmp_path: Path) -> None:
    """`--compare /dev/zero` once took all memory."""
    with (tmp_path / "report.json").open("wb") as file:
        file.truncate((64 << 20) + 1)
    ran = run("report", "--dir", crawled[1], "--compare", tmp_path / "report.json")
    assert ran.code == 2 and ran.err.endswith("report --format json`: longer than 64 MiB\n"), ran
