"""Test the configuration: layers, units, sources, and one-line errors that name the key."""

import re
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config import Config, Layers, Overrides, convert, environment_settings, read_file, to_toml
from crawler.config.forms import http_origin
from crawler.config.overrides import check_match
from crawler.config.schema import Override
from crawler.crawl.immutable_settings import refreshes
from crawler.errors import ConfigError
from crawler.urls.canonical import authority, canonical, hostname
from crawler.urls.surt_prefix import surt_of

DEFAULT = Path(__file__).resolve().parents[2] / "config" / "default.toml"


def test_default_toml_lists_every_key_with_its_default() -> None:
    tree = tomllib.loads(DEFAULT.read_text(encoding="utf-8"))
    assert convert(tree) == Config()
    for section in msgspec.structs.fields(Config):
        value = getattr(Config(), section.name)
        if isinstance(value, msgspec.Struct):
            assert tree[section.name].keys() == set(value.__struct_fields__), section.name


def test_default_toml_gives_a_reason_for_every_key() -> None:
    for line in DEFAULT.read_text(encoding="utf-8").splitlines():
        if "=" in line and not line.lstrip().startswith("#"):
            assert "#" in line, line


def test_default_toml_lists_every_key_of_an_override() -> None:
    block = DEFAULT.read_text(encoding="utf-8").partition("# [[override]]\n")[2]
    listed = [line.removeprefix("# ").split(" =")[0] for line in block.splitlines() if line.startswith("# ")]
    assert set(listed) == set(Override.__struct_fields__)


def test_a_caller_may_change_what_it_has_read(tmp_path: Path) -> None:
    """A second reading of the same file does not show the changes."""
    path = tmp_path / "crawl.toml"
    path.write_text('seeds = ["http://a/"]\n[crawl]\ndepth = 2\n[[override]]\nhosts = ["a"]\n')
    for _ in range(2):
        tree = read_file(path)
        assert tree == {"seeds": ["http://a/"], "crawl": {"depth": 2}, "override": [{"hosts": ["a"]}]}
        tree["seeds"].append("http://b/")
        tree["crawl"]["depth"] = 3
        tree["override"][0]["hosts"].clear()


@pytest.mark.parametrize(
    ("tree", "where"),
    [
        ({"crawl": {"patiense": 1}}, "patiense"),
        ({"crawl": {"patience": "5 mn"}}, "crawl.patience"),
        ({"crawl": {"depth": "deep"}}, "crawl.depth"),
        ({"fetch": {"body_bytes_max": -1}}, "fetch.body_bytes_max"),
        ({"cravl": {}}, "cravl"),
        ({"override": [{"match": "a", "dealy": 1}]}, "dealy"),
        ({"frontier": {"retry_delays": []}}, "frontier.retry_delays: expected a list of length >= 1"),
        ({"robots": {"unreachable_delays": []}}, "robots.unreachable_delays: expected a list of length >= 1"),
    ],
)
def test_a_wrong_key_or_unit_is_named(tree: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        convert(tree)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("crawl.stall_max", 0),
        ("crawl.shutdown_step_max", 0),
        ("robots.rules_max", 0),
        ("robots.wildcards_max", 0),
        ("robots.copy_max_age", 0),
        ("fetch.connect_timeout", 0),
        ("fetch.header_timeout", 0),
        ("fetch.total_timeout", 0),
        ("fetch.crowded_timeout", 0),
        ("fetch.header_bytes_max", 0),
        ("fetch.header_field_bytes_max", 0),
        ("fetch.header_fields_max", 0),
        ("fetch.body_bytes_max", 0),
        ("fetch.wire_bytes_max", 0),
        ("network.dns_timeout", 0),
        ("network.dns_cache_entries_max", 0),
        ("extract.links_max", 0),
        ("traps.same_digest_pages_max", 0),
        ("splitter.heartbeat", 0),
        ("serve.idle_timeout", 0),
        ("override[0].total_timeout", 0),
        ("override[0].body_bytes_max", 0),
    ],
)
def test_a_value_with_which_nothing_would_be_crawled_is_rejected(key: str, value: float) -> None:
    """Each of these values ended a crawl of a real site with no page, without links, or against robots.txt."""
    section, name = key.split(".")
    values = {"match": "a", name: value}
    tree = {"override": [values]} if section.startswith("override") else {section: {name: value}}
    with pytest.raises(ConfigError, match=f"configuration: {re.escape(key)}: ") as caught:
        convert(tree)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("key", "most"),
    [
        ("network.dns_timeout", 86_400),
        ("due.buffer_entries_max", 1 << 32),
        ("due.merge_chunk_bytes", 1 << 30),
        ("store.tables_max", 1 << 20),
    ],
)
def test_a_value_that_the_machine_cannot_represent_is_rejected(key: str, most: int) -> None:
    """Larger values overflowed a C integer, or took all memory at the first merge."""
    section, name = key.split(".")
    assert convert({section: {name: most}})
    with pytest.raises(ConfigError, match=f"{re.escape(key)}: .*{most}"):
        convert({section: {name: most + 1}})


