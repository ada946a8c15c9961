"""Load a kernel in either of its two forms: compiled (if a C compiler was available) or interpreted."""

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

from crawler.kernel_selection import CImports

CImports().install()
ROOT = Path(__file__).resolve().parent.parent


def installed(name: str) -> ModuleType:
    """Return the installed module.

    The result is the compiled form if the module was compiled at installation.
    """
    return importlib.import_module(name)


def interpreted(name: str) -> ModuleType:
    """Load the source of the module as a second, interpreted module with another name, and return that module."""
    path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
    spec = importlib.util.spec_from_file_location(f"interpreted_{name.replace('.', '_')}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not getattr(module, "COMPILED", False)
    return module
