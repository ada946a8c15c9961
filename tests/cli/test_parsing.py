"""Test that after a mistake on the command line, one line suggests what the user probably meant."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from crawler.cli.command_table import COMMANDS
from crawler.cli.completion import SHELLS, parsers
from crawler.cli.flags import FLAGS, GROUPS
from crawler.cli.node import NODE_FLAGS
from crawler.cli.parsing import OptionParser, maybe_empty
from crawler.config.key_words import keys
from tests.end_to_end.web import FAST, Web, crawl, page, run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["crwl"], "no command 'crwl'; did you mean crawl?"),
        (
            ["htp://x.test"],
            "'htp://x.test' is neither a command nor a URL; `crawler --help` lists the commands",
        ),
        (["crawl", "htp//x.test"], "'htp//x.test' is not an http(s) URL"),
        (["example.org"], "did you mean `crawler crawl example.org`?"),
        (["--dir", "x", "crawl"], "flags come after the command"),
        (["crawl", "example.org"], "did you mean https://example.org/ ?"),
        (["crawl", "localhost:8000/a"], "did you mean http://localhost:8000/a ?"),
        (["crawl", "--max-page", "3"], "did you mean --max-pages?"),
        (["crawl", "--max-page=3"], "did you mean --max-pages?"),
        (
            ["crawl", "--items", "teas.csv"],
            "--items (crawler.run): a program with a callback (`crawler new NAME`);",
        ),
        (["crawl", "--where", "status == 200"], "it is a flag of `crawler export`;"),
        (["crawl", "--log-format", "jsn"], "did you mean json?"),
        (["crawl", "--set", "crawl.dept=3"], "did you mean crawl.depth?"),
        (["crawl", "--set", "crawl.body_bytes_max=3"], "did you mean fetch.body_bytes_max?"),
    ],
)
def test_mistakes_give_a_suggestion(tmp_path: Path, arguments: list[str], said: str) -> None:
    ran = run(*arguments, *(["--dir", tmp_path / "crawl"] if arguments[0] == "crawl" else []))
    assert ran.code == 2 and said in ran.err and ran.err.count("\n") == 1, ran
    assert not (tmp_path / "crawl").exists()


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_the_version_is_printed(flag: str) -> None:
    assert run(flag).text.startswith("crawler 0.")


def test_options_and_urls_in_any_order(tmp_path: Path) -> None:
    with Web({path: page(text=path) for path in ("/a", "/b", "/c")}) as web:
        first, *others = (web.url(path) for path in ("/a", "/b", "/c"))
        ran = run("crawl", first, "--dir", tmp_path, others[0], *FAST, others[1])
        assert ran.code == 0 and sorted(web.paths()) == ["/a", "/b", "/c"]


def test_report_to_standard_output(tmp_path: Path) -> None:
    """Only the report goes to standard output, so a program can read it. `refresh` once added its summary."""
    with Web({"/": page()}) as web:
        for words in (["crawl", web.url(), *FAST], ["refresh", "--max-time", "0.2", "--progress", "none"]):
            ran = run(*words, "--dir", tmp_path, "--report", "-")
            assert json.loads(ran.out)["pages"]["fetched"] == 1


@pytest.mark.parametrize("command", ["crawl", "refresh", "node"])
def test_a_report_file_is_checked_before_the_run(tmp_path: Path, command: str) -> None:
    """`crawler node` once found only at its end that it could not write its report."""
    ran = run(command, "--dir", tmp_path / "crawl", "--report", tmp_path / "none" / "report.json")
    assert ran.code == 2 and ran.err.startswith("crawler: --report "), ran


def test_cached_reuses_the_answers_of_earlier_runs(tmp_path: Path) -> None:
    """`--cached` also works with several processes. `--cached` applies to only one run and is not saved."""
    directory = tmp_path / "crawl"
    with Web({"/": page("/a"), "/a": page()}) as web:
        command = ("crawl", web.url(), "--dir", directory, *FAST)
        assert run(*command).code == 0
        asked = len(web.asked)
        again = run(*command, "--cached")
        assert again.code == 0 and "2 pages fetched" in again.text and f"moved to {directory}.1" in again.err
        assert "from earlier runs: 3 answers, without a request\n" in again.text
        assert "3 answers of earlier runs" in run("status", "--dir", directory).text
        again = run(*command, "--cached")
        assert again.code == 0 and "moved" not in again.err
        assert run(*command, "--cached", "--processes", "2").code == 0
        assert len(web.asked) == asked
        assert sorted(each.name for each in tmp_path.iterdir()) == ["crawl", "crawl.1"]
        assert run("crawl", "--dir", directory, "--timestamping", "--processes", "2").code == 0
        assert len(web.asked) > asked


def test_a_finished_crawl_says_so_and_fresh_starts_a_new_one(tmp_path: Path) -> None:
    directory = tmp_path / "crawl"
    with Web({"/": page()}) as web:
        crawl(directory, web.url())
        again = run("crawl", web.url(), "--dir", directory, *FAST)
        assert "complete; known pages are not fetched again" in again.text and web.paths() == ["/"]
        fresh = run("crawl", web.url(), "--dir", directory, "--fresh", *FAST)
        assert f"moved to {directory}.1" in fresh.err and web.paths() == ["/", "/"]


@pytest.mark.parametrize("flag", ["--fresh", "--cached"])
@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ([], "nothing to crawl: give URLs or --seeds FILE"),
        (["--seeds", "missing.txt"], "--seeds missing.txt: No such file or directory"),
        (["http://localhost/", "--set", "crawl.depth=x"], "crawl.depth"),
        (["http://localhost/", "--data", "a=b"], "--data: needs --login URL"),
        (["http://localhost/", "--set", "fetch.cookies_file=missing.txt"], "missing.txt"),
    ],
)
def test_a_mistake_leaves_the_existing_crawl_in_its_place(
    tmp_path: Path, flag: str, mistake: list[str], said: str
) -> None:
    """`--fresh` and `--cached` move the crawl only after all arguments were checked."""
    seed = tmp_path / "crawl" / "seed"
    seed.parent.mkdir()
    seed.write_text("00" * 16)
    ran = run("crawl", "--dir", seed.parent, flag, *mistake)
    assert ran.code == 2 and said in ran.err and ran.err.count("\n") == 1, ran
    assert list(tmp_path.iterdir()) == [seed.parent] and list(seed.parent.iterdir()) == [seed]


def test_a_denied_address_suggests_the_flag(tmp_path: Path) -> None:
    ran = run("crawl", "http://10.1.2.3/", "--dir", tmp_path, "--progress", "none")
    assert ran.code == 4 and "--allow-network 10.1.2.3/32 allows it" in ran.err


def test_a_proxy_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    ran = run(
        "crawl",
        "http://x.test/",
        "--dir",
        tmp_path,
        "--proxy",
        "http://127.0.0.1:1",
        *FAST,
        "--patience",
        "0",
    )
    assert ran.code == 4 and "the proxy does not answer" in ran.err


def test_a_429_is_reported(tmp_path: Path) -> None:
    with Web({"/": (429, {"Retry-After": "900"}, "")}) as web:
        ran = run("crawl", web.url(), "--dir", tmp_path, *FAST, "--patience", "0")
    assert ran.code == 4 and "server busy" in ran.err


# -- output generated from the parsers: help, completion, manual pages ---------------


def test_each_command_has_its_parser() -> None:
    assert {name for name, _ in parsers()} == COMMANDS.keys() - {"lab", "bench"}


def _flags_of(command: str) -> set[str]:
    return set(dict(parsers())[command]._option_string_actions)


def test_a_command_has_only_flags_with_an_effect() -> None:
    every = {flag.name for flags in FLAGS.values() for flag in flags}
    assert every <= _flags_of("crawl") and every <= _flags_of("config")
    assert every - _flags_of("node") == {"--processes"}
    assert every - _flags_of("refresh") == {"--timestamping", "--patience"}
    assert not {"--scope", "--max-pages", "--processes", "--serve"} & _flags_of("shell")
    assert not {"--config", "--set"} & (_flags_of("status") | _flags_of("export") | _flags_of("pause"))


@pytest.mark.parametrize("command", sorted(name for name, _ in parsers()))
def test_the_examples_of_the_help_are_valid_and_indented(command: str) -> None:
    """An example of `crawler serve --help` once stood at the margin. The examples of `plan` are in its description."""
    parser = dict(parsers())[command]
    _, found, text = (parser.epilog or "").partition("example:\n")
    lines = (
        text.replace("\\\n", "  ").splitlines()
        if found
        else re.findall(r"^    .*", parser.description or "", re.M)
    )
    assert lines and all(line.startswith("  ") for line in lines), lines
    for example in " && ".join(lines).split(" && "):
        words = shlex.split(re.split(r" > | \| | &$", example)[0], comments=True)
        if words[0] == "crawler" and words[1] in dict(parsers()):
            dict(parsers())[words[1]].parse_args(words[2:])


@pytest.mark.parametrize("command", ["crawl", "refresh", "node"])
def test_help_shows_flags_in_groups(command: str) -> None:
    lines = run(command, "--help").text.splitlines()
    shown = [line.removesuffix(":") for line in lines if line.removesuffix(":") in GROUPS]
    assert shown == list(GROUPS)
    assert lines[0].startswith(f"usage: crawler {command} [options]") and "options:" not in lines


def test_a_flag_that_a_command_does_not_have_is_refused() -> None:
    assert "unrecognized arguments: --processes" in run("node", "--processes", "2").err


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_names_commands_and_flags(shell: str) -> None:
    text = run("completion", shell).text
    assert all(name in text for name in COMMANDS) and "max-pages" in text
    assert all(key in text for key in keys()) and "blake2b" in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["cr"], {"crawl"}),
        (["crawl", "--max"], {"--max-pages", "--max-time", "--max-bytes"}),
        (["crawl", "--scope", "do"], {"domain"}),
        (["crawl", "--scope", "=", "do"], {"domain"}),
        (["crawl", "--set", "politeness.delay_"], {"politeness.delay_factor=", "politeness.delay_max="}),
        (["crawl", "--set", "robots.policy", "="], {"obey", "ignore"}),
        (["refresh", "--set", "crawl.requisites", "=", "t"], {"true"}),
        (["set", "crawl.ra"], {"crawl.rate="}),
        (["set", "log.level", "=", "w"], {"warning"}),
        (["completion", ""], set()),
    ],
)
def test_bash_completes(tmp_path: Path, words: list[str], expected: set[str]) -> None:
    (tmp_path / "comp").write_text(run("completion", "bash").text)
    quoted = " ".join(f'"{word}"' for word in ["crawler", *words])
    script = (
        f'source comp; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _crawler; echo "${{COMPREPLY[@]}}"'
    )
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert ran.stderr == "" and expected <= set(ran.stdout.split())
    assert len(expected) != 1 or expected == set(ran.stdout.split())


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_manual_pages_are_generated(name: str) -> None:
    ran = run("man", *([name] if name else []))
    assert ran.code == 0 and ran.text.startswith(".TH") and ".SH NAME" in ran.text


def test_shell_prints_an_expression(tmp_path: Path) -> None:
    settings = ("--allow-network", "127.0.0.0/8", "--set", "due.max_wait=0.05")
    with Web({"/": page(text="Tea")}) as web:
        ran = run("shell", web.url(), "-c", "css('title').text", *settings)
        assert ran.code == 0 and ran.text == "Tea\n", ran
        assert run("shell", web.url(), "-c", "xpath('//title/text()').get()", *settings).text == "Tea\n"
        assert run("shell", web.url(), "-c", "css('a[')", *settings).code == 1
        for code, said in (
            ("css(", "SyntaxError"),
            ("n = 1; n / 0", "ZeroDivisionError"),
            ("n", "NameError"),
        ):
            ran = run("shell", web.url(), "-c", code, *settings)
            assert ran.code == 1 and ran.err.startswith(said) and ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lab", "cahce"], "did you mean cache?"),
        (["lab", "cache", "--polices", "x"], "did you mean --policies?"),
        (["bench", "du"], "did you mean due?"),
        (["bench", "due", "--lnks", "3"], "did you mean --links?"),
    ],
)
def test_suggestions_include_subcommands(words: list[str], said: str) -> None:
    ran = run(*words)
    assert ran.code == 2 and said in ran.err and len(ran.err.splitlines()) == 1


def test_hints_can_be_pasted(tmp_path: Path) -> None:
    """Wherever a hint contains a command, a directory with a blank in its name is quoted."""
    directory = tmp_path / "my crawl"
    with Web({"/": page("/a"), "/a": "a"}) as web:
        ran = run("crawl", web.url(), "--dir", directory, *FAST, "--max-pages", "1")
        assert f"continue with: crawler crawl --dir '{directory}'" in ran.text
        assert f"pages: '{directory}'/*/warc" in ran.text
        run("crawl", "--dir", directory, *FAST)
        again = run("crawl", "--dir", directory, *FAST)
        assert (again.text + again.err).count("known pages are not fetched again") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["export", "--format", "jsonl", "--part-size", "big"],
            "--part-size: expected a size such as 4096 or \"10 MiB\", got 'big'",
        ),
        (["report", "--limit", "1.5"], "--limit: expected a whole number, got '1.5'"),
        (["report", "--limit", "x"], "--limit: expected a whole number, got 'x'"),
        (["report", "--limit", "0"], "--limit: expected a whole number >= 1, got 0"),
        (["top", "--count", "-1"], "--count: expected a whole number >= 0, got -1"),
        (["top", "--interval", "nan"], "--interval: expected a finite number, got nan"),
        (["check", "--processes", "0"], "--processes: expected a whole number >= 1, got 0"),
        (
            ["export", "--format", "text", "--processes", "0"],
            "--processes: expected a whole number >= 1, got 0",
        ),
        (["status", "--hosts", "-1"], "--hosts: expected a whole number >= 0, got -1"),
        (["why", "http://localhost/", "--search", "-1"], "--search: expected a whole number >= 0, got -1"),
        (["plan", "--pages", "x"], "--pages: expected a number, got 'x'"),
        (["plan", "--pages", "nan"], "--pages: expected a finite number, got nan"),
        (["plan", "--pages", "0"], "--pages: expected a number > 0, got 0"),
        (
            ["crawl", "http://localhost/", "--max-pages", "x"],
            "--max-pages: crawl.max_pages: expected a whole number, got 'x'",
        ),
        (["report", "--fail-on", ","], "--fail-on: ',' names no check"),
        (["export", "--format", "zip"], "--format: 'zip' is not one of warc, cdxj, "),
        (["get", "http://a.example/", "--allow", "\udcff"], "--allow: '\\udcff' is not one of search"),
        (["export", "--format", "jsonl", "--where", "\udcff"], "--where: the value is not UTF-8 text"),
        (["withdraw", "http://a.example/", "--reason", "\udcff"], "--reason: the value is not UTF-8 text"),
        (["status", "--hosts", "５"], "--hosts: expected a whole number, got '５'"),
        (["status", "--hosts", "x" * 5000], f"--hosts: expected a whole number, got '{'x' * 40}'...; "),
        (["bench", "nope"], "command: 'nope' is not one of cache, due, "),
        (["bench", "units", "--pages", "3"], "--pages: expected a whole number >= 100, got 3"),
        (["bench", "due", "--known", "x"], "--known: expected a whole number, got 'x'"),
        (["lab", "order", "--orders", "depth,nope"], "--orders: 'nope' is not one of oracle, "),
        (["lab", "order", "--quality", ","], "--quality: ',' is not one of "),
        (["lab", "order", "--seeds", "0"], "--seeds: expected a whole number >= 1, got 0"),
        (["lab", "cache", "--policies", "nope"], "--policies: 'NOPE' is not one of INFINITE, "),
        (["lab", "refresh", "--policies", "nope"], "--policies: 'nope' is not one of baseline, "),
        (["lab", "refresh", "--corrupt", "2"], "--corrupt: expected a number <= 1, got 2"),
        (["lab", "cluster", "--faults", "nope"], "--faults: 'nope' is not one of kill, "),
        (["lab", "cluster", "--count", "5000"], "--count: expected a whole number <= 1,000, got 5,000"),
        (["lab", "worlds", "nope"], "WORLD: 'nope' is not one of "),
        (["lab", "league", "--data", "x", "--arms", "nope"], "--arms: 'nope' is not one of "),
        (["lab", "figures", "nope"], "FIGURE: 'nope' is not one of ncis-3, "),
        (["lab", "figures", "ncis-3", "--dpi", "1"], "--dpi: expected a whole number >= 10, got 1"),
        (["lab", "web", "--port", "99999"], "--port: expected a whole number <= 65,535, got 99,999"),
        (["lab", "trace", "synth", "x", "--threads", "0"], "--threads: expected a whole number "),
    ],
)
def test_a_wrong_value_is_named_with_its_flag(words: list[str], said: str) -> None:
    """All commands describe wrong numbers and names in the words of the settings."""
    ran = run(*words)
    assert ran.code == 2 and f"crawler: {said}" in ran.err and len(ran.err.splitlines()) == 1, ran


@pytest.mark.parametrize(
    "words",
    [
        ["crawl", "http://localhost/", "--dir", ""],
        ["crawl", "http://localhost/", "--dir="],
        ["crawl", ""],
        ["report", "--fail-on", ""],
        ["report", "--compare", ""],
        ["export", "--format", "jsonl", "--where", ""],
        ["get", "http://localhost/", "-o", ""],
        ["new", ""],
    ],
)
def test_a_value_that_is_empty_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """An unset shell variable once made `crawler crawl --dir "$DIR"` crawl into the current folder.

    With an empty `--fail-on`, `report` checked nothing and ended with exit code 0.
    """
    monkeypatch.chdir(tmp_path)
    ran = run(*words)
    assert ran.code == 2 and "the value is empty; " in ran.err and ran.err.count("\n") == 1, ran
    assert not [*tmp_path.iterdir()]


def test_help_says_which_value_means_no_limit_as_the_default_configuration_does(tmp_path: Path) -> None:
    """The flags with such a value are accepted with it, and then limit nothing."""
    text = (Path(__file__).resolve().parents[2] / "config" / "default.toml").read_text()
    comments = {
        key: re.search(rf"^{key} = .*# .*?(-1|0) = no limit", text, re.M)
        for key in (flag.key.split(".")[1] for flags in FLAGS.values() for flag in flags)
    }
    unlimited = []
    for flag in (flag for flags in FLAGS.values() for flag in flags):
        found = comments[flag.key.split(".")[1]]
        assert (found is not None) == ("no limit" in flag.help), flag
        if found is not None:
            assert f"{found[1]}: no limit" in flag.help, flag
            unlimited += [flag.name, found[1]]
    assert "--max-pages" in unlimited and "--depth" in unlimited
    with Web({"/": page("/a"), "/a": page("/b"), "/b": page()}) as web:
        assert run("crawl", web.url(), "--dir", tmp_path, *FAST, *unlimited).code == 0
        assert sorted(web.paths()) == ["/", "/a", "/b"]


def test_only_passwords_and_keys_may_be_empty() -> None:
    """The check of a key decides whether its value may be empty: `--contact ""` removes a stored contact."""
    found = {
        action.option_strings[0]
        for _, parser in parsers()
        for action in parser._actions
        if action.type is maybe_empty
    }
    assert found == {"--http-password"} | {
        flag.name for flags in (*FLAGS.values(), NODE_FLAGS) for flag in flags if flag.metavar is not None
    }


@pytest.mark.parametrize("pattern", ["", "(", "a{99999999999999}", "(" * 500 + ")" * 500])
@pytest.mark.parametrize("key", ["filter.include", "filter.exclude", "pages.ignore"])
def test_a_pattern_that_cannot_be_compiled_is_reported_in_one_line(
    tmp_path: Path, key: str, pattern: str
) -> None:
    """A repetition count that is too large once ended `crawler crawl` with a traceback."""
    ran = run("crawl", "http://localhost/", "--dir", tmp_path / "crawl", "--set", f'{key}=["{pattern}"]')
    assert ran.code == 2 and key in ran.err and ran.err.count("\n") == 1, ran
    assert not (tmp_path / "crawl").exists()


@pytest.mark.parametrize(
    "command", ["status", "report", "export --format jsonl", "refresh", "serve", "crawl http://localhost/"]
)
def test_a_directory_that_cannot_be_read_is_named(tmp_path: Path, command: str) -> None:
    """The file system refuses so long a name, as it refuses a directory that belongs to another user."""
    ran = run(*command.split(), "--dir", tmp_path / ("x" * 300))
    assert ran.code == 3 and ran.err.count("\n") == 1
    assert ran.err.rstrip().endswith("xxx: cannot be read: File name too long")


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "refresh",
        "serve",
        "report",
        "withdraw --list",
        "ship",
        "reshard --to 2",
        "recover p1",
        "set log.level=info",
    ],
)
def test_a_directory_without_a_crawl_is_named(tmp_path: Path, command: str) -> None:
    (tmp_path / "file").touch()
    for name, said in (("missing", "no crawl here"), ("", "no crawl here"), ("file", "is a file")):
        ran = run(*command.split(), "--dir", tmp_path / name)
        assert ran.code == 3 and ran.err.count("\n") == 1 and "[Errno" not in ran.err
        assert said in ran.err


def test_an_option_has_the_type_of_its_default() -> None:
    parser = OptionParser(prog="x")
    for default in (False, [], 3, 20_000, 0.5, "all", 0, Path("here"), Path, int):
        parser.option(f"--o{len(parser._actions)}", default, "text")
    parser.option("--said", 5, "text (always)")
    parser.option("--kind", "a", "text", choices=("a", "b"))
    shown = {
        line.split()[0]: " ".join(line.split()[1:])
        for line in parser.format_help().splitlines()
        if "text" in line
    }
    assert shown == {
        "--o1": "text",
        "--o2": "O2 text",
        "--o3": "N text (3)",
        "--o4": "N text (20,000)",
        "--o5": "X text (0.5)",
        "--o6": "O6 text (all)",
        "--o7": "N text",
        "--o8": "FILE text (here)",
        "--o9": "FILE text",
        "--o10": "N text",
        "--said": "N text (always)",
        "--kind": "{a,b} text (a)",
    }
    bare, given = (
        parser.parse_args([]),
        parser.parse_args(
            ["--o1", "--o2", "a", "--o2", "b", "--o3", "4", "--o5", "2", "--o8", "there", "--o10", "7e0"]
        ),
    )
    assert (bare.o1, bare.o2, bare.o5, bare.o8, bare.o9, bare.said) == (False, [], 0.5, Path("here"), None, 5)
    assert (given.o1, given.o2, given.o3, given.o5, given.o8, given.o10) == (
        True,
        ["a", "b"],
        4,
        2.0,
        Path("there"),
        7,
    )