@pytest.mark.parametrize(
    "delays", [{"politeness": {"delay": "1 d"}}, {"override": [{"match": "a", "delay": 90_000}]}]
)
def test_a_copy_of_robots_txt_outlasts_every_gap(delays: dict[str, Any]) -> None:
    """Otherwise, the copy would be too old whenever a page may be requested."""
    with pytest.raises(ConfigError, match="robots.copy_max_age: 86400 s is not more than the longest"):
        convert(delays)
    assert convert(delays | {"robots": {"policy": "ignore"}})
    assert convert(delays | {"robots": {"copy_max_age": 90_001}})


def test_later_layers_win_and_sources_are_kept() -> None:
    layers = Layers()
    layers.add("file", {"crawl": {"depth": 2, "rate": 5.0}})
    layers.add_environment({"CRAWLER_CRAWL__DEPTH": "3"})
    layers.set("flag", "crawl.scope", "domain")
    config = layers.config()
    assert (config.crawl.depth, config.crawl.rate, config.crawl.scope) == (3, 5.0, "domain")
    assert layers.sources == {
        "crawl.depth": "CRAWLER_CRAWL__DEPTH",
        "crawl.rate": "file",
        "crawl.scope": "flag",
    }


def test_settings_of_one_run_are_weaker_than_given_ones_and_are_not_saved() -> None:
    layers = Layers()
    layers.add("saved", {"seeds": ["http://a/"], "crawl": {"depth": 2, "patience": 40.0}})
    for path, value in (("crawl.patience", 15.0), ("crawl.rate", 1.0), ("crawl.depth", 0)):
        layers.set_for_run("flag", path, value)
    layers.set("given", "crawl.rate", "5")
    runs, saved = layers.config(), layers.saved_config()
    assert (runs.crawl.patience, runs.crawl.rate, runs.crawl.depth) == (15.0, 5.0, 0)
    assert (saved.crawl.patience, saved.crawl.rate, saved.crawl.depth) == (40.0, 5.0, 2)
    assert saved.seeds == runs.seeds == ("http://a/",)
    assert layers.sources["crawl.patience"] == "flag"


def test_text_is_converted_to_the_type_of_its_key() -> None:
    layers = Layers()
    layers.set("flag", "identity.contact", "123")
    layers.set("flag", "order.name", "7")
    layers.set("flag", "network.allow_networks", "127.0.0.0/8, 10.0.0.0/8")
    layers.set("flag", "fetch.cookies", "true")
    config = layers.config()
    assert (config.identity.contact, config.order.name) == ("123", "7")
    assert config.network.allow_networks == ("127.0.0.0/8", "10.0.0.0/8")
    assert config.fetch.cookies is True


def test_numbers_may_be_typed_in_forms_that_toml_does_not_allow() -> None:
    layers = Layers()
    typed = {"crawl.depth": "05", "crawl.rate": ".5", "refresh.share": ".25", "politeness.delay": "5."}
    for key, text in typed.items():
        layers.set("flag", key, text)
    config = layers.config()
    assert (config.crawl.depth, config.crawl.rate, config.refresh.share) == (5, 0.5, 0.25)
    assert config.politeness.delay == 5.0


@pytest.mark.parametrize(
    ("typed", "endless", "finite"),
    [
        (None, "auto", 0.0),
        ("default", "auto", 0.0),
        ("auto", "auto", "auto"),
        ("0", 0.0, 0.0),
        (".5", 0.5, 0.5),
    ],
)
def test_a_share_of_0_is_not_the_default(typed: str | None, endless: object, finite: object) -> None:
    """The command line, the environment and `crawler set` all set keys as text, as this test does."""
    for text, share in (("true", endless), ("false", finite)):
        layers = Layers()
        layers.set("command", "refresh.endless", text)
        if typed is not None:
            layers.set("flag", "refresh.share", typed)
        config = layers.config()
        assert config.refresh.fetch_share == share
        assert refreshes(config) == bool(share or text == "true")
        again = convert(tomllib.loads(to_toml(config)))
        assert again.refresh == config.refresh, "crawl.toml keeps the difference"


