"""Test that every way to give a setting rejects an invalid value before anything starts, with the same message.

`crawler config check`, `crawler crawl`, the Python API and `crawler set` report the same error.
`crawler config check` and `crawler crawl` also name the line of the configuration file.
"""

import argparse
import asyncio
import json
import textwrap
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

import crawler
from crawler import cli
from crawler.cli import options
from crawler.cli.completion import parsers
from crawler.cli.flags import flag_of
from crawler.config import convert
from crawler.config.layers import line_of
from crawler.crawl import safe_settings
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import ConfigError
from crawler.printable import is_unicode


class Bad(NamedTuple):
    """Lines of a configuration file, the number of the line that is invalid, and the expected message."""

    text: str
    line: int
    said: str


VALUES = [
    Bad("[identity]\ntoken = 'my bot/1.0'", 2, "identity.token: 'my bot/1.0': only letters, - and _ are allowed"),
    Bad("[identity]\nheaders = ['X-A: 1', 'no colon']", 2, "identity.headers: 'no': expected \"Name: value\""),
    Bad('[identity]\nheaders = ["X-A: 1\\r\\nX-B: 2"]', 2, "identity.headers: 'X-A': its value contains a line break"),
    Bad('[identity]\ncontact = "a@x.org\\nX-B: 2"', 2, "identity.contact: contains a line break or a zero byte"),
    Bad('[identity]\naccept = "a\\r\\nX-B: 2"', 2, "identity.accept: contains a line break or a zero byte"),
    Bad('[identity]\naccept_language = "a\\u0000"', 2, "identity.accept_language: contains a line break or a zero byte"),
    Bad("[identity]\nheaders = ['Bad Name: 1']", 2, "identity.headers: 'Bad': expected"),
    Bad("[splitter]\nname = 'p0'\npeers = ['p0']", 3, "splitter.peers: expected name=host:port entries"),
    Bad("[splitter]\npeers = ['a=h:1', 'a=h:2']", 2, "splitter.peers: expected name=host:port entries"),
    Bad("[splitter]\nlisten = '127.0.0.1:99999'", 2, "splitter.listen: expected host:port, got '127.0.0.1:99999'"),
    Bad("[splitter]\nname = '../p0'", 2, "splitter.name: '../p0' is not a process name"),
    Bad("[splitter]\nwindow_bytes = 1", 2, "splitter.window_bytes: 1: must be at least entry_bytes"),
    Bad("[splitter]\ntls_key = 'k'", 2, "splitter.tls_key: tls_certificate, tls_key and tls_authority"),
    Bad("[admin]\naddress = '127.0.0.1:99999'", 2, "admin.address: '127.0.0.1:99999' is not ADDRESS:PORT"),
    Bad("[serve]\naddress = 'nowhere'", 2, "serve.address: 'nowhere' is not ADDRESS:PORT"),
    *(
        Bad(f"[serve]\npeers = ['{peer}']", 2, "serve.peers: expected name=host:port")
        for peer in ("p1=:80", "p1=a b:80", "p1=http://a:80")
    ),
    Bad("[serve]\npeers = ['p1']", 2, "serve.peers: expected name=host:port entries"),
    Bad("[serve]\nwebsub = ['http://a.org/feed']", 2, "serve.websub: 'http://a.org/feed': expected the URL of a feed"),
    Bad("[serve]\nwebsub = ['a b']", 2, "serve.websub: 'a b': expected the URL of a feed"),
    Bad("[serve]\nwebsub = ['http://a.org/f ftp://h/']", 2, "serve.websub: 'http://a.org/f ftp://h/': expected"),
    Bad("[serve]\nwebsub = ['http://a.org/f http://h.org/']", 2, "serve.websub: hubs call back"),
    Bad("[serve]\nwebsub = ['http://a.org/f http://h.org/']\npublic_url = 'us.example:80'", 2, "serve.websub: hubs call"),
    Bad("[network]\nallow_networks = ['10.0.0.0/99']", 2, "network.allow_networks: '10.0.0.0/99' is not an IP network"),
    Bad("[network]\nallow_ports = [99999]", 2, "network.allow_ports[0]: expected a whole number <= 65535, got 99999"),
    Bad("seeds = ['http://a.org/', 'htp:/x']", 1, "seeds: 'htp:/x' is not an http(s) URL"),
    Bad("seeds = ['a.org/b']", 1, "seeds: 'a.org/b' is not a URL; did you mean https://a.org/b ?"),
    Bad("seeds = ['ftp://a.org/']", 1, "seeds: 'ftp://a.org/': ftp is not supported; the crawler fetches http and https"),
    Bad("seeds = ['http://u:p@a.org/']", 1, "seeds: 'http://a.org/': a login in a URL is read only by"),
    Bad("[crawl]\nsurts = ['nothing at all']", 2, "crawl.surts: 'nothing at all' is not a SURT prefix"),
    Bad("[crawl]\nconcurrency = 0", 2, "crawl.concurrency: expected a whole number >= 1, got 0"),
    Bad("[crawl]\nmax_pages = 'x'", 2, "crawl.max_pages: expected a whole number, got 'x'"),
    Bad("[crawl]\nmax_pages = 1.5", 2, "crawl.max_pages: expected a whole number, got 1.5"),
    Bad("[crawl]\nmax_bytes = 0.5", 2, "crawl.max_bytes: 0.5 is less than a byte"),
    Bad("[fetch]\nbytes_per_second = '1e-4 kB'", 2, "fetch.bytes_per_second: '1e-4 kB' is less than a byte"),
    Bad("[crawl]\nmax_pages = 1e30", 2, "crawl.max_pages: expected a whole number, got 1e+30"),
    Bad("[crawl]\nrate = -3", 2, "crawl.rate: expected a number >= 0, got -3"),
    Bad("[crawl]\nrate = [1]", 2, "crawl.rate: expected a number, got a list"),
    Bad("[crawl]\nmax_time = [1]", 2, 'crawl.max_time: expected a time such as 30, "5 min" or "24 h", got a list'),
    Bad(f"[crawl]\nmax_pages = '{'9x' * 50}'", 2, f"crawl.max_pages: expected a whole number, got '{'9x' * 20}'..."),
    Bad("[crawl]\ntrace = 'often'", 2, "crawl.trace: expected true or false, got 'often'"),
    Bad("[[override]]\nmatch = 'a.org'\nrender = 2", 3, "override[0].render: 2 is not one of never, auto, always"),
    Bad("[fetch]\ncookies = 1", 2, "fetch.cookies: 1 is not one of true, false, auto"),
    Bad("[refresh]\nshare = 2", 2, "refresh.share: expected a number <= 1, got 2"),
    Bad("[frontier]\nretry_delays = [1, 'x']", 2, "frontier.retry_delays[1]: expected a number, got 'x'"),
    Bad("[refresh]\nshare = 'often'", 2, "refresh.share: expected a number, auto or default, got 'often'"),
    Bad("[crawl]\nscope = 'all'", 2, "crawl.scope: 'all' is not one of host, domain, prefix, any"),
    Bad("[politeness]\ndelay = 'soon'", 2, "politeness.delay: expected a time"),
    Bad("[pages]\nprefix = 'a/b'", 2, "pages.prefix: 'a/b' cannot be part of a file name"),
    Bad("[refresh]\nclock_max = 1", 2, "refresh.clock_max: 1 s is less than clock_min"),
    Bad("[filter]\nexclude = ['(']", 2, "filter.exclude: '(' is not a regular expression"),
    Bad("[fetch]\nproxy = 'proxy:3128'", 2, "fetch.proxy: 'proxy:3128' is not a URL"),
    Bad("[crawl]\n# no such key\ndepht = 2", 3, "crawl.depht: there is no such key"),
    Bad("\n[crwl]\n\nmax_pages = 2", 2, "crwl: there is no such key; did you mean crawl?"),
    Bad("[[override]]\nmatch = 'a.org'\nignore = ['(']", 3, "override[0].ignore: '(' is not a regular expression"),
    Bad("[[override]]\nmatch = 'a'\nignore = ['a']\n[[override]]\nmatch = 'b'\nignore = ['(']", 6, "override[1].ignore"),
    Bad("[[override]]\nmatch = 'a.org'\n[[override]]\nmatch = 'B.org'", 4, "override[1].match: 'B.org' matches no URL"),
    Bad("[[override]]\nmatch = 'a.org'\n[[override]]\ndepth = 2", 3, "override[1].match: missing"),
    Bad("[[override]]\nmatch = 'a'\n[[override]]\nmatch = 'b'\nmin_age = 9\nmax_age = 3", 6, "override[1].max_age"),
    Bad("[[override]]\nmatch = '::1'", 2, "override[0].match: '::1' matches no URL; did you mean '[::1]'?"),
    Bad(f"[[override]]\nmatch = '{'x' * 9000}'", 2, f"override[0].match: '{'x' * 40}'... matches no URL; give a host"),
    Bad("[[override]]\nmatch = 'a.org'\nignore = 1", 3, "override[0].ignore: expected a list, got a whole number"),
    Bad("[crawl]\nsurts = ['http://(example.org)/']", 2, "crawl.surts: 'http://(example.org)/' is not a SURT prefix"),
    Bad("[[override]]\nmatch = 'a.org'\n[[override]]\nmatch = 'b.org'\ndepth = 'x'", 5, "override[1].depth: expected"),
]  # fmt: skip
OUTSIDE = [
    Bad("[[override]]\nmatch = 'a.org'\nfetcher = 'none'", 3, "override.fetcher: unknown fetcher 'none'"),
    Bad("[store]\nengine = 'none'", 2, "store.engine: 'none' is not one of"),
    Bad("[hooks]\nurl_filter = 'unheard'", 2, "hooks.url_filter: no entry point 'unheard' in group 'crawler.filters'"),
    Bad("[fetch]\ncookies_file = 'missing.txt'", 2, "fetch.cookies_file: cookies missing.txt: No such file"),
    Bad("[refresh]\nimportance_file = 'missing'", 2, "refresh.importance_file: missing: No such file"),
    Bad("[splitter]\nsecret_file = 'missing'", 2, "splitter.secret_file: missing: No such file"),
    Bad("[splitter]\ntable_file = 'missing'", 2, "splitter.table_file: splitter: bucket table missing: No such file"),
    Bad("[splitter]\ntls_certificate='a'\ntls_key='b'\ntls_authority='c'", 2, "splitter.tls_certificate: splitter: TLS"),
]  # fmt: skip


