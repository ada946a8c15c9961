"""The tour of the README, command by command as it stands there, on a site on loopback."""

import re
import shlex
from pathlib import Path

import pytest

from tests.end_to_end.web import FAST, Web, page, run

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
TOUR = re.findall(
    r"^    \$ crawler (.*)$", README.partition("## Ten lines")[2].partition("\n## ")[0], re.MULTILINE
)
SITE = {"/": page("/a", "/b", text="Home"), "/a": page("/gone", text="a"), "/b": page(text="b")}
# What a command of the tour shows, or the file it makes.
SHOWN = {
    "crawl": "pages fetched",
    "status": "pages:    fetched 3, gone 1",
    "why": "fetched",
    "get": "HTTP 200 OK",
    "export": '"mime":"text/html"',
    "report": "",
}


def test_each_command_of_the_tour_does_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(TOUR) >= 7, "the tour of the README is not where it was"
    with Web(SITE) as web:
        for line in TOUR:
            words = shlex.split(line.replace("https://example.org/", web.url()), comments=True)
            ran = run(*words, *(FAST if words[0] == "crawl" else ()))
            assert ran.code == 0 and "Traceback" not in ran.err, (line, ran)
            assert SHOWN[words[0]] in ran.text, (line, ran)
    assert "<!doctype html>" in (tmp_path / "report.html").read_text().lower()
    assert (tmp_path / "example" / "mirror").is_dir()
