"""Test how statements from all sources, such as robots.txt and header fields, lead to one decision about a page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.consent.resolving import (
    SOURCES,
    Consent,
    HostStatements,
    PageStatements,
    UseDecision,
    resolve,
    statements_about,
)
from crawler.consent.rsl import RslDocument, read_rsl
from crawler.consent.statements import ALLOW, NOTHING_SAID, REFUSE, UNKNOWN, USES, Preference, Preferences
from crawler.consent.tdmrep import TdmFile, read_tdm_file
from tests.robots.support import parse

URL = "https://example.com/a/b?c=d"
ROBOTS = b"""Content-Signal: ai-input=no
User-agent: *
Disallow: /private/
Content-Usage: search=y, train-ai=y
Content-Usage: /private/ search=n
Content-Usage: /a/b?c train-ai=n, search=y
"""
RSL = b"""<rsl><content url="/"><license><permits type="usage">search</permits></license></content></rsl>"""


def _said(
    url: str = URL,
    robots: bytes = b"",
    *headers: tuple[bytes, bytes],
    tdm: TdmFile | None = None,
    licence: RslDocument | None = None,
    meta: tuple[tuple[str, str], ...] = (),
) -> PageStatements:
    host = HostStatements(parse(robots, "crawler"), tdm or TdmFile(), (licence,) if licence else ())
    return statements_about(url, host, headers, "crawler", meta=meta)


def test_a_site_without_statements() -> None:
    assert _said().consent() == Consent()
    assert Consent().search == UseDecision(UNKNOWN, "")


def test_a_site_that_uses_only_robots_txt() -> None:
    assert _said(URL, ROBOTS).consent() == Consent(
        UseDecision(ALLOW, "content-usage-robots"),
        UseDecision(REFUSE, "content-signal-robots"),
        UseDecision(REFUSE, "content-usage-robots"),
    )


def test_usage_says_nothing_about_disallowed_pages() -> None:
    assert _said("https://example.com/private/x", ROBOTS).usage_robots.raw == ()
    assert _said("https://example.com/x", ROBOTS).consent().train_ai.preference is ALLOW


def test_a_page_with_statements_in_every_source() -> None:
    said = _said(
        URL,
        ROBOTS,
        (b"Content-Usage", b"train-ai=n"),
        (b"content-signal", b"search=yes"),
        (b"X-Robots-Tag", b"otherbot: noai"),
        (b"TDM-Reservation", b"0"),
        tdm=read_tdm_file(b'[{"location": "/", "tdm-reservation": 1}]'),
        licence=read_rsl(RSL),
        meta=(("Robots", "NOINDEX"), ("description", "noai")),
    )
    assert said.consent() == Consent(
        UseDecision(REFUSE, "page-names"),
        UseDecision(REFUSE, "content-signal-robots"),
        # robots.txt refuses, too, but sources of the page come first
        UseDecision(REFUSE, "content-usage-header"),
        UseDecision(ALLOW, "tdmrep"),
    )
    assert said.usage_header.raw == ("train-ai=n",)
    assert said.usage_robots.raw == ("/a/b?c train-ai=n, search=y",)


def test_rights_are_reserved_if_meta_element_and_header_disagree() -> None:
    said = _said(URL, b"", (b"tdm-reservation", b"0"), meta=(("tdm-reservation", "1"), ("tdm-policy", "p")))
    assert said.tdm.raw == ("0", "1")
    assert said.tdm.policies == ("p",)
    assert said.consent().tdm == UseDecision(REFUSE, "tdmrep")


@pytest.mark.parametrize(("media_type", "answer"), [(b"image/png", REFUSE), (b"text/html", UNKNOWN)])
def test_noimageai_counts_for_images(media_type: bytes, answer: Preference) -> None:
    said = _said(URL, b"", (b"Content-Type", media_type), (b"X-Robots-Tag", b"noimageai"))
    assert said.consent().train_ai.preference is answer


ANSWERS = st.sampled_from([ALLOW, REFUSE, UNKNOWN])
STATEMENTS = st.lists(st.tuples(st.sampled_from(SOURCES), st.builds(Preferences, *[ANSWERS] * 4)), max_size=7)


@given(STATEMENTS)
def test_any_refusal_wins_and_the_named_source_gave_it(statements: list[tuple[str, Preferences]]) -> None:
    resolved = resolve(statements)
    for use in USES:
        decision, given_ = getattr(resolved, use), {getattr(said, use) for _, said in statements}
        expected = REFUSE if REFUSE in given_ else ALLOW if ALLOW in given_ else UNKNOWN
        assert decision.preference is expected
        if expected is UNKNOWN:
            assert decision.source == ""
        else:
            assert any(
                source == decision.source and getattr(said, use) is expected for source, said in statements
            )


@given(STATEMENTS, st.randoms(use_true_random=False))
def test_order_repetition_and_empty_statements_change_nothing(
    statements: list[tuple[str, Preferences]], random
) -> None:
    shuffled = [*statements, *statements, ("rsl", NOTHING_SAID)]
    random.shuffle(shuffled)
    for use in USES:
        assert getattr(resolve(shuffled), use).preference is getattr(resolve(statements), use).preference


@given(
    st.binary(max_size=200),
    st.lists(
        st.tuples(
            st.sampled_from(
                [b"Content-Usage", b"Content-Signal", b"X-Robots-Tag", b"tdm-reservation", b"\xff"]
            ),
            st.binary(max_size=40),
        ),
        max_size=5,
    ),
)
def test_no_input_raises(robots: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    _said(URL, b"User-agent: *\nContent-Usage: " + robots, *headers).consent()
