"""Test consent receipts over real sockets, from the fetch of a page to every output."""

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

import crawler as api
from crawler.config.forms import USE_NAMES
from crawler.consent.receipts import DIGEST_BYTES, Receipt, load
from crawler.export.archives import opened
from crawler.pages import reading
from crawler.pages.captures import fingerprint_of
from tests.end_to_end.test_live import CRAWLER, Running, ask
from tests.end_to_end.test_tour import DIFFERS
from tests.end_to_end.test_withdraw import serving
from tests.end_to_end.web import FAST, ReceivedRequest, Web, crawl, page, run
from tests.pages.support import records as records_of

ROBOTS = """User-agent: *
Disallow: /private/
Content-Usage: train-ai=n, search=y
Content-Usage: /open/ train-ai=y
"""
# Hosts at loopback addresses. Each host makes different statements about the use of its pages. `TRAINS` lists
# the pages that each host allows for training.
OPEN, MIXED, SILENT, LICENSED = "127.3.0.1", "127.3.0.2", "127.3.0.3", "127.3.0.4"
HOSTS = (OPEN, MIXED, SILENT, LICENSED)
REFRESH_FAST = (
    "--allow-network", "127.0.0.0/8", "--delay", "0", "--delay-factor", "0", "--progress", "none",
    "--set", "refresh.min_age=0",
)  # fmt: skip
RSL = """<rsl xmlns="https://rslstandard.org/rsl"><content url="/"><license>
<permits type="usage">train-ai</permits></license></content></rsl>"""


def text(body: str) -> tuple[int, dict[str, str], str]:
    return 200, {"Content-Type": "text/plain"}, body


def routes(port: int) -> dict[str, Any]:
    rsl = f"User-agent: *\nLicense: http://{LICENSED}:{port}/license.xml\n"
    found: dict[str, Any] = {
        f"{OPEN}/robots.txt": text("User-agent: *\nContent-Usage: train-ai=y, search=y\n"),
        f"{MIXED}/robots.txt": text(ROBOTS),
        f"{LICENSED}/robots.txt": text(rsl),
        f"{LICENSED}/license.xml": (200, {"Content-Type": "application/rsl+xml"}, RSL),
        f"{OPEN}/.well-known/tdmrep.json": (
            200,
            {"Content-Type": "application/json"},
            '[{"location": "/", "tdm-reservation": 0}]',
        ),
    }
    for host in HOSTS:
        found[f"{host}/"] = page("/open/a", "/b", "/noai", "/header", "/private/x", text=f"start {host}")
        found[f"{host}/open/a"] = page(text=f"open {host}")
        found[f"{host}/b"] = page(text=f"b {host}")
        found[f"{host}/noai"] = page(head="<meta name=robots content=noai>", text=f"noai {host}")
        found[f"{host}/header"] = 200, {"Content-Usage": "train-ai=n"}, page(text=f"header {host}")
    return found


TRAINS = {  # paths that may be used for training if an unknown answer counts as a refusal
    OPEN: {"/", "/open/a", "/b", "/private/x"},
    MIXED: {"/open/a"},
    SILENT: set(),
    LICENSED: {"/", "/open/a", "/b", "/private/x"},
}


@pytest.fixture(scope="module", params=[1, 3], ids=["one process", "three processes"])
def crawled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Web, Path]]:
    directory = tmp_path_factory.mktemp("consent") / "crawl"
    with Web({}, address="0.0.0.0", other=page(text="other")) as web:
        web.routes = routes(web.port)
        seeds = [web.url("/", host) for host in HOSTS]
        crawl(directory, *seeds, "--processes", request.param, "--set", "consent.tdmrep=true")
        yield web, directory


def wanted(web: Web, *, known: bool = True) -> set[str]:
    """Return the URLs that may be used for training. If `known` is False, include URLs whose answer is unknown."""
    found = {web.url(path, host) for host, paths in TRAINS.items() for path in paths}
    silent = {web.url(path, SILENT) for path in ("/", "/open/a", "/b", "/private/x")}
    return found if known else found | silent


