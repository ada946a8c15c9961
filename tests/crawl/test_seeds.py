"""Test that seeds are made canonical in batches, or rejected with a reason, and written to a file for other processes."""

import logging
from pathlib import Path

import pytest

from crawler.config import convert
from crawler.crawl.relaxed_settings import SeedPlaces
from crawler.crawl.seeds import REFUSED_SHOWN, SEEDS_AT_ONCE, SeedFile, Seeds
from crawler.errors import UsageError

CONTACT = {"identity": {"contact": "x@example.org"}}


def test_seeds_of_the_configuration_come_first_and_all_are_canonical() -> None:
    config = convert({**CONTACT, "seeds": ["http://A.org"]})
    assert list(Seeds(config, ["http://b.org:80/x#y"])) == [["http://a.org/", "http://b.org/x"]]


def test_batches_are_bounded_and_read_when_needed() -> None:
    read = 0

    def endless():  # type: ignore[no-untyped-def]
        nonlocal read
        while True:
            read += 1
            yield f"http://h{read}.org/"

    pieces = iter(Seeds(convert(CONTACT), endless()))
    assert len(next(pieces)) == SEEDS_AT_ONCE == read


def test_invalid_seeds_are_counted_and_the_first_are_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_handlers = logging.getLogger("crawler")
    monkeypatch.setattr(with_handlers, "propagate", True)
    monkeypatch.setattr(with_handlers, "handlers", [])  # remove the log handlers of an earlier command
    seeds = Seeds(convert(CONTACT), [f"x:{n}" for n in range(50)])
    assert list(seeds) == [[]] and seeds.refused == 50
    assert len(caplog.messages) == REFUSED_SHOWN + 1


def test_public_hosts_in_scope_any_need_a_contact() -> None:
    config = convert({"crawl": {"scope": "any"}})
    assert list(Seeds(config, ["http://127.0.0.1/"])) == [["http://127.0.0.1/"]]
    with pytest.raises(UsageError, match="identity.contact="):
        list(Seeds(config, ["http://example.org/"]))


def test_the_seeds_file_can_be_read_several_times(tmp_path: Path) -> None:
    file = SeedFile(tmp_path / "seeds.run")
    urls = [f"http://h{n}.org/" for n in range(SEEDS_AT_ONCE + 1)]
    file.write([urls[:10], [], urls[10:]])
    for _ in range(2):
        assert [len(piece) for piece in file] == [SEEDS_AT_ONCE, 1]
        assert sum(file, []) == urls
    file.write([[]])
    assert list(file) == [] and not file.path.exists()
    file.remove()


def test_new_hosts_of_seeds_are_noted_after_the_last_seed() -> None:
    noted: list[list[str]] = []
    places = SeedPlaces("host")
    places.restrict(["a.org"])
    for urls, expected in (
        (["http://a.org/", "http://b.org/"], [["a.org", "b.org"]]),
        (["http://b.org/x"], [["a.org", "b.org"]]),
        (["http://c.org/", "x:"], [["a.org", "b.org"], ["a.org", "b.org", "c.org"]]),
    ):
        seeds = Seeds(convert(CONTACT), urls, places)
        seeds.note = lambda names: noted.append(list(names))
        pieces = iter(seeds)
        next(pieces)
        before = list(noted)
        assert list(pieces) == [] and noted == expected
        assert len(before) < len(noted) or not places.grown
    assert not places.grown


def test_hosts_of_seeds_are_collected_without_a_record() -> None:
    seeds = Seeds(convert(CONTACT | {"crawl": {"scope": "domain"}}), ["http://www.a.org/"])
    assert list(seeds) == [["http://www.a.org/"]] and list(seeds.places.names) == ["*.a.org"]


def test_a_long_seed_is_cut_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("crawler"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("crawler"), "handlers", [])
    list(Seeds(convert(CONTACT), ["x:" + "y" * 1000]))
    assert caplog.messages == [f"seed {'x:' + 'y' * 198!r} is refused: not an http(s) URL"]


def test_a_seeds_file_has_no_rejected_seeds(tmp_path: Path) -> None:
    assert SeedFile(tmp_path / "seeds.run").refused == 0
