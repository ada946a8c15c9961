"""Test the proof that two authorities are the same site (`urls/README.md`, "Forms of a URL")."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.urls import equivalence as module
from crawler.urls.equivalence import PROOFS, Equivalences
from crawler.urls.fingerprint import Fingerprinter

SEED = bytes(range(16))


def prove(equivalences: Equivalences, source: str, other: str) -> list[bool]:
    return [equivalences.redirected(f"{source}/{n}?q", f"{other}/{n}?q") for n in range(PROOFS)]


@pytest.mark.parametrize(
    ("source", "other"),
    [
        ("http://h.example", "https://h.example"),
        ("http://h.example", "https://www.h.example"),
        ("https://www.h.example", "https://h.example"),
        ("http://h.example", "http://www.h.example"),
    ],
)
def test_five_redirects_prove_an_equivalence(source: str, other: str) -> None:
    """Then both spellings have the same key and fingerprint. The URL that is requested does not change."""
    equivalences = Equivalences()
    fingerprinter = Fingerprinter(SEED, equivalences=equivalences)
    assert fingerprinter.fingerprint(source + "/x?y") != fingerprinter.fingerprint(other + "/x?y")
    assert prove(equivalences, source, other) == [False] * 4 + [True]
    assert fingerprinter.key(source + "/x?y") == (other + "/x?y").encode()
    assert fingerprinter.fingerprint(source + "/x?y") == fingerprinter.fingerprint(other + "/x?y")
    assert fingerprinter.revision == 1
    again = Fingerprinter(SEED, equivalences=Equivalences(json.loads(json.dumps(equivalences.state()))))
    assert again.fingerprint(source + "/x?y") == fingerprinter.fingerprint(source + "/x?y")


@pytest.mark.parametrize(
    ("source", "other"),
    [
        ("https://h.example", "http://h.example"),
        ("https://www.h.example", "http://h.example"),
        ("http://h.example", "http://h.example"),
        ("http://h.example", "https://en.h.example"),
        ("http://h.example", "https://o.example"),
        ("http://h.example:8080", "https://h.example"),
        ("http://h.example", "https://h.example:8443"),
    ],
)
def test_other_redirects_prove_nothing(source: str, other: str) -> None:
    assert prove(Equivalences(), source, other) == [False] * PROOFS


def test_only_consecutive_redirects_to_the_same_path_prove() -> None:
    equivalences = Equivalences()
    for number in range(20):
        assert not equivalences.redirected(f"http://h.example/{number}", "https://h.example/login")
    for number in range(4 * PROOFS):
        other = "https://h.example" if number % 2 else "https://www.h.example"
        assert not equivalences.redirected(f"http://h.example/{number}", f"{other}/{number}")


def test_an_authority_that_answers_is_not_an_alias() -> None:
    """The authority serves some pages over http and redirects only its other pages."""
    equivalences = Equivalences()
    equivalences.answered("http://h.example/page")
    assert prove(equivalences, "http://h.example", "https://h.example") == [False] * PROOFS


def test_equivalences_form_no_cycle() -> None:
    """If a site reverses its redirects, or redirects in a circle, an equivalence is proven in only one direction."""
    equivalences = Equivalences()
    assert prove(equivalences, "https://h.example", "https://www.h.example")[-1]
    assert not any(prove(equivalences, "https://www.h.example", "https://h.example"))
    equivalences._check()


def test_chains_resolve_in_one_step() -> None:
    equivalences = Equivalences()
    assert prove(equivalences, "http://h.example", "https://h.example")[-1]
    assert prove(equivalences, "https://h.example", "https://www.h.example")[-1]
    assert equivalences.proven["http://h.example"] == "https://www.h.example"


def test_the_bucket_remains_that_of_the_host() -> None:
    """A `www` host below a public suffix is a domain of its own. Its owner must still get the links to it."""
    equivalences = Equivalences()
    fingerprinter = Fingerprinter(SEED, equivalences=equivalences)
    before = fingerprinter.bucket("www.github.io")
    assert prove(equivalences, "http://www.github.io", "http://github.io")[-1]
    assert (
        fingerprinter.fingerprint("http://www.github.io/") >> 48
        == before
        != fingerprinter.bucket("github.io")
    )


names = st.sampled_from(
    [f"{s}://{w}h{n}.example" for s in ("http", "https") for w in ("", "www.") for n in (1, 2)]
)


@given(st.lists(st.tuples(names, names, st.integers(1, PROOFS), st.booleans()), max_size=20))
@settings(max_examples=100)
def test_invariants_hold_with_little_room(steps: list[tuple[str, str, int, bool]]) -> None:
    bounds = module._PROVEN_MAX, module._TRIAL_MAX
    module._PROVEN_MAX, module._TRIAL_MAX = 3, 2
    try:
        equivalences = Equivalences()
        for source, other, times, answered in steps:
            for _ in range(times):
                equivalences.redirected(source + "/", other + "/")
            if answered:
                equivalences.answered(other + "/")
            equivalences._check()
        assert "proven" in repr(equivalences)
    finally:
        module._PROVEN_MAX, module._TRIAL_MAX = bounds
