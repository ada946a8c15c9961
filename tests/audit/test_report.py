"""Test `crawler report` on a crawl of a site with faults."""

import csv
import io
import json
import re
import socket
from pathlib import Path

import pytest

from crawler.errors import DamageError
from tests.end_to_end.web import Web, crawl, damaged_copy, page, redirect, run


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Web]:
    folder = tmp_path_factory.mktemp("report")
    with Web({}) as web:
        urls = "".join(f"<url><loc>{web.url(path)}</loc></url>" for path in ("/", "/a", "/alone", "/dead"))
        web.routes |= {
            "/robots.txt": f"User-agent: *\nDisallow: /private\nSitemap: {web.url('/map.xml')}",
            "/map.xml": (200, {"Content-Type": "application/xml"}, f"<urlset>{urls}</urlset>"),
            "/": page("/a", "/b", "/dead", "/private/x", "/hop1", "/round1", text="Start"),
            "/a": page("/dead", "/deep", text="Same title"),
            "/b": page("/dead", text="Same title"),
            "/deep": page(text="Deep"),
            "/alone": page(text="Alone"),
            "/hop1": redirect("/hop2"),
            "/hop2": redirect("/a"),
            "/round1": redirect("/round2"),
            "/round2": redirect("/round1"),
        }
        crawl(folder / "crawl", web.url())
    return folder / "crawl", web


def test_json_has_the_related_urls_and_the_totals(crawled: tuple[Path, Web]) -> None:
    directory, web = crawled
    found = json.loads(run("report", "--dir", directory, "--format", "json").out)
    sections = found["sections"]
    (dead,) = sections["dead_links"]["listed"]
    assert (dead["subject"], dead["value"], dead["count"]) == (web.url("/dead"), "404 not found", 3)
    assert set(dead["others"]) == {web.url(path) for path in ("/", "/a", "/b")}
    (chain,) = sections["redirect_chains"]["listed"]
    assert (chain["subject"], chain["others"]) == (web.url("/hop1"), [web.url("/hop2"), web.url("/a")])
    assert found["statuses"]["200"] == 6 and found["depths"] == {"0": 1, "1": 3, "2": 1}


def test_a_report_that_lacks_unreadable_copies_ends_with_3(crawled: tuple[Path, Web], tmp_path: Path) -> None:
    """A report that lacks pages must not look complete to a script, nor must a comparison with such a report."""
    whole, _ = crawled
    damaged, saved = damaged_copy(whole, tmp_path / "damaged"), tmp_path / "damaged.json"
    first = run("report", "--dir", damaged, "--format", "json", "-o", saved)
    assert first.code == DamageError.exit_code and first.err.startswith("crawler: "), first
    lines = json.loads(saved.read_bytes())["damage"]
    assert first.err.splitlines() == [f"crawler: {line}" for line in lines]
    short = run("report", "--dir", damaged, "--limit", 1)
    assert short.err.splitlines()[1:] == [f"crawler: unreadable copies that are not listed: {len(lines) - 1}"]
    for earlier in (damaged, saved):
        ran = run("report", "--dir", whole, "--compare", earlier)
        assert ran.code == DamageError.exit_code, ran
        assert ran.err.splitlines() == [f"crawler: {earlier}: {line}" for line in lines]
    assert run("report", "--dir", whole, "--compare", whole).code == 0


def test_text_csv_and_html_reports(crawled: tuple[Path, Web], tmp_path: Path) -> None:
    directory, web = crawled
    text = run("report", "--dir", directory).text
    assert "Dead links: 1" in text and f"<- {web.url('/a')}" in text
    table = list(csv.reader(io.StringIO(run("report", "--dir", directory, "--format", "csv").text)))
    assert ["dead_links", web.url("/dead"), "404 not found", web.url("/b")] in table
    file = tmp_path / "report.html"
    assert run("report", "--dir", directory, "--format", "html", "-o", file).code == 0
    made = file.read_text()
    assert "Dead links" in made and "<script" not in made and "src=" not in made and "@import" not in made
    assert run("report", "--dir", tmp_path / "none").code == 3
    assert run("report", "--dir", directory, "--limit", "0").code == 2


def test_the_output_of_why_starts_with_a_verdict(crawled: tuple[Path, Web]) -> None:
    """The verdict names the line of robots.txt, the pattern, the linking page, and the times in readable form."""
    directory, web = crawled

    def why(url: str) -> list[str]:
        return run("why", url, "--dir", directory).text.splitlines()

    assert why(web.url("/private/x"))[0] == (
        f"Never fetched: `Disallow: /private` in {web.url('/robots.txt')} forbids it."
    )
    assert why(web.url("/deep"))[0].startswith("Stored: 200 at 20") and f"found_on: {web.url('/a')}" in why(
        web.url("/deep")
    )
    assert why(web.url("/hop1"))[0].startswith("Redirects to /hop2: 302 at 20")
    assert why("http://elsewhere.localhost/")[0].endswith(": host localhost.")
    wrong = run("why", "mailto:x", "--dir", directory)
    assert wrong.code == 2 and "mailto:x" in wrong.err


