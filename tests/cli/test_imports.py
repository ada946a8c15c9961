"""Test that help texts, and commands that only query a running crawl, do not import the stages of a crawl."""

import subprocess
import sys

import pytest

HEAVY = {"numpy", "asyncio", "ssl", "aiohttp", "uvloop", "plyvel", "selectolax", "crawler.frontier.frontier"}
# Modules that commands must not import.
NOT_IMPORTED = {
    ("--help", "--version"): HEAVY | {"msgspec", "argparse", "tempfile", "crawler.config"},
    ("lab",): {"numpy", "scipy", "crawler.config"},
    ("crawl", "refresh", "node"): HEAVY | {"crawler.api", "crawler.process.process"},
    ("status", "why", "get", "check", "stop"): HEAVY,
}
RUN = """
import contextlib, sys
from crawler import cli
for word in sys.argv[1:]:
    with contextlib.suppress(SystemExit):
        cli.main([word] if word.startswith("-") else [word, "--help"])
print("imported", *sys.modules)
"""


def _imported(code: str, *argv: str) -> set[str]:
    """Run `code` in a new interpreter. Return the imported modules, which `code` prints at its end."""
    ran = subprocess.run(
        [sys.executable, "-c", code, *argv], capture_output=True, text=True, check=True, timeout=60
    )
    return set(ran.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("commands", NOT_IMPORTED, ids=" ".join)
def test_help_imports_no_stage(commands: tuple[str, ...]) -> None:
    imported = _imported(RUN, *commands)
    assert "crawler.cli" in imported
    assert not imported & NOT_IMPORTED[commands]


def test_a_question_to_a_running_crawl_needs_no_stage() -> None:
    """The running process answers the question, so the command imports no stage.

    Importing the stages of a crawl would take twice the command's CPU time.
    """
    code = (
        "import sys, crawler.cli.inspect, crawler.cli.access, crawler.admin.control_client;"
        "import crawler.crawl.process_names; print('imported', *sys.modules)"
    )
    imported = _imported(code)
    assert "crawler.admin.control_client" in imported
    assert not imported & (HEAVY | {"crawler.extract.links"})


def test_numpy_starts_no_threads_of_its_own() -> None:
    """Starting the threads of OpenBLAS would take about 0.05 s of CPU time at every start of the crawler."""
    code = (
        "import os, sys\nfrom crawler import cli\ncli.main(['--version'])\n"
        "import numpy\nprint('imported', len(os.listdir('/proc/self/task')))"
    )
    assert _imported(code) == {"1"}
