"""Test that Python's warnings about configured patterns are hidden, and that warnings about other code are shown."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = (
    "import re, crawler;"
    "from crawler.config import convert;"
    "from crawler.urlfilter.url_filter import Scope, UrlFilter;"
    "config = convert({'filter': {'include': ['[[a]'], 'exclude': ['[a&&b]']}});"
    "UrlFilter(Scope(), config.filter, config.traps);"
    "print('read');"
)


def said(program: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", program],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, done.stderr


def test_a_pattern_that_a_later_python_may_read_differently_gives_no_warning() -> None:
    """`re` prints a FutureWarning of three lines for an opening bracket or `&&` in a character set."""
    assert said(PROGRAM) == ("read\n", "")


def test_warnings_about_other_code_are_shown() -> None:
    assert "FutureWarning: Possible set intersection" in said(PROGRAM + "re.compile('[b&&c]')")[1]
