"""Test `scripts/check_prose`: the sentences that it must report, and those that it must not report."""

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("check_prose", str(ROOT / "scripts" / "check_prose"))
    spec = importlib.util.spec_from_loader("check_prose", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


check_prose = _script()

FOREIGN = (
    'def f():\n    """What a host must wait for."""\n',
    'def f():\n    """Whose a link is."""\n',
    'def f():\n    """Write the rows; how many."""\n',
    'class A:\n    """The same for many hosts."""\n',
    'def f():\n    """Write a file.\n\n    A crawl stops in order.\n    """\n',
    "x = 1  # for want of a better one\n",
    'raise ValueError(f"{x} is no URL")\n',
    'log.info("the crawl goes on with %s", x)\n',
    'parser.add_argument("-x", help="mend the store")\n',
    "waits: dict[\n    int, float\n] = {}  # host -> the seconds for which it must wait\n",
)
PLAIN = (
    'def f():\n    """Return whether a host must wait."""\n',
    'def f():\n    """Write the rows and return their number."""\n',
    'def f():\n    """Return `hrefs` in order; there is no limit.\n\n    What is left waits.\n    """\n',
    'def f():\n    """Call `nobody` first.\n\n    A picture:\n\n        nobody --> lest\n    """\n',
    "x = 1  # it is no longer used, and stages import not one another\n",
    'x = "nobody reads this string"\n',
    "waits = [\n    1.0,\n    2.0,\n]  # seconds\n",
    "# host -> the seconds for which it must wait\nwaits: dict[int, float] = {}\n",
)


@pytest.mark.parametrize("source", FOREIGN)
def test_a_foreign_sentence_is_found_with_what_to_write_instead(source: str) -> None:
    found = list(check_prose.of_python(source))
    assert len(found) == 1 and found[0][2]


@pytest.mark.parametrize("source", PLAIN)
def test_a_plain_sentence_is_left_alone(source: str) -> None:
    assert list(check_prose.of_python(source)) == []


def test_the_line_is_that_of_the_sentence() -> None:
    source = '"""A module."""\n\n\ndef f():\n    """Return 1.\n\n    It is mended here.\n    """\n'
    assert [line for line, _, _ in check_prose.of_python(source)] == [7]


def test_code_blocks_of_pages_are_left_alone() -> None:
    page = "Text.\n\n    nobody\n\n```\nnobody\n```\n\nIt is mended.\n"
    assert [line for line, _, _ in check_prose.of_markdown(page)] == [9]