@pytest.mark.parametrize(
    ("spider", "listens", "verdict"),
    [
        ((), False, "connection refused or timed out"),
        (("--spider",), False, "connection refused or timed out"),
        ((), True, "no answer in time"),
    ],
)
def test_links_to_a_dead_server_have_a_verdict(
    tmp_path: Path, spider: tuple[str, ...], listens: bool, verdict: str
) -> None:
    """The option `--patience` ends the run. The report lists URLs of a dead server as dead links."""
    with socket.socket() as silent, Web({}) as web:
        silent.bind(("127.0.0.1", 0))  # refuses connections until it listens; after that, it never answers
        if listens:
            silent.listen()
            spider = ("--set", "fetch.header_timeout=0.2")
        port = silent.getsockname()[1]
        other, alias = f"http://other.localhost:{port}/x", f"http://localhost:{port}/y"
        web.routes["/"] = page(other, alias, "/a")
        web.routes["/a"] = page(text="Fine")
        crawl(tmp_path, web.url(), "--scope", "any", "--patience", "1", *spider)
    found = json.loads(run("report", "--dir", tmp_path, "--format", "json").out)
    dead = {each["subject"]: each for each in found["sections"]["dead_links"]["listed"]}
    assert set(dead) == {other, alias}
    for each in dead.values():
        assert re.fullmatch(rf"{verdict} after (1 try|[2-9] tries)", each["value"]), each
        assert each["others"] == [web.url("/")]
    assert found["unfetched"] == {"unreachable": 2}


@pytest.mark.parametrize("spider", [(), ("--spider",)])
def test_external_links_are_checked_once_and_not_followed(tmp_path: Path, spider: tuple[str, ...]) -> None:
    """Each external link is requested once, if robots.txt allows it.

    The report lists dead links and redirects separately.
    """
    with socket.socket() as silent, Web({}) as web:
        silent.bind(("127.0.0.1", 0))
        down = f"http://down.localhost:{silent.getsockname()[1]}/"

        def other(path: str) -> str:
            return web.url(path, "other.localhost")

        links = [other(path) for path in ("/fine", "/gone", "/moved", "/back", "/private/x")]
        web.routes |= {
            "/": page(*links, down, "/a"),
            "/a": page(other("/gone"), "/out", text="A"),
            "/out": redirect(other("/gone2")),
            "/home": page(text="Home"),
            "other.localhost/robots.txt": "User-agent: *\nDisallow: /private",
            "other.localhost/fine": page("/never", web.url("/never"), text="Fine" * 9000),
            "other.localhost/moved": redirect("/gone3"),
            "other.localhost/back": redirect(web.url("/home")),
        }
        command = (tmp_path, web.url(), "--check-external", "--patience", "1", *spider)
        crawl(*command)
        crawl(*command)
        asked = [f"{request.host}{request.path}" for request in web.asked]
    for path in ("/fine", "/gone", "/gone2", "/gone3", "/moved", "/back"):
        assert asked.count(f"other.localhost{path}") == 1, path
    assert not [each for each in asked if "never" in each or "private" in each]
    assert "localhost/home" in asked  # this URL is in scope, so it is a page of the crawl
    found = json.loads(run("report", "--dir", tmp_path, "--format", "json").out)
    dead = {each["subject"]: each for each in found["sections"]["external_dead_links"]["listed"]}
    assert set(dead) == {other("/gone"), other("/gone2"), other("/moved"), down}
    assert dead[other("/moved")]["value"] == "redirects to 404 not found"
    assert dead[other("/gone2")]["others"] == [web.url("/out")]
    assert set(dead[other("/gone")]["others"]) == ({web.url()} if spider else {web.url(), web.url("/a")})
    assert found["external"] == {"200": 1, "302": 2, "404": 3, "robots_denied": 1, "unreachable": 1}
    assert found["urls"] == 4 and "dead_links" not in found["sections"]
    failed = run("report", "--dir", tmp_path, "--fail-on", "external-dead-links")
    assert failed.code == 10 and "external: " in failed.text
    assert run("report", "--dir", tmp_path, "--fail-on", "dead-links").code == 0
    stored = run("export", "--dir", tmp_path, "--format", "cdxj").text
    assert "/fine" not in stored and "/gone" not in stored


def test_a_server_that_is_back_is_no_longer_unreachable(tmp_path: Path) -> None:
    """When a server answers, its stored failures are deleted, even failures that an earlier run has stored."""
    with socket.socket() as silent, Web({}) as web:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        web.routes["/"] = page(f"http://other.localhost:{port}/x", f"http://other.localhost:{port}/y")
        often = ("--set", "robots.unreachable_delays=[0.1]")
        crawl(tmp_path, web.url(), "--scope", "any", "--patience", "0.3", *often)
        silent.close()
        with Web({"/x": page(text="Back"), "/y": page(text="Back")}, port=port):
            crawl(tmp_path, "--max-pages", "1", *often)
    found = json.loads(run("report", "--dir", tmp_path, "--format", "json").out)
    assert found["unfetched"] == {"to do": 1} and "dead_links" not in found["sections"]
