"""Test how the kernels are built (`crawler/kernel_build.py`)."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = "crawler.memoryviews"


@pytest.mark.filterwarnings("ignore")
def test_the_shared_module_is_built_before_any_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, Cython built the shared module and a kernel in parallel.

    Half of the shared module was missing, so no kernel could be imported.
    """
    setuptools = pytest.importorskip("setuptools")
    kernel_build = pytest.importorskip("crawler.kernel_build")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["cmdclass"] == {"build_ext": "crawler.kernel_build.BuildKernels"}
    names = ["crawler.a", SHARED, "crawler.b"]
    modules = [setuptools.Extension(name, [f"{name}.c"]) for name in names]
    command = kernel_build.BuildKernels(setuptools.Distribution({"ext_modules": modules}))
    command.ensure_finalized()
    command.distribution.command_options["build_ext"] = {"shared_utility_qualified_name": ("", SHARED)}
    command = command.distribution.reinitialize_command(command)
    command.ensure_finalized()
    assert command.shared_utility_qualified_name == SHARED, (
        "a copy of the command has the options of `build_ext`"
    )
    command.parallel = 2
    built: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        command, "build_extension", lambda each: built.append((each.name, bool(command.parallel)))
    )
    command.build_extensions()
    assert built[0] == (SHARED, False)
    assert sorted(built[1:]) == [("crawler.a", True), ("crawler.b", True)]
    assert [each.name for each in command.extensions] == names
    assert command.parallel == 2


