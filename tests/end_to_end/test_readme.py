"""What a user of the Python API sees first: the example of the README, and the types behind it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def check(source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """mypy's word on a user's program, without this project's own settings."""
    program = folder / "example.py"
    program.write_text(source, encoding="utf-8")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent"]
    return subprocess.run(
        [*mypy, f"--cache-dir={folder}", str(program)], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_example_of_the_readme_type_checks(tmp_path: Path) -> None:
    """`crawler.Crawl` and `crawler.configure` were plain objects to a type checker."""
    pytest.importorskip("mypy")
    assert EXAMPLE is not None
    answer = check(EXAMPLE[1], tmp_path)
    assert answer.returncode == 0, answer.stdout
    wrong = check(EXAMPLE[1].replace("page.status", "page.statsu"), tmp_path)
    assert '"Page" has no attribute "statsu"' in wrong.stdout
