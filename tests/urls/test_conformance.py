"""Test URL parsing and normalization against the test cases of the standards.

The test cases come from the web-platform-tests for URLs, percent-encoding and IDNA, and from the public suffix list.
"""

import json
from pathlib import Path

import pytest

from crawler.urls.canonical import canonical, parse, resolve
from crawler.urls.suffixes import registrable_domain

DATA = Path(__file__).resolve().parent.parent / "data"


def cases(name: str) -> list[dict]:
    """Return the objects in a file of WPT. The strings are left out, because they are comments."""
    return [case for case in json.loads((DATA / name).read_text(encoding="utf-8")) if isinstance(case, dict)]


URL_CASES = cases("url/wpt-urltestdata.part.json")


def test_wpt_urls() -> None:
    """In each of the 574 cases, of all kinds of schemes, the parser returns the case's `href`, or fails as it says."""
    wrong = []
    for case in URL_CASES:
        wanted = None if case.get("failure") else case["href"]
        if (got := parse(case["input"], case["base"])) != wanted:
            wrong.append((case["input"], case["base"], got, wanted))
    assert not wrong
    assert len(URL_CASES) == 574


def request_form(case: dict) -> str | None:
    """Assemble the request form from the parts of a WPT case, without using the code under test."""
    if case.get("failure") or case["protocol"] not in ("http:", "https:"):
        return None
    name = case["hostname"].removesuffix(".")
    if not name or name.endswith("."):
        return None
    port = ":" + case["port"] if case["port"] else ""
    mark = "?" if case["href"].partition("#")[0].endswith("?") else ""
    return f"{case['protocol']}//{name}{port}{case['pathname']}{case['search'] or mark}"


def test_wpt_request_forms() -> None:
    """A request form is `href` without the fragment, the credentials and the dot at the end of the host."""
    for case in URL_CASES:
        base = case["base"]
        got = canonical(case["input"]) if base is None else resolve(base, case["input"])
        assert got == request_form(case), case


def percent_encoding_cases() -> list[tuple[str, str, str]]:
    found = cases("url/wpt-percent-encoding.json")
    return [(case["input"], encoding, out) for case in found for encoding, out in case["output"].items()]


@pytest.mark.parametrize(("text", "encoding", "wanted"), percent_encoding_cases())
def test_wpt_percent_encoding(text: str, encoding: str, wanted: str) -> None:
    """The query of an href is encoded in the page's encoding, and the path is encoded in UTF-8."""
    assert resolve("http://h/", "?" + text, encoding=encoding) == "http://h/?" + wanted
    assert resolve("http://h/", "p%3F" + text + "x", encoding=encoding) == resolve(
        "http://h/", f"p%3F{text}x"
    )


@pytest.mark.parametrize("case", cases("idna/wpt-toascii.json"), ids=lambda case: ascii(case["input"]))
def test_wpt_to_ascii(case: dict) -> None:
    got = parse(f"https://{case['input']}/x")
    assert got == (None if case["output"] is None else f"https://{case['output']}/x")


def psl_cases() -> list[tuple[str, str]]:
    lines = (DATA / "psl/psl-tests.part.txt").read_text(encoding="utf-8").splitlines()
    return [tuple(line.split()) for line in lines if line and not line.startswith("//")]


@pytest.mark.parametrize(("name", "wanted"), psl_cases())
def test_public_suffix_list(name: str, wanted: str) -> None:
    """Names are first parsed as hosts. A public suffix is its own domain. `null` and leading dots are left out."""
    url = canonical(f"http://{name}/")
    assert url is not None
    host = url[7:-1]
    if name == "null" or name.startswith("."):
        return
    ascii_wanted = host if wanted == "null" else (canonical(f"http://{wanted}/") or "")[7:-1]
    assert registrable_domain(host) == ascii_wanted
