"""Test the language codes and the return links of hreflang."""

import random

import pytest

from crawler.audit.hreflang import ReturnLinks, is_code


@pytest.mark.parametrize(
    "code", ["en", "EN-gb", "zh-Hant", "zh-Hant-TW", "x-default", "X-Default", "sr-Latn-RS"]
)
def test_valid_codes(code: str) -> None:
    assert is_code(code)


@pytest.mark.parametrize(
    "code", ["", "en-UK", "english", "en_GB", "gb", "x", "en-", "eng", "en-GB-x", "de-DEU"]
)
def test_invalid_codes(code: str) -> None:
    assert not is_code(code)


def test_missing_return_links_are_found() -> None:
    """Compare the result with a set of pairs.

    Repeated links and links to the page itself or to unknown pages do not count.
    """
    rng = random.Random(5)
    for _ in range(50):
        links, pairs = ReturnLinks(), set()
        for _ in range(rng.randrange(40)):
            page, translations = rng.randrange(1, 6), [rng.randrange(1, 8) for _ in range(rng.randrange(4))]
            links.add(page, translations)
            pairs |= {(page, each) for each in translations if each != page}
        found = {(page, each) for page, others in links.missing(lambda each: each < 6) for each in others}
        assert found == {(a, b) for a, b in pairs if b < 6 and (b, a) not in pairs}
