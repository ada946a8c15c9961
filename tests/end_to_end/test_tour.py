"""Run the commands of the README and of `crawler/cli/README.md` on loopback, and compare their output."""

import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from crawler.render.browser import find_program
from crawler.render.protocol import BrowserError
from tests.end_to_end.tour_shop import tour_shop
from tests.end_to_end.web import FAST, Web, page, run

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CLI_PAGE = (ROOT / "crawler" / "cli" / "README.md").read_text(encoding="utf-8")


def section(page: str, heading: str) -> str:
    """Return the text between a heading and the next heading."""
    _, found, below = page.partition(f"## {heading}\n")
    assert found, f"the page has no heading {heading!r}"
    return below.partition("\n## ")[0]


TOUR = re.findall(r"^    \$ crawler (.*)$", section(README, "Quick start"), re.MULTILINE)
SITE = {"/": page("/a", "/b", text="Home"), "/a": page("/gone", text="a"), "/b": page(text="b")}
# Parts of the output of each command of the quick start.
SHOWN = {
    "crawl": "pages fetched",
    "status": "pages:    fetched 3, gone 1",
    "why": "fetched",
    "get": "HTTP 200 OK",
    "export": '"mime":"text/html"',
    "report": "",
}


def test_the_commands_of_the_quick_start_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(TOUR) >= 7, "the quick start was not found in the README"
    with Web(SITE) as web:
        for line in TOUR:
            words = shlex.split(line.replace("https://example.org/", web.url()), comments=True)
            ran = run(*words, *(FAST if words[0] == "crawl" else ()))
            assert ran.code == 0 and "Traceback" not in ran.err, (line, ran)
            assert SHOWN[words[0]] in ran.text, (line, ran)
    assert "<!doctype html>" in (tmp_path / "report.html").read_text().lower()
    assert (tmp_path / "example" / "mirror").is_dir()


# -- the tour in the README, and the shop in `crawler/cli/README.md`: each command with its output

OWN = section(README, "A tour") + section(CLI_PAGE, "A shop of your own, command by command")
SETTINGS = re.search(r"^    \$ export (.*)$", OWN, re.MULTILINE)
COMMANDS = re.findall(r"^    \$ (crawler .*)\n((?:    (?!\$).*\n|\n(?=    (?!\$)))*)", OWN, re.MULTILINE)
# The parts of an output that differ from run to run: durations, bytes, times.
DIFFERS = re.compile(
    r"\d{4}-\d\d-\d\d[T ][\d:.,]+Z?|(?<=after )[\d.]+(?= s)|[\d.]+(?= (?:CPU )?s\b)|[\d.]+(?= MB)"
)


# A crawl that takes long, as on a busy machine, prints lines of progress.
PROGRESS = re.compile(r"^[\d,]+ pages fetched.* \([\d.,]+/s\), ")


def has_browser() -> bool:
    try:
        return bool(find_program(""))
    except BrowserError:
        return False


def shown(line: str, web: Web) -> tuple[list[str], str]:
    """Run a line of the README. Return the command, and its terminal output without the progress.

    A `| head -N` in the line is applied to the output.
    """
    command, _, cut = line.partition(" | ")
    asks_code = command.endswith("; echo $?")
    words = shlex.split(command.removesuffix("; echo $?").replace("http://localhost:8000/", web.url()))
    ran = run(*words[1:])
    lines, told = (
        ran.text.splitlines(),
        [each for each in ran.err.splitlines() if not PROGRESS.search(each)],
    )
    if cut:
        tool, _, number = cut.partition(" -")
        lines = lines[: int(number)] if tool == "head" else lines[-int(number) :]
    lines += told + ([str(ran.code)] if asks_code else [])
    return [each.replace(str(web.port), "8000") for each in lines], command


def test_each_command_prints_what_the_readme_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert SETTINGS is not None and len(COMMANDS) >= 13
    for pair in shlex.split(SETTINGS[1]):
        monkeypatch.setenv(*pair.split("=", 1))
    monkeypatch.setenv("CRAWLER_ADMIN__ADDRESS", "off")
    with tour_shop() as web:
        for line, expected in COMMANDS:
            if "--dir app" in line and not has_browser():
                continue
            found, command = shown(line, web)
            wanted = [DIFFERS.sub("N", each[4:]).rstrip() for each in expected.splitlines()]
            assert [DIFFERS.sub("N", each).rstrip() for each in found] == wanted, command


# Each command of the section whose whole output is one error, if the command needs no web.
ERRORS = [
    (line, said)
    for line, said in re.findall(
        r"^    \$ (.*)\n    (crawler: .*)\n(?=    \$)", section(CLI_PAGE, "Error messages"), re.MULTILINE
    )
    if "--allow-network" not in line
]
# The files that these commands read.
FILES = {
    "seeds.txt": "url scope depht\n",
    "own.toml": '[[override]]\nmatch = "a.org"\nscope = "hosts"\n',
    "both.csv": "importance,change_rate,precision,false_rate\n1,1,0.5,0.5\n",
}


def test_each_error_message_is_as_the_page_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page once showed four messages that had changed since."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRAWLER_ADMIN__ADDRESS", "off")
    for name, text in FILES.items():
        Path(name).write_text(text)
    assert len(ERRORS) >= 10
    for line, said in ERRORS:
        words = shlex.split(line, comments=True)
        with monkeypatch.context() as patch:
            while "=" in words[0]:
                patch.setenv(*words.pop(0).split("=", 1))
            ran = run(*words[1:])
        begin, cut, _ = said.partition(" ...")
        assert ran.code in (2, 4) and (ran.err.startswith(begin) if cut else ran.err == f"{said}\n"), (
            line,
            ran,
        )


def test_the_shop_of_the_tour_is_served_as_the_readme_says() -> None:
    """The README once did not say how to get the shop."""
    served = re.search(r"`(python -m \S+)` serves it on `http://localhost:8000/`", OWN)
    assert served is not None
    command = [sys.executable, *served[1].split()[1:], "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            with urllib.request.urlopen(server.stdout.readline().strip()) as answer:
                assert answer.status == 200 and b"/product/9" in answer.read()
        finally:
            server.send_signal(signal.SIGINT)
    assert server.returncode == 0
