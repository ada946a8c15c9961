"""Print the damage matrix: delete, cut or change each file of a crawl directory, and see how the crawl recovers.

    .venv/bin/python scripts/bench/damage.py [--pages N] [--processes N] [--only PATTERN]
                                             [--engine leveldb|rocksdict]

A small tree-shaped web is crawled once. For each kind of file and each kind of damage, a copy of the
directory is damaged, checked, repaired and checked again. Then the crawl of this copy is continued. With
several processes, the files of only one process are damaged (`pN`). `lost` is the number of pages that have
no intact response record at the end, according to FastWARC. `again` is the number of pages that were fetched
a second time. A row is `SILENT` if something was lost and no command reported it. The exit code is 1 if a row
is `SILENT`, or if a command printed a traceback.
"""

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from programs import CRAWLER, ENVIRON, ROOT

from crawler.bench import harness
from tests import warm_start
from tests.faults.harness import TreeWeb, crawl, judge, settings

SMALL = settings("--set", "pages.segment_bytes=20000", "--set", "store.write_buffer_bytes=64KiB")
COLUMNS = (f"{'file':34}", "damage ", "check", "repair", "check", "crawl", "lost", "again", "first report")
DAMAGES = ("deleted", "cut", "head", "middle", "tail")


def command(*arguments: "str | Path") -> "subprocess.CompletedProcess[str]":
    """Run `crawler ...`."""
    words = [*CRAWLER, *map(str, arguments)]
    return subprocess.run(
        words, cwd=ROOT, env=ENVIRON, capture_output=True, text=True, timeout=120, check=False
    )


def files_by_kind(directory: Path) -> dict[str, Path]:
    """Return the largest file of each kind. Two further kinds are the folder of a process and the folder of its store.

    The name of a kind does not contain the name of a process. The folders are those of the last process.
    """
    kinds: dict[str, Path] = {}
    last = max(directory.glob("p[0-9]"))
    for path in sorted(directory.rglob("*"), key=lambda path: path.stat().st_size):
        if path.is_file() and path.stat().st_size:
            name = str(path.relative_to(directory))
            kinds[re.sub(r"[0-9a-f]{6,}|\d{3,}|-\d+", "*", re.sub(r"^p\d", "pN", name))] = path
    return {**kinds, "pN/store/": last / "store", "pN/": last}


def damage(path: Path, how: str) -> None:
    """Damage a file. A folder is deleted, whatever `how` is."""
    if path.is_dir():
        shutil.rmtree(path)
        return
    if how == "deleted":
        path.unlink()
        return
    data = bytearray(path.read_bytes())
    place = {"head": 2, "middle": len(data) // 2, "tail": len(data) - 2}.get(how, 0)
    if how == "cut":
        del data[len(data) // 2 :]
    else:
        data[max(0, min(place, len(data) - 1))] ^= 0x55
    path.write_bytes(data)


def said(*answers: "subprocess.CompletedProcess[str]") -> list[str]:
    """From the output of the commands, return the lines that report problems."""
    lines = [line for each in answers for line in (each.stdout + each.stderr).splitlines()]
    return [line for line in lines if "no problems found" not in line]


def main() -> None:
    """Print the matrix."""
    parser = harness.parser(__doc__)
    parser.option("--pages", 150)
    parser.option("--processes", 1, "processes of the crawl")
    parser.option("--only", "", "regular expression: only these kinds of files")
    parser.option("--engine", "leveldb", choices=("leveldb", "rocksdict"))
    args = parser.parse_args()
    warm_start.install()  # programs start faster, because they need not import the crawler again
    flags = (*SMALL, "--set", f"store.engine={args.engine}", "--processes", str(args.processes))
    with (
        tempfile.TemporaryDirectory() as temporary,
        TreeWeb(Path(temporary), args.pages) as web,
    ):
        whole = Path(temporary) / "whole"
        ended = crawl(whole, web.seed, *flags)
        assert ended.code == 0, ended
        crawl(whole, web.seed, *flags)  # opening the store a second time moves its log into a table
        table = harness.Table(*COLUMNS)
        silent = traces = rows = 0
        for kind, path in files_by_kind(whole).items():
            if not re.search(args.only, kind):
                continue
            for how in DAMAGES if path.is_file() else DAMAGES[:1]:
                was_silent, had_trace = row(table, web, whole, kind, path, how, flags)
                silent, traces, rows = silent + was_silent, traces + had_trace, rows + 1
        print(f"{rows} rows, {silent} silent losses, {traces} tracebacks")
    raise SystemExit(int(bool(silent or traces)))


def row(
    table: harness.Table, web: TreeWeb, whole: Path, kind: str, path: Path, how: str, flags: Sequence[str]
) -> tuple[bool, bool]:
    """Print one row of the matrix; return whether a loss was silent, and whether there was a traceback."""
    directory = whole.parent / "copy"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(whole, directory)
    damage(directory / path.relative_to(whole), how)
    before = web.fetched()
    first = command("check", "--dir", directory)
    repaired = command("check", "--dir", directory, "--repair")
    second = command("check", "--dir", directory)
    ended = crawl(directory, web.seed, *flags)
    again: Counter[str] = web.fetched() - before
    found = judge(web, directory)
    lines = said(first, repaired)
    trace = "Traceback" in "".join([first.stderr, repaired.stderr, second.stderr, ended.err])
    silent = bool(found.unstored or again) and not lines
    codes = (first.returncode, repaired.returncode, second.returncode, ended.code)
    marks = "SILENT " * silent + "TRACEBACK " * trace
    text = re.sub(r"\S*/copy/", "", lines[0])[:90] if lines else "nothing"
    table.row(kind, how, *codes, found.unstored, again.total(), marks + text)
    return silent, trace


if __name__ == "__main__":
    main()
