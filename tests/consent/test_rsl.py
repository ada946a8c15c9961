"""Test RSL 1.0 licences with the forms that the standard's guide and real sites use, and with random input."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.consent.rsl import (
    ANNOUNCED_MAX,
    CONTENTS_MAX,
    DOCUMENT_OCTETS_MAX,
    ELEMENTS_MAX,
    announced_licenses,
    read_rsl,
    terms_for,
)
from crawler.consent.statements import ALLOW, NOTHING_SAID, REFUSE, UNKNOWN, Preferences

SAID = {"y": ALLOW, "n": REFUSE, "?": UNKNOWN}
PAGE = "https://example.com/news/1"


def _document(content: str, attributes: str = 'url="/"') -> bytes:
    return (
        f'<rsl xmlns="https://rslstandard.org/rsl"><content {attributes}>{content}</content></rsl>'.encode()
    )


def _letters(body: bytes, url: str = PAGE) -> str:
    """Return one letter for each of search, ai_input, train_ai and tdm: y allows, n refuses, ? is unknown."""
    names = {answer: letter for letter, answer in SAID.items()}
    preferences = terms_for([read_rsl(body)], url).preferences
    return "".join(names[getattr(preferences, use)] for use in Preferences.__struct_fields__)


def _permits(uses: str, kind: str = "usage") -> str:
    return f'<permits type="{kind}">{uses}</permits>'


def _prohibits(uses: str, kind: str = "usage") -> str:
    return f'<prohibits type="{kind}">{uses}</prohibits>'


PRICE = '<payment type="use"><amount currency="USD">0.015</amount></payment>'


@pytest.mark.parametrize(
    ("licenses", "letters"),
    [
        ([_prohibits("ai-train")], "??n?"),
        ([_prohibits("train-ai")], "??n?"),  # the spelling in the guide before 1.0
        ([_permits("train-ai")], "??y?"),
        ([_permits("all")], "yyyy"),
        ([_prohibits("all")], "nnnn"),
        ([_permits("ai-all")], "?yy?"),
        ([_permits("search ai-input")], "yy??"),
        ([_permits("search,ai-input")], "yy??"),
        ([_permits("ai-train search") + _prohibits("ai-train")], "y?n?"),  # a prohibition wins
        ([_permits("ai-train"), _prohibits("ai-train")], "??n?"),
        ([_permits("search") + '<payment type="free"/>'], "y???"),
        ([_permits("ai-train") + PRICE], "??n?"),  # the licence demands a payment, and nothing was paid
        ([_permits("search") + '<payment type="attribution"/>'], "????"),
        ([_permits("search") + '<payment type="free"/>', _permits("ai-input ai-index") + PRICE], "yn??"),
        ([_permits("search") + PRICE, _permits("search")], "y???"),  # one free licence is enough
        ([_permits("ai-train") + PRICE, _permits("ai-train") + _permits("education", "user")], "????"),
        ([_permits("search") + _prohibits("commercial", "user")], "????"),
        ([_permits("search") + _permits("US", "geo")], "????"),
        ([_permits("search", "")], "????"),
        ([_permits("juggling")], "????"),
        ([""], "????"),
        ([], "????"),
    ],
)
def test_the_preferences_of_licenses(licenses: list[str], letters: str) -> None:
    body = "".join(f"<license>{each}</license>" for each in licenses)
    assert _letters(_document(body)) == letters


def test_a_license_server_makes_permissions_unknown_but_not_prohibitions() -> None:
    body = f"<license>{_permits('search')}{_prohibits('ai-train')}</license>"
    document = read_rsl(_document(body, 'url="/" server="https://license.example/"'))
    assert document.contents[0].server == "https://license.example/"
    assert terms_for([document], PAGE).preferences == Preferences(train_ai=REFUSE)


@pytest.mark.parametrize(
    ("url", "applies"),
    [
        ("/", True),
        ("/news/", True),
        ("/news", True),
        ("/*/1$", True),
        ("/new$", False),
        ("/shop/", False),
        ("https://example.com/", True),
        ("https://EXAMPLE.com", True),
        ("http://example.com/news/*", True),
        ("https://other.example/", False),
        ("https://example.com.evil.example/", False),
        ("//example.com/", False),
        ("news/", False),
        ("", False),
        ("ftp://example.com/", False),
    ],
)
def test_the_urls_to_which_a_content_element_applies(url: str, applies: bool) -> None:
    body = _document(f"<license>{_prohibits('all')}</license>", f'url="{url}"')
    assert (_letters(body) == "nnnn") is applies


def test_the_longest_url_decides_and_equal_urls_combine() -> None:
    inner = "".join(
        f'<content url="{url}"><license>{term}</license></content>'
        for url, term in (
            ("/", _prohibits("all")),
            ("/news/", _permits("all")),
            ("https://example.com/news/", _prohibits("ai-train")),
        )
    )
    assert _letters(f"<rsl>{inner}</rsl>".encode()) == "yyny"
    assert _letters(f"<rsl>{inner}</rsl>".encode(), "https://example.com/shop") == "nnnn"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"License: none",
        b"<rss><channel/></rss>",
        _document(f"<license>{_permits('all')}</license>")[:-3],  # a truncated document
        b"<!DOCTYPE rsl [<!ENTITY a 'all'>]>" + _document(f"<license>{_permits('&a;')}</license>"),
        _document(f"<license>{_permits('all')}<prohibits type='usage'/></license>"),
        _document(f"<license>{_permits('all')}{_prohibits('x ' * 65)}</license>"),
        _document(f"<license>{_permits('all')}{_prohibits(' ' * 8192 + 'all')}</license>").replace(b"all", b"a" * 9000),
        _document(f"<license>{_permits('all')}</license>" + " " * DOCUMENT_OCTETS_MAX),
        _document(f"<license>{_permits('all')}</license>" + "<a/>" * ELEMENTS_MAX),
        b"<rsl>" + b"<content url='/'/>" * (CONTENTS_MAX + 1) + b"</rsl>",
        "<rsl>\udcff</rsl>".encode("utf-8", "surrogatepass"),
    ],
)  # fmt: skip
def test_a_document_that_cannot_be_read_completely_states_nothing(body: bytes) -> None:
    document = read_rsl(body)
    assert document.problem
    assert document.contents == ()
    assert terms_for([document], PAGE).preferences == NOTHING_SAID


def test_licenses_are_announced_in_robots_txt_and_headers() -> None:
    found = announced_licenses(
        ["https://a.example/license.xml", "/relative.xml"],
        ['<b.xml>; rel="license"; type="application/rsl+xml", <cc>; rel=license, <d>; rel=next'],
    )
    assert found == ("https://a.example/license.xml", "b.xml")
    assert len(announced_licenses(f"https://a.example/{n}" for n in range(100))) == ANNOUNCED_MAX


PIECES = st.sampled_from(
    ["<rsl>", "</rsl>", "<content url='/'>", "</content>", "<license>", "</license>", "<payment type='x'/>",
     "<permits type='usage'>all", "</permits>", "<prohibits type='usage'>ai-all", "</prohibits>", "\x00", "&x;"]
)  # fmt: skip


@given(st.binary(max_size=200) | st.lists(PIECES, max_size=20).map(lambda pieces: "".join(pieces).encode()))
def test_no_input_raises(body: bytes) -> None:
    document = read_rsl(body)
    assert not (document.problem and document.contents)
    terms_for([document], PAGE)


@given(st.permutations([_permits("all"), _prohibits("ai-train"), _permits("search") + PRICE]))
def test_the_order_of_licenses_does_not_matter(licenses: list[str]) -> None:
    assert _letters(_document("".join(f"<license>{each}</license>" for each in licenses))) == "yyny"
