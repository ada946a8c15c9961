"""Test how `scripts/check` combines its checks, with programs that only say that they were called."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYTHON = """#!/bin/sh
echo "$@"
case "$*" in *"$FAILS"*) exit 3 ;; esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that contains only `scripts/check` and stand-ins for the programs that the script starts."""
    programs = {"scripts/setup": "#!/bin/sh\n", ".venv/bin/ruff": "#!/bin/sh\n", ".venv/bin/python": PYTHON}
    programs[".venv/bin/mypy"] = PYTHON.replace("$@", "mypy").replace("$*", "mypy")
    for name, program in programs.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(program)
        path.chmod(0o755)
    shutil.copy(ROOT / "scripts" / "check", tmp_path / "scripts")
    return tmp_path


PROSE, COLLECTED, RUN = "scripts/check_prose --strict", "-m pytest --collect-only", "-m pytest tests/urls"


@pytest.mark.parametrize(
    ("argument", "fails", "called"),
    [
        ("tests/urls", "nothing", [PROSE, "mypy", RUN]),
        ("tests/urls", "mypy", [PROSE, "mypy"]),
        ("tests/urls", "check_prose", [PROSE]),
        ("tests/urls", "pytest", [PROSE, "mypy", RUN]),
        ("--collect-only", "nothing", [PROSE, COLLECTED, "mypy"]),
        ("--collect-only", "mypy", [PROSE, COLLECTED, "mypy"]),
        ("--collect-only", "pytest", [PROSE, COLLECTED]),
    ],
)
def test_each_failing_check_fails_the_script(
    checkout: Path, argument: str, fails: str, called: list[str]
) -> None:
    """No test runs before the types are right, although mypy runs beside the other checks."""
    environment = {**os.environ, "FAILS": fails, "CRAWLER_VENV": str(checkout / ".venv")}
    script = [checkout / "scripts" / "check", argument]
    ran = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert (ran.stdout.splitlines(), ran.returncode) == (called, 0 if fails == "nothing" else 3)