def test_a_wheel_from_the_sdist_holds_the_whole_package(tmp_path: Path) -> None:
    """`scripts/release` builds sdist and wheel in the same way, but with kernels.

    This test compiles and downloads nothing.
    """
    pytest.importorskip("setuptools")
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.c", "*.egg-info")
    for name in ("crawler", "config"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)

    def call(program: str, folder: Path) -> None:
        environ = {**os.environ, "CRAWLER_KERNELS": "none", "PYTHONPATH": ""}
        command = [sys.executable, "-c", program]
        ran = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr

    call("from setuptools import build_meta; build_meta.build_sdist('dist')", source)
    (sdist,) = (source / "dist").iterdir()
    shutil.unpack_archive(sdist, tmp_path)
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    call("from setuptools import build_meta; build_meta.build_wheel('dist')", unpacked)
    (wheel,) = (unpacked / "dist").iterdir()
    installed = tmp_path / "installed"
    shutil.unpack_archive(wheel, installed, "zip")

    def files(package: Path) -> set[str]:
        found = (path for path in package.rglob("*") if path.is_file())
        return {str(path.relative_to(package)) for path in found if "__pycache__" not in path.parts}

    assert files(installed / "crawler") == files(source / "crawler")
    program = (
        f"import sys, crawler; assert crawler.__path__ == [{str(installed / 'crawler')!r}], crawler; "
        "from crawler.cli import main; sys.exit(main(['new', 'teas']))"
    )
    call(program, installed)
    assert (installed / "teas" / "teas.py").exists()


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that prepares the build of one kernel, with a kernel cache that only this test uses."""
    pytest.importorskip("setuptools")
    kernel_build = pytest.importorskip("crawler.kernel_build")
    monkeypatch.setenv("CRAWLER_KERNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CRAWLER_KERNELS", raising=False)

    def command(out: Path, kernel: Any = None) -> Any:
        from setuptools import Distribution, Extension

        kernel = kernel or Extension("crawler.extract.survey", ["crawler/extract/survey.c"])
        command = kernel_build.BuildKernels(Distribution({"ext_modules": [kernel]}))
        command.build_lib, command.build_temp = str(out), str(out / "temp")
        command.ensure_finalized()
        return command

    return command


def compile_as(content: bytes, calls: list[str]) -> Callable[[Any, Any], None]:
    """Return a stand-in for the compiler that writes `content`."""

    def compile(command: Any, ext: Any) -> None:
        calls.append(ext.name)
        Path(command.get_ext_fullpath(ext.name)).write_bytes(content)

    return compile


@pytest.mark.filterwarnings("ignore")
def test_a_kernel_is_compiled_once_for_all_checkouts(
    build: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Once, a second installation (for example with other extras) compiled every kernel again."""
    from setuptools.command.build_ext import build_ext

    calls: list[str] = []
    monkeypatch.setattr(build_ext, "build_extension", compile_as(b"compiled", calls))
    for name in ("first", "second"):
        command = build(tmp_path / name)
        command.build_extensions()
        assert Path(command.get_ext_fullpath("crawler.extract.survey")).read_bytes() == b"compiled"
    assert calls == ["crawler.extract.survey"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("changed", ["CFLAGS", "CC"])
def test_another_compiler_compiles_anew(
    build: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changed: str
) -> None:
    from setuptools.command.build_ext import build_ext

    from crawler import kernel_build

    calls: list[str] = []
    monkeypatch.setattr(build_ext, "build_extension", compile_as(b"compiled", calls))
    build(tmp_path / "first").build_extensions()
    monkeypatch.setenv(changed, "-Og" if changed == "CFLAGS" else "true")
    kernel_build._tools.cache_clear()
    build(tmp_path / "second").build_extensions()
    kernel_build._tools.cache_clear()
    assert len(calls) == 2


@pytest.mark.filterwarnings("ignore")
def test_a_source_or_declaration_that_changes_is_compiled_anew(
    build: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from setuptools import Extension

    from crawler import kernel_build

    monkeypatch.setattr(kernel_build, "PACKAGE", tmp_path / "crawler")
    source, declared = tmp_path / "crawler" / "due" / "a.py", tmp_path / "crawler" / "due" / "b.pxd"
    source.parent.mkdir(parents=True)
    kernel = Extension("crawler.due.a", ["a.c"])
    places = []
    for path, text in ((source, "1"), (declared, "1"), (source, "2"), (declared, "2")):
        path.write_text(text)
        places.append(build(tmp_path)._cached(kernel))
    assert len(set(places)) == len(places)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no compiler")
def test_c_code_of_an_earlier_build_is_not_used(build: Callable[..., Any], tmp_path: Path) -> None:
    """C code that is newer than its source was once used again, even after another Cython or other directives.

    A compiled object has no code for pickling, and refuses to be pickled. It does not lose its fields.
    """
    from setuptools import Extension

    source = tmp_path / "kernel.py"
    source.write_text("import cython\n@cython.cclass\nclass Kernel:\n    field: cython.int\n")
    stale = source.with_suffix(".c")
    stale.write_text("/* Generated by Cython 3.3.1 */\n#error stale\n")
    later = source.stat().st_mtime + 10
    os.utime(stale, (later, later))
    command = build(tmp_path / "out", Extension("kernel", [str(source)], extra_compile_args=["-O0"]))
    command.run()
    program = "import pickle, kernel; pickle.dumps(kernel.Kernel())"
    ran = subprocess.run(
        [sys.executable, "-S", "-c", program],
        cwd=tmp_path / "out",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "TypeError: cannot pickle 'kernel.Kernel' object" in ran.stderr


@pytest.mark.filterwarnings("ignore")
def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kernel_build = pytest.importorskip("crawler.kernel_build")
    monkeypatch.setattr(kernel_build, "KEPT_MAX", 3)
    made = tmp_path / "made.so"
    made.write_bytes(b"compiled")
    for number in range(6):
        cached = tmp_path / "cache" / f"{number}.so"
        kernel_build.keep(made, cached)
        os.utime(cached, (number, number))
    assert len(list((tmp_path / "cache").iterdir())) == 3
    assert (tmp_path / "cache" / "5.so").exists()


@pytest.mark.filterwarnings("ignore")
def test_a_cache_that_cannot_be_written_is_skipped(tmp_path: Path) -> None:
    kernel_build = pytest.importorskip("crawler.kernel_build")
    (tmp_path / "cache").write_text("no folder")
    made = tmp_path / "made.so"
    made.write_bytes(b"compiled")
    kernel_build.keep(made, tmp_path / "cache" / "a.so")
    assert not kernel_build.take(tmp_path / "cache" / "a.so", tmp_path / "taken.so")


def test_compilation_can_be_disabled(
    build: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`scripts/demo` uses this to show its first page before any kernel is compiled."""
    monkeypatch.setenv("CRAWLER_KERNELS", "none")
    command = build(tmp_path / "out")
    command.build_extensions()
    assert not Path(command.get_ext_fullpath("crawler.extract.survey")).exists()


def test_setup_names_a_way_out_if_it_may_not_write_its_folder(tmp_path: Path) -> None:
    """In a checkout of another user, `scripts/setup` once asked to install a module that was there."""
    (tmp_path / "file").touch()
    setup = Path(__file__).parents[1] / "scripts" / "setup"
    environment = {**os.environ, "CRAWLER_VENV": str(tmp_path / "file" / "venv")}
    ran = subprocess.run([setup, "--quick"], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr == (
        f"setup: {tmp_path}/file/venv cannot be written; CRAWLER_VENV=FOLDER names another folder\n"
    )


@pytest.mark.parametrize("compiler", ["false", "true", "no-such-program"])
def test_a_compiler_that_builds_nothing_counts_as_none(tmp_path: Path, compiler: str) -> None:
    """Setup once compiled all kernels in vain with `CC=false`, and ended without saying that they run interpreted."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/bin/false")  # ends the setup before it installs anything
    setup = Path(__file__).parents[1] / "scripts" / "setup"
    environment = {**os.environ, "CRAWLER_VENV": str(tmp_path / "venv"), "CC": compiler}
    ran = subprocess.run([setup], env=environment, capture_output=True, text=True, check=False)
    assert ran.stderr.splitlines()[0] == (
        "setup: no gcc or no Python.h: the kernels will run interpreted; "
        f"Debian: apt-get install gcc python3-dev (CC={compiler} cannot compile Python.h)"
    )
