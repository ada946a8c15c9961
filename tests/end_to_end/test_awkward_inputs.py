"""Test that all entrances of a crawl read awkward host names, URLs, patterns and uses alike, with the same sentences.

`tests/config/test_entrances.py` does the same for settings, and `tests/test_typed_time.py` for times.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import crawler as api
from crawler.errors import CrawlerError
from tests.end_to_end.test_entrances import endless
from tests.end_to_end.test_live import Running, ask
from tests.end_to_end.test_withdraw import do
from tests.end_to_end.web import FAST, Web, page, run

HOST, ENDLESS = "127.20.0.1", "127.20.0.99"
# Maps each text to the host that it names, or to what follows the quoted text in the message, which begins with a blank
# or a colon.
NO_HOST = " is not a host name"
HOSTS = {
    "127.20.0.2": "127.20.0.2",
    "127.20.0.2.": "127.20.0.2",
    "127.20.0.2:80": "127.20.0.2",
    " UPPER.example\n": "upper.example",
    "bücher.example": "xn--bcher-kva.example",
    "XN--BCHER-KVA.example": "xn--bcher-kva.example",
    "under_score.example": "under_score.example",
    "[::1]": "[::1]",
    "::1": "[::1]",
    "fe80::1": "[fe80::1]",
    "https://a.example:443/": "a.example",
    "http://user@a.example": "a.example",
    "a%2Eexample": "a.example",
    "127.1": "127.0.0.1",
    "user@a.example": NO_HOST,
    "a b.example": NO_HOST,
    "a.example..": NO_HOST,
    "a\0b": NO_HOST,
    "[::1": NO_HOST,
    "::1/": NO_HOST,
    "/a": NO_HOST,
    "ftp://a.example/": NO_HOST,
    "\udcff.example": NO_HOST,
    "x" * 9000: NO_HOST,
    "127.20.0.2:81": f"{NO_HOST}; ",  # names a host, but not all of its URLs
    "https://a.example/x": f"{NO_HOST}; ",
    "a.example?x": f"{NO_HOST}; ",
    "*.a.example": f"{NO_HOST}; ",
}
NO_URL = " is not an http(s) URL"
# The same for URLs; HOST stands for the host and the port of the site.
URLS = {
    "http://HOST/open": "/open",
    "HOST/open": "/open",
    " HTTP://HOST/open#part\n": "/open",
    "http://u:p@HOST/open": "/open",
    "http:\\\\HOST\\open": "/open",
    "http://HOST/./x/../open": "/open",
    "http://HOST/o%70en": "/o%70en",
    "http://HOST/open?": "/open?",
    "http://HOST/a b": "/a%20b",
    "http://HOST/a%20b": "/a%20b",
    "http://HOST/a+b": "/a+b",
    "http://HOST/?q=a+b&c=%2B": "/?q=a+b&c=%2B",
    "http://HOST/a\tb\0c": "/ab%00c",
    "http://HOST/ä": "/%C3%A4",
    "http://HOST/%e4": "/%e4",
    "http://HOST/\udce4": "/%E4",
    "http://HOST/%zz|": "/%zz|",
    "http://HOST:99999/": NO_URL,
    "//HOST/open": NO_URL,
    "/open": NO_URL,
    "http://": NO_URL,
    "http://[::1/": NO_URL,
    "mailto:a@b.org": NO_URL,
    "javascript:alert(1)": NO_URL,
    "ftp://HOST/": ": ftp is not supported; the crawler fetches http and https URLs",
    "http://HOST/" + "a" * 8190: ": a URL has at most 8,192 bytes",
}
PATTERNS = ("/nothing/", "(", "[", "a{99999999999999}", "(?P<a", "*", "\\", "(?z)", "nothing(?#é)")
# Maps each text to whether it is a count, and whether it is a length of time.
NUMBERS = {
    **dict.fromkeys(("5", "05", " 5 ", "+5", "5.", "1e2", "1_0", "0x10", "-0", "-0.0"), (True, True)),
    **dict.fromkeys((".5", "1.5", "5 min", "1 H", "250ms"), (False, True)),
    **dict.fromkeys(
        ("-1", "x", "true", "５", "nan", "inf", "1e400", "9" * 400, "1 hour", "5,0", "5\nx = 1", "[5]"),
        (False, False),
    ),
}
USES = ("train-ai", "TRAIN_AI", " tdm ", "nope", "train ai", "search,tdm", "ａ", "all")


def escaped(text: str) -> str:
    """Percent-encode a text as a whole, in which bytes that are not UTF-8 are decoded as in an argument."""
    return quote(text.encode("utf-8", "surrogateescape"), safe="")


def command(*words: object) -> tuple[bool, str]:
    """Run a command. Return whether it accepted its arguments, and what it said."""
    done = run(*words)
    assert done.code in (0, 2, 4) and done.err.count("\n") <= 1, (words, done)
    return done.code != 2, done.err.removeprefix("crawler: ").strip() if done.code else done.text.strip()


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with Web(
        {"/": page("/open"), "/open": page(), f"{ENDLESS}/": page("/1")}, other=endless, address="0.0.0.0"
    ) as web:
        yield web


@pytest.fixture(scope="module")
def running(web: Web, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    flags = (*FAST, "--set", "crawl.rate=10", "--scope", "host")
    with Running(
        tmp_path_factory.mktemp("live"), [web.url("/", HOST), web.url("/", ENDLESS)], *flags
    ) as running:
        running.until(lambda: "/open" in web.paths(HOST))
        running.until(lambda: ask(running.serve, f"/page?url={web.url('/open', HOST)}")[0] == 200)
        yield running


def asked(port: int, target: str) -> tuple[bool, str]:
    """Return whether a server accepts a target, and the body of its answer, or the reason why it is rejected."""
    status, _, body = ask(port, target)
    return (status != 400, json.loads(body)["why"] if status == 400 else body.decode())


def changed(running: Running, text: str, **request: Any) -> tuple[bool, str]:
    """Send a change over HTTP. Return whether it is accepted, and what is said."""
    status, said = do(running, **request)
    return (status == 200, said["said"] if status == 200 else said["why"])


def is_json(text: str) -> bool:
    """Return whether a text can be in JSON, which contains only UTF-8."""
    return not any("\ud800" <= each <= "\udfff" for each in text)


def agree(text: str, expected: str, answers: dict[str, tuple[bool, str]]) -> None:
    """Check that all entrances accept a text, or all reject it in the same words, after their own name for it."""
    accepted = expected[:1] not in (" ", ":")
    assert {taken for taken, _ in answers.values()} == {accepted}, (text[:80], expected, answers)
    if not accepted:
        for entrance, (_, said) in answers.items():
            begin, quoted, why = said.partition(expected)
            assert quoted and len(said) < 500 and "\n" not in said, (text[:80], entrance, said)
            assert "'" in begin, (text[:80], entrance, said)


@pytest.mark.parametrize("text", HOSTS, ids=lambda text: repr(text[:30]))
def test_host_names(running: Running, text: str) -> None:
    """A command that concerns a whole host accepts no part of one. A page about a host accepts any URL of it."""
    expected, folder = HOSTS[text], ("--dir", running.folder)
    answers = {"block": command("unblock", text, *folder)} if "\0" not in text else {}
    answers["withdraw"] = command("withdraw", "--host", text, "--dry-run", *folder)
    if is_json(text):
        answers["http block"] = changed(running, text, command="unblock", host=text)
        answers["http withdraw"] = changed(running, text, host=text, dry_run=True)
    agree(text, expected, answers)
    if expected[:1] != " ":
        assert all(expected in said for _, said in answers.values()), answers
    named = expected if expected[:1] != " " else NO_HOST if expected == NO_HOST else ""
    shown = {
        "hosts": asked(running.admin, f"/hosts/{escaped(text)}"),
        "ledger": asked(running.admin, f"/bot/ledger?host={escaped(text)}"),
    }
    if len(text) < 5000:  # a longer target is rejected as a whole
        agree(text, named, shown)


@pytest.mark.parametrize("text", URLS, ids=lambda text: repr(text[:30]))
def test_urls(web: Web, running: Running, text: str) -> None:
    """All entrances look up the same page. Those that add a URL to the crawl need its scheme."""
    place = f"{HOST}:{web.port}"
    url, expected, folder = text.replace("HOST", place), URLS[text], ("--dir", running.folder)
    answers = {
        "http why": asked(running.admin, f"/why?url={escaped(url)}"),
        "page": asked(running.serve, f"/page?url={escaped(url)}"),
        "view": asked(running.serve, f"/view?url={escaped(url)}"),
        "list of copies": asked(running.serve, f"/timemap/link/{escaped(url)}"),
        "why": command("why", url, "--json", *folder),
        "get": command("get", url, *folder),
        "withdraw": command("withdraw", url, "--dry-run", *folder),
    }
    if is_json(url):
        answers["http withdraw"] = changed(running, url, url=url, dry_run=True)
    agree(url, expected, answers)
    if expected[:1] == "/":
        found = f"http://{place}{expected}"
        assert json.loads(answers["why"][1])["url"] == json.loads(answers["http why"][1])["url"] == found
        assert f"url {found}: " in answers["withdraw"][1], answers["withdraw"]
        is_stored = expected in ("/open", "/o%70en")
        assert all(("<title>" in answers[name][1]) == is_stored for name in ("page", "get")), answers
        if not is_stored:
            for name in ("page", "view", "list of copies"):
                assert json.loads(answers[name][1])["url"] == found, answers[name]


def test_an_unescaped_url_in_a_query_keeps_its_plus_signs(web: Web, running: Running) -> None:
    """A plus sign was once read as a space, so the wrong page was looked up."""
    url = web.url("/a+b?c=d+e", HOST)
    for port, target in ((running.serve, "/page?url="), (running.admin, "/why?url=")):
        assert json.loads(ask(port, target + url)[2])["url"] == url
    status, _, body = ask(running.serve, f"/page?max-stale=5+min&url={url}")
    assert (status, json.loads(body)["url"]) == (404, url), "elsewhere, a plus sign is a space"


def test_patterns(running: Running) -> None:
    for pattern in PATTERNS:
        answers = {
            "retire": command("retire", pattern, "--dir", running.folder),
            "http retire": changed(running, pattern, command="retire", pattern=pattern),
        }
        assert len({*answers.values()}) == 1, answers
        where = command(
            "export", "--format", "jsonl", "--where", f"matches(url, {pattern!r})", "--dir", running.folder
        )
        setting = command("config", "check", "--set", f"filter.include={pattern}", "--dir", running.folder)
        accepted, said = answers["retire"]
        assert where[0] == setting[0] == accepted, (pattern, where, setting)
        assert accepted or (said in where[1] and said in setting[1]), (pattern, where, setting)


def test_uses(web: Web, running: Running) -> None:
    folder, url = ("--dir", running.folder), web.url("/open", HOST)
    for use in USES:
        answers = {
            "get": command("get", url, "--allow", use, *folder),
            "export": command("export", "--format", "jsonl", "--allow", use, *folder),
            "setting": command("config", "check", "--set", f"serve.allow={use}", *folder),
            "serve": (True, "") if use in USES[:3] else command("serve", "--allow", use, *folder),
        }
        agree(use, "y" if use in USES[:3] else " is not one of search, ai-input, train-ai, tdm", answers)


def test_numbers_and_lengths_of_time(running: Running) -> None:
    """The parameters of HTTP are read as the options of commands and the keys of settings."""
    for text, (is_count, is_time) in NUMBERS.items():
        rows = {
            "limit": asked(running.admin, f"/hosts?limit={escaped(text)}"),
            "rows": asked(running.admin, f"/fetches?limit={escaped(text)}"),
            "hosts": command("status", "--hosts", text, "--dir", running.folder),
        }
        if text != "9" * 400:  # only a parameter of HTTP has a maximum
            assert {taken for taken, _ in rows.values()} == {is_count}, (text, rows)
        said = {why.partition(": ")[2].partition("; ")[0] for taken, why in rows.values() if not taken}
        assert is_count or all(each.startswith("expected a whole number") for each in said), rows
        times = {
            "max-stale": asked(running.serve, f"/page?url=http://a.example/&max-stale={escaped(text)}"),
            "setting": command("config", "check", "--set", f"politeness.backoff_max={text}", "--dir", "none"),
        }
        assert {taken for taken, _ in times.values()} == {is_time}, (text, times)
    for text in ("64M", " 64 mib ", "1_0", "0x10", "-1", "64 M iB", "６４", "1e400", "0.5"):
        sizes = (
            command("export", "--format", "jsonl", "--part-size", text, "--dir", "none"),
            command("config", "check", "--set", f"fetch.bytes_per_second={text}", "--dir", "none"),
        )
        said = [why.partition("; ")[0].rpartition(": ")[2].replace("'", "") for _, why in sizes]
        assert ("needs -o FOLDER" in said[0]) == sizes[1][0], (text, sizes)
        assert sizes[1][0] or said[0] == said[1], (text, sizes)


def test_commands_of_python(web: Web, running: Running, tmp_path: Path) -> None:
    """Python and the commands of a crawl at rest read host names and URLs as those of a running crawl do."""
    directory = tmp_path / "crawl"
    assert run("crawl", web.url("/open", HOST), "--dir", directory, *FAST).code == 0
    place = f"{HOST}:{web.port}"
    requests = [({"command": "block", "host": text}, HOSTS[text], text) for text in HOSTS]
    requests += [({"command": "why", "url": text.replace("HOST", place)}, URLS[text], text) for text in URLS]

    async def all_answers() -> list[tuple[bool, Any]]:
        async with api.Crawl(directory=directory) as crawl:
            return [
                await answer_of(lambda request=request: crawl.command(request)) for request, _, _ in requests
            ]

    async def answer_of(call: Callable[[], Any]) -> tuple[bool, Any]:
        try:
            return True, await call()
        except CrawlerError as error:
            return False, str(error)

    for (request, expected, text), (accepted, said) in zip(requests, asyncio.run(all_answers()), strict=True):
        if accepted:
            name = said["host"] if "host" in request else said["url"].removeprefix(f"http://{place}")
            assert name == expected, request
        else:
            agree(text, expected, {"python": (accepted, said)})
    for text in ("::1", "a b.example"):
        assert command("block", text, "--dir", directory) == command("block", text, "--dir", running.folder)
