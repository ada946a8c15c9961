"""Chooses the form of the kernels: all compiled, or all as source.

Kernels that see one another's C structs (`cimport`) must be of one form: a compiled
one finds no structs in the source of another, the source no C attributes in a compiled
one. Each is compiled separately at installation, and a failed build is no error there.
So before any is imported, `choose` looks whether all were compiled. If one was not, or
if `CRAWLER_INTERPRETED=1` is set, all are imported as source.

Kernels that know no other (ALONE) may be of either form; a `.pxd` without source is
part of each that imports it. All compiled kernels import SHARED, Cython's memory views:
if it was not compiled, every kernel is imported as source.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType

BOUND = (
    "freshness.residuals",
    "freshness.value_kernel",
    "freshness.value_columns",
    "freshness.change_rates",
    "freshness.neighbourhood",
    "freshness.signal_quality",
    "freshness.discovery",
    "freshness.learning",
    "lab.refresh.indexed_heap",
    "frontier.refresh.heaps",
    "frontier.refresh.hubs",
    "frontier.refresh.numbering",
    "frontier.refresh.tables",
    "frontier.refresh.level_controller",
    "frontier.refresh.deadlines",
    "frontier.refresh.queues",
    "frontier.refresh.exploration",
    "frontier.refresh.flights",
    "frontier.refresh.page_signals",
    "frontier.refresh.schedule_records",
    "frontier.refresh.overview",
    "frontier.refresh.schedule",
    "lab.refresh.exact_greedy",
)  # in pyproject's ext-modules; `tests/test_kernel_selection.py` keeps it equal to who imports whom


ALONE = (
    "urls.clock_cache",
    "extract.survey",
    "due.sorting",
    "due.elias_fano",
    "due.pending_set",
    "lab.refresh.replay",
    "pages.formats.simhash",
)
SHARED = "memoryviews"


class AsSource(MetaPathFinder):
    """Finds the source of the modules it is for, before anybody finds their compiled form."""

    def __init__(self, folder: str, names: Iterable[str]) -> None:
        self._paths = {f"crawler.{name}": _path(folder, name) + ".py" for name in names}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        source = self._paths.get(fullname)
        return None if source is None else spec_from_file_location(fullname, source)


def _path(folder: str, name: str) -> str:
    return os.path.join(folder, *name.split("."))


def all_compiled(folder: str) -> bool:
    """Whether BOUND, and what compiled kernels need, have compiled forms in the package at `folder`."""
    return all(_is_compiled(folder, name) for name in (SHARED, *BOUND))


def _is_compiled(folder: str, name: str) -> bool:
    return any(os.path.exists(_path(folder, name) + suffix) for suffix in EXTENSION_SUFFIXES)


def choose(folder: str) -> bool:
    """Make sure that BOUND are of one form in the package at `folder`; whether that is the compiled one."""
    if all_compiled(folder) and os.environ.get("CRAWLER_INTERPRETED", "") in ("", "0"):
        return True
    names = BOUND if _is_compiled(folder, SHARED) else (*BOUND, *ALONE)
    sys.meta_path.insert(0, AsSource(folder, names))
    return False


def are_interpreted() -> bool:
    """Whether `choose` made all of BOUND source."""
    return any(isinstance(finder, AsSource) for finder in sys.meta_path)
