"""Type-check programs as users write them: the examples of the README, the API's README and `crawler new`."""

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


PROGRAMS = (ROOT / "tests" / "api" / "products.py", ROOT / "crawler" / "cli" / "example" / "crawl.py.txt")


def test_there_is_an_example_on_each_page() -> None:
    assert len(EXAMPLES) == len(PAGES)


def test_examples_type_check(tmp_path: Path) -> None:
    """Run mypy with its default settings: it accepts the examples, and finds a mistake that the test adds to each.

    `crawler.Crawl` and `crawler.configure` once had type `object` for a type checker. All programs are
    checked in one run, because mypy spends most of its time on modules that all of them import. It keeps its
    results for these modules, so later runs take a fifth of the time.
    """
    pytest.importorskip("mypy")
    sources = {f"right{number}.py": source for number, source in enumerate(EXAMPLES)}
    sources |= {f"{path.name.partition('.')[0]}.py": path.read_text(encoding="utf-8") for path in PROGRAMS}
    wrong = [source.replace("page.status", "page.statsu") for source in EXAMPLES]
    for name, source in {
        **sources,
        **{f"wrong{number}.py": each for number, each in enumerate(wrong)},
    }.items():
        (tmp_path / name).write_text(source, encoding="utf-8")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent"]
    ran = subprocess.run(
        [*mypy, f"--cache-dir={ROOT / '.mypy_cache' / 'examples'}", *map(str, sorted(tmp_path.glob("*.py")))],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    errors = [line for line in ran.stdout.splitlines() if ": error:" in line]
    assert {Path(line.partition(":")[0]).name for line in errors} == {"wrong0.py", "wrong1.py"}, ran.stdout
    assert all('"Page" has no attribute "statsu"' in line for line in errors), ran.stdout