def test_environment_variables_name_section_and_key() -> None:
    environ = {"CRAWLER_CRAWL__DEPTH": "3", "CRAWLER_FAULT": "x", "PATH": "/bin"}
    assert [*environment_settings(environ)] == [("CRAWLER_CRAWL__DEPTH", "crawl.depth", "3")]


@pytest.mark.parametrize(
    ("variable", "value", "what"),
    [
        ("CRAWLER_CRAWL__DEPTH", "x", "crawl.depth: expected a whole number, got 'x'"),
        ("CRAWLER_crawl__dpth", "1", "crawl.dpth: there is no such key"),
        ("CRAWLER_NOPE__KEY", "1", "nope: there is no such key"),
        ("CRAWLER_SEEDS__X", "1", "seeds is not a section"),
        ("CRAWLER_CRAWL_DEPTH", "1", "use two underscores"),
    ],
)
def test_an_error_of_a_variable_begins_with_its_name(variable: str, value: str, what: str) -> None:
    """The message names the variable as the user has written it. Before, it began with `environment`."""
    layers = Layers()
    layers.add("file", {"seeds": ["http://a/"]})
    with pytest.raises(ConfigError, match=f"^{variable}: {what}"):
        layers.add_environment({variable: value})
        layers.config()


def test_a_variable_with_one_underscore_is_refused() -> None:
    """Other variables of the user, such as CRAWLER_DEPTH, are ignored."""
    with pytest.raises(ConfigError, match="CRAWLER_FETCH_BODY_BYTES_MAX: .*: CRAWLER_FETCH__BODY_BYTES_MAX"):
        [*environment_settings({"CRAWLER_FETCH_BODY_BYTES_MAX": "3"})]
    ignored = {"CRAWLER_DEPTH": "3", "CRAWLER_FETCH": "1", "MY_CRAWL_DEPTH": "1", "SCRAPER_CRAWL_DEPTH": "1"}
    found = [*environment_settings(ignored | {"CRAWLER_CRAWL__A__B": "1"})]
    assert found == [("CRAWLER_CRAWL__A__B", "crawl.a__b", "1")]


@pytest.mark.parametrize(
    ("tree", "path"), [({}, "seeds.x"), ({}, "override.depth"), ({"crawl": 5}, "crawl.depth")]
)
def test_a_key_outside_of_a_section_is_refused(tree: dict[str, Any], path: str) -> None:
    layers = Layers()
    layers.add("file", tree)
    with pytest.raises(ConfigError, match="seeds|override|crawl is not a section"):
        layers.set("flag", path, "1")
        layers.config()


def test_a_written_configuration_is_read_back_unchanged(tmp_path: Path) -> None:
    config = convert(
        {
            "seeds": ["http://a/"],
            "identity": {"headers": ['X: "quoted" \\ \x7f é']},
            "override": [{"match": "*.b", "delay": 2}],
        }
    )
    path = tmp_path / "crawl.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    assert convert(read_file(path)) == config


def test_keys_can_be_left_out_of_a_configuration_file() -> None:
    config = convert({"crawl": {"max_pages": 5, "depth": 3}})
    kept = convert(tomllib.loads(to_toml(config, skip=("crawl.max_pages",))))
    assert (kept.crawl.max_pages, kept.crawl.depth) == (0, 3)


@pytest.mark.parametrize(
    ("match", "matched"),
    [
        ("http://a.org", {"http://a.org/", "http://a.org/b"}),
        ("http://a.org$", {"http://a.org/"}),
        ("http://a.org:81", {"http://a.org:81/"}),
        ("http://a.org/b", {"http://a.org/b"}),
        ("a.org", {"http://a.org/", "http://a.org/b", "http://a.org:81/"}),
        ("a.org:81", set()),
        ("", set()),
        ("http://(org,a,)/b", {"http://a.org/b"}),
        ("http://(org,a,", {"http://a.org/", "http://a.org/b", "http://a.org:81/"}),
    ],
)
def test_an_override_for_a_url_without_a_path_is_for_its_site(match: str, matched: set[str]) -> None:
    """A table for `http://a.org` once matched nothing. It must not match hosts whose names only begin like this one."""
    overrides = Overrides((Override(match=match, depth=1),))
    urls = ("http://a.org/", "http://a.org/b", "http://a.org:81/", "http://a.org.b.test/", "http://b.test/")
    assert {url for url in urls if overrides.for_url(url, hostname(url)).depth} == matched


