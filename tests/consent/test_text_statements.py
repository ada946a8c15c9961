"""Test Content-Usage, Content-Signal and the names of pages with examples of their standards, and with random input."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.consent.paths import by_path
from crawler.consent.statements import (
    ALLOW,
    FIELD_OCTETS_MAX,
    LINES_MAX,
    NOTHING_SAID,
    REFUSE,
    UNKNOWN,
    USES,
    Preferences,
    Statement,
)
from crawler.consent.text_statements import (
    read_page_names,
    read_signal_header,
    read_usage_header,
    signal_meaning,
    usage_meaning,
)
from tests.robots.support import parse

SAID = {"y": ALLOW, "n": REFUSE, "?": UNKNOWN}
NO_AI = Preferences(ai_input=REFUSE, train_ai=REFUSE)


def _preferences(letters: str) -> Preferences:
    """Return the preferences given by letters for search, ai_input and train_ai: y allows, n refuses, ? is unknown."""
    return Preferences(*(SAID[letter] for letter in letters))


# -- Content-Usage


@pytest.mark.parametrize(
    ("value", "letters"),
    [
        (b"train-ai=y, search=n", "n?y"),  # AIPREF vocabulary draft, "Exemplary Serialization Format"
        (b'train-ai=y, train-ai, search=n, search="n"', "???"),  # the same draft, "Multiple Preferences"
        (b"train-ai;allow=n, train-ai=y", "??y"),  # the same draft, "Preference Parameters"
        (b'train-ai;has;parameters="?";', "???"),
        (b"train-ai=n;has;parameters=1, ai-use=y", "?yn"),
        (b"train-ai=n", "??n"),
        (b"", "???"),
        (b" search=y ", "y??"),
        (b"search=y,train-ai=n", "y?n"),
        (b"search=y\t,\ttrain-ai=n", "y?n"),  # RFC 9651, 4.2.2: optional whitespace around the comma
        (b"search=y, search=n", "n??"),  # of several equal keys, the last one counts
        (b"search=n, search=y", "y??"),
        (b"unheard-of=n, search=y", "y??"),  # unknown labels are ignored
        (b"Train-AI=n, search=y", "???"),  # upper case is a parse failure
        (b"train-ai=N, search=y", "y??"),  # a valid token, but neither y nor n
        (b"train-ai=no", "???"),
        (b"train-ai=?0, search=?1", "???"),  # booleans
        (b"train-ai=0, search=1", "???"),
        (b"train-ai=(n), search=y", "y??"),  # inner list
        (b"search=y,", "???"),  # trailing comma
        (b",search=y", "???"),
        (b"search=y train-ai=n", "???"),
        (b"search = y", "???"),
        (b"search=y, train-ai=\xff", "???"),
        (b'search=y, train-ai="open', "???"),
        (b"search=y, x=99999999999999999999", "???"),
        (b"search=y, x=@1700000000", "y??"),  # a date
        (b"search=y, x=@99999999999999", "???"),  # valid, but the library rejects dates after the year 9999
        (b"search=y, x=:!:", "???"),
    ],
)
def test_the_value_of_a_header(value: bytes, letters: str) -> None:
    assert read_usage_header([value]) == Statement((value.decode("latin-1"),), _preferences(letters))


def test_several_fields_form_one_dictionary() -> None:
    """The last value of a key counts, in whatever field it is (RFC 9651, 4.2). A malformed field spoils all fields."""
    assert read_usage_header([b"train-ai=n", b"train-ai=y"]).preferences == _preferences("??y")
    assert read_usage_header([b"search=y", b"!"]).preferences == NOTHING_SAID
    assert read_usage_header([]) == Statement()


ATTACH_EXAMPLE = b"""User-Agent: *
Allow: /
Disallow: /never/
Content-Usage: / train-ai=n
Content-Usage: /ai-ok/ train-ai=y

