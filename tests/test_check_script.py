"""Test how `scripts/check` combines its checks, with programs that only say that they were called."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """#!/bin/sh
echo "$(basename "$0")" "$@"
case "$(basename "$0") $*" in *"$FAILS"*) exit 3 ;; esac
"""
# If mypy is to fail, the tests run until they are stopped.
TESTS = f"""#!{sys.executable} -IS
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("stopped")))
with open(os.environ["STARTED"], "w") as file:
    file.write(" ".join(["test", *sys.argv[1:]]))
if os.environ["FAILS"] == "mypy":
    signal.alarm(60)  # ends the tests if the script does not
    signal.pause()
sys.exit(3 if os.environ["FAILS"] == "the tests" else 0)
"""
# mypy ends after the tests have begun.
MYPY = """#!/bin/sh
until [ -s "$STARTED" ]; do :; done
echo "$(cat "$STARTED")"
echo mypy
[ "$FAILS" != mypy ] || exit 3
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that contains only `scripts/check` and stand-ins for the programs that the script starts."""
    programs = {"scripts/setup": "#!/bin/sh\n", "scripts/test": TESTS, ".venv/bin/mypy": MYPY}
    programs |= {".venv/bin/ruff": PROGRAM, ".venv/bin/python": PROGRAM}
    for name, program in programs.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(program)
        path.chmod(0o755)
    shutil.copy(ROOT / "scripts" / "check", tmp_path / "scripts")
    return tmp_path


FORMAT, LINT = "ruff format --check crawler tests scripts", "ruff check crawler tests scripts"
PROSE, TEST, TYPES = "python scripts/check_prose --strict", "test tests/urls", "mypy"


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ("nothing", [FORMAT, LINT, PROSE, TEST, TYPES]),
        ("format", [FORMAT]),
        ("ruff check", [FORMAT, LINT]),
        ("check_prose", [FORMAT, LINT, PROSE]),
        ("mypy", [FORMAT, LINT, PROSE, TEST, TYPES, "stopped"]),
        ("the tests", [FORMAT, LINT, PROSE, TEST, TYPES]),
    ],
)
def test_each_failing_check_fails_the_script(checkout: Path, fails: str, said: list[str]) -> None:
    """mypy runs beside the tests, which are stopped if the types are wrong."""
    environment = {
        **os.environ,
        "FAILS": fails,
        "CRAWLER_VENV": str(checkout / ".venv"),
        "STARTED": str(checkout / "started"),
    }
    script = [checkout / "scripts" / "check", "tests/urls"]
    ran = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert (ran.stdout.splitlines(), ran.returncode) == (said, 0 if fails == "nothing" else 3)
