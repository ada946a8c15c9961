"""Test X-Robots-Tag and meta robots: the names that are kept, and the names that refuse a use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.consent.page_names import NAMES_MAX, read_page_names
from crawler.consent.statements import ALLOW, NOTHING_SAID, REFUSE, USES, Preferences

NO_AI = Preferences(ai_input=REFUSE, train_ai=REFUSE)


@pytest.mark.parametrize(
    ("tags", "meta", "names", "meaning"),
    [
        (["noai, noimageai"], [], ("noai", "noimageai"), NO_AI),
        ([], ["NoAI"], ("noai",), NO_AI),
        (["noimageai"], [], ("noimageai",), NOTHING_SAID),
        (["noindex"], [], ("noindex",), Preferences(search=REFUSE)),
        (["none"], [], ("none",), Preferences(search=REFUSE)),
        (["otherbot: noai"], [], (), NOTHING_SAID),
        (["crawler: noai"], [], ("noai",), NO_AI),
        (["max-snippet: 20, noarchive"], ["nosnippet"], ("max-snippet: 20", "noarchive", "nosnippet"), NOTHING_SAID),
        (["index, follow, all"], [], ("all", "follow", "index"), NOTHING_SAID),
        (["unheard-of"], [], ("unheard-of",), NOTHING_SAID),
        ([""], ["", ","], (), NOTHING_SAID),
    ],
)  # fmt: skip
def test_names_and_their_preferences(
    tags: list[str], meta: list[str], names: tuple[str, ...], meaning: Preferences
) -> None:
    read = read_page_names(tags, meta, "crawler")
    assert (read.raw, read.names, read.preferences) == ((*tags, *meta), names, meaning)


def test_names_about_images_apply_to_images() -> None:
    assert read_page_names(["noimageai"], [], "crawler", image=True).preferences == NO_AI
    assert read_page_names(["noimageindex"], [], "crawler", image=True).preferences == Preferences(
        search=REFUSE
    )


def test_many_names_do_not_hide_a_refusal() -> None:
    read = read_page_names([", ".join(f"a{n}" for n in range(500)) + ", noai"], [], "crawler")
    assert len(read.names) == NAMES_MAX
    assert read.preferences == NO_AI


@given(st.lists(st.text(max_size=40), max_size=4), st.lists(st.text(max_size=40), max_size=4))
def test_no_input_raises_and_no_name_allows_a_use(tags: list[str], meta: list[str]) -> None:
    said = read_page_names(tags, meta, "crawler").preferences
    assert all(getattr(said, use) is not ALLOW for use in USES)
