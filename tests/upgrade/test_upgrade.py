"""Test that every command opens directories made by earlier commits, and that their crawls continue."""

import os
import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler import cli
from crawler.cli import access
from crawler.clock import VirtualClock
from crawler.config import convert
from crawler.crawl.directory import FORMAT, CrawlDirectory
from crawler.crawl.immutable_settings import load_immutable
from crawler.crawl.journal import BUILT, Journal, keep_journal, load_journal
from crawler.errors import BusyError, ConfigError, DamageError, DirectoryError
from crawler.pages.captures import unpack_record
from crawler.process.opening.stages import at_rest
from crawler.splitter.partition import Partition
from crawler.storage.commit import load_counters
from crawler.storage.engines import open_store
from crawler.storage.files import Lock
from crawler.storage.keys import DUE_RUNS, KEPT, PAGE, STATE
from crawler.storage.kv import scan_prefix
from crawler.storage.reshard import load, pack
from crawler.upgrade.former_settings import DROPPED
from crawler.upgrade.ready import FORMER_JOURNAL, ready
from crawler.upgrade.steps import STEPS
from tests.end_to_end.test_live import ask, serving
from tests.end_to_end.web import Web
from tests.faults.every_write import run
from tests.upgrade.support import FORMER, PARTLY_UPGRADED, unpacked

HOSTS = ("a.test", "b.test", "c.test")
# For each command of `crawler` that opens a crawl at rest: the arguments of its runs.
COMMANDS: dict[str, list[list[str]]] = {
    "crawl": [["--dry-run", "-q"]],
    "refresh": [["--max-time", "0.1", "-q", "--progress", "none", "--proxy", "http://127.0.0.1:9"]],
    "status": [["--json"]],
    "why": [["http://a.test/0"]],
    "get": [["http://a.test/"]],
    "report": [["--format", "json"]],
    "export": [["--format", "jsonl"]],
    "check": [[], ["--repair"]],
    "seed": [["http://a.test/new"]],
    "signal": [["http://a.test/0"]],
    "block": [["a.test"]],
    "unblock": [["a.test"]],
    "retire": [["/22$"]],
    "withdraw": [["http://a.test/0"]],
    "set": [["politeness.delay=0"]],
    "reshard": [["--to", "3", "-q"]],
    "config": [["show"]],
    "ship": [["--to", "file:///{folder}/shipped", "-q"]],
}
# The other commands, with the reason why they are not run here.
OTHERS = {
    "serve": "it runs until it is stopped; see `test_a_page_server_opens_an_old_directory`",
    "recover": "it needs a lost folder, and opens the others as `reshard` does",
    "node": "it needs peers, and opens its directory as `crawl` does",
    **dict.fromkeys(("pause", "resume", "stop", "top"), "they ask a running crawl"),
    **dict.fromkeys(("demo", "new", "shell", "lab", "bench"), "they open no existing crawl"),
    **dict.fromkeys(("completion", "man", "plan"), "they open no crawl"),
    "key": "it reads only the key",
}
RUNS = [(command, *words) for command, runs in COMMANDS.items() for words in runs]
# These commands do not change the upgraded directory, so it is enough to run `check` once, after `status`.
READERS = ("why", "get", "report", "export", "config", "check")
# All commands upgrade a directory by the same function. So each command opens every ninth directory, and each
# directory is opened by every ninth command.
OPENED = [
    (name, words)
    for row, name in enumerate([*FORMER, *PARTLY_UPGRADED])
    for column, words in enumerate(RUNS)
    if (row + column) % 9 == 0
]


def test_each_command_is_run_or_has_a_reason_not_to_be() -> None:
    assert COMMANDS.keys() | OTHERS.keys() == cli.COMMANDS.keys() and not COMMANDS.keys() & OTHERS.keys()


def site() -> Web:
    """Return a web of all three hosts as it was when the directories were made."""
    routes: dict[str, Any] = {
        "/robots.txt": (200, {"Content-Type": "text/plain"}, "User-agent: *\nDisallow: /private\n")
    }
    names = ["", *(a for a in "012"), *(a + b for a in "012" for b in "012")]
    names += [name + last for name in names if len(name) == 2 for last in "012"]
    for host in HOSTS:
        for name in names:
            links = "".join(f'<a href="/{name}{last}">' for last in "012") if len(name) < 3 else ""
            routes[f"{host}/{name}"] = f"<title>{host} {name}</title>{links}<p>{host}/{name}"
    return Web(routes)