MEANT = {
    "Example.org": "example.org", "example.org.": "example.org", "example.org:8080": "http://(org,example,:8080)/",
    "example.org/docs/": "http://(org,example,)/docs/", "example.org/": "example.org", "münchen.de": "xn--mnchen-3ya.de",
    "*.Example.org": "*.example.org", "http://*.a.org/": "*.a.org", "http://A.org/": "http://a.org/",
    "http://a.org:80/": "http://a.org/", "http://u:p@a.org/": "http://a.org/", "http://a.org/#x": "http://a.org/",
    "http://a.org/b/../c": "http://a.org/c", "http://a.org/b/.$": "http://a.org/b/$",
    "http://a.org/b c": "http://a.org/b%20c", "https://(org,a,)/": "http://(org,a,)/", "org,a)/b": "http://(org,a,)/b",
    "http://(1,0,0,127,)/": "http://(127.0.0.1)/", "http://(org,a,)$": "http://(org,a,)/$",
    "": "", "*": "", "*.": "", "a.*": "", " a.org": "a.org", "ftp://a.org/": "", "http://": "", "http://(a.org)/": "",
    "http://(org,a,)b": "", "http://(org,a,$": "",
}  # fmt: skip


@pytest.mark.parametrize(("match", "meant"), MEANT.items())
def test_an_override_that_matches_no_url_is_an_error_that_names_what_was_meant(
    match: str, meant: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        convert({"override": [{"match": match}]})
    assert str(raised.value).startswith("configuration: override[0].match: ")
    assert meant in str(raised.value) and ("did you mean" in str(raised.value)) == bool(meant)
    if meant:
        convert({"override": [{"match": meant}]})


URLS = st.builds(
    lambda host, path: canonical(f"http://{host}/{path}"),
    st.sampled_from(["a.org", "www.a.org:81", "127.0.0.1", "[::1]:81", "xn--mnchen-3ya.de"]),
    st.text("ab./%2é?&=#", max_size=12),
).map(str)


@given(URLS, st.integers(0, 99))
def test_every_part_of_the_web_that_contains_a_url_can_be_given(url: str, length: int) -> None:
    """The prefixes of the URL and of its SURT, its host and its domains are accepted, and match the URL."""
    start, surt, name = len(authority(url)) + 1, surt_of(url), hostname(url)
    matches = [
        url[: start + length],
        surt[: len("http://(") + length],
        name,
        f"*.{name}",
        f"{url}$",
        f"{surt}$",
    ]
    for match in matches:
        config = convert({"override": [{"match": match, "depth": 1}]})
        assert Overrides(config.override).for_url(url, name).depth == 1, match


@given(URLS, st.text("ab./%:8A*$", max_size=8), st.integers(0, 30))
def test_a_match_that_is_an_error_would_match_nothing(url: str, inserted: str, place: int) -> None:
    """Text is inserted into a URL, its SURT or its host. If the result is an error, it does not match the URL."""
    for text in (url, surt_of(url), hostname(url)):
        match = text[:place] + inserted + text[place:]
        with suppress(ConfigError):
            check_match(match)
            continue
        overrides = Overrides([Override(match=match, depth=1)])
        near = canonical(match)
        for each in [url] if near is None or set(hostname(near)) & set("*(),$") else [url, near]:
            assert overrides.for_url(each, hostname(each)).depth is None, (match, each)


@pytest.mark.parametrize("text", ["[crawl", "a = 'é".encode("latin-1")])
def test_an_invalid_toml_file_is_named(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ConfigError, match="bad.toml"):
        read_file(path)
    with pytest.raises(ConfigError, match="No such file"):
        read_file(tmp_path / "none.toml")


@pytest.mark.parametrize("server", ["9.9.9.9", "127.0.0.1:5353", "2620:fe::fe", "[2620:fe::fe]", "[::1]:53"])
def test_valid_dns_servers(server: str) -> None:
    assert convert({"network": {"dns_servers": [server]}}).network.dns_servers == (server,)


@pytest.mark.parametrize(
    "server",
    ["", "dns.example", "9.9.9", "9.9.9.9:", "9.9.9.9:0", "9.9.9.9:65536", "::1:x", "[::1", "[x]:53"],
)
def test_invalid_dns_servers(server: str) -> None:
    with pytest.raises(ConfigError, match="network.dns_servers"):
        convert({"network": {"dns_servers": [server]}})


@pytest.mark.parametrize(
    ("host", "origin"),
    [("127.0.0.1", "http://127.0.0.1:80"), ("::1", "http://[::1]:80"), ("localhost", "http://localhost:80")],
)
def test_an_ipv6_address_is_in_brackets(host: str, origin: str) -> None:
    assert http_origin(host, 80) == origin


def test_old_copies_are_not_dropped_from_shipped_files() -> None:
    with pytest.raises(ConfigError, match="pages.keep_copies: old copies cannot be dropped"):
        convert({"pages": {"keep_copies": 1, "ship": "file:///tmp/objects"}})
