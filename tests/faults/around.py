"""Scenarios around a crawl: readers, wrong clocks, backups, killed repairs, cut files, reshards, hostile directories.

Each scenario works in the given folder with a `Setting`. A scenario asserts what must be true during its run,
and returns a verdict on the stored pages. `scripts/bench/crash.py` runs the scenarios at full size, and
`test_around.py` runs them at a small size. Both programs also run each scenario with a bug planted in the
crawler, which the scenario must find; `PLANTED` names the bug of each scenario.

    python -m tests.faults.around DIR BUG    read and check every process of a crawl without its lock
"""

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from crawler import cli
from tests.faults import every_write
from tests.faults.harness import ROOT, Ended, Judgement, TreeWeb, crawl, end, judge, settings, several, start
from tests.faults.planted import plant

YEAR = 365 * 86_400
COMMAND_MAX = 60.0  # seconds after which a command counts as hanging
READERS = 2
BESIDE = 12.0  # seconds for which a crawl runs while other commands read it
KILLS = ("committed:10", "flush committed:2", "segment rolled:1", "batch written:15", "closing:1")
_SMALL = ("--set", "pages.segment_bytes=20000", "--set", "due.buffer_entries_max=200")


class Setting(NamedTuple):
    """The size of a scenario: pages, processes and engine. `bug` is planted in every command ("" = none)."""

    pages: int = 200
    processes: int = 1
    engine: str = "leveldb"
    bug: str = ""

    def module(self, *more: str) -> tuple[str, ...]:
        """Return the module that runs commands, and its arguments.

        The module runs commands with the bug of the setting and the bugs in `more`.
        """
        bugs = ",".join(filter(None, (self.bug, *more)))
        return ("tests.faults.planted", bugs) if bugs else ("crawler",)

    def flags(self, *more: str) -> tuple[str, ...]:
        return settings(*_SMALL, *several(self.processes), "--set", f"store.engine={self.engine}", *more)

    def command(self, directory: Path, *words: str) -> Ended:
        """Run a command on a crawl directory."""
        return _run([sys.executable, "-m", *self.module(), *words, "--dir", str(directory)])

    def crawl(self, directory: Path, web: TreeWeb, *more: str, bugs: Sequence[str] = ()) -> Ended:
        """Crawl until the end, or until a limit is reached that `more` sets."""
        return end(
            start(directory, web.seed, *self.flags(*more), module=self.module(*bugs)), timeout=COMMAND_MAX
        )


def _run(words: Sequence[str]) -> Ended:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        words, env=environ, capture_output=True, text=True, cwd=ROOT, timeout=COMMAND_MAX, check=False
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def beside(folder: Path, setting: Setting) -> Judgement:
    """Kill and restart a crawl while several readers copy the folders of its processes and check the copies."""
    directory, slowly = folder / "crawl", ("--rate", str(setting.pages / BESIDE))
    with TreeWeb(folder, setting.pages, "--fanout", "4") as web:
        with _read(directory, setting) as found:
            for fault in KILLS:
                flags = setting.flags(*slowly)
                ended = crawl(directory, web.seed, *flags, fault=fault, module=setting.module())
                assert ended.code in (0, -signal.SIGKILL), ended
            ended = setting.crawl(directory, web, *slowly)
            assert ended.code == 0, ended
        for each in found:
            assert each.code == 0 and int(each.out) > 1, each
        assert setting.command(directory, "check").code == 0
        return judge(web, directory)._replace(worst=0)