def stored(directory: Path) -> dict[str, str]:
    """Return the state of each URL that the crawl in a directory at rest has tried."""
    found = {}
    for path in sorted(directory.glob("*/store")):
        with closing(open_store(path)) as store:
            for key, value in scan_prefix(store, PAGE):
                record = unpack_record(key, value)
                found[record.url] = str(record.state)
    return found


@pytest.mark.parametrize(("name", "words"), OPENED)
def test_every_command_opens_an_old_directory(
    name: str, words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = unpacked(name, tmp_path)
    code = cli.main([word.format(folder=tmp_path) for word in (*words, "--dir", str(directory))])
    out, err = capsys.readouterr()
    assert code == 0, (out, err)
    assert CrawlDirectory(directory).format() == FORMAT
    if words[0] not in READERS:
        assert cli.main(["check", "--dir", str(directory)]) == 0, capsys.readouterr()


@pytest.mark.parametrize("name", FORMER[::4])
def test_a_page_server_opens_an_old_directory(name: str, tmp_path: Path) -> None:
    with serving(unpacked(name, tmp_path)) as port:
        assert ask(port, "/page?url=http://a.test/")[0] == 200


@pytest.mark.parametrize("name", [*FORMER, *PARTLY_UPGRADED])
def test_the_crawl_continues(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Stored pages are not fetched again, and all other pages are fetched."""
    directory = unpacked(name, tmp_path)
    copy = Path(shutil.copytree(directory, tmp_path / "copy"))
    ran = run(copy, stored, copy)
    assert ran is not None
    before = {url for url, state in ran.result.items() if state == "stored"}
    with site() as web:
        words = ["--proxy", f"http://127.0.0.1:{web.port}", "--depth", "-1", "--patience", "1", "-q"]
        code = cli.main(
            ["crawl", "--dir", str(directory), *words, "--progress", "none", "--set", "refresh.share=0"]
        )
        asked = [f"http://{each.host}{each.path}" for each in web.asked if each.path != "/robots.txt"]
    assert code == 0, capfd.readouterr()
    # If the crawl was killed, pages that were in flight are fetched again.
    assert not before & set(asked) and len(asked) == len(set(asked))
    pages = {f"http://{key}" for key in web.routes if not key.startswith("/")}
    ran = run(directory, stored, directory)
    assert ran is not None
    after = {url for url, state in ran.result.items() if state == "stored"}
    assert pages <= after, sorted(pages - after)
    assert cli.main(["check", "--dir", str(directory)]) == 0, capfd.readouterr()


def test_each_dropped_setting_is_logged_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A dropped setting in a configuration file of the user is logged in the same way as one in crawl.toml.

    `due.method = "runs"` is dropped without a line, because the known URLs are in runs now, too.
    """
    directory = CrawlDirectory(unpacked("2026-11-21-8b1fd0a", tmp_path))
    was = directory.settings.load_former()
    ready(directory)
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == 2 and all("was removed and is ignored" in line for line in lines), lines
    assert convert(directory.settings.load()).politeness.delay == 0.0 == was["politeness"]["delay"]
    assert directory.settings.places() == ["a.test"]
    caplog.clear()
    ready(directory)
    assert not caplog.records
    own = tmp_path / "own.toml"
    own.write_text("[hooks]\nsink_errors = 'stop'\n")
    assert cli.main(["config", "check", str(own)]) == 0
    assert [key for key in DROPPED if key in caplog.text] == ["hooks.sink_errors"]


def test_marks_in_the_store_are_upgraded(tmp_path: Path) -> None:
    """The number of clean shutdowns becomes the state number.

    Records are counted, and immutable settings are saved.
    """
    for name in ("2026-11-22-1b5de44", "2026-11-21-8b1fd0a"):
        directory = CrawlDirectory(unpacked(name, tmp_path / name))
        ready(directory)
        with closing(open_store(directory.process("p0") / "store")) as store:
            assert (store.get(STATE) is not None) == (name == "2026-11-22-1b5de44")
            counters = load_counters(store)
            kept = {each: sum(1 for _ in scan_prefix(store, prefix)) for each, prefix in KEPT.items()}
            assert {each: counters[each] for each in kept} == kept and min(kept.values()) > 5
            assert load_immutable(store)["urls.partition"] == "domain"


@pytest.mark.parametrize(
    "name", ["2026-11-21-8b1fd0a-two", "2026-11-21-8b1fd0a-killed", "2026-11-22-1b5de44"]
)
def test_an_upgrade_that_was_killed_is_completed(name: str, tmp_path: Path) -> None:
    """The upgrade is killed before each of its writes and repeated, so some writes happen twice."""
    directory = unpacked(name, tmp_path)
    alone = run(directory, upgrade, directory)
    assert alone is not None and alone.writes > 10
    ran = run(directory, stored, directory)
    assert ran is not None
    whole = ran.result
    step = int(os.environ.get("CRAWLER_KILLS", alone.writes // 4))
    for kill_at in range(step // 2 + 1, alone.writes + 1, step):
        shutil.rmtree(directory)
        unpacked(name, tmp_path)
        assert run(directory, upgrade, directory, kill_at=kill_at) is None, kill_at
        run(directory, upgrade, directory, kill_at=kill_at // 2 + 1)
        assert run(directory, upgrade, directory) is not None
        ran = run(directory, stored, directory)
        assert ran is not None and ran.result == whole, kill_at
        checked = run(directory, cli.main, ["check", "--dir", str(directory), "-q", "--processes", "1"])
        assert checked is not None and checked.result == 0, kill_at


def upgrade(directory: Path) -> None:
    ready(CrawlDirectory(directory))


def test_a_newer_format_is_refused_by_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message is one line, the exit code is 3, and no file is changed."""
    directory = unpacked("2026-11-22-1b5de44", tmp_path)
    CrawlDirectory(directory).note_format(FORMAT + 1)
    for name, *words in (*RUNS, ("crawl", "http://a.test/"), ("serve", "127.0.0.1:0")):
        assert cli.main([name, *words, "--dir", str(directory)]) == 3, name
        out, err = capsys.readouterr()
        assert f"written by a newer crawler in format {FORMAT + 1}" in err and err.count("\n") == 1, (
            name,
            out,
            err,
        )
    assert CrawlDirectory(directory).format_file.read_bytes().startswith(b"%d " % (FORMAT + 1))


def test_a_repair_rewrites_an_unreadable_format_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = CrawlDirectory(unpacked("2026-11-22-1b5de44", tmp_path))
    ready(directory)
    directory.format_file.write_bytes(b"3 00000000\n")
    assert cli.main(["check", "--dir", str(directory.path)]) == 3
    assert "check --repair` rewrites it" in capsys.readouterr().err
    assert cli.main(["check", "--dir", str(directory.path), "--repair"]) == 0
    assert directory.format() == FORMAT


def test_a_damaged_store_is_repaired_before_the_upgrade(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = unpacked("2026-11-21-8b1fd0a-two", tmp_path)
    (directory / "p1" / "store" / "CURRENT").unlink()
    assert cli.main(["status", "--dir", str(directory)]) == 3
    assert "check --repair" in capsys.readouterr().err
    assert cli.main(["check", "--dir", str(directory), "--repair"]) == 0, capsys.readouterr()
    assert cli.main(["check", "--dir", str(directory)]) == 0


def test_a_crawl_running_under_an_earlier_version_is_not_upgraded(tmp_path: Path) -> None:
    directory = CrawlDirectory(unpacked("2026-11-22-1b5de44", tmp_path))
    with (
        Lock(directory.process("p0") / "node.lock", "p0"),
        pytest.raises(BusyError, match="its format is 0; it is upgraded when no process uses it"),
    ):
        ready(directory)
    assert directory.format() == 0


def test_an_interrupted_reshard_is_completed_before_the_upgrade(tmp_path: Path) -> None:
    """A reshard of that version was killed after it had decided. Its journal has a former name."""
    directory = CrawlDirectory(unpacked("2026-11-22-1b5de44", tmp_path))
    (directory.path / BUILT).mkdir()
    directory.process("p0").rename(directory.path / BUILT / "p0")
    table = Partition.equal_ranges(("p0",), epoch=1).encode().decode()
    facts = {"old": ["p0"], "new": ["p0"], "config": directory.settings.file.read_text(), "table": table}
    (directory.path / FORMER_JOURNAL).write_bytes(msgspec.json.encode(facts))
    ready(directory)
    assert directory.format() == FORMAT and load_journal(directory.path) is None
    assert directory.process_names() == ["p0"] and not (directory.path / BUILT).exists()


def test_the_journal_of_a_reshard_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    directory = CrawlDirectory(tmp_path / "crawl")
    directory.create()
    keep_journal(directory.path, Journal("reshard"))
    with pytest.raises(DamageError, match="journal.json: cannot be read"):
        ready(directory)


@pytest.mark.parametrize(
    ("journal", "remedy"),
    [
        (Journal("repair", facts={"p0": True}), "check --repair` continues"),
        (Journal("recover", "p1"), "crawler recover p1` continues"),
        (Journal("withdraw"), "crawler withdraw` continues"),
    ],
)
def test_only_the_interrupted_command_may_continue(tmp_path: Path, journal: Journal, remedy: str) -> None:
    directory = CrawlDirectory(tmp_path / "crawl")
    directory.create()
    keep_journal(directory.path, journal)
    with pytest.raises(DirectoryError, match=f"was interrupted; .*{remedy}"):
        ready(directory)
    with pytest.raises(DirectoryError):
        ready(directory, journal.command, "p7")
    with (
        Lock(directory.path / "supervisor.lock", journal.command),
        pytest.raises(BusyError, match=f"in progress; .* in use by process {journal.command} "),
    ):
        ready(directory)
    ready(directory, journal.command, journal.subject)


def test_there_is_a_test_directory_for_every_format(tmp_path: Path) -> None:
    """Each new upgrade step needs a test directory in the format that it upgrades."""
    names = [*FORMER, *PARTLY_UPGRADED]
    formats = {CrawlDirectory(unpacked(name, tmp_path / name)).format() for name in names}
    assert formats == set(range(FORMAT + 1)) and len(STEPS) == FORMAT


def test_settings_are_read_only_after_the_upgrade(tmp_path: Path) -> None:
    directory = CrawlDirectory(unpacked("2026-11-22-1b5de44", tmp_path))
    with pytest.raises(DirectoryError, match="format 0, and was not upgraded"):
        directory.settings.load()


def test_a_damaged_plain_run_keeps_its_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After the upgrade, opening the store refuses the damaged run, and a repair rewrites the run."""
    directory = unpacked("2026-11-21-8b1fd0a", tmp_path)
    run_file = max(directory.glob("p0/due/*.run"))
    data = bytearray(run_file.read_bytes())
    data[3] ^= 1
    run_file.write_bytes(data)
    with pytest.raises(DamageError, match="unknown coding 0"):
        ready(CrawlDirectory(directory))
        access.ask(directory, {"command": "status", "hosts": 0})
    assert f"{run_file.name}: its checksum is wrong" in caplog.text
    assert cli.main(["check", "--dir", str(directory), "--repair"]) == 0
    assert cli.main(["check", "--dir", str(directory)]) == 0


def test_a_harmful_former_default_is_replaced(tmp_path: Path) -> None:
    directory = CrawlDirectory(unpacked("2026-11-22-1b5de44", tmp_path))
    assert "clock_min = 604800" in directory.settings.file.read_text()
    ready(directory)
    assert convert(directory.settings.load()).refresh.clock_min == 60.0


def test_a_share_of_0_that_was_the_default_is_replaced(tmp_path: Path) -> None:
    """`crawler refresh` goes on to compare the values of fetches."""
    directory = CrawlDirectory(unpacked("2026-11-22-93aa052-refreshed:7", tmp_path))
    assert "share = 0" in directory.settings.file.read_text()
    ready(directory)
    assert convert(directory.settings.load()).refresh.share == "default"


def test_a_value_above_a_new_limit_is_lowered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once, a longer `urls.length_max` applied to links, but not to typed URLs, exports and redirects of robots.txt."""
    directory = CrawlDirectory(unpacked("2026-11-22-93aa052-refreshed:6", tmp_path))
    text = directory.settings.file.read_text()
    former = text.replace("length_max = 8192", "length_max = 9000").replace(
        "[fetch]", "[fetch]\ncontent_codings_max = 3"
    )
    directory.settings.file.write_text(former)
    ready(directory)
    assert convert(directory.settings.load()).urls.length_max == 8192
    assert caplog.text.count("it is lowered") == caplog.text.count("content_codings_max was removed") == 1
    with pytest.raises(ConfigError, match="urls.length_max"):
        convert({"urls": {"length_max": 9000}})


def test_a_due_in_memory_becomes_a_run_on_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A crawl whose known URLs were kept in memory knows all of them after the upgrade, and continues."""
    directory = CrawlDirectory(unpacked("2026-11-23-a6645cb-refreshed", tmp_path))
    settings = directory.settings.file
    settings.write_text(settings.read_text().replace('method = "runs"', 'method = "memory"'))
    with closing(open_store(directory.process("p0") / "store")) as store:
        method, check_value, _, runs = load(store, DUE_RUNS, list[Any], [])
        batch = store.batch(sync=True)
        batch.put(DUE_RUNS, pack([method, check_value, True, []]))
        store.write(batch)
        known = {int.from_bytes(key[2:], "big") for key, _ in scan_prefix(store, PAGE)}
    ready(directory)
    assert "the setting due.method was removed and is ignored" in caplog.text
    with at_rest(convert(directory.settings.load()), directory, "p0", clock=VirtualClock()) as stages:
        assert runs and known and all(each in stages.due.known_set for each in known)
        assert len(stages.due.known_set) == stages.due.new and stages.views.problems() == []
    assert cli.main(["check", "--dir", str(directory.path)]) == 0


def test_settings_of_one_run_are_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The settings of `--spider` are dropped with a line in the log, unless the user gave other waits."""
    directory = CrawlDirectory(unpacked("2026-11-27-a28ab452-spider:5", tmp_path))
    text = directory.settings.file.read_text()
    assert 'store = "none"' in text
    waits = {
        "patience = 300.0": "patience = 15.0",
        "backoff_first = 60.0": "backoff_first = 5.0",
        "retry_delays = [30.0, 120.0]": "retry_delays = [5.0, 10.0]",
        "unreachable_delays = [60.0, 300.0, 1800.0, 3600.0]": "unreachable_delays = [5.0, 10.0, 300.0, 1800.0, 3600.0]",
    }
    for former, wait in waits.items():
        assert former in text
        text = text.replace(former, wait)
    for given, kept in ((text, 300.0), (text.replace("first = 5.0", "first = 6.0"), 15.0)):
        directory.settings.file.write_text(given)
        directory.note_format(5)
        caplog.clear()
        ready(directory)
        saved = convert(directory.settings.load())
        assert (saved.pages.store, saved.crawl.patience) == ("raw", kept)
        (line,) = [each.getMessage() for each in caplog.records if "pages.store" in each.getMessage()]
        assert line.endswith("To store no pages from now on, use --set pages.store=none once")


@pytest.mark.parametrize(("listen", "kept"), [("h:7", "127.0.0.1:0"), ("0.0.0.0:7", "0.0.0.0:7")])
def test_a_derived_address_of_a_node_is_dropped(tmp_path: Path, listen: str, kept: str) -> None:
    """Earlier versions took the address on which a node listens from the list of peers, and saved it as a setting."""
    directory = CrawlDirectory(unpacked("2026-11-27-a28ab452-spider:5", tmp_path))
    settings = {"splitter": {"name": "a", "peers": ["a=h:7", "b=h:8"], "listen": listen}}
    directory.settings.save(convert(settings))
    directory.note_format(5)
    ready(directory)
    assert convert(directory.settings.load()).splitter.listen == kept


def test_a_directory_with_negative_evidence_has_a_format_that_earlier_readers_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of format 8 failed on negative evidence. The upgrade to format 9 changes no data."""
    path = unpacked("2026-11-22-93aa052-refreshed:8", tmp_path)
    files = {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}
    ready(CrawlDirectory(path))
    after = {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}
    changed = {each.name for each in files.keys() | after.keys() if files.get(each) != after.get(each)}
    assert changed <= {CrawlDirectory(path).format_file.name, "crawl.toml", "supervisor.lock", "node.lock"}
    assert CrawlDirectory(path).format() == 9
    monkeypatch.setattr("crawler.crawl.directory.FORMAT", 8)
    with pytest.raises(
        DirectoryError, match="written by a newer crawler in format 9; this one reads formats up to 8"
    ):
        CrawlDirectory(path).format()


def test_a_saved_limit_of_0_that_is_rejected_does_not_end_an_old_crawl(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every command ended with the line `expected a whole number >= 1`, even with `--set extract.links_max=9`."""
    path = unpacked("2026-11-22-93aa052-refreshed:8", tmp_path)
    file = path / "crawl.toml"
    text = re.sub(r"(?m)^(links_max|connect_timeout|body_bytes_max) = .*$", r"\1 = 0", file.read_text())
    file.write_text(text)
    ready(CrawlDirectory(path))
    config = CrawlDirectory(path).settings.config()
    assert (
        config.extract.links_max > 0 and config.fetch.connect_timeout > 0 and config.fetch.body_bytes_max > 0
    )
    for key in ("extract.links_max", "fetch.connect_timeout", "fetch.body_bytes_max"):
        assert f"crawl.toml: {key} = 0 is ignored" in caplog.text
