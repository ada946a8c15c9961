"""Test that commands on a crawl at rest report missing parts, and that they do not exit with 0.

In each test, one process of a finished crawl loses its WARC files, one segment, its store, or its whole
folder.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from crawler import cli
from tests.faults.harness import TreeWeb, crawl, settings, several

PAGES = 40


@pytest.fixture(scope="module", params=[1, 3])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished crawl of one or three processes."""
    folder = tmp_path_factory.mktemp("sound")
    small = ("--set", "pages.segment_bytes=2000")
    with TreeWeb(folder, PAGES, "--fanout", "4", hosts=40) as web:
        assert crawl(folder / "crawl", web.seed, *settings(*several(request.param), *small)).code == 0
    return folder / "crawl"


def _first_segment(folder: Path) -> None:
    min((folder / "warc").glob("*.gz")).unlink()


HARMS: dict[str, Callable[[Path], None]] = {
    "warc": lambda folder: shutil.rmtree(folder / "warc"),
    "segment": _first_segment,
    "store": lambda folder: shutil.rmtree(folder / "store"),
    "folder": shutil.rmtree,
}
COMMANDS = [
    *(
        f"export -q --format {form} -o OUT"
        for form in ("cdxj", "jsonl", "warc", "mirror", "links", "crawl-log")
    ),
    "report -q",
    "status",
    "status --json",
    "why http://127.1.0.1/",
    "check",
]


def harmed(sound: Path, tmp_path: Path, harm: str) -> Path:
    """Return a copy of the crawl whose last process has lost something."""
    directory = Path(shutil.copytree(sound, tmp_path / "crawl"))
    HARMS[harm](max(directory.glob("p?")))
    return directory


@pytest.mark.parametrize("harm", HARMS)
def test_commands_at_rest_report_missing_parts(
    sound: Path, tmp_path: Path, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = harmed(sound, tmp_path, harm)
    name = max(directory.glob("p*.begun")).stem
    for number, command in enumerate(COMMANDS):
        words = [str(tmp_path / f"out{number}") if word == "OUT" else word for word in command.split()]
        code = cli.main([*words, "--dir", str(directory)])
        said = capsys.readouterr()
        assert code == 3, (command, said)
        assert f"{name}/" in said.err + said.out and "missing" in said.err + said.out, (command, said)


@pytest.mark.parametrize("harm", HARMS)
def test_a_repair_tells_what_is_lost(
    sound: Path, tmp_path: Path, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A repair ends with 0 if each lost page will be fetched again, and with 1 if all segments are missing."""
    directory = harmed(sound, tmp_path, harm)
    code = cli.main(["check", "--repair", "--dir", str(directory)])
    said = capsys.readouterr().out
    if harm == "folder":
        assert code == 1 and "all its WARC files were missing" in said and "no problems found" not in said
    else:
        assert code == 0, said
    if harm in ("warc", "segment"):
        assert "queued to be fetched again" in said
    assert cli.main(["check", "--dir", str(directory)]) == 0


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("harm", ["store", "folder", "backup"])
def test_a_blocked_host_stays_blocked_whatever_is_lost(tmp_path: Path, processes: int, harm: str) -> None:
    """Once, only the store knew which hosts are blocked, so a repair or a backup lifted the blocks silently."""
    directory, flags = tmp_path / "crawl", settings(*several(processes))
    with TreeWeb(tmp_path, PAGES, "--fanout", "4", hosts=8) as web:
        assert crawl(directory, web.seed, *flags, "--max-pages", "4").code == 0
        hosts = {urlsplit(web.url(page)).hostname for page in range(2, 8)}
        shutil.copytree(directory / "p0", tmp_path / "backup", ignore=shutil.ignore_patterns("*.sock"))
        for host in hosts:
            assert cli.main(["block", str(host), "--dir", str(directory)]) == 0
        before = len(web.requests())
        for folder in directory.glob("p?"):
            HARMS["store" if harm == "store" else "folder"](folder)
            if harm == "backup" and folder.name == "p0":
                shutil.copytree(tmp_path / "backup", folder)
        cli.main(["check", "--repair", "--dir", str(directory)])
        asked = web.fetched()
        later = [urlsplit(url) for url in map(web.url, range(8, PAGES))]
        free = next(url.geturl() for url in later if url.hostname not in hosts and url.path not in asked)
        assert crawl(directory, web.seed, free, *flags).code == 0
        after = web.requests()[before:]
    assert after and not [each for each in after if each[2] in hosts], after
