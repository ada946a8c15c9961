"""Test the rules for paths that only traps produce (`urlfilter/README.md`, "Traps")."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.urlfilter.traps import PATH_SEGMENTS, REPEATED_SEGMENTS, directory_trap, repeats, trap

HOST = "http://h.example"
paths = st.lists(st.sampled_from(["a", "b", "", "c.html"]), max_size=9).map(
    lambda parts: "/" + "/".join(parts)
)


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("/", ""),
        ("/a/a", ""),
        ("/a/a/", ""),
        ("/a/a/b/a/a", ""),
        ("/a/a/a/boo.html", REPEATED_SEGMENTS),  # the example in Heritrix's rule
        ("/x/a/a/a", REPEATED_SEGMENTS),
        ("/a/b/a/b/x", ""),
        ("/a/b/a/b/a/b/x", REPEATED_SEGMENTS),
        ("/x/a/b/c/a/b/c/a/b/c", REPEATED_SEGMENTS),
        ("/a//b//c", ""),
        ("/a////b", REPEATED_SEGMENTS),
        ("/a?b/b/b/b", ""),
        ("/" + "/".join(map(str, range(20))), ""),
        ("/" + "/".join(map(str, range(20))) + "/", ""),
        ("/" + "/".join(map(str, range(21))), PATH_SEGMENTS),
        ("/?" + "/" * 50, ""),
    ],
)
def test_rules(path: str, rule: str) -> None:
    assert trap(HOST + path) == rule


def test_limits_are_configurable_and_0_disables_them() -> None:
    long = HOST + "/" + "/".join(map(str, range(200)))
    assert trap(long, segments_max=200) == trap(long, segments_max=0) == ""
    assert trap(long, segments_max=199) == PATH_SEGMENTS
    assert trap(HOST + "/a/a", repeats_max=1) == REPEATED_SEGMENTS
    assert trap(HOST + "/a/a/a", repeats_max=3) == trap(HOST + "/a" * 15, repeats_max=0) == ""
    assert trap(HOST + "/a" * 4, repeats_max=3) == REPEATED_SEGMENTS


@given(paths, st.integers(1, 3))
def test_repeats_agrees_with_the_pattern_of_heritrix(path: str, repeats_max: int) -> None:
    """The verdicts are the same on paths that end with a slash, which Heritrix's expression needs."""
    path = path.rstrip("/") + "/"
    segments = path[1:].split("/")[:-1]
    pattern = re.compile(rf"/((?:[^/]*/){{1,6}})\1{{{repeats_max}}}")
    assert repeats(segments, repeats_max) == bool(pattern.search(path))


@given(paths, st.sampled_from(["", "a", "b", "d.html"]), st.integers(0, 8), st.integers(0, 3))
@settings(max_examples=400)
def test_the_verdict_on_a_directory_holds_for_its_files(
    path: str, name: str, segments_max: int, repeats_max: int
) -> None:
    """A verdict other than None is that of each file in the directory."""
    limits = {"segments_max": segments_max, "repeats_max": repeats_max}
    directory = HOST + path[: path.rindex("/") + 1]
    known = directory_trap(directory, *limits.values())
    verdict = trap(directory + name, *limits.values())
    assert known is None or known == verdict
    assert not known or trap(directory + "x/y/" + name, *limits.values())  # a path below a trap is a trap


def test_ordinary_directories_have_a_verdict() -> None:
    assert directory_trap(HOST + "/") == directory_trap(HOST + "/a/b/c/") == ""
    assert directory_trap(HOST + "/a/a/") is None
    assert directory_trap(HOST + "/" + "x/" * 3) == REPEATED_SEGMENTS


def test_work_is_bounded() -> None:
    """The test path has thousands of segments, and the limit on the number of segments is disabled."""
    assert trap(HOST + "/a/b" * 4000, segments_max=0) == REPEATED_SEGMENTS
    assert trap(HOST + "".join(f"/{number}" for number in range(4000)) + "/0", segments_max=0) == ""
