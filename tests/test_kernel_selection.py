"""Test that kernels with shared structs are all compiled or all interpreted, and that the results are the same."""

import ast
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from crawler import Crawl, kernel_selection
from crawler.config import convert
from tests.canned_refresh import canned
from tests.end_to_end.web import SETTINGS, Web, page, run

ROOT = Path(__file__).resolve().parent.parent
ALL = len(kernel_selection.BOUND) + len(kernel_selection.ALONE)
C_FUNCTION = {"cython.cfunc", "cython.ccall"}
ASK = (
    "import crawler.due.elias_fano, crawler.urls.clock_cache;"
    "from crawler.frontier.refresh.schedule import Schedule; from crawler.frontier.refresh import heaps;"
    "s = Schedule(); s.add(1, 1, 1, 0.0, 1.0); p = s.claim_next(9.0); s.record_outcome(p, 9.0, 1); s._check();"
    "print(heaps.__file__.endswith('.py'), len(s))"
)


def ask(folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=folder,
        env={"PYTHONPATH": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout.strip()


def test_kernels_that_import_one_another_are_listed() -> None:
    named = {
        each["name"].removeprefix("crawler.")
        for each in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    }
    bound = set()
    for name in named:
        path = ROOT / "crawler" / f"{name.replace('.', '/')}.py"
        for text in (each.read_text() for each in (path, path.with_suffix(".pxd")) if each.exists()):
            found = set(
                re.findall(
                    r"cython\.cimports\.crawler\.(\S+) import|^from crawler\.(\S+) cimport", text, re.M
                )
            )
            used = {one or other for one, other in found} - {name}
            used -= {
                each for each in used if not (ROOT / "crawler" / f"{each.replace('.', '/')}.py").exists()
            }
            bound |= {name, *used} if used else set()
    assert bound == set(kernel_selection.BOUND)
    assert named == {*kernel_selection.BOUND, *kernel_selection.ALONE, kernel_selection.SHARED}


def test_functions_with_c_types_are_declared() -> None:
    """Cython compiles a function without a declaration too, but calls it through Python, which is slow."""
    for name in (*kernel_selection.BOUND, *kernel_selection.ALONE):
        path = ROOT / "crawler" / f"{name.replace('.', '/')}.py"
        types = path.with_suffix(".pxd")
        declared = set(re.findall(r"(\w+)\(", types.read_text())) if types.exists() else set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.returns is not None:
                decorators = {ast.unparse(each) for each in node.decorator_list}
                typed = ast.unparse(node.returns).startswith("cython.")
                assert not typed or node.name in declared or decorators & C_FUNCTION, f"{path}: {node.name}"


@pytest.mark.skipif(
    not kernel_selection.all_compiled(str(ROOT / "crawler")), reason="not all are compiled here"
)
@pytest.mark.parametrize(
    ("missing", "interpreted"),
    [
        ("frontier.refresh.schedule", 38),
        ("extract.tag_reader", 2),
        ("due.elias_fano", 1),
        ("lab.caches.cache_kernels", 2),
        ("memoryviews", ALL),
    ],
)
def test_only_the_group_of_a_kernel_that_is_not_compiled_is_interpreted(
    tmp_path: Path, missing: str, interpreted: int
) -> None:
    """Once, the build of one module failed, so a compiled schedule could not read the nodes of interpreted heaps.

    Then, all kernels ran interpreted, 2.4 times slower, and no command said so.
    """
    name = missing.rpartition(".")[2]
    shutil.copytree(
        ROOT / "crawler", tmp_path / "crawler", ignore=shutil.ignore_patterns(f"{name}.*.so", "__pycache__")
    )
    assert list((tmp_path / "crawler" / "frontier" / "refresh").glob("heaps.*.so"))
    assert ask(tmp_path) == f"{interpreted >= 37} 1"
    scanner = "from crawler.extract import link_scanner; print(link_scanner.__file__.endswith('.py'))"
    for words, said in (
        (["-c", scanner], str(missing in ("extract.tag_reader", "memoryviews"))),
        (["-m", "crawler", "--version"], f"{interpreted} of {ALL} kernels run interpreted"),
    ):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
            timeout=60, check=True,
        )  # fmt: skip
        assert said in done.stdout, (words, done)
    assert f"not compiled: {missing};" in done.stdout


def test_the_groups_share_no_structs() -> None:
    """A kernel imports C declarations only from its own group, so the groups may have different forms."""
    group_of = {name: number for number, group in enumerate(kernel_selection.GROUPS) for name in group}
    for name, number in group_of.items():
        path = ROOT / "crawler" / f"{name.replace('.', '/')}.py"
        for text in (each.read_text() for each in (path, path.with_suffix(".pxd")) if each.exists()):
            for found in re.findall(
                r"cython\.cimports\.crawler\.(\S+) import|^from crawler\.(\S+) cimport", text, re.M
            ):
                used = "".join(found)
                assert group_of.get(used, number) == number, (name, used)


def test_the_source_can_be_requested() -> None:
    assert ask(ROOT, CRAWLER_INTERPRETED="1") == "True 1"


def run_interpreted(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with interpreted kernels."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "CRAWLER_INTERPRETED": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_interpreted_kernels_read_a_store_with_one_page() -> None:
    """The columns of a single record are not aligned. A memory view cannot read the items of such a column."""
    test = "test_a_hub_is_rebuilt_from_its_record"
    calls = f"{test}(True, True, True); {test}(False, False, False)"
    done = run_interpreted("-c", f"from tests.frontier.refresh.test_state import {test}; {calls}")
    assert done.returncode == 0, done.stderr


def test_both_forms_give_the_same_results(tmp_path: Path) -> None:
    """Once, interpreted kernels used numpy numbers, which gave warnings, overflowed and could not become JSON."""
    done = run_interpreted("-W", "error", "-m", "tests.canned_refresh", str(tmp_path / "source"))
    assert done.returncode == 0 and not done.stderr, done
    assert json.loads(done.stdout) == canned(tmp_path / "here")


async def test_every_program_that_opens_a_crawl_names_missing_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each command says it once, and the status of a running crawl, also as JSON, contains it."""
    said = "1 of 2 kernels run interpreted"
    monkeypatch.setattr(kernel_selection, "said_of_kernels", lambda: said)
    monkeypatch.setattr(logging.getLogger("crawler"), "propagate", True)
    with Web({"/": page()}) as web:
        monkeypatch.setattr(kernel_selection, "_told", [])
        async with Crawl(convert(SETTINGS), directory=tmp_path, seeds=[web.url()]) as crawl:
            await crawl.run()
            assert said in [each["message"] for each in crawl.status().plain()["errors"]]
    for words in (("status",), ("status", "--json"), ("check",), ("why", "http://a.org/")):
        caplog.clear()
        monkeypatch.setattr(kernel_selection, "_told", [])
        assert run(*words, "--dir", tmp_path).code == 0
        assert caplog.text.count(said) == 1, words
