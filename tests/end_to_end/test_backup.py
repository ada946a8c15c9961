"""Test backup, restore and upgrade with only the commands in `crawler/OPERATING.md`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import crawler
from tests.end_to_end.web import FAST, Web, page
from tests.upgrade.support import unpacked
from tests.upgrade.test_upgrade import site
from tests.waiting import WAIT_MAX, until

PAGE = (Path(crawler.__file__).parent / "OPERATING.md").read_text(encoding="utf-8")
HOSTS, PAGES = 6, 15


def block(after: str, heading: str = "## Backup and restore") -> str:
    """Return the commands in the first code block that comes after the text `after` in a section of the page."""
    section = re.split(r"\n(?=## )", PAGE[PAGE.index(heading) :])[0]
    found = re.search(r"\n\n((?:      .+\n)+)", section[section.index(after) :])
    assert found is not None
    return found[1]


class Operator:
    """Runs commands in a shell, in a separate folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "bin" / "crawler"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m crawler "$@"\n')
        program.chmod(0o755)
        root = str(Path(crawler.__file__).parents[1])
        self.env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": root}

    def start(self, *words: object) -> "subprocess.Popen[bytes]":
        line = ["crawler", "crawl", "--dir", "crawl", "--progress", "none", *map(str, words)]
        with (self.folder / "said").open("wb") as said:
            return subprocess.Popen(line, cwd=self.folder, env=self.env, stdout=said, stderr=said)

    def types(self, commands: str) -> str:
        """Run the commands and return their output. No command may fail."""
        done = subprocess.run(
            ["sh", "-e"], input=commands, cwd=self.folder, env=self.env, capture_output=True, text=True,
            timeout=WAIT_MAX, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done
        return done.stdout


def stored(folder: Path) -> dict[str, int]:
    report = msgspec.json.decode((folder / "report.json").read_bytes())
    assert report["conservation"] == "holds", report
    return report["pages"]


@pytest.mark.parametrize(("processes", "way"), [(1, "A crawl that may stop"), (3, "A running crawl")])
def test_a_backup_is_restored_with_the_documented_commands(tmp_path: Path, processes: int, way: str) -> None:
    """The crawl directory is lost after the backup.

    The restored crawl finds every page, and `check` finds no problem.
    """
    operator = Operator(tmp_path)
    with Web({"/robots.txt": (404, {}, "")}) as web:
        names = [f"h{number}.localhost" for number in range(HOSTS)]
        web.routes["/"] = page("/p0", *(web.url("/", name) for name in names))
        for number in range(PAGES):
            web.routes[f"/p{number}"] = page(
                f"/p{number + 1}" if number + 1 < PAGES else "/", text=f"{number}"
            )
        flags = (*FAST, "--delay", "0.04", "--scope", "any", "--processes", processes)
        running = operator.start(web.url("/", names[0]), *flags, "--set", "crawl.patience=60")
        until(lambda: len(web.asked) > HOSTS * PAGES // 4, running)
        commands = block(way)
        assert "cp -a crawl backup" in commands
        operator.types(commands)
        assert running.wait(60) == 0, (tmp_path / "said").read_text()
        saved = {path.name for path in (tmp_path / "backup").iterdir()}
        assert {"seed", "crawl.toml", "format", "p0"} <= saved
        whole = {"/"} | {f"/p{number}" for number in range(PAGES)}
        assert {asked.path for asked in web.asked} >= whole, "the crawl went on after the backup"
        web.asked.clear()
        operator.types(block("**Restore**"))
        total = stored(tmp_path / "crawl")
        assert total.get("fetched") == HOSTS * (PAGES + 1), total
        if way == "A running crawl":
            assert web.asked, "the backup is older than the end of the crawl"


@pytest.mark.parametrize("name", ["2026-11-21-8b1fd0a", "2026-11-22-4de7488-two"])
def test_an_old_directory_is_upgraded_with_the_documented_commands(tmp_path: Path, name: str) -> None:
    """The upgraded crawl continues, and the backup is unchanged.

    If the backup is restored, it can be upgraded again.
    """
    operator = Operator(tmp_path)
    directory = unpacked(name, tmp_path)
    with site() as web:
        settings = directory / "crawl.toml"
        text = re.sub(r"http://127\.0\.0\.1:\d+", f"http://127.0.0.1:{web.port}", settings.read_text())
        settings.write_text(re.sub(r"(?m)^max_pages = .*", "max_pages = 0", text))
        operator.types(block("3. ", "## Upgrade"))
        operator.types(block("4. ", "## Upgrade"))
        first = stored(directory)
        fetched = set(web.paths())
        assert len(fetched) > 10 and (directory / "format").exists()
        assert not (tmp_path / "backup" / "format").exists(), (
            "the backup can be opened by the earlier version"
        )
        web.asked.clear()
        operator.types(block("**Restore**"))
        assert set(web.paths()) == fetched and stored(directory) == first
