"""Test Content-Usage with the examples of draft-ietf-aipref-vocab and draft-ietf-aipref-attach, and with random input."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.consent.content_usage import PARSER, ContentUsage, read_usage_header, read_usage_rules
from crawler.consent.statements import (
    ALLOW,
    FIELD_OCTETS_MAX,
    LINES_MAX,
    NOTHING_SAID,
    REFUSE,
    UNKNOWN,
    Preferences,
)
from tests.robots.support import parse

SAID = {"y": ALLOW, "n": REFUSE, "?": UNKNOWN}


def _preferences(letters: str) -> Preferences:
    """Return the preferences given by letters for search, ai_input and train_ai: y allows, n refuses, ? is unknown."""
    return Preferences(*(SAID[letter] for letter in letters))


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
    assert read_usage_header([value]) == ContentUsage(
        (value.decode("latin-1"),), _preferences(letters), PARSER
    )


def test_several_fields_form_one_dictionary() -> None:
    """If a key is repeated, its last value counts, even if the values are in different fields (RFC 9651, 4.2).

    One malformed field makes all fields invalid.
    """
    assert read_usage_header([b"train-ai=n", b"train-ai=y"]).preferences == _preferences("??y")
    assert read_usage_header([b"search=y", b"!"]).preferences == NOTHING_SAID
    assert read_usage_header([]) == ContentUsage()


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
    assert read_usage_rules(usage, target).preferences == _preferences(letters)


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
    assert read_usage_rules(lines, target).preferences == _preferences(letters)


def test_input_beyond_the_limits_states_nothing() -> None:
    """Input beyond the limits is not read. Such input might contain a refusal, so the answer is unknown."""
    long = b"search=y, x=" + b"a" * FIELD_OCTETS_MAX
    assert read_usage_header([long]).preferences == NOTHING_SAID
    assert len(read_usage_header([long]).raw[0]) == FIELD_OCTETS_MAX
    assert read_usage_header([b"search=y"] * LINES_MAX).preferences == _preferences("y??")
    assert read_usage_header([b"search=y"] * (LINES_MAX + 1)).preferences == NOTHING_SAID
    assert read_usage_rules([long.decode()], "/").preferences == NOTHING_SAID
    assert read_usage_rules(["search=y"] * (LINES_MAX + 1), "/").preferences == NOTHING_SAID


NEARLY = st.text(alphabet='searchtrain-aiuse=yn,;" ()?:@0/\t', max_size=60).map(str.encode)


@given(st.lists(st.binary(max_size=60) | NEARLY, max_size=4), st.text(max_size=20))
def test_no_input_raises(values: list[bytes], target: str) -> None:
    read = read_usage_header(values)
    assert read.raw == tuple(value.decode("latin-1") for value in values)
    rules = read_usage_rules([value.decode("latin-1") for value in values], f"/{target}")
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