User-Agent: ExampleBot
Allow: /
Content-Usage: / train-ai=y
"""


@pytest.mark.parametrize(
    ("token", "target", "letters"),
    [
        ("crawler", "/test", "??n"),
        ("crawler", "/ai-ok/test", "??y"),
        ("ExampleBot", "/test", "??y"),
        ("ExampleBot", "/ai-ok/test", "??y"),
    ],
)
def test_the_example_of_the_attach_draft(token: str, target: str, letters: str) -> None:
    usage = parse(ATTACH_EXAMPLE, token).parsed.usage
    assert by_path(usage, target, usage_meaning).preferences == _preferences(letters)


@pytest.mark.parametrize(
    ("lines", "target", "letters"),
    [
        (["train-ai=n"], "/x", "??n"),  # a line without a path applies to the whole site
        (["/a\ttrain-ai=n"], "/ab", "??n"),  # a tab is a separator, too
        (["/a train-ai=n"], "/b", "???"),
        # of equal paths, the most restrictive one counts
        (["/a train-ai=y", "/a train-ai=n, search=y"], "/a", "y?n"),
        (["/ train-ai=n", "/a search=y"], "/a", "y??"),  # only the longest path counts
        (["/a/* train-ai=n", "/a/b train-ai=y"], "/a/c", "??n"),
        (["/*.pdf$ train-ai=n"], "/x.pdf", "??n"),
        (["/*.pdf$ train-ai=n"], "/x.pdfs", "???"),
        (["/%61 train-ai=n"], "/a", "??n"),  # escapes are normalized
        (["/a"], "/a", "???"),  # a path without preferences
        (["/ search=y", "/a TRAIN=n"], "/a", "???"),  # the longest path is malformed
    ],
)
def test_lines_of_robots_txt(lines: list[str], target: str, letters: str) -> None:
    assert by_path(lines, target, usage_meaning).preferences == _preferences(letters)


def test_input_beyond_the_limits_states_nothing() -> None:
    """Input beyond the limits is not read. Such input might contain a refusal, so the answer is unknown."""
    long = b"search=y, x=" + b"a" * FIELD_OCTETS_MAX
    assert read_usage_header([long]).preferences == NOTHING_SAID
    assert len(read_usage_header([long]).raw[0]) == FIELD_OCTETS_MAX
    assert read_usage_header([b"search=y"] * LINES_MAX).preferences == _preferences("y??")
    assert read_usage_header([b"search=y"] * (LINES_MAX + 1)).preferences == NOTHING_SAID
    assert by_path([long.decode()], "/", usage_meaning).preferences == NOTHING_SAID
    assert by_path(["search=y"] * (LINES_MAX + 1), "/", usage_meaning).preferences == NOTHING_SAID


NEARLY = st.text(alphabet='searchtrain-aiuse=yn,;" ()?:@0/\t', max_size=60).map(str.encode)


@given(st.lists(st.binary(max_size=60) | NEARLY, max_size=4), st.text(max_size=20))
def test_no_input_raises(values: list[bytes], target: str) -> None:
    read = read_usage_header(values)
    assert read.raw == tuple(value.decode("latin-1") for value in values)
    rules = by_path([value.decode("latin-1") for value in values], f"/{target}", usage_meaning)
    assert set(rules.raw) <= set(read.raw)


@given(
    st.dictionaries(st.sampled_from(["search", "ai-use", "train-ai", "other"]), st.sampled_from("yn")),
    st.permutations(range(4)),
)
def test_written_preferences_are_read_back(said: dict[str, str], order: list[int]) -> None:
    """The order of the keys does not matter if they are different."""
    members = [f"{key}={value}" for key, value in said.items()]
    members = [members[at] for at in order if at < len(members)]
    letters = "".join(said.get(label, "?") for label in ("search", "ai-use", "train-ai"))
    assert read_usage_header([", ".join(members).encode()]).preferences == _preferences(letters)


# -- Content-Signal


@pytest.mark.parametrize(
    ("value", "letters"),
    [
        ("search=yes, ai-input=yes, ai-train=no", "yyn"),
        ("search=yes,ai-train=no,use=reference", "y?n"),  # a managed robots.txt
        ("ai=n", "?nn"),
        ("ai=yes, ai-train=no", "?yn"),
        ("Search = YES; AI-Train = No", "y?n"),
        ("search=yes ai-train=no", "y?n"),
        ('ai-train="no"', "??n"),
        ("ai-train=no, ai-train=yes", "??n"),
        ("ai-train=maybe, search=y", "y??"),
        ("ai-train=not", "???"),
        ("ai-train=no-way", "???"),
        ("my-ai-train=no", "???"),
        ("ai-train", "???"),
        ("", "???"),
    ],
)
def test_the_value_of_a_signal(value: str, letters: str) -> None:
    assert read_signal_header([value.encode()]).preferences == _preferences(letters)
    assert by_path([value], "/x", signal_meaning).preferences == _preferences(letters)


def test_a_path_limits_a_signal() -> None:
    lines = ["search=yes, ai-train=no", "/open/ ai-train=yes"]
    assert by_path(lines, "/open/x", signal_meaning).preferences == _preferences("??y")
    assert by_path(lines, "/x", signal_meaning).preferences == _preferences("y?n")


def test_signals_before_the_first_group_apply_too() -> None:
    robots = b"Content-Signal: ai-train=no\nUser-agent: *\nContent-Signal: search=yes\nAllow: /\n"
    assert by_path(parse(robots, "crawler").parsed.signals, "/", signal_meaning).preferences == _preferences(
        "y?n"
    )


def test_a_long_name_takes_linear_time() -> None:
    """Lines of 8,192 letters took 0.3 s each, and a robots.txt may have 64 of them."""
    began = time.thread_time()
    for letter in "abcdefgh":
        by_path([letter * FIELD_OCTETS_MAX], "/", signal_meaning)
    assert time.thread_time() - began < 0.5


def test_too_many_lines_state_nothing() -> None:
    assert read_signal_header([b"search=yes"] * (LINES_MAX + 1)).preferences == NOTHING_SAID
    assert by_path(["search=yes"] * (LINES_MAX + 1), "/", signal_meaning).preferences == NOTHING_SAID


NEARLY_SIGNAL = st.text(alphabet="searchinputtrain-=yesno,; /", max_size=60)


@given(st.lists(st.text(max_size=60) | NEARLY_SIGNAL, max_size=4))
def test_no_signal_raises_and_more_lines_never_allow_more(lines: list[str]) -> None:
    """If one field refuses a use, the use is refused, whatever the other fields say."""
    values = [line.encode() for line in lines]
    by_path(lines, "/x", signal_meaning)
    before = read_signal_header(values).preferences
    after = read_signal_header([*values, b"search=yes, ai=yes"]).preferences
    for use in ("search", "ai_input", "train_ai"):
        assert getattr(after, use) is (REFUSE if getattr(before, use) is REFUSE else ALLOW)


# -- names


@pytest.mark.parametrize(
    ("tags", "meta", "meaning"),
    [
        (["noai, noimageai"], [], NO_AI),
        ([], ["NoAI"], NO_AI),
        (["noimageai"], [], NOTHING_SAID),
        (["noindex"], [], Preferences(search=REFUSE)),
        (["none"], [], Preferences(search=REFUSE)),
        (["otherbot: noai"], [], NOTHING_SAID),
        (["crawler: noai"], [], NO_AI),
        (["max-snippet: 20, noarchive"], ["nosnippet"], NOTHING_SAID),
        (["index, follow, all"], [], NOTHING_SAID),
        (["unheard-of"], [], NOTHING_SAID),
        ([""], ["", ","], NOTHING_SAID),
    ],
)  # fmt: skip
def test_names_and_their_preferences(tags: list[str], meta: list[str], meaning: Preferences) -> None:
    read = read_page_names(tags, meta, "crawler")
    assert read == Statement((*tags, *meta), meaning)


def test_names_about_images_apply_to_images() -> None:
    assert read_page_names(["noimageai"], [], "crawler", image=True).preferences == NO_AI
    assert read_page_names(["noimageindex"], [], "crawler", image=True).preferences == Preferences(
        search=REFUSE
    )


def test_many_names_do_not_hide_a_refusal() -> None:
    read = read_page_names([", ".join(f"a{n}" for n in range(500)) + ", noai"], [], "crawler")
    assert read.preferences == NO_AI


@given(st.lists(st.text(max_size=40), max_size=4), st.lists(st.text(max_size=40), max_size=4))
def test_no_input_raises_and_no_name_allows_a_use(tags: list[str], meta: list[str]) -> None:
    said = read_page_names(tags, meta, "crawler").preferences
    assert all(getattr(said, use) is not ALLOW for use in USES)