def urls(web: Web) -> list[str]:
    paths = ("/", "/open/a", "/b", "/noai", "/header", "/private/x")
    return [web.url(path, host) for host in HOSTS for path in paths]


def export(directory: Path, form: str, *flags: str) -> bytes:
    done = run("export", "--dir", directory, "--format", form, *flags)
    assert done.code == 0, done
    return done.out


def row_urls(data: bytes) -> set[str]:
    return {json.loads(line)["url"] for line in data.splitlines()}


def warc_urls(path: Path) -> set[str]:
    answers = (record for record in records_of(path) if record.kind in ("response", "revisit"))
    return {record.fields["warc-target-uri"] for record in answers}


def test_every_page_has_its_receipt(crawled: tuple[Web, Path]) -> None:
    web, directory = crawled
    with opened(directory) as stored:
        pages = 0
        for archive in stored.archives:
            for key, capture in archive.all_captures():
                about_site = capture.url.endswith(("/robots.txt", "/tdmrep.json", "/license.xml"))
                found = load(archive.store, fingerprint_of(key), capture.receipt, Receipt)
                assert (found is None) == about_site, capture.url
                pages += not about_site
        assert pages >= 23  # all pages except /private/x of MIXED, which is never fetched
    assert sum(asked.path == "/license.xml" for asked in web.asked) == 1
    assert sum(asked.path == "/.well-known/tdmrep.json" for asked in web.asked) == len(HOSTS)


def test_all_outputs_agree(crawled: tuple[Web, Path], tmp_path: Path) -> None:
    """All outputs make the same decisions about the use of a page.

    The outputs are rows, text, links, WARC, CDXJ, WACZ, mirror, the page server, `get` and the Python API.
    """
    web, directory = crawled
    train, everything = wanted(web), wanted(web, known=False)
    for form in ("jsonl", "text", "cdxj"):
        lines = export(directory, form, "--allow", "train-ai")
        lines = b"\n".join(line[line.find(b"{") :] for line in lines.splitlines())
        assert row_urls(lines) == train, form
        loose = export(directory, "jsonl", "--allow", "train-ai", "--unknown", "allow")
    assert row_urls(loose) == everything
    links = {
        line.split(b"\t")[0].decode()
        for line in export(directory, "links", "--allow", "train-ai").splitlines()
    }
    assert links == {url for url in train if url.endswith(f":{web.port}/")}
    for form in ("parquet", "wacz", "mirror"):
        export(directory, form, "--allow", "train-ai", "-o", str(tmp_path / form))
    assert set(pyarrow.parquet.read_table(tmp_path / "parquet").column("url").to_pylist()) == train
    assert sum(1 for _ in (tmp_path / "mirror").rglob("*.html")) == len(train)
    (tmp_path / "x.warc").write_bytes(export(directory, "warc", "--allow", "train-ai"))
    assert warc_urls(tmp_path / "x.warc") == train
    assert_explains_itself(tmp_path / "x.warc")
    assert run("export", "--dir", directory, "--format", "crawl-log", "--allow", "train-ai").code == 2
    assert run("export", "--dir", directory, "--format", "jsonl", "--allow", "love").code == 2
    for url in urls(web):
        assert (run("get", url, "--dir", directory, "--allow", "train-ai").code == 0) == (url in train), url
    stored = {each.url for each in api.Crawl(directory=directory).stored(allow="train-ai")}
    assert stored == train
    with serving(directory, "--allow", "train-ai") as port:
        for url in urls(web):
            status, fields, body = ask(port, f"/page?url={url}")
            assert (status == 200) == (url in train), (url, status)
            assert ("train-ai=y" in fields.get("X-Consent", "")) == (url in train)
            assert status == 200 or json.loads(body)["state"] in ("consent", "denied")
            assert (ask(port, f"/timemap/link/{url}")[0] == 200) == (url in train)


