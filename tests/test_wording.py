"""Test that nouns and verbs agree with a number, and that the crawler's messages use `several` for this."""

import ast
import itertools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import crawler
from crawler.wording import several, to_install, words

ROOT = Path(crawler.__file__).parent
# The lab and the benchmarks print tables and figures of experiments, whose numbers are large.
EXEMPT = {"lab", "bench"}
NOUN = (
    r" (?:[a-z]+ )?(?:URLs|hosts|pages|links|copies|seeds|refreshes|tries|problems|answers|clients|tasks)\b"
)
AFTER_A_NUMBER = re.compile(NOUN)
# how the source of such a message looks; the noun may begin the next of several adjacent strings
SOURCE_AFTER_A_NUMBER = re.compile(r"\}[\s\"'rRfF]*" + NOUN)
FILE_ERROR = re.compile(r"\b(?:OS|Permission|FileNotFound)Error\b")


@pytest.mark.parametrize(
    ("count", "noun", "verb", "text"),
    [
        (0, "page", "", "0 pages"),
        (1, "page", "", "1 page"),
        (1, "copy", "are", "1 copy is"),
        (2, "copy", "are", "2 copies are"),
        (1, "other host", "wait", "1 other host waits"),
        (1234, "waiting URL", "have", "1,234 waiting URLs have"),
    ],
)
def test_noun_and_verb_agree_with_the_number(count: int, noun: str, verb: str, text: str) -> None:
    assert several(count, noun, verb) == text


def test_a_name_becomes_words() -> None:
    assert words("hosts_given_up") == "hosts given up"


def test_messages_about_extras_use_to_install() -> None:
    """A checkout installs an extra with scripts/setup; some messages once named only pip and its package index."""
    with (ROOT.parent / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}
    asked = {name for text in sources.values() for name in re.findall(r"to_install\([\"'](\w+)[\"']\)", text)}
    assert {"lab", "text", "export"} <= asked <= extras.keys()
    assert to_install("lab") == "install the extra lab (scripts/setup lab, or pip install 'crawler[lab]')"
    assert [path.name for path, text in sources.items() if "pip install 'crawler[" in text] == ["wording.py"]


def test_messages_use_several_for_numbers() -> None:
    """Numbers that are constants, shares, rates or parts ("of 3 pages") may stand before a noun in plural."""
    found = [
        place for path in sorted(ROOT.rglob("*.py")) if _top(path) not in EXEMPT for place in _plurals(path)
    ]
    assert not found, "\n".join(found)


def _top(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def _plurals(path: Path) -> Iterator[str]:
    """Yield the places in a file where a message has a number and a noun in plural."""
    source = path.read_text(encoding="utf-8")
    if not SOURCE_AFTER_A_NUMBER.search(source):
        return
    tree = ast.parse(source)
    internal = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) or (isinstance(node, ast.FunctionDef) and node.name == "__repr__")
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr) or id(node) in internal:
            continue
        for before, (number, text) in zip(["", *node.values], itertools.pairwise(node.values), strict=False):
            if not isinstance(number, ast.FormattedValue) or not isinstance(text, ast.Constant):
                continue
            if AFTER_A_NUMBER.match(text.value) and not _is_exempt(number, before):
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)[:100]}"


def _is_exempt(number: ast.FormattedValue, before: object) -> bool:
    shown = ast.unparse(number.value)
    spec = ast.unparse(number.format_spec) if number.format_spec else ""
    said = before.value if isinstance(before, ast.Constant) else ""
    return (
        shown.isupper()
        or number.conversion == ord("r")
        or "several(" in shown
        or "%" in spec
        or ".1f" in spec
        or said.endswith((" of ", "most "))
    )


# Messages without a path of their own: that of the error says which file failed.
NAMED_BY_THE_ERROR = {"commit.py", "ready.py", "stages.py"}


def test_a_message_does_not_repeat_the_number_and_path_of_an_error() -> None:
    """The text of an `OSError` is "[Errno 2] No such file or directory: 'x'". `reason_of` returns the words."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if path.name not in NAMED_BY_THE_ERROR and FILE_ERROR.search(source):
            handlers = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ExceptHandler))
            found += [
                f"{path.relative_to(ROOT)}:{line}" for handler in handlers for line in _repeats(handler)
            ]
    assert found == []


def _repeats(handler: ast.ExceptHandler) -> Iterator[int]:
    """Yield the lines of the messages that contain a caught `OSError` as it is."""
    caught = ast.unparse(handler.type) if handler.type is not None else ""
    if FILE_ERROR.search(caught):
        for node in ast.walk(handler):
            if isinstance(node, ast.FormattedValue) and ast.unparse(node.value) == handler.name:
                yield from [node.lineno] if node.conversion != ord("r") else []
