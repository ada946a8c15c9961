"""Test page histories from git, with recorded logs and with the log of a repository that the test makes."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from crawler.errors import UsageError
from crawler.lab.__main__ import main
from crawler.lab.league import histories
from crawler.lab.league.git_log import GitLog, split

OLD, NEW = b"1" * 40, b"2" * 40


def _commit(at: int, *parts: bytes) -> list[bytes]:
    """Return the parts of a commit as git prints them: a newline precedes the first file."""
    return [b"\x1e%d" % at, *((b"\n" + parts[0], *parts[1:]) if parts else ())]


def _file(status: bytes, path: bytes, mode: bytes = b"100644", after: bytes = NEW) -> list[bytes]:
    before = b"000000" if status == b"A" else b"100644"
    return [b":%s %s %s %s %s" % (before, mode if status != b"D" else b"000000", OLD, after, status), path]


def _history(*parts: bytes, latest: int = 10_000) -> histories.SiteHistory:
    log = GitLog(latest)
    log.read(parts)
    return log.history("made")


def test_births_changes_and_deaths() -> None:
    found = _history(
        *_commit(100, *_file(b"A", b"d/a.md"), *_file(b"A", b"b.md"), b"5\t0\td/a.md", b"1\t0\tb.md"),
        *_commit(200, *_file(b"M", b"d/a.md"), b"3\t2\td/a.md"),
        *_commit(300, *_file(b"D", b"b.md"), *_file(b"A", b"d/c.md"), b"0\t1\tb.md", b"1\t0\td/c.md"),
        *_commit(400, *_file(b"A", b"b.md")),
    )
    assert found.born.tolist() == [100, 100, 300, 400]
    assert found.died.tolist() == [0, 300, 0, 0]
    assert found.page.tolist() == [0] and found.time.tolist() == [200]
    assert (found.added.tolist(), found.removed.tolist()) == ([3], [2])
    assert found.dir.tolist() == [0, 1, 0, 1]
    assert found.hash[1] == found.hash[3] and len(set(found.hash.tolist())) == 3
    assert found.published.tolist() == [100, 200, 300, 400]


@pytest.mark.parametrize(
    ("parts", "changes"),
    [
        (_file(b"M", b"a", after=OLD), 0),  # only the mode of the file changed
        ([*_file(b"M", b"a"), b"-\t-\ta"], 1),  # a binary file has no size
        (_file(b"T", b"a", mode=b"120000"), 0),  # the file became a symbolic link, so the page is gone
        ([*_file(b"M", b"a"), b"1\t1\tother"], 1),
    ],
)
def test_which_commits_are_changes(parts: list[bytes], changes: int) -> None:
    found = _history(*_commit(100, *_file(b"A", b"a")), *_commit(200, *parts))
    assert len(found.page) == changes
    assert set(found.added.tolist()) <= {-1}
    assert found.died.tolist() == [200 if b"120000" in parts[0] else 0]


def test_clocks_that_step_back_or_run_ahead() -> None:
    found = _history(
        *_commit(500, *_file(b"A", b"a")),
        *_commit(90, *_file(b"M", b"a")),
        *_commit(99_999, *_file(b"M", b"a")),
        latest=600,
    )
    assert (found.born.tolist(), found.time.tolist()) == ([500], [500, 600])


def test_paths_of_all_bytes() -> None:
    """A path may contain newlines, tabs and bytes that are not UTF-8.

    A path may also look like a line of the log.
    """
    names = [b"a\nb", b":100644 x", b"\x1e100", b"1\t1\tx", b"\xff\xfe", b"-\t-\tz"]
    found = _history(*_commit(100, *(part for name in names for part in _file(b"A", name))))
    assert len(found.born) == len(names)


@pytest.mark.parametrize(
    "parts", [[b"\x1enever"], [b":100644 100644"], [b":1 2 3 4 M"], [b"\x1e5", b":1 2 3 4 M"]]
)
def test_an_invalid_log_is_rejected(parts: list[bytes]) -> None:
    with pytest.raises(UsageError):
        _history(*parts)


def test_a_git_log_without_pages_is_reported() -> None:
    with pytest.raises(UsageError, match="no page"):
        _history(*_commit(100))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_parts_do_not_depend_on_how_the_stream_is_split(size: int) -> None:
    text = b"one\0two\0\0three\0end"
    chunks = [text[k : k + size] for k in range(0, len(text), size)]
    assert list(split(chunks)) == [b"one", b"two", b"", b"three", b"end"]


# -- a repository


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make five days of a small site.

    During these days, pages are born, edited, renamed and deleted, and a branch is merged. One file is not a
    page.
    """
    if shutil.which("git") is None:
        pytest.skip("no git")
    folder = tmp_path_factory.mktemp("clone") / "site"
    folder.mkdir()
    day = 86_400
    clock = [1_700_000_000]

    def git(*words: str) -> None:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder.parent),
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
            "GIT_AUTHOR_DATE": f"{clock[0]} +0000",
            "GIT_COMMITTER_DATE": f"{clock[0]} +0000",
        }
        subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, env=env)

    def commit(**files: str | None) -> None:
        for name, text in files.items():
            path = folder / name.replace("__", "/").replace("_md", ".md")
            path.parent.mkdir(exist_ok=True)
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
        git("add", "-A")
        git("commit", "-m", "a day's work")
        clock[0] += day

    git("init", "-q", "-b", "trunk")
    commit(docs__a_md="1\n2\n3\n", docs__b_md="b\n", Makefile="all:\n")
    commit(docs__a_md="1\n2\nthree\nfour\n", Makefile="none:\n")
    commit(docs__b_md=None, docs__c_md="b\n")  # a rename
    git("switch", "-q", "-c", "topic")
    commit(docs__a_md="on a branch\n")
    commit(docs__a_md="still on a branch\n")
    git("switch", "-q", "trunk")
    commit(Makefile="some:\n")
    git("merge", "-q", "--no-ff", "-m", "it lands", "topic")
    yield folder