def test_receipts_are_shown(crawled: tuple[Web, Path]) -> None:
    web, directory = crawled
    url = web.url("/open/a", MIXED)
    why = run("why", url, "--dir", directory).text
    assert "train_ai: y" in why and "/open/ train-ai=y" in why and "content-usage-robots" in why
    said = json.loads(run("why", url, "--dir", directory, "--json").out)["consent"]
    assert said["search"] == "unknown" and said["decided_by"] == {"train_ai": "content-usage-robots"}
    robots = said["robots"]
    assert robots["url"] == web.url("/robots.txt", MIXED) and robots["status"] == 200 and robots["age"] >= 0
    assert len(robots["sha256"]) == 64 and robots["warc_file"].endswith(".warc.gz") and robots["group"] == "*"
    assert said["token"] == "crawler" and said["key_id"] == "" and said["complete"]
    headers = run("get", url, "--headers", "--dir", directory).text
    assert (
        f"X-Consent: search=unknown, ai-input=unknown, train-ai=y, tdm=unknown; receipt={said['receipt']}"
        in headers
    )
    files = json.loads(run("why", web.url("/b", LICENSED), "--dir", directory, "--json").out)["consent"][
        "files"
    ]
    assert [(each["kind"], each["status"], each["problem"]) for each in files] == [
        ("tdmrep", 200, ""),
        ("rsl", 200, ""),
    ]
    rows = [json.loads(line) for line in export(directory, "jsonl").splitlines()]
    row = next(each for each in rows if each["url"] == web.url("/noai", OPEN))
    assert (row["consent_search"], row["consent_train_ai"], row["consent_tdm"]) == ("y", "n", "y")
    assert "train_ai=page-names" in row["consent_sources"] and len(row["consent_receipt"]) == 2 * DIGEST_BYTES
    denied = next(each for each in rows if each["url"] == web.url("/private/x", MIXED))
    assert denied["consent_receipt"] is None
    line = next(
        line for line in export(directory, "cdxj").decode().splitlines() if "/noai" in line and OPEN in line
    )
    assert json.loads(line[line.index("{") :])["consent_train_ai"] == "n"
    api_pages = {each.url: each.consent for each in api.Crawl(directory=directory).stored()}
    assert api_pages[url]["train_ai"] == "y" and api_pages[url]["receipt"] == said["receipt"]


def test_the_warc_contains_the_receipts(crawled: tuple[Web, Path]) -> None:
    """The metadata record of each page names a receipt. This receipt is contained completely in the same segment."""
    _, directory = crawled
    for path in directory.glob("*/warc/*.warc.gz"):
        assert_explains_itself(path)


def assert_explains_itself(path: Path) -> None:
    named, whole = set(), set()
    for record in records_of(path):
        if record.kind == "metadata" and record.fields["warc-target-uri"].startswith("urn:consent:"):
            whole.add(record.fields["warc-target-uri"].removeprefix("urn:consent:"))
            assert not reading.check_digests(record)
        elif record.kind == "metadata":
            facts = dict(line.split(": ", 1) for line in record.block.decode().splitlines())
            named.add(facts["consentReceipt"])
    assert named and named == whole, path


def test_the_consent_report_counts_by_host_and_use(crawled: tuple[Web, Path]) -> None:
    web, directory = crawled
    tree = json.loads(run("report", "--consent", "--format", "json", "--dir", directory).out)
    rows = {row["host"]: row for row in tree["hosts"]}
    assert rows[OPEN]["train_ai"] == {"y": 4, "n": 2, "unknown": 0} and rows[OPEN]["search"]["y"] == 6
    assert rows[SILENT]["train_ai"] == {"y": 0, "n": 2, "unknown": 4}
    assert tree["all"]["train_ai"]["y"] == len(wanted(web)) and tree["all"]["without_receipt"] == 0
    shown = run("report", "--consent", "--dir", directory).text
    assert "train-ai" in shown and "4 / 2 / 0" in shown
    assert run("report", "--consent", "--format", "csv", "--dir", directory).text.count("\n") == 5
    assert run("report", "--consent", "--format", "html", "--dir", directory).code == 2


def test_check_accepts_receipts(crawled: tuple[Web, Path]) -> None:
    assert run("check", "--dir", crawled[1]).code == 0


