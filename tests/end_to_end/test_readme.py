"""Type-check the Python examples of the README and of the API's page."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", ROOT / "crawler" / "api" / "README.md")
EXAMPLES = [
    example
    for page in PAGES
    for example in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    if "page.status" in example
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for mypy's cache, because mypy spends most of its time on modules that all examples import."""
    return tmp_path_factory.mktemp("mypy")


def check(source: str, folder: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """Return mypy's output for a user's program, without this project's settings."""
    folder.mkdir(exist_ok=True)
    program = folder / "example.py"
    program.write_text(source, encoding="utf-8")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent"]
    return subprocess.run(
        [*mypy, f"--cache-dir={cache}", str(program)], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_there_is_an_example_on_each_page() -> None:
    assert len(EXAMPLES) == len(PAGES)


@pytest.mark.parametrize("example", EXAMPLES, ids=["README", "API"])
def test_examples_type_check(example: str, tmp_path: Path, cache: Path) -> None:
    """`crawler.Crawl` and `crawler.configure` once had type `object` for a type checker."""
    pytest.importorskip("mypy")
    answer = check(example, tmp_path, cache)
    assert answer.returncode == 0, answer
    # In the same folder, mypy could take the file for unchanged: its size is the same, and perhaps its time.
    wrong = check(example.replace("page.status", "page.statsu"), tmp_path / "wrong", cache)
    assert '"Page" has no attribute "statsu"' in wrong.stdout
