"""Test by brief fuzzing that no input raises an exception, and test each bug that fuzzing has found."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.config import Layers, convert, read_file
from crawler.errors import ConfigError
from crawler.fetcher.answer import Answer
from crawler.records import Outcome
from crawler.serve import indexnow, signal_handler
from crawler.serve.http_error import HttpError
from crawler.urls.canonical import resolve
from tests.fuzz.fuzzing import Clock, Target, fuzz
from tests.fuzz.targets import LIMITS, targets

NAMES = (
    "heads", "codings", "cookies", "pages", "long pages", "scan", "copies", "sitemaps", "feeds", "sheets", "robots",
    "urls", "configurations", "peers", "requests", "doors", "control",
)  # fmt: skip


@pytest.fixture(scope="module")
def known() -> Iterator[dict[str, Target]]:
    with targets() as found:
        yield found


@pytest.mark.parametrize("name", NAMES)
def test_no_input_makes_a_parser_raise(known: dict[str, Target], name: str) -> None:
    """Each input, whole or in pieces, makes the parser return a value or raise the documented error.

    The seed is fixed.
    """
    assert set(known) == set(NAMES)
    tally = fuzz(known[name], 7, runs=60 if name in ("long pages", "scan", "doors") else 120)
    assert not tally.failed, tally.failures[0].text


def test_the_search_finds_a_planted_bug() -> None:
    """An error that only some inputs trigger is found, and it is reported together with its input."""

    def reader(data: bytes, clock: Clock, rng: random.Random) -> int:
        assert b"<<" not in data
        return data.count(b"<")

    tally = fuzz(Target("planted", [b"<a><b>"], [], 200, reader), 1, runs=500)
    assert tally.failed and b"<<" in tally.failures[0].data


# -- bugs found by fuzzing ------------------------------------------------------------------


def test_queries_are_encoded_in_an_encoding_without_a_codec() -> None:
    """The Encoding Standard defines the charset `x-user-defined`, but Python has no codec for it."""
    got = resolve("http://h.test/", "?a=é\uf7ff", encoding="x-user-defined")
    assert got == "http://h.test/?a=%26%23233%3B%FF"


@pytest.mark.parametrize("body", [b'{"urls": ["\xd8"]}', b'{"urls": ' + b"[" * 10_000])
def test_a_notice_that_is_invalid_utf_8_or_deeply_nested_is_refused(body: bytes) -> None:
    for parse in (signal_handler.parse, indexnow.parse_post):
        with pytest.raises(HttpError) as caught:
            parse(body, 10)
        assert caught.value.status == 400


def test_a_configuration_beyond_the_limits_of_the_parser_gives_an_error(tmp_path: Path) -> None:
    path = tmp_path / "crawl.toml"
    for text, words in (("[" * 5000, "too deeply nested"), ("9" * 5000, "4300 digits")):
        path.write_text("a = " + text)
        with pytest.raises(ConfigError, match=words):
            read_file(path)
    layers = Layers()
    layers.set("--set", "crawl.max_pages", "9" * 5000)
    layers.set("--set", "fetch.proxy", "http://h/" + "{a=" * 5000)
    layers.set("--set", "filter.include", "[" * 5000)
    with pytest.raises(ConfigError):
        convert(layers.tree)


def test_a_long_block_that_is_not_http_has_the_same_outcome_whole_or_in_pieces() -> None:
    """Depending on the pieces, the size of a block was once checked before or after its first line."""
    data = b"HTTP2 200 OK\r\n" + b"x" * LIMITS.header_bytes_max + b"\r\n\r\n"
    whole, pieces = Answer(LIMITS), Answer(LIMITS)
    whole.receive(data)
    for at in range(0, len(data), 1000):
        pieces.receive(data[at : at + 1000])
    assert whole.failure is pieces.failure is Outcome.FRAMING