@pytest.mark.parametrize("retroactive", [False, True])
def test_a_page_that_refuses_a_use_later(tmp_path: Path, retroactive: bool) -> None:
    """When the page is refreshed, it gets a new receipt.

    The earlier copy is withheld only if `consent.retroactive` is set.
    """
    directory = tmp_path / "crawl"
    said = {"value": "train-ai=y"}

    def moody(asked: ReceivedRequest) -> Any:
        return 200, {"Content-Usage": said["value"]}, page(text=said["value"])

    flags = ("--set", f"consent.retroactive={str(retroactive).lower()}")
    with Web({"/": moody}) as web:
        crawl(directory, web.url(), *flags)
        assert warcs(directory, tmp_path) == [web.url()]
        said["value"] = "train-ai=n"
        crawl(directory, "--timestamping", *flags)
        assert run("get", web.url(), "--dir", directory, "--allow", "train-ai").code == 4
        assert warcs(directory, tmp_path) == ([] if retroactive else [web.url()])
        told = run("export", "--dir", directory, "--format", "cdxj", "--allow", "train-ai").err
        assert (
            (f"{web.url()}: the copy of " in told) == ("was refused at a later fetch" in told) == retroactive
        )
        with serving(directory, "--allow", "train-ai") as port:
            status, _, body = ask(port, f"/timemap/link/{web.url()}")
            assert status == (451 if retroactive else 200), body
            if not retroactive:
                assert body.count(b"memento") >= 1


def warcs(directory: Path, folder: Path) -> list[str]:
    path = folder / "x.warc"
    path.write_bytes(export(directory, "warc", "--allow", "train-ai"))
    answers = [record for record in records_of(path) if record.kind in ("response", "revisit")]
    return [record.fields["warc-target-uri"] for record in answers]


@pytest.mark.parametrize("processes", [1, 3])
def test_a_running_crawl_shows_and_applies_consent(tmp_path: Path, processes: int) -> None:
    """While a crawl runs, the page server, `why` and the dashboard show the same consent data as after its end."""
    with Web({}, address="0.0.0.0", other=page(text="other")) as web:
        web.routes = routes(web.port)
        seeds = [web.url("/", host) for host in HOSTS]
        crawl(tmp_path / "crawl", *seeds, "--processes", processes, "--set", "consent.tdmrep=true")
        with Running(tmp_path, [], "--set", "serve.allow=train-ai", command="refresh") as running:
            running.until(lambda: len(running.status().get("processes", [])) == processes)
            for url in urls(web):

                def settled(url: str = url) -> bool:
                    return (ask(running.serve, f"/page?url={url}")[0] == 200) == (url in wanted(web))

                running.until(settled)
            rows = json.loads(ask(running.admin, "/consent?format=json")[2])
            assert rows["all"]["train_ai"]["y"] == len(wanted(web)) and rows["missing"] == []
            shown = ask(running.admin, "/consent")[2].decode()
            assert f"<th scope=row>{OPEN}</th>" in shown and shown.count("<tr>") == 2 + 5
            assert "train_ai: y" in running.command("why", web.url("/b", OPEN)).stdout


PAGE = (Path(__file__).resolve().parents[2] / "crawler" / "consent" / "README.md").read_text(encoding="utf-8")
# Each command of the walkthrough, with the output that the page shows ("" if it shows none).
WALK = re.findall(
    r"^    \$ crawler (.*)\n((?:    (?!\$).*\n)*)",
    PAGE.partition("## A corpus, command by command")[2].partition("\n## ")[0],
    re.MULTILINE,
)
SHOWN = [  # the expected parts of the output of each command in the walkthrough
    ("pages fetched",),
    ("train-ai", "4 / 2 / 0"),
    (),
    ("train_ai=content-usage-robots",),
    ("train_ai: y", "content-usage-robots", "search: y"),
    ("train_ai: y", "/open/ train-ai=y", "search: unknown"),
    ("train_ai: n", "page-names", "value: noai"),
    ("train_ai: unknown", "status: 200"),
    ("train_ai: y", "rsl", "kind: rsl"),
]


