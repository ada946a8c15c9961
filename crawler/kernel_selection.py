"""Selects the form of the kernels: compiled or interpreted.

Kernels that use one another's C structs (`cimport`) must have the same form. The reason is that a compiled
kernel finds no structs in an interpreted one, and an interpreted kernel finds no C attributes in a compiled
one. There are three such groups (GROUPS). Each kernel is compiled separately at installation, where a failed build is
not an error. So before any of these kernels is imported, `choose` checks which were compiled. If a compiled kernel is
missing, all kernels of its group are imported as source; if `CRAWLER_INTERPRETED=1` is set, those of all groups.
`tell_of_kernels` tells the user.

Kernels that depend on no other kernel (ALONE) may have either form. A `.pxd` file without a module of its own
is compiled into each kernel that imports it. All compiled kernels import SHARED, which contains Cython's
memory views. If SHARED was not compiled, every kernel is imported as source.
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

_SCANNING = ("extract.tag_reader", "extract.link_scanner")
_REFRESHING = (
    "freshness.residuals",
    "freshness.value_kernel",
    "lab.refresh.crawl_value",
    "freshness.change_rates",
    "freshness.restless",
    "freshness.rate_turns",
    "freshness.neighbourhood",
    "freshness.seasons",
    "freshness.page_kinds",
    "freshness.false_signals",
    "freshness.source_honesty",
    "freshness.source_precision",
    "freshness.source_turns",
    "freshness.signal_quality",
    "freshness.signal_evidence",
    "freshness.information",
    "freshness.biases",
    "freshness.discovery",
    "freshness.learning",
    "frontier.refresh.heaps",
    "frontier.refresh.hubs",
    "frontier.refresh.numbering",
    "frontier.refresh.tables",
    "frontier.refresh.level_controller",
    "frontier.refresh.offsets",
    "frontier.refresh.deadlines",
    "frontier.refresh.first_pages",
    "frontier.refresh.absences",
    "frontier.refresh.queues",
    "frontier.refresh.exploration",
    "frontier.refresh.flights",
    "frontier.refresh.page_signals",
    "frontier.refresh.schedule_records",
    "frontier.refresh.page_facts",
    "frontier.refresh.overview",
    "frontier.refresh.pace",
    "frontier.refresh.schedule",
    "lab.refresh.exact_greedy",
)
_CACHING = ("lab.caches.cache_kernels", "lab.caches.locality_kernels")
GROUPS = (_SCANNING, _REFRESHING, _CACHING)
# modules in pyproject's ext-modules; `tests/test_kernel_selection.py` compares the groups with the imports
BOUND = (*_SCANNING, *_REFRESHING, *_CACHING)

ALONE = (
    "urls.clock_cache",
    "urls.canonical",
    "urls.fingerprint",
    "urlfilter.traps",
    "urlfilter.url_filter",
    "urlfilter.link_filter",
    "extract.survey",
    "due.sorting",
    "due.elias_fano",
    "due.pending_set",
    "freshness.newton_fit",
    "lab.refresh.replay",
    "lab.living.refitting",
    "pages.formats.simhash",
)
SHARED = "memoryviews"
_SHOWN_MAX = 3  # maximum number of kernels that `said_of_kernels` names
_CIMPORTS = "cython.cimports.crawler"


class AsSource:
    """An import hook that makes Python import the given modules from their source, even if a compiled form exists."""

    def __init__(self, folder: str, names: Iterable[str]) -> None:
        self._paths = {f"crawler.{name}": _path(folder, name) + ".py" for name in names}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        source = self._paths.get(fullname)
        return None if source is None else spec_from_file_location(fullname, source)


class CImports:
    """An import hook for interpreted kernels, which lets them import from `cython.cimports.crawler`.

    A compiled kernel imports the C declarations of another one from this package, which exists only for the
    compiler. For an interpreted kernel, the hook provides the Python modules under these names.
    """

    def install(self) -> None:
        sys.meta_path.insert(0, self)
        # Python would not find the package, because Cython's stand-in for `cython.cimports` has no `__spec__`.
        sys.modules[_CIMPORTS] = module_from_spec(self._spec(_CIMPORTS))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return self._spec(fullname) if fullname.startswith(_CIMPORTS) else None

    def _spec(self, fullname: str) -> ModuleSpec:
        # `importlib.abc.Loader`, which the type asks for, would import `tempfile` for every command.
        return ModuleSpec(fullname, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(vars(import_module(module.__name__.removeprefix("cython.cimports."))))


def _path(folder: str, name: str) -> str:
    return os.path.join(folder, *name.split("."))


def all_compiled(folder: str) -> bool:
    """Return whether SHARED and all modules in BOUND are compiled in the package at `folder`."""
    return _are_compiled(folder, (SHARED, *BOUND))


def _is_compiled(folder: str, name: str) -> bool:
    return any(os.path.exists(_path(folder, name) + suffix) for suffix in EXTENSION_SUFFIXES)


def _interpreted(folder: str) -> list[str]:
    """Return the kernels that are imported as source from the package at `folder`."""
    if not _is_compiled(folder, SHARED):
        return [*BOUND, *ALONE]
    asked = os.environ.get("CRAWLER_INTERPRETED", "") not in ("", "0")
    found = [name for group in GROUPS if asked or not _are_compiled(folder, group) for name in group]
    return found + [name for name in ALONE if not _is_compiled(folder, name)]


def _are_compiled(folder: str, names: Iterable[str]) -> bool:
    return all(_is_compiled(folder, name) for name in names)


def choose(folder: str) -> bool:
    """Use each group of the package at `folder` in one form; return True if all kernels are compiled."""
    sources = _interpreted(folder)
    if not sources:
        return True
    sys.meta_path.insert(0, AsSource(folder, sources))
    CImports().install()
    return False


def are_interpreted() -> bool:
    """Return whether `choose` made Python import the kernels of the refresh schedule from their source."""
    kernel = f"crawler.{_REFRESHING[0]}"
    return any(isinstance(finder, AsSource) and finder.find_spec(kernel) for finder in sys.meta_path)


def tell_of_kernels(warn: Callable[[str], object]) -> None:
    """Give the line of `said_of_kernels` to `warn`, once in a program, if kernels run interpreted.

    Every program that opens the stages of a crawl calls this: each command, and a script that uses the Python API.
    """
    if not _told and (line := said_of_kernels()):
        _told.append(line)
        warn(line)


_told: list[str] = []


def said_of_kernels() -> str:
    """Return a line for users about kernels that run interpreted; "" if all are compiled."""
    folder = os.path.dirname(__file__)
    sources = _interpreted(folder)
    if not sources:
        return ""
    missing = [name for name in (SHARED, *BOUND, *ALONE) if not _is_compiled(folder, name)]
    count = len(BOUND) + len(ALONE)
    line = f"{len(sources)} of {count} kernels run interpreted, which is up to several times slower"
    if not missing:
        return f"{line}, because CRAWLER_INTERPRETED is set"
    shown = ", ".join(missing[:_SHOWN_MAX]) + (" and others" if len(missing) > _SHOWN_MAX else "")
    advice = "scripts/setup compiles them if gcc and python3-dev are installed"
    return f"{line}, because these are not compiled: {shown}; {advice}"
