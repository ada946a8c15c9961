"""Test the charset of pages against the expectations of html5lib and the labels of the Encoding standard."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.extract.decode import LATE_PRESCAN_BYTES, name_of, to_utf8

DATA = Path(__file__).parent.parent / "data/charset/html5lib-encoding-tests1.dat"
BLOCKS = [block.rsplit(b"#encoding\n", 1) for block in DATA.read_bytes().split(b"#data\n")[1:]]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_encodings_of_html5lib(number: int) -> None:
    """The expected values are from html5lib-tests, encoding/tests1.dat; all must match."""
    data, encoding = BLOCKS[number]
    assert to_utf8(data)[1] == encoding.strip().decode().lower()


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("utf8", "utf-8"),
        ("UTF-8", "utf-8"),
        ("iso-8859-1", "windows-1252"),
        ("Latin1", "windows-1252"),
        ("ascii", "windows-1252"),
        ("gb2312", "gbk"),
        ("x-sjis", "shift_jis"),
        ("ks_c_5601-1987", "euc-kr"),
        ("tis-620", "windows-874"),
        (" koi8-r\n", "koi8-r"),
        ("bogus", ""),
        ("", ""),
        ("\ud800", ""),
    ],
)
def test_labels(label: str, name: str) -> None:
    """The labels are from WHATWG Encoding, 4.2."""
    assert name_of(label) == name


@pytest.mark.parametrize(
    ("content", "declared", "expected", "encoding"),
    [
        (b"\xef\xbb\xbf\xe9", "latin1", b"\xe9", "utf-8"),  # the byte order mark overrides the header
        (b"\xff\xfe<\0a\0", "utf-8", b"<a", "utf-16le"),
        (b"\xfe\xff\0<\0a", "", b"<a", "utf-16be"),
        (b"<meta charset=koi8-r>\xe9", "latin1", "<meta charset=koi8-r>é".encode(), "windows-1252"),
        (b"<meta charset=koi8-r>\xc1", "", "<meta charset=koi8-r>а".encode(), "koi8-r"),
        (b"<meta charset=koi8-r>\xc1", "bogus", "<meta charset=koi8-r>а".encode(), "koi8-r"),
        (b"\xe9", "", "é".encode(), "windows-1252"),
        ("é".encode(), "", "é".encode(), "utf-8"),  # by validity
        (b"abc", "", b"abc", "windows-1252"),
        (b"abc", '"utf-8"', b"abc", "utf-8"),
        (b"<meta charset=utf-16>\xc3\xa9", "", b"<meta charset=utf-16>\xc3\xa9", "utf-8"),
        (b"<meta charset=x-user-defined>", "", b"<meta charset=x-user-defined>", "windows-1252"),
        (b'\x1b$B$"\x1b(B', "iso-2022-jp", "あ".encode(), "iso-2022-jp"),
        (b"\x82\xa0", "shift-jis", "あ".encode(), "shift_jis"),
    ],
)
def test_order_of_declarations_and_transcoding(
    content: bytes, declared: str, expected: bytes, encoding: str
) -> None:
    assert to_utf8(content, declared) == (expected, encoding)


@pytest.mark.parametrize(
    ("before", "found"),
    [
        (b"<!doctype html><html lang=en><title>'</title><!-- ' --><link href=\"/\"/>", "koi8-r"),
        (b"<a title='<", "gbk"),  # the quoted value ends only after the declaration
        (b'<a title="', "gbk"),
        (b"<!-- ", "gbk"),
        (b"<!--><p>", "koi8-r"),
        (b"<META CHARSET=big5>", "big5"),
        (b"</a title='>", "gbk"),
        (b"<>a<1<?x'>", "koi8-r"),
    ],
)
def test_what_precedes_a_declaration_can_hide_it(before: bytes, found: str) -> None:
    """If the text before it hides the declaration `koi8-r`, a second declaration, `gbk`, may be used instead."""
    content = before + b"<meta charset=koi8-r> '\"--><meta charset=gbk>"
    for _ in range(2):  # the second result comes from the cache
        assert to_utf8(content)[1] == found


def test_utf8_pages_are_not_copied() -> None:
    page = "<p>é".encode() * 1000
    assert to_utf8(page, "utf-8")[0] is page
    assert to_utf8(page)[0] is page


def test_a_declaration_too_far_down_is_ignored() -> None:
    late = b" " * LATE_PRESCAN_BYTES + b"<meta charset=koi8-r>"
    assert to_utf8(late)[1] == "windows-1252"


@given(st.binary(max_size=300), st.text(max_size=10))
def test_never_fails(content: bytes, declared: str) -> None:
    utf8, encoding = to_utf8(b"<meta charset=" + content, declared)
    assert encoding == name_of(encoding)
    utf8.decode("utf-8", "replace")


@given(
    st.sampled_from(
        [b"<meta ", b"<!--", b"a=", b'"', b"'", b">", b"charset", b"=", b" ", b"utf-8", b"/"]
    ).flatmap(lambda piece: st.integers(1, 4000).map(lambda count: piece * count))
)
def test_the_prescan_is_linear(content: bytes) -> None:
    """If the prescan backtracked, long runs of one token would take minutes."""
    to_utf8(b"<meta " + content + b"charset")


@pytest.mark.parametrize("kept", range(7))
def test_half_a_character_of_iso_2022_jp_loses_nothing_else(kept: int) -> None:
    """As in WHATWG's decoder, an escape sequence after half a character is still interpreted."""
    japanese = "\u65e5\u672c\u8a9e".encode("iso-2022-jp").removesuffix(b"\x1b(B")
    page = b"<p>" + japanese[: 3 + kept] + b"\x1b(B</p><a href=x>" + "\u672c".encode("iso-2022-jp")
    text = to_utf8(page, "iso-2022-jp")[0].decode()
    assert text.startswith("<p>" + "\u65e5\u672c\u8a9e"[: kept // 2])
    assert text.endswith("</p><a href=x>\u672c")