def settings(bad: Bad) -> dict[str, str]:
    """Return the settings as `crawler set` accepts them: {"section.key": value}, with lists in TOML syntax."""
    tree: dict[str, Any] = tomllib.loads(bad.text)
    return {
        f"{section}.{key}": value if isinstance(value, str) else json.dumps(value)
        for section, values in tree.items()
        if isinstance(values, dict)
        for key, value in values.items()
    }


async def begin(tree: dict[str, Any], directory: Path) -> None:
    async with crawler.Crawl(tree, directory=directory, seeds="http://127.0.0.1:1/"):
        pass


@pytest.mark.parametrize("bad", VALUES + OUTSIDE, ids=lambda bad: bad.said.partition(": ")[0])
def test_files_commands_and_python_give_the_same_error(
    bad: Bad, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CRAWLER_ADMIN__ADDRESS")
    file, directory = tmp_path / "own.toml", tmp_path / "crawl"
    file.write_text(bad.text)
    told = f"crawler: {file}, line {bad.line}: {bad.said}"
    for words in (
        ["config", "check", str(file)],
        ["crawl", "http://127.0.0.1:1/", "--config", str(file), "--dir", str(directory)],
    ):
        assert cli.main(words) == 2, words
        out, err = capsys.readouterr()
        assert err.startswith(told) and err.count("\n") == 1 and "good" not in out, (words, out, err)
    with pytest.raises(ConfigError) as raised:
        asyncio.run(begin(tomllib.loads(bad.text), directory))
    assert str(raised.value).startswith(f"configuration: {bad.said}"), str(raised.value)
    assert not directory.exists(), "no crawl was started"


@pytest.mark.parametrize(
    "bad", [bad for bad in VALUES if settings(bad)], ids=lambda bad: bad.said.partition(": ")[0]
)
def test_changes_of_a_crawl_give_the_same_error(
    bad: Bad, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A running crawl (`safe_settings.changed`) and `crawler set` reject the invalid value, and nothing is saved."""
    with pytest.raises(ConfigError) as raised:
        safe_settings.changed(convert({}), settings(bad))
    assert str(raised.value).startswith(f"configuration: {bad.said}"), str(raised.value)
    directory = CrawlDirectory(tmp_path / "crawl")
    directory.create()
    directory.settings.save(convert({}))
    before = directory.settings.file.read_bytes()
    words = [f"{key}={value}" for key, value in settings(bad).items()]
    assert cli.main(["set", *words, "--dir", str(directory.path)]) == 2
    assert f"configuration: {bad.said}" in capsys.readouterr().err
    assert directory.settings.file.read_bytes() == before


def test_errors_name_the_flag_or_variable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (
        ["crawl", "http://127.0.0.1:1/", "--dir", str(tmp_path / "crawl")],
        ["config", "check", "--dir", str(tmp_path / "crawl")],
    ):
        assert cli.main([*words, "--set", "identity.token=a b"]) == 2
        assert capsys.readouterr().err.startswith("crawler: --set: identity.token: 'a b': only letters")
        assert cli.main([*words, "--header", "no colon"]) == 2
        assert capsys.readouterr().err.startswith("crawler: --header: identity.headers: 'no': expected")
        with monkeypatch.context() as patch:
            patch.setenv("CRAWLER_ADMIN__ADDRESS", "here:99999")
            assert cli.main(words) == 2
        assert capsys.readouterr().err.startswith(
            "crawler: CRAWLER_ADMIN__ADDRESS: admin.address: 'here:99999'"
        )
        number = "crawl.max_pages: expected a whole number, got 'x'\n"
        assert cli.main([*words, "--max-pages", "x"]) == 2
        assert capsys.readouterr().err == f"crawler: --max-pages: {number}"
        with monkeypatch.context() as patch:
            patch.setenv("CRAWLER_CRAWL__MAX_PAGES", "x")
            assert cli.main(words) == 2
        assert capsys.readouterr().err == f"crawler: CRAWLER_CRAWL__MAX_PAGES: {number}"


@pytest.mark.parametrize(
    ("flag", "key", "text", "value"),
    [
        ("--max-pages", "crawl.max_pages", "1e6", 1_000_000),
        ("--max-pages", "crawl.max_pages", "1_000", 1000),
        ("--depth", "crawl.depth", "-1.0", -1),
        ("--concurrency", "crawl.concurrency", "2e2", 200),
        ("--rate", "crawl.rate", "1e3", 1000.0),
        ("--max-bytes", "crawl.max_bytes", "1e3", 1000),
        ("--max-time", "crawl.max_time", "-0.0", 0.0),
    ],
)
def test_all_entrances_read_a_number_alike(
    flag: str,
    key: str,
    text: str,
    value: float,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`--max-pages 1e6` was once refused because 1000000.0 is not a whole number, but `--known 1e6` was accepted."""
    section, _, name = key.partition(".")
    file = tmp_path / "own.toml"
    file.write_text(f"[{section}]\n{name} = {text}\n")
    variable = f"CRAWLER_{section}__{name}".upper()
    shown = []
    for words in ([f"{flag}={text}"], ["--set", f"{key}={text}"], ["--config", str(file)], []):
        with monkeypatch.context() as patch:
            if not words:
                patch.setenv(variable, text)
            assert cli.main(["config", "show", "--dir", str(tmp_path / "none"), *words]) == 0
        shown += [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"{key} = ")]
    assert {json.loads(line.split()[2]) for line in shown} == {value} and len(shown) == 4
    for given in (text, float(text)):
        found = getattr(getattr(crawler.configure({section: {name: given}}), section), name)
        assert found == value and isinstance(found, type(value))


# Texts that are hard to read, by the kind of the key.
NUMBERS = (
    "1", "1e2", "", "-1", "-1.0", "0", "-0", "1.5", "５", "NaN", "inf", "99999999999999999999", "1_000", "+5", "5.", ".5",
    "05", "0x10", "1,000", "true", "[1]", "1e400", "10%", "' 1'", " 1 ", "1\nx = 2", "None", "1 # x",
)  # fmt: skip
SIZES = (
    "64MiB", "64mib", " 64 MiB ", "1e6", "", "-1", "0", "1 GB", "６４", "NaN", "inf", "99999999999999999999", "1e400",
    "1_000", "5.", "1e-4 kB", "1,000", "64 M iB", "-0", "1tb", "true", "[1]", "'64MiB'", "0.5", "4611686018427387905",
)  # fmt: skip
TIMES = (
    "5 min", "5MIN", " 5s ", "1e2", "", "-1", "0", "1 hour", "５", "NaN", "99999999999999999999", "1h30m", "1:30",
    "12:30:00", "-0", "1 w", "2026-11-24", "true", "[1]", "0.0001", "PT5M", "500ms", "1e400", ".5", "1_0",
)  # fmt: skip
WORDS = (
    "",
    "x",
    "Host",
    "ANY",
    " any ",
    "\t",
    "ä",
    "a\nb",
    "x" * 70_000,
    "'any'",
    "[1]",
    "true",
    "a,b",
    "\udcff",
)
LISTS = (
    "", "a", " a ", "a,b", "a{1,3}", "[0-9]+", "[1]", "['a', 'b']", '["a,b"]', "['a", "(", "X-A: 1, 2", "x" * 70_000,
    "http://(org,example,", "10.0.0.0/8, ::1/128", "[::1]:53", "p=h:1,q=h:2", "p", "\udcff", "\t", "a\nb",
)  # fmt: skip
AWKWARD = {
    **dict.fromkeys(("crawl.max_pages", "crawl.rate", "crawl.depth", "refresh.share"), NUMBERS),
    **dict.fromkeys(("crawl.max_bytes", "fetch.body_bytes_max"), SIZES),
    **dict.fromkeys(("crawl.max_time", "politeness.delay", "fetch.connect_timeout"), TIMES),
    **dict.fromkeys(("crawl.scope", "identity.contact", "order.name", "fetch.proxy"), WORDS),
    **dict.fromkeys(("serve.allow", "crawl.trace"), WORDS),
    **dict.fromkeys(("filter.include", "crawl.surts", "identity.headers"), LISTS),
    **dict.fromkeys(("network.allow_networks", "network.dns_servers", "serve.peers"), LISTS),
}  # fmt: skip


@cache
def parser_of_config() -> argparse.ArgumentParser:
    return dict(parsers())["config"]


def read_by_all(key: str, text: str, file: Path, patch: pytest.MonkeyPatch) -> dict[str, object]:
    """Return, for each entrance, the value that it reads, or the message without the name of the entrance."""
    section, _, name = key.partition(".")
    variable, flag = f"CRAWLER_{section}__{name}".upper(), flag_of(key)

    def layered(*words: str, environ: Mapping[str, str] = MappingProxyType({})) -> Any:
        args = parser_of_config().parse_args(["show", *words])
        with patch.context() as patched:
            for each, value in environ.items():
                patched.setenv(each, value)
            return options.layers(args).config()

    calls: dict[str, Callable[[], Any]] = {
        "--set": lambda: layered("--set", f"{key}={text}"),
        "environment": lambda: layered(environ={variable: text}),
        "Python": lambda: crawler.configure({section: {name: text}}),
    }
    if flag and text.strip():  # an empty flag is an error of its own
        calls["flag"] = lambda: layered(f"{flag}={text}")
    if is_unicode(text):
        file.write_text(f"[{section}]\n{name} = {json.dumps(text)}\n")
        calls["file"] = lambda: layered("--config", str(file))
    found: dict[str, object] = {}
    for entrance, call in calls.items():
        try:
            found[entrance] = getattr(getattr(call(), section), name)
        except ConfigError as error:
            found[entrance] = said = str(error)[str(error).index(error.key) :]
            assert error.key.startswith(key) or key == "politeness.delay", said
            assert "\n" not in said and len(said) < 300, (key, text[:50], said)
    return found


@pytest.mark.parametrize("key", AWKWARD)
def test_all_entrances_read_awkward_texts_alike(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--set` once divided a regular expression or a header at its commas; a byte that is not UTF-8 gave a traceback."""
    monkeypatch.delenv("CRAWLER_ADMIN__ADDRESS")
    for text in AWKWARD[key]:
        found = read_by_all(key, text, tmp_path / "own.toml", monkeypatch)
        assert len({repr(value) for value in found.values()}) == 1 and len(found) >= 3, (
            key,
            text[:50],
            found,
        )


def test_a_text_is_one_entry_of_a_list_whose_entries_may_contain_commas() -> None:
    def value_of(section: str, name: str, text: object) -> object:
        return getattr(getattr(crawler.configure({section: {name: text}}), section), name)

    for text, entries in (
        ("a{1,3}", ("a{1,3}",)),
        ("[0-9]+", ("[0-9]+",)),
        ("[1]", ("[1]",)),
        ('["a", "b{1,2}"]', ("a", "b{1,2}")),
        (" a ", ("a",)),
        ("", ()),
    ):
        assert value_of("filter", "include", text) == entries
    assert value_of("identity", "headers", "Accept: a, b") == ("Accept: a, b",)
    assert value_of("network", "dns_servers", "9.9.9.9, [::1]:53") == ("9.9.9.9", "[::1]:53")
    assert value_of("network", "dns_servers", "[::1]:53") == ("[::1]:53",)


def test_a_text_in_an_override_is_read_as_in_a_section() -> None:
    """`depth = "3"` was once refused in a table only."""
    table = {
        "match": " a.org ",
        "depth": "3",
        "ignore": "a{1,3}",
        "headers": "X-A: 1, 2",
        "delay": "5 min",
        "render": " never",
    }
    (made,) = crawler.configure({"override": [table]}).override
    assert (made.match, made.depth, made.ignore, made.headers) == ("a.org", 3, ("a{1,3}",), ("X-A: 1, 2",))
    assert (made.delay, made.render, made.pages) == (300.0, "never", None)


def test_overrides_are_given_in_files_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "override.delay: give [[override]] tables in a file of settings\n"
    assert cli.main(["config", "check", "--set", "override.delay=5"]) == 2
    assert capsys.readouterr().err == f"crawler: --set: {said}"
    monkeypatch.setenv("CRAWLER_OVERRIDE__DELAY", "5")
    assert cli.main(["config", "check"]) == 2
    assert capsys.readouterr().err == f"crawler: CRAWLER_OVERRIDE__DELAY: {said}"


def test_a_variable_without_a_section_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """It once gave a traceback."""
    monkeypatch.setenv("CRAWLER__X", "5")
    assert cli.main(["config", "check"]) == 0


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "own.toml"
    file.write_bytes(b"[crawl]\nscope = '\xff'")
    assert cli.main(["config", "check", str(file)]) == 2
    assert capsys.readouterr().err == f"crawler: configuration {file}: the file is not UTF-8 text\n"


def test_a_secret_that_is_not_utf_8_is_not_shown() -> None:
    with pytest.raises(ConfigError, match="the value is not UTF-8 text") as raised:
        crawler.configure({"identity": {"headers": ["Authorization: hunter2\udcff"]}})
    assert "hunter2" not in str(raised.value) and raised.value.key == "identity.headers[0]"


def test_possible_secrets_are_not_shown() -> None:
    with pytest.raises(ConfigError) as raised:
        convert({"identity": {"headers": ["Authorization Bearer hunter2"]}})
    assert "hunter2" not in str(raised.value)


def test_the_line_of_each_key_is_found(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        textwrap.dedent("""\
        seeds = []

        [crawl]  # what
        depth = 1
        [identity]
        headers = [
          "A: 1",
        ]
        [[override]]
        match = "a"
        [[override]]
        depth = 1
        """)
    )
    lines = {
        "seeds": 1, "seeds[0]": 1, "crawl.depth": 4, "crawl.scope": 3, "identity.headers[1]": 6,
        "depth": None, "override[0].match": 10, "override[0].depth": 9,
        "override[1].depth": 12, "override[1].match": 11, "fetch.proxy": None,
    }  # fmt: skip
    assert {key: line_of(file, key) for key in lines} == lines
    assert line_of(tmp_path / "none", "seeds") is None
    # A dotted key below [network] belongs to that section.
    file.write_text("crawl.depth = 1\n[network]\ncrawl.rate = 2\n")
    assert (line_of(file, "crawl.depth"), line_of(file, "crawl.rate")) == (1, None)
