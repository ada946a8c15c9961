"""How the kernels are built (`crawler/kernel_build.py`)."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = "crawler.memoryviews"


@pytest.mark.filterwarnings("ignore")
def test_the_shared_module_is_whole_before_a_kernel_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cython, making it beside a kernel in another thread, once left half of it out: no kernel could be imported."""
    setuptools = pytest.importorskip("setuptools")
    kernel_build = pytest.importorskip("crawler.kernel_build")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["cmdclass"] == {"build_ext": "crawler.kernel_build.SharedFirst"}
    names = ["crawler.a", SHARED, "crawler.b"]
    modules = [setuptools.Extension(name, [f"{name}.c"]) for name in names]
    command = kernel_build.SharedFirst(setuptools.Distribution({"ext_modules": modules}))
    command.ensure_finalized()
    command.distribution.command_options["build_ext"] = {"shared_utility_qualified_name": ("", SHARED)}
    command = command.distribution.reinitialize_command(command)
    command.ensure_finalized()
    assert command.shared_utility_qualified_name == SHARED, "its options are those of `build_ext`"
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