@contextmanager
def _read(directory: Path, setting: Setting) -> Iterator[list[Ended]]:
    """Read the crawl in several processes until the block ends.

    Yield a list, to which the results of the readers are added when the block ends.
    """
    words = [sys.executable, "-m", "tests.faults.around", str(directory), setting.bug]
    pipe = subprocess.PIPE
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    readers = [
        subprocess.Popen(words, env=environ, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        for _ in range(READERS)
    ]
    found: list[Ended] = []
    try:
        yield found
    finally:
        for reader in readers:
            out, err = reader.communicate(timeout=COMMAND_MAX)
            found.append(Ended(reader.returncode, out, err))


def read_until_told(directory: Path) -> int:
    """Read the crawl again and again until standard input ends.

    Print the problems or the number of readings. Return the exit code.
    """
    count = 0
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        if next(directory.glob("p*/store/CURRENT"), None) is not None:
            if problems := read(directory):
                print("\n".join(problems))
                return 1
            count += 1
    print(count)
    return 0


def read(directory: Path) -> list[str]:
    """Return the problems that a reader finds at this moment in the processes of the crawl."""
    from crawler.clock import SystemClock
    from crawler.config import convert
    from crawler.crawl.directory import CrawlDirectory
    from crawler.process.opening.stages import reading
    from crawler.upkeep.check import check

    crawled, problems = CrawlDirectory(directory), list[str]()
    config = convert(crawled.settings.load())
    for name in crawled.process_names():
        with reading(config, crawled, name, clock=SystemClock()) as stages:
            problems += [f"{name}: {line}" for line in check(stages)]
    return problems


def clock_ahead(folder: Path, setting: Setting) -> Judgement:
    """Set the clock a year ahead in two runs, one of which is killed.

    The next run must neither wait nor lose a page.
    """
    return _clocks(folder, setting, f"clock+{YEAR}", "")


def clock_behind(folder: Path, setting: Setting) -> Judgement:
    """Set the clock a year back in the last run. This run must neither wait nor lose a page."""
    return _clocks(folder, setting, "", f"clock-{YEAR}")


def _clocks(folder: Path, setting: Setting, first: str, second: str) -> Judgement:
    directory = folder / "crawl"
    with TreeWeb(folder, setting.pages, "--fanout", "4") as web:
        # the run needs a limit, because a supervisor restarts killed processes
        limit = ("--max-pages", str(setting.pages // 3))
        flags = setting.flags("--delay", "0.01", *limit)
        crawl(directory, web.seed, *flags, fault="committed:2", module=setting.module(first))
        assert setting.crawl(directory, web, "--delay", "0.01", *limit, bugs=[first]).code == 0
        try:
            ended = setting.crawl(directory, web, "--delay", "0.01", bugs=[second])
        except subprocess.TimeoutExpired as error:
            raise AssertionError("the crawl waits for the time of the wrong clock") from error
        assert ended.code == 0, ended
        for words in (("check",), ("status",), ("get", web.seed)):
            assert setting.command(directory, *words).code == 0, words
        return judge(web, directory)._replace(worst=0)


def put_back(folder: Path, setting: Setting) -> Judgement:
    """Replace the folder of a process by a backup.

    The peers of the process must notice the replacement, and a repair must restore all pages.
    """
    directory, name = folder / "crawl", f"p{min(1, setting.processes - 1)}"
    with TreeWeb(folder, setting.pages, "--fanout", "4") as web:
        assert setting.crawl(directory, web, "--max-pages", str(setting.pages // 3)).code == 0
        backup = shutil.copytree(directory / name, folder / "backup", ignore=shutil.ignore_patterns("*.sock"))
        assert setting.crawl(directory, web).code == 0
        shutil.rmtree(directory / name)
        shutil.copytree(backup, directory / name)
        assert setting.crawl(directory, web).code == 3, "an earlier state was not noticed"
        repaired = setting.command(directory, "check", "--repair")
        assert repaired.code == 0, repaired
        assert setting.crawl(directory, web).code == 0
        assert setting.command(directory, "check").code == 0
        return judge(web, directory)._replace(worst=0)


def repair_killed(folder: Path, setting: Setting) -> Judgement:
    """Kill a repair before several of its writes. Crawls must be refused until the repair is completed."""
    directory, kept = folder / "crawl", folder / "kept"
    with TreeWeb(folder, setting.pages, "--fanout", "4") as web:
        assert setting.crawl(directory, web, "--max-pages", str(setting.pages // 2)).code == 0
        for segment in sorted(directory.glob("*/warc/*.gz"))[:1]:
            segment.unlink()
        shutil.copytree(directory, kept)
        whole = every_write.run(directory, repair, str(directory), setting.bug)
        assert whole is not None and whole.result == 0
        # `test_repair_killed.py` kills small repairs at many more writes
        kills = 6 if setting.pages > 200 else 2
        for kill_at in range(8 * setting.processes, whole.writes - 1, max(1, whole.writes // kills)):
            shutil.rmtree(directory)
            shutil.copytree(kept, directory)
            assert every_write.run(directory, repair, str(directory), setting.bug, kill_at=kill_at) is None
            is_whole = setting.command(directory, "check").code == 0
            ended = setting.crawl(directory, web)
            assert is_whole or ended.code == 3, f"a crawl ran after a repair killed before write {kill_at}"
            assert setting.command(directory, "check", "--repair").code == 0
        assert setting.crawl(directory, web).code == 0
        assert setting.command(directory, "check").code == 0
        return judge(web, directory)._replace(worst=0)


def repair(directory: str, bug: str) -> int:
    """Run `check --repair` in this process."""
    plant(bug)
    return cli.main(["check", "--repair", "--dir", directory, "-q"])


def segments_cut(folder: Path, setting: Setting) -> Judgement:
    """Cut each WARC segment in half. `check` must report the loss, and lost pages must be fetched again."""
    directory = folder / "crawl"
    with TreeWeb(folder, setting.pages, "--fanout", "4") as web:
        assert setting.crawl(directory, web).code == 0
        for segment in sorted(directory.glob("*/warc/*.gz"))[:3]:
            os.truncate(segment, segment.stat().st_size // 2)
        assert setting.command(directory, "check").code == 3
        assert setting.command(directory, "check", "--repair").code == 0
        assert setting.crawl(directory, web).code == 0
        assert setting.command(directory, "check").code == 0
        return judge(web, directory)._replace(worst=0)


def resharded(folder: Path, setting: Setting) -> Judgement:
    """Reshard a crawl to more and fewer processes, then rebuild its stores from the archive.

    Each page must be in the folder of only one process, so that folders can be moved to other disks. Each
    page must also keep its receipt. There are many hosts, so that each process has some: a process whose folder
    is empty counts as lost.
    """
    directory, more = folder / "crawl", setting.processes + 2
    with TreeWeb(folder, setting.pages, "--fanout", "4", hosts=200) as web:
        assert setting.crawl(directory, web, "--max-pages", str(setting.pages // 2)).code == 0
        for processes in (more, 2, more):
            ended = setting.command(directory, "reshard", "--to", str(processes))
            assert ended.code == 0, ended
            left = [path.name for path in directory.glob(".reshard*")]
            assert not left, left
            twice = judge(web, directory).stored_twice
            assert not twice, f"{twice} pages are stored twice after a reshard to {processes}"
        for store in directory.glob("p*/store"):
            shutil.rmtree(store)
        repaired = setting.command(directory, "check", "--repair")
        assert repaired.code == 0 and "lost their consent" not in repaired.out, repaired
        ended = setting._replace(processes=more).crawl(directory, web)
        assert ended.code == 0, ended
        assert setting.command(directory, "check").code == 0
        return judge(web, directory)._replace(worst=0)


def hostile(folder: Path, setting: Setting) -> Judgement:
    """Replace a file of the directory by a link or a pipe. Commands must refuse the directory and write nothing."""
    directory, outside = folder / "crawl", folder / "outside"
    with TreeWeb(folder, setting.pages, "--fanout", "4") as web:
        assert setting.crawl(directory, web).code == 0
        for name in ("crawl.toml", "crawler.log", "pages.jsonl", "report.json", "format", "p0.begun"):
            for make in (lambda path: path.symlink_to(outside), os.mkfifo):
                _refused(web, directory, outside, directory / name, make, setting)
        return judge(web, directory)


def _refused(
    web: TreeWeb, directory: Path, outside: Path, path: Path, make: Callable[[Path], object], setting: Setting
) -> None:
    content = path.read_bytes()
    path.unlink()
    outside.write_bytes(content)
    make(path)
    try:
        for words in (("status",), ("check",)):
            ended = setting.command(directory, *words)
            assert ended.code == 3 and "Traceback" not in ended.err, (path.name, words, ended)
        assert setting.crawl(directory, web).code == 3, path.name
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"{path.name}: a command waits for a pipe") from error
    assert outside.read_bytes() == content, f"{path.name}: written through a link"
    path.unlink()
    path.write_bytes(content)


SCENARIOS: dict[str, Callable[[Path, Setting], Judgement]] = {
    "readers beside": beside,
    "clock ahead": clock_ahead,
    "clock behind": clock_behind,
    "backup put back": put_back,
    "repair killed": repair_killed,
    "segments cut": segments_cut,
    "resharded": resharded,
    "hostile directory": hostile,
}
# Maps each scenario to the bug that it must find.
PLANTED = {
    "readers beside": "readers-recover",
    "clock ahead": "future-kept",
    "backup put back": "behind-unseen",
    "repair killed": "repair-unnoted",
    "segments cut": "cut-unseen",
    "resharded": "segments-shared",
    "hostile directory": "links-followed",
}

if __name__ == "__main__":
    plant(sys.argv[2])
    raise SystemExit(read_until_told(Path(sys.argv[1])))