def test_a_repository(clone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The merge is one change, at the time of the merge commit. The Makefile is not a page."""
    assert main("lab", ["histories", "--git", str(clone), "--out", str(tmp_path)]) == 0
    assert "3 pages, 2 of them still exist, 2 changes in 6.0 days" in capsys.readouterr().out
    found = histories.read(tmp_path / "site.npz")
    days = (found.time - found.born[0]) / 86_400
    assert days.tolist() == [1.0, 6.0]
    assert (found.added.tolist(), found.removed.tolist()) == ([2, 1], [1, 4])
    assert ((found.born - found.born[0]) / 86_400).tolist() == [0.0, 0.0, 2.0]
    assert found.died.tolist() == [0, found.born[2], 0]
    assert ((found.published - found.born[0]) / 86_400).tolist() == [0.0, 1.0, 2.0, 6.0]


def test_pages_by_pathspec_and_without_sizes(clone: Path, tmp_path: Path) -> None:
    words = ["--pages", "Makefile", "--no-sizes", "--name", "make", "--out", str(tmp_path)]
    assert main("lab", ["histories", "--git", str(clone), *words]) == 0
    found = histories.read(tmp_path / "make.npz")
    assert len(found.born) == 1 and np.all(found.added == -1) and len(found.time) == 2


def test_a_history_from_a_clone_works_in_the_league(
    clone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main("lab", ["histories", "--git", str(clone), "--out", str(tmp_path)])
    words = "--policies round-robin,nutch --arms none --budgets 1,3 --days 10 --processes 1"
    assert main("lab", ["league", "--data", str(tmp_path), *words.split()]) == 0
    table = capsys.readouterr().out
    assert "round-robin" in table and " - " in table  # a single site has no standard error


def test_unreadable_clones_are_reported(clone: Path, tmp_path: Path) -> None:
    for words, complaint in (
        (["--git", str(tmp_path / "nowhere")], "folder not found"),
        (["--git", str(tmp_path)], "not a git repository"),
        (["--git", str(clone), "--pages", "*.none"], "no page"),
        (["--git", str(clone), "--pages", ":(bad)x"], "pathspec"),
        (["--git", str(clone), "--name", "../x"], "--name"),
    ):
        with pytest.raises(UsageError, match=complaint):
            main("lab", ["histories", *words, "--out", str(tmp_path)])
