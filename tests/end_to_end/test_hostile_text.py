"""Test that every command escapes text from hostile pages, so that it is harmless in terminals and spreadsheets."""

import csv
import io
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from crawler.cli.command_table import COMMANDS
from tests.end_to_end.web import FAST, Ran, on_terminal, run, served
from tests.test_printable import is_hidden

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066\u200f\u2028\x85\x7f"
FORMULA = "\uff1dcmd|' /C calc'!A0"
PAGE = f"""<html><head><title>{FORMULA} {EVIL}</title></head><body>{EVIL}
<a href="/same">{EVIL}</a> <a href="/moved">m</a> <a href="/gone?{EVIL}">g</a> <a href="/odd">o</a></body></html>"""
ANSWERS = {
    "/robots.txt": f"User-agent: *\nDisallow: /{EVIL}\nCrawl-delay: {EVIL}\n",
    "/": PAGE,
    "/same": PAGE,
}


class Hostile(BaseHTTPRequestHandler):
    """A server that sends hostile text in reason phrases, fields, media types, redirect targets and invalid answers."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        said = ANSWERS.get(self.path)
        status = "200" if said is not None else "302" if self.path == "/moved" else "404"
        head = f"HTTP/1.1 {status} Said {EVIL}"
        if self.path == "/odd":
            head = f"HTTP/1.1 {EVIL} odd"
        kind = "text/plain" if self.path == "/robots.txt" else f"text/html; charset=utf-8; x={EVIL}"
        body = (said or EVIL).encode()
        fields = [
            f"Content-Type: {kind}",
            f"ETag: {EVIL}",
            f"X-{FORMULA}: {EVIL}",
            f"X-Said: {FORMULA} {EVIL}",
        ]
        fields += [f"Location: /to?{EVIL}"] if status == "302" else []
        lines = "\r\n".join([head, *fields, f"Content-Length: {len(body)}", "Connection: close", "", ""])
        self.wfile.write(lines.replace("\u0085", "").encode() + body)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Return the directory of a crawl of hostile pages, and its first URL."""
    directory = tmp_path_factory.mktemp("hostile") / "crawl"
    with served(Hostile) as port:
        url = f"http://localhost:{port}/"
        ran = run("crawl", url, "--dir", directory, *FAST, "-v", "--refresh-share", "0.5", "--max-time", "3")
        clean(ran)
        assert ran.code in (0, 15), ran
        yield directory, url


def clean(ran: Ran) -> None:
    """Assert that the text contains no terminal control sequence."""
    for text in (ran.out.decode("utf-8", "surrogateescape"), ran.err):
        hidden = {each for each in text if each not in "\t\n" and is_hidden(each)}
        assert not hidden, (hidden, text)


# The arguments of each command, without --dir. `test_data_is_escaped_on_a_terminal_only` tests the commands that write
# data to standard output.
COMMAND_LINES: dict[str, list[list[str]]] = {
    "crawl": [["{url}", "--dry-run"], [EVIL], ["{url}", "--set", f"fetch.{EVIL}=1"], ["{url}", "--max-time", "1", "-v"]],
    "refresh": [["--max-time", "1", "-v"], [f"--{EVIL}"]],
    "status": [[], ["-v"], ["--json"], ["--signals"]],
    "why": [[f"{{url}}{path}"] for path in ("", "same", "moved", "odd", "gone", EVIL)] + [["{url}", "--json"]],
    "get": [["{url}", "--headers"], ["{url}odd", "--headers"], [f"{{url}}{EVIL}"]],
    "report": [[], ["--format", "csv"], ["--format", "json"]],
    "export": [["--format", "crawl-log"], ["--format", "links"], ["--format", EVIL], ["--where", EVIL]],
    "check": [[], ["--repair"]],
    "seed": [[f"http://{EVIL}/"], [f"ftp://a/{EVIL}"]],
    "signal": [[f"{{url}}{EVIL}"], [EVIL]],
    "block": [[EVIL]],
    "unblock": [[EVIL]],
    "retire": [[f"({EVIL}"], [EVIL]],
    "ship": [["--to", f"s3://{EVIL}/x"], ["--to", EVIL], ["--list"]],
    "withdraw": [["{url}", "--dry-run"], [f"{{url}}{EVIL}", "--reason", EVIL], ["--host", EVIL], ["--list"]],
    "set": [[f"{EVIL}=1"], [f"crawl.rate={EVIL}"]],
    "pause": [[], [EVIL]],
    "resume": [[]],
    "stop": [[]],
    "top": [["--count", "1"]],
    "shell": [["{url}", "-c", "page.text"], ["{url}", "-c", "page.headers"], ["{url}", "-c", "page"]],
    "serve": [[EVIL]],
    "key": [[EVIL], ["show"], ["rotate", "--file", EVIL]],
    "node": [[EVIL], ["--name", EVIL]],
    "reshard": [["--processes", EVIL], ["--to", EVIL]],
    "recover": [[EVIL]],
    "new": [[EVIL]],
    "config": [["show"], ["check", EVIL], ["show", "--set", f"{EVIL}=1"]],
    "completion": [[EVIL]],
    "man": [[EVIL], ["crawl"]],
    "demo": [[EVIL]],
    "plan": [[EVIL]],
    "lab": [[EVIL]],
    "bench": [[EVIL]],
}  # fmt: skip


