"""Test the settings that a crawl directory keeps, and what belongs to one run only."""

from pathlib import Path

import pytest

from crawler.config import convert
from crawler.crawl import saved_settings
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.saved_settings import RUN_KEYS
from crawler.errors import DirectoryError, UsageError
from crawler.storage.engines import ENGINES, engine_of, open_store


@pytest.fixture
def crawl(tmp_path: Path) -> CrawlDirectory:
    made = CrawlDirectory(tmp_path / "crawl")
    made.create()
    return made


def test_the_settings_of_a_run_are_not_saved(crawl: CrawlDirectory) -> None:
    given = {"max_pages": 7, "max_time": 7.0, "max_bytes": 7, "timestamping": True, "answers_from": ["x"]}
    assert {f"crawl.{key}" for key in given} == set(RUN_KEYS)
    assert crawl.settings.load() == {} and crawl.settings.places() == []
    crawl.settings.save(convert({"crawl": given | {"depth": 3}}))
    assert not crawl.settings.credentials_file.exists()
    assert convert(crawl.settings.load()).crawl == convert({"crawl": {"depth": 3}}).crawl


def test_settings_that_could_not_be_read_again_are_not_saved(
    crawl: CrawlDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of 600,000 seeds with limits gave a crawl.toml that was too large to be read again."""
    crawl.settings.save(convert({"crawl": {"depth": 3}}))
    before = crawl.settings.file.read_bytes()
    monkeypatch.setattr(saved_settings, "WHOLE_BYTES_MAX", len(before) + 100)
    with pytest.raises(UsageError, match="crawl.toml: the settings take .* give fewer overrides"):
        crawl.settings.save(convert({"override": [{"match": f"h{n}", "depth": 1} for n in range(10)]}))
    assert crawl.settings.file.read_bytes() == before


def test_saved_settings_are_the_weakest_layer(crawl: CrawlDirectory) -> None:
    crawl.settings.save(convert({"crawl": {"depth": 3, "patience": 40.0}}))
    layers = crawl.settings.layers()
    assert crawl.settings.given(layers) == set()
    layers.set("flag", "crawl.depth", "5")
    layers.set_for_run("flag", "crawl.patience", 15.0)
    assert crawl.settings.given(layers) == {"crawl.depth", "crawl.patience"}
    runs, saved = layers.config().crawl, layers.saved_config().crawl
    assert (runs.depth, runs.patience, saved.depth, saved.patience) == (5, 15.0, 5, 40.0)


def test_relaxed_settings_hold_at_the_places_of_earlier_seeds(crawl: CrawlDirectory) -> None:
    """The text of crawl.toml contains these places."""
    loose = convert({"politeness": {"delay": 0.0}})
    crawl.settings.save(loose)
    crawl.settings.note_places(["a.org"])
    assert crawl.settings.text(convert(crawl.settings.load())) == crawl.settings.file.read_text()
    places = crawl.settings.seed_places(loose, ())
    places.check(["http://a.org/"])
    with pytest.raises(UsageError, match="relaxed settings were given for a.org only"):
        places.check(["http://b.org/"])
    crawl.settings.seed_places(loose, {"politeness.delay"}).check(["http://b.org/"])


def test_the_engine_of_existing_stores_is_saved(crawl: CrawlDirectory) -> None:
    crawl.process("p0").mkdir()
    open_store(crawl.process("p0") / "store").close()
    crawl.note_state("p0", 0)
    engine = engine_of(crawl.process("p0") / "store")
    crawl.settings.save(convert({}))
    assert convert(crawl.settings.load()).store.engine == engine
    crawl.settings.save(convert({"store": {"engine": engine}}))
    (other,) = {*ENGINES} - {engine}
    with pytest.raises(DirectoryError, match=f"{other}"):
        crawl.settings.save(convert({"store": {"engine": other}}))
    assert convert(crawl.settings.load()).store.engine == engine


def test_settings_that_cannot_be_read_are_an_error_of_the_directory(crawl: CrawlDirectory) -> None:
    crawl.settings.file.mkdir()
    with pytest.raises(DirectoryError, match="crawl.toml: cannot be read: Is a directory"):
        crawl.settings.places()
