"""Test the function that makes text from the web printable."""

import codecs
import io
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.printable import (
    PrintableStream,
    csv_cell,
    printable,
    printable_output,
    printable_text,
    raw_stream,
)


def is_hidden(character: str) -> bool:
    """Return whether the Unicode database lists a character as control, direction, line end or lone surrogate."""
    named = unicodedata.bidirectional(character) in {
        "LRE",
        "RLE",
        "LRO",
        "RLO",
        "PDF",
        "LRI",
        "RLI",
        "FSI",
        "PDI",
    }
    marks = character in "\u061c\u200e\u200f"
    return named or marks or unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}


def test_every_character() -> None:
    for code in range(0x110000):
        character = chr(code)
        if is_hidden(character):
            assert printable(character) == f"\\u{code:04x}", hex(code)
            assert printable_text(character) == (character if character in "\t\n" else f"\\u{code:04x}"), hex(
                code
            )
        elif printable(character) != character:
            assert unicodedata.category(character) == "Cf", hex(code)


@given(st.text())
def test_printable_json_has_the_same_value(text: str) -> None:
    told = printable_text(json.dumps([text], ensure_ascii=False))
    assert json.loads(told) == [text] and not any(map(is_hidden, told))


@given(st.lists(st.text(), max_size=5))
def test_a_stream_writes_printable_text(parts: list[str]) -> None:
    raw = io.StringIO()
    stream = PrintableStream(raw)
    stream.writelines(parts)
    assert stream.write("\x1b[m") == 3 and raw.getvalue().endswith("\\u001b[m")
    raw.seek(raw.tell() - len("\\u001b[m"))
    raw.truncate()
    assert raw.getvalue() == "".join(map(printable_text, parts))
    assert raw_stream(stream) is raw and raw_stream(raw) is raw


def test_nested_printable_output_has_the_effect_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    before = sys.stdout, sys.stderr
    with printable_output(), printable_output():
        print("\x1b[31m one\x1b\u202e")
        print("two\x9b", file=sys.stderr)
        assert raw_stream(sys.stdout) is before[0]
    assert (sys.stdout, sys.stderr) == before
    assert tuple(capsys.readouterr()) == ("\\u001b[31m one\\u001b\\u202e\n", "two\\u009b\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(st.binary(max_size=40), st.integers(0, 40))
def test_bytes_on_a_terminal_are_text(data: bytes, cut: int) -> None:
    """Bytes for a terminal are decoded, even if a write ends within a character.

    Other outputs get unchanged bytes.
    """
    raw = Terminal()
    buffer = PrintableStream(raw).buffer
    assert buffer.write(data[:cut]) + buffer.write(memoryview(data)[cut:]) == len(data)
    buffer.flush()
    assert not any(is_hidden(each) for each in raw.getvalue() if each not in "\t\n")
    decoded = codecs.getincrementaldecoder("utf-8")("replace").decode(data)
    assert raw.getvalue() == printable_text(decoded), "only the last character may be incomplete"
    elsewhere = io.TextIOWrapper(io.BytesIO())
    assert PrintableStream(elsewhere).buffer is elsewhere.buffer


FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3+cmd", "@SUM(A1)", "\uff1d1+1", "\uff0bx", "\uff0dx", "\uff20x",
            "\tx", "\rx", "\n=x", " =x", "\u3000=x"]  # fmt: skip


@pytest.mark.parametrize("text", FORMULAS)
def test_a_cell_that_looks_like_a_formula_is_quoted(text: str) -> None:
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize(
    "text", ["", "text", "a=b", "http://a.org/?a=b", "-5", "+49 30 12-34", "-0.5%", "'=x", "1+1"]
)
def test_a_harmless_cell_is_unchanged(text: str) -> None:
    assert csv_cell(text) == text