def test_every_command_is_tested() -> None:
    assert COMMAND_LINES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_control_sequences(command: str, hostile: tuple[Path, str]) -> None:
    directory, url = hostile
    for arguments in COMMAND_LINES[command]:
        given = [each.replace("{url}", url) for each in arguments]
        at = () if command in ("lab", "bench", "plan", "completion", "man") else ("--dir", directory)
        clean(run(command, *given, *at))
    clean(run(command, "--help"))
    clean(run(EVIL))


def test_a_refused_command_leaves_the_crawl_usable(hostile: tuple[Path, str]) -> None:
    """A command that names an unknown process changes nothing and leaves no journal that blocks other commands."""
    directory, _ = hostile
    for refused in (
        ["recover", EVIL],
        ["recover", "p0"],
        ["reshard", "--to", "x://"],
        ["check", "--repair", EVIL],
    ):
        assert run(*refused, "--dir", directory).code != 0
    assert run("status", "--dir", directory).code == 0


def test_hostile_text_is_escaped_but_readable(hostile: tuple[Path, str]) -> None:
    """Hostile text is escaped, not deleted."""
    directory, url = hostile
    ran = run("get", url, "--headers", "--dir", directory)
    assert "X-Said" in ran.text and "\\u001b]0;owned\\u0007" in ran.text, ran
    assert "\\u001b" in run("report", "--dir", directory).text
    rows = run("export", "--format", "crawl-log", "--dir", directory).text.splitlines()
    assert len(rows) >= 4 and all(len(row.split()) == 12 for row in rows)


def test_tables_contain_no_formula(hostile: tuple[Path, str]) -> None:
    directory, _ = hostile
    rows = list(csv.reader(io.StringIO(run("report", "--format", "csv", "--dir", directory).text)))
    titles = [cell for row in rows for cell in row if "cmd|" in cell]
    assert titles and all(cell.startswith("'\uff1d") for cell in titles)


def test_the_log_contains_no_control_sequence(hostile: tuple[Path, str]) -> None:
    directory, _ = hostile
    text = (
        (directory / "crawler.log").read_text(encoding="utf-8")
        if (directory / "crawler.log").exists()
        else ""
    )
    assert not [each for each in text if each != "\n" and is_hidden(each)]


def test_errors_about_hostile_configuration_keys_are_escaped(
    hostile: tuple[Path, str], tmp_path: Path
) -> None:
    (tmp_path / "crawl").mkdir()
    for text in (
        f'["{EVIL}"]\nx = 1',
        '["\\u001b[31m\\u202e"]\nx = 1',
        '[fetch]\n"\\u001b[31m\\u202e" = 1',
        f"[fetch]\n{EVIL}",
    ):
        file = tmp_path / "own.toml"
        file.write_text(text, encoding="utf-8")
        for command in ("config", "crawl"):
            ran = run(command, *(["check"] if command == "config" else [hostile[1]]), "--config", file)
            assert ran.code != 0 and ran.err
            clean(ran)


@pytest.mark.parametrize(
    "arguments",
    [["get", "{url}"], *(["export", "--format", name, "-q"] for name in ("jsonl", "text", "cdxj", "warc"))],
)
def test_data_is_escaped_on_a_terminal_only(arguments: list[str], hostile: tuple[Path, str]) -> None:
    """Data is written unchanged to files and pipes, but is escaped on a terminal."""
    directory, url = hostile
    given = [each.replace("{url}", url) for each in arguments]
    command = [*given, "--dir", str(directory)]
    raw = subprocess.run([sys.executable, "-m", "crawler", *command], capture_output=True, check=True).stdout
    text = on_terminal(*command).decode().replace("\r\n", "\n")
    assert text and not [each for each in text if each not in "\t\n" and is_hidden(each)]
    assert raw and (b"\x1b" in raw or "\u202e".encode() in raw or {"cdxj", "warc"} & set(arguments))
