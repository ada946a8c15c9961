"""Test that relaxed settings apply only to the seeds for which they were given."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from crawler.config import Config, convert
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.relaxed_settings import PLACES_MAX, SeedPlaces, confirm, inherited, relaxed
from crawler.errors import ConfigError, UsageError

LOOSE = {"politeness": {"delay": 0.0}, "robots": {"policy": "ignore"}}


def test_defaults_and_stricter_values_are_not_relaxed() -> None:
    assert relaxed(Config()) == {}
    assert relaxed(convert({"politeness": {"delay": 30}, "crawl": {"scope": "prefix"}})) == {}


@pytest.mark.parametrize(
    ("tree", "key", "value"),
    [
        ({"politeness": {"delay": 0.25}}, "politeness.delay", "0.25"),
        ({"politeness": {"delay_factor": 0}}, "politeness.delay_factor", "0"),
        ({"politeness": {"crawl_delay_max": 5}}, "politeness.crawl_delay_max", "5"),
        ({"politeness": {"shared_address_in_flight": 99}}, "politeness.shared_address_in_flight", "99"),
        ({"politeness": {"shared_address_rate": 0}}, "politeness.shared_address_rate", "0"),
        ({"robots": {"policy": "ignore"}}, "robots.policy", "ignore"),
        ({"robots": {"bytes_max": 511_999}}, "robots.bytes_max", "511999"),
        ({"robots": {"redirects_max": 4}}, "robots.redirects_max", "4"),
        ({"crawl": {"scope": "any"}}, "crawl.scope", "any"),
        ({"fetch": {"tls": "record"}}, "fetch.tls", "record"),
        ({"network": {"allow_networks": ["10.0.0.0/8", "::1/128"]}}, "network.allow_networks", "10.0.0.0/8,::1/128"),
    ],
)  # fmt: skip
def test_relaxed_settings_are_named_as_typed(tree: dict[str, object], key: str, value: str) -> None:
    config = convert(tree)
    assert relaxed(config) == {key: value}
    assert inherited(config, [key]) == {}
    confirm(config, {key: value})
    with pytest.raises(UsageError, match="crawler set"):
        confirm(Config(), {key: value})


@pytest.mark.parametrize(
    ("scope", "known", "url", "covered"),
    [
        ("host", "http://a.test/x", "https://www.a.test:8443/y", True),
        ("host", "http://a.test/", "http://b.a.test/", False),
        ("prefix", "http://a.test/x/", "http://a.test/y/", True),
        ("any", "http://a.test/", "http://b.test/", False),
        ("domain", "http://a.co.uk/", "http://b.a.co.uk/", True),
        ("domain", "http://a.co.uk/", "http://b.co.uk/", False),
        ("host", "http://[::1]/", "http://[::1]:80/", True),
    ],
)
def test_a_seed_on_another_host_needs_the_settings_again(
    scope: str, known: str, url: str, covered: bool
) -> None:
    """A seed needs no settings if there is a known seed on the same host.

    With the scope `domain`, a known seed on any host of the domain is enough.
    """
    places = SeedPlaces(scope)
    places.add(known)
    names = list(places.names)
    places = SeedPlaces(scope, {"politeness.delay": "0"})
    places.restrict(names)
    if covered:
        places.add(url)
        assert not places.grown
        return
    with pytest.raises(UsageError, match=r"politeness\.delay=0\)"):
        places.add(url)
    given_again = SeedPlaces(scope)
    given_again.restrict(names)
    given_again.add(url)
    assert given_again.grown and given_again.covers(url)


def test_above_the_limit_of_hosts_every_host_is_covered() -> None:
    places = SeedPlaces("host")
    for number in range(PLACES_MAX + 1):
        places.add(f"http://h{number}.test/")
    assert [*places.names] == ["*"] and places.covers("http://other.test/")


def assert_defaults(directory: CrawlDirectory) -> None:
    saved = convert(directory.settings.load())
    assert replace(saved, store=Config().store) == Config() and saved.store.engine != "auto"
    assert directory.settings.renew() == ""


@pytest.mark.parametrize(
    ("old", "new"), [("[robots]", "[r\x00bots]"), ("[robots]", "[robots"), ("delay =", "dela\x19 =")]
)
def test_unreadable_settings_are_renamed(tmp_path: Path, old: str, new: str) -> None:
    """Regression: after a flipped byte in the file, `check --repair` refused the crawl forever."""
    directory = CrawlDirectory(tmp_path)
    directory.create()
    directory.settings.save(convert({"politeness": {"delay": 30.0}}))
    directory.save_report({})
    damaged = directory.settings.file.read_text().replace(old, new, 1)
    directory.settings.file.write_text(damaged)
    with pytest.raises(ConfigError):
        convert(directory.settings.load())
    assert "crawl.damaged" in directory.settings.renew()
    assert (tmp_path / "crawl.damaged").read_text() == damaged
    assert_defaults(directory)