def _renamed(text: str, sites: dict[str, str]) -> str:
    """Return the text with the sites' names replaced by their addresses."""
    for name, address in sites.items():
        text = text.replace(name, address)
        text = text.replace(name.partition("://")[2], address.partition("://")[2].partition(":")[0])
    return text


def test_the_walkthrough_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the commands of `crawler/consent/README.md`.

    The commands crawl, export pages for training, and show receipts.
    """
    monkeypatch.chdir(tmp_path)
    with Web({}, address="0.0.0.0", other=page(text="other")) as web:
        web.routes = routes(web.port)
        sites = {
            f"https://{letter}.example": web.url("", host) for letter, host in zip("abcd", HOSTS, strict=True)
        }
        for (line, printed), parts in zip(WALK, SHOWN, strict=True):
            words = shlex.split(_renamed(line, sites))
            ran = run(*words, *(FAST if words[0] == "crawl" else ()))
            assert ran.code == 0 and "Traceback" not in ran.err, (line, ran)
            assert all(part in ran.text for part in parts), (line, ran.text)
            if printed:
                expected = _renamed(re.sub("^    ", "", printed, flags=re.MULTILINE), sites)
                assert DIFFERS.sub("N", ran.text).rstrip() == DIFFERS.sub("N", expected).rstrip(), line
        rows = [json.loads(row) for row in (tmp_path / "train.jsonl").read_text().splitlines()]
        assert {row["url"] for row in rows} == wanted(web)
        assert all(row["text"] and "train_ai=" in row["consent_sources"] for row in rows)


def test_callbacks_see_the_receipt(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def parse(page: api.Page) -> None:
        seen[page.url] = page.consent

    with Web({"/": (200, {"Content-Usage": "train-ai=n"}, page())}) as web:
        settings = {"network": {"allow_networks": ["127.0.0.0/8"]}, "politeness": {"delay": 0}}
        api.run(web.url(), parse, directory=tmp_path / "crawl", config=settings)
    assert seen[web.url()]["train_ai"] == "n" and seen[web.url()]["decided_by"] == {
        "train_ai": "content-usage-header"
    }
    assert set(USE_NAMES.values()) <= set(seen[web.url()])


@pytest.mark.parametrize(("processes", "kills"), [(1, 5), (3, 4)])
def test_no_page_without_a_receipt_after_kills(tmp_path: Path, processes: int, kills: int) -> None:
    """A crawl is killed while it fetches and refreshes pages.

    Afterwards, each stored page has its receipt, and `check` finds no problem.
    """
    directory, count = tmp_path / "crawl", 400
    other = (200, {"Content-Usage": "search=y"}, page(*(f"/{n}" for n in range(count)), text="x"))
    with Web({"/robots.txt": text(ROBOTS)}, address="0.0.0.0", other=other) as web:
        seeds = [web.url("/", f"127.3.0.{number}") for number in range(1, processes + 1)]
        for number in range(kills):
            words = ["crawl", *FAST] if number < 0.6 * kills else ["refresh", *REFRESH_FAST]
            words += [*seeds, "--processes", str(processes)] if not number else []
            command = [*CRAWLER, *words, "--dir", str(directory), "-q", "--admin", "off"]
            process = subprocess.Popen(
                command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
            )
            asked = len(web.asked)
            while process.poll() is None and len(web.asked) < asked + 5 + 3 * number:
                time.sleep(0.002)
            assert process.poll() is None, process.communicate()
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if number % 4 == 3:
                assert _without_receipt(directory) == []
    assert run("check", "--dir", directory).code == 0


def _without_receipt(directory: Path) -> list[str]:
    missing = []
    with opened(directory) as stored:
        for archive in stored.archives:
            for key, capture in archive.all_captures():
                fingerprint = fingerprint_of(key)
                if not capture.url.endswith("/robots.txt"):
                    found = load(archive.store, fingerprint, capture.receipt, Receipt)
                    record = archive.record(fingerprint)
                    if found is None or record is None or not record.receipt:
                        missing.append(capture.url)
    return missing
