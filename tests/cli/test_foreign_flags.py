"""Test the answers to flags of other tools."""

import re
from pathlib import Path

import pytest

import crawler
from crawler.cli.command_table import COMMANDS
from crawler.cli.completion import parsers
from crawler.cli.foreign_flags import FOREIGN, page_table, translation
from crawler.config.key_words import keys
from tests.end_to_end.web import run

PAGE = Path(crawler.__file__).parent / "cli" / "README.md"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--level=2"], "--level (wget): --depth N"),
        (["-l2"], "-l (wget): --depth N"),
        (["-l", "2"], "-l (wget): --depth N"),
        (["-A", "png"], "-A (wget): --accept LIST; -A (curl): --token NAME and --contact"),
        (["-wQ", "x"], "-w (wget): --delay S; -Q (wget): --max-bytes B"),
        (["-A", "png", "-w1"], "-A (wget): --accept LIST; -w (wget): --delay S"),
        (["-x", "-w1", "--limit=3"], "--limit (Browsertrix): --max-pages N"),
        (["--max-page", "3"], ""),
        (["-rz", "http://x/"], ""),
        (["-", "--", "=", ""], ""),
    ],
)
def test_flags_of_other_tools_are_translated(words: list[str], said: str) -> None:
    """If one tool has all of the flags, only what they mean in this tool is given."""
    assert translation(words).endswith(said) and bool(translation(words)) == bool(said)


def test_a_command_line_of_wget_gets_one_line(tmp_path: Path) -> None:
    ran = run("crawl", "-rkp", "-l", "2", "--wait=1", "http://localhost:9/", "--dir", tmp_path / "crawl")
    assert ran.code == 2 and ran.err.count("\n") == 1 and "curl" not in ran.err, ran
    for flag in ("--depth N", "--mirror", "--requisites", "--delay S"):
        assert flag in ran.err
    assert not (tmp_path / "crawl").exists()


def test_other_commands_do_not_translate_flags() -> None:
    ran = run("status", "--wait", "1")
    assert ran.code == 2 and "wget" not in ran.err


def test_the_answers_name_flags_and_keys_that_exist() -> None:
    """A flag of the crawler is not in the table, because argparse would accept it."""
    flags = {command: set(parser._option_string_actions) for command, parser in parsers()}
    settings = keys()
    for _, foreign, instead in FOREIGN:
        assert not flags["crawl"] & set(foreign), foreign
        quoted = re.findall(r"`crawler (\S+)([^`]*)`", instead)
        plain = re.sub(r"`[^`]*`", "", instead)
        for command, rest in [*quoted, ("crawl", plain)]:
            assert command in COMMANDS
            named = set(re.findall(r"(?<!\S)\(?(--?[a-z][a-z-]*)", rest))
            assert named <= flags[command], (instead, named - flags[command])
        for key in re.findall(r"--set ([a-z_]+\.[a-z_]+)=", instead):
            assert key in settings, key


def test_the_page_has_the_table() -> None:
    assert page_table() in PAGE.read_text(encoding="utf-8")
