"""Test the structure of the code by parsing its imports (`crawler/README.md`, "Rules of the code")."""

import ast
import enum
import graphlib
import importlib
import re
import types
import typing
from collections import abc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.storage.parts import Part

ROOT = Path(__file__).resolve().parent.parent / "crawler"

SHARED = {
    "bus_errors",
    "byte_account",
    "change_signals",
    "forked_children",
    "early_signals",
    "http_dates",
    "input_files",
    "records",
    "shadow_roots",
    "content_codings",
    "turn_share",
    "typed_number",
    "typed_time",
    "unix_sockets",
    "errors",
    "printable",
    "user_patterns",
    "quick_exit",
    "threads_needed",
    "config",
    "clock",
    "kernel_build",
    "kernel_selection",
    "version",
    "wording",
    "urls",
    "storage",
    "orders",
    "signing",
}
STAGES = {
    "frontier",
    "robots",
    "fetcher",
    "render",
    "extract",
    "urlfilter",
    "splitter",
    "due",
    "freshness",
    "pages",
    "consent",
}
# Maps each stage to the other stages that it may import. The comments give the reasons.
EXCEPTIONS = {
    # the frontier schedules by crawl value, and checks robots.txt before a fetch
    "frontier": {"freshness", "robots"},
    "consent": {
        "robots",
        "extract",
    },  # consent matches paths as robots.txt does, and reads Link headers, directives and XML
    "render": {"pages"},  # render compares the visible text of a page before and after rendering
}
# The layers, lowest first: a layer imports only modules from the lines above its own line.
LAYERS = (
    SHARED,
    STAGES,
    {"crawl", "serve", "__init__"},
    {"upgrade"},
    {"export", "admin"},
    {"audit"},
    {"process"},
    {"api", "upkeep"},
    {"supervision"},
    {"cli"},
    {"bench", "lab", "__main__"},
)
# (module of a lower layer, imported module of a higher layer) -> the reason.
AGAINST_LAYERS = {
    ("__init__", "api"): "the Python API, imported when it is asked for",
    (
        "api",
        "cli",
    ): "a withdrawal in a crawl that is not opened reaches all its processes as the command does",
    ("supervision", "cli"): "a child logs in the form that the command line gave",
}
# Files that may wait, do I/O and read clocks. All other files get `now` as an argument and contain plain
# objects.
SHELL = {
    "orders/order_thread.py",
    "threads_needed.py",
    "process/process.py",
    "process/live_services.py",
    "process/services/request_counts.py",
    "process/services/urgent_fetches.py",
    "process/services/vital_signs.py",
    "process/opening/environment.py",
    "lab/cluster/virtual_browser.py",
    "lab/cluster/virtual_loop.py",
    "lab/cluster/virtual_network.py",
    "lab/cluster/fetching.py",
    "lab/cluster/cluster.py",
    "lab/cluster/population.py",
    "lab/cluster/fault_injection.py",
    "lab/cluster/operator_acts.py",
    "lab/cluster/virtual_environment.py",
    "lab/cluster/serving.py",
    "lab/commands/web.py",
    "process/committing/commit_loop.py",
    "process/lifecycle/background_tasks.py",
    "process/lifecycle/old_copies.py",
    "process/lifecycle/run_end.py",
    "process/lifecycle/seed_feed.py",
    "process/fetching/fetch_tasks.py",
    "process/fetching/page_rendering.py",
    "process/fetching/single_requests.py",
    "process/fetching/submitters.py",
    "process/fetching/subresources.py",
    "render/browser.py",
    "render/protocol.py",
    "render/rendering.py",
    "render/shared_answers.py",
    "process/exchange/agreed_end.py",
    "process/exchange/peer_exchange.py",
    "supervision/supervisor.py",
    "forked_children.py",
    "quick_exit.py",
    "export/worker_pool.py",
    "supervision/child.py",
    "supervision/parent.py",
    "process/lifecycle/shutdown.py",
    "clock.py",
    "crawl/shipper.py",
    "api/crawl.py",
    "api/page_queue.py",
    "api/delivery.py",
    "api/calls.py",
    "lab/changing/server.py",
    "lab/changing/gain.py",
    "lab/living/over_http.py",
    "fetcher/client.py",
    "fetcher/fetchers.py",
    "fetcher/connection.py",
    "fetcher/connector.py",
    "fetcher/resolver.py",
    "fetcher/tls_transport.py",
    "extract/worker.py",
    "extract/parser_process.py",
    "extract/loop_share.py",
    "turn_share.py",
    "splitter/peers.py",
    "serve/sibling_client.py",
    "serve/http_server.py",
    "serve/listening_socket.py",
    "serve/filling.py",
    "serve/subscriber.py",
    "admin/server.py",
    "admin/lazy_server.py",
    "admin/sampling.py",
    "admin/status_source.py",
    "admin/control.py",
    "admin/control_client.py",
}
SHELL_FOLDERS = {"cli", "bench"}
SHELL_IMPORTS = {"asyncio", "aiohttp", "uvloop", "socket", "time", "aiodns", "subprocess", "threading"}
# Exceptions: plain files that may import these modules; the comments give the reasons.
SHELL_IMPORT_EXCEPTIONS = {
    "kernel_build.py": {"subprocess"},  # asks the compiler for its version
    "process/fetching/reader.py": {"asyncio"},  # large stored copies are read in a thread
    "lab/cluster/curves.py": {"time"},  # the CPU time of a simulation
    "lab/commands/cache.py": {"time"},  # the CPU time of a simulation
    "lab/commands/histories.py": {"subprocess"},  # runs git
    "storage/rotating_file.py": {"threading"},  # waits for the signal that reopens logs
    "storage/files.py": {"time"},  # waits for a lock that is held briefly
    "storage/snapshot.py": {"time"},  # waits until a manifest stops changing
}


@cache
def _modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def _nodes(path: Path, *words: str) -> Iterator[ast.AST]:
    """Yield the nodes of a module. With `words`, yield none if the module's text contains none of these words."""
    text = path.read_text(encoding="utf-8")
    if not words or any(word in text for word in words):
        yield from ast.walk(ast.parse(text))


@cache
def _import_statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Return the imports of a module, also those inside functions. Expressions contain none, so they are skipped.

    Kernels import one another from `cython.cimports`; this prefix is removed.
    """
    found: list[ast.Import | ast.ImportFrom] = []
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        if isinstance(node, ast.ImportFrom) and node.module:
            node.module = node.module.removeprefix("cython.cimports.")
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, block, ())
            waiting += inner if isinstance(inner, list) else ()
    return found


@cache
def _imports(path: Path) -> set[str]:
    names = set()
    for node in _import_statements(path):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        else:
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names.add(module)
            if module == "crawler":
                names.update(f"crawler.{alias.name}" for alias in node.names)
    return names


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _is_shell(relative: str) -> bool:
    return (
        relative in SHELL or relative.split("/")[0] in SHELL_FOLDERS or relative in {"cli.py", "__main__.py"}
    )


def test_stages_form_a_star() -> None:
    """A stage imports shared modules and itself, and no other stage."""
    against = {
        (_relative(path), name)
        for path in _modules()
        if (stage := _top(_relative(path))) in STAGES
        for name in _used(path) - SHARED - EXCEPTIONS.get(stage, set())
    }
    assert not against


def test_core_is_pure() -> None:
    """Only the shell, the code that does I/O, imports event loops, sockets, clocks, threads and processes."""
    against = {
        (relative, name)
        for path in _modules()
        if not _is_shell(relative := _relative(path))
        for name in {name.split(".")[0] for name in _imports(path)} & SHELL_IMPORTS
        if name not in SHELL_IMPORT_EXCEPTIONS.get(relative, set())
    }
    assert not against


def test_shared_modules_know_no_stage() -> None:
    against = {
        (_relative(path), name)
        for path in _modules()
        if _top(_relative(path)) in SHARED
        for name in _used(path) - SHARED
    }
    assert not against


def _top(relative: str) -> str:
    return relative.split("/")[0].removesuffix(".py")


def _used(path: Path) -> set[str]:
    """Return the folders and root modules of the crawler that a file imports, except the file's own folder."""
    used = {name.split(".")[1] for name in _imports(path) if name.startswith("crawler.")}
    return used - {_top(_relative(path))}


def _against() -> set[tuple[str, str]]:
    floor = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    return {
        (top, used)
        for path in _modules()
        for top in [_top(_relative(path))]
        for used in _used(path)
        if floor[used] >= floor[top] and not (floor[top] == floor[used] < 2)
    }


def test_folders_import_only_lower_layers() -> None:
    """Folders and root modules import only lower layers. Exceptions are listed with their reasons."""
    assert {_top(_relative(path)) for path in _modules()} == set().union(*LAYERS)
    assert _against() == set(AGAINST_LAYERS), (
        "an import breaks LAYERS and is not in AGAINST_LAYERS, or one listed there no longer exists"
    )


# The layers of `process/`, lowest first: its folders, then the modules that join them.
# A folder or module imports nothing from the lines below its own.
PROCESS_FLOORS = (
    "lifecycle",
    "committing",
    "results",
    "fetching",
    "opening",
    "exchange",
    "answering",
    "process",
    "services",
    "live_services",
)
# (module of a lower layer, imported module of a higher layer) -> the reason.
AGAINST_PROCESS_FLOORS: dict[tuple[str, str], str] = {}


def test_folders_of_process_import_only_lower_layers() -> None:
    """No folder or module of `process/` imports from a higher layer."""
    floor = {name: number for number, name in enumerate(PROCESS_FLOORS)}
    against = set()
    for path in (ROOT / "process").rglob("*.py"):
        own = path.relative_to(ROOT / "process").parts[0].removesuffix(".py")
        for name in _imports(path):
            parts = name.split(".")
            inside = parts[:2] == ["crawler", "process"] and len(parts) > 2 and own in floor
            if inside and floor[parts[2]] > floor[own]:
                against.add((own, parts[2]))
    assert against == set(AGAINST_PROCESS_FLOORS)


def _imported(path: Path, modules: set[str]) -> Iterator[str]:
    """Yield the modules of the crawler that a module imports, also inside functions and for type checkers."""
    for node in _import_statements(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif (node.module or "") in modules:
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                yield below if below in modules else str(node.module)


def test_imports_have_no_cycles() -> None:
    """Imports, including those for type checkers, have no cycles. So each module can be read without its importers."""
    names = {
        ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in _modules()
    }
    known = {name: {*_imported(path, {*names})} - {name} for name, path in names.items()}
    graphlib.TopologicalSorter(known).prepare()  # a CycleError contains the cycle


def test_the_lists_are_current() -> None:
    """Every exception listed in this file is for code that exists and still needs the exception."""
    imports = {_relative(path): {name.split(".")[0] for name in _imports(path)} for path in _modules()}
    assert {file for file in SHELL if not imports.get(file, set()) & SHELL_IMPORTS} == set()
    assert {
        (file, name)
        for file, names in SHELL_IMPORT_EXCEPTIONS.items()
        for name in names - imports.get(file, set())
    } == set()
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    assert folders >= SHELL_FOLDERS | STAGES
    for stage, others in EXCEPTIONS.items():
        used = set().union(*(_used(path) for path in _modules() if _top(_relative(path)) == stage))
        assert others <= used, f"{stage} does not use {sorted(others - used)}"


# An object with more methods, properties included, has more than one responsibility.
METHODS_MAX = 24
# Classes that still have more methods -> how many; no number here may rise.
MANY_METHODS = {
    "Answer": 29,
    "ChangingWeb": 30,
    "Client": 26,
    "ClockCache": 27,
    "FetchTasks": 26,
    "OperatorActs": 26,
    "Outbox": 26,
    "Population": 32,
    "Spool": 26,
}


def test_no_class_is_a_hub() -> None:
    found = [
        (node.name, sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body))
        for path in _modules()
        for node in _nodes(path, "class ")
        if isinstance(node, ast.ClassDef)
    ]
    assert {name: n for name, n in found if n > METHODS_MAX} == MANY_METHODS, (
        "move a responsibility, with its state, to a class of its own"
    )


# Modules and calls that could send a request without the fetcher, and so without its address guard, proxy,
# identity, limits and redaction of records.
CLIENT_MODULES = {
    "aiohttp",
    "requests",
    "httpx",
    "urllib3",
    "http",
    "ftplib",
    "smtplib",
    "pycurl",
    "websockets",
    "obstore",
}
CLIENT_NAMES = {"urllib.request", "http.client"}
CLIENT_CALLS = {
    "ClientSession", "open_connection", "create_connection", "create_datagram_endpoint", "sock_connect", "urlopen",
    "connect", "connect_ex",
}  # fmt: skip
# File -> (the modules and calls that the file may use, the purpose). The lab and the benchmarks are not part of a crawl.
CLIENTS_ALLOWED: dict[str, tuple[set[str], str]] = {
    "splitter/peers.py": ({"create_connection"}, "links to the other processes of the crawl"),
    "serve/sibling_client.py": (
        {"open_connection"},
        "requests a page from the process that owns it, at `serve.peers`",
    ),
    "admin/control_client.py": ({"connect"}, "a Unix socket in the crawl's directory"),
    "cli/companions.py": ({"connect"}, "systemd's Unix socket"),
    "pages/formats/mirror.py": ({"connect"}, "an SQLite file"),
    "storage/object_store.py": ({"obstore"}, "ships WARC files to the operator's object storage"),
    "cli/demo_web.py": ({"aiohttp"}, "the synthetic web of the demo is an HTTP server"),
    "cli/loopback.py": ({"aiohttp"}, "servers of the demo and the lab"),
}


def _clients(path: Path) -> set[str]:
    """Return the modules and calls of a file that could send data.

    Calls with `sock` are for child processes, so they do not count.
    """
    found = {name for name in _imports(path) if name in CLIENT_NAMES}
    found |= {top for name in _imports(path) if (top := name.split(".")[0]) in CLIENT_MODULES - {"http"}}
    for node in _nodes(path, *CLIENT_CALLS):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if name in CLIENT_CALLS and "sock" not in {each.arg for each in node.keywords}:
                found.add(name)
    return found


def test_every_request_leaves_through_the_fetcher() -> None:
    """Once, the WebSub subscriber had its own HTTP client, which sent the secret to any address that a hub named."""
    used = {
        _relative(path): found
        for path in _modules()
        if _top(_relative(path)) not in {"fetcher", "lab", "bench"} and (found := _clients(path))
    }
    assert used == {file: names for file, (names, _) in CLIENTS_ALLOWED.items()}


def test_csv_is_written_in_one_place() -> None:
    """The consent report once wrote names of hosts without `csv_cell`. The lab's own tables contain only numbers."""
    writers = {
        _relative(path)
        for path in _modules()
        for node in _nodes(path, "csv.")
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("csv.writer", "csv.DictWriter")
    }
    assert writers == {"printable.py", "lab/refresh/pages_file.py"}


def test_no_use_of_the_global_random_generator() -> None:
    """Random choices come from a generator that is passed in, so that runs can be repeated."""
    for path in _modules():
        for node in _nodes(path, "random."):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "random"
                and node.attr not in {"Random", "SystemRandom"}
            ):
                pytest.fail(f"{_relative(path)}:{node.lineno} uses random.{node.attr}")


# File names that may occur in many folders, because they have the same meaning in each folder.
ALIKE = {"__init__.py", "__main__.py", "reshard.py", "server.py"}
# Folders whose modules are named after the commands that they implement.
COMMANDS = {"cli", "lab/commands", "bench"}


def test_class_and_file_names_are_unique() -> None:
    """Public class names are unique, and file names are unique except for those in `ALIKE` and `COMMANDS`."""
    classes: dict[str, list[str]] = {}
    files: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        where = path.relative_to(ROOT)
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            classes.setdefault(name, []).append(str(where))
        if path.name not in ALIKE and where.parent.as_posix() not in COMMANDS:
            files.setdefault(path.name, []).append(str(where))
    assert {name: places for name, places in (classes | files).items() if len(places) > 1} == {}


def test_no_file_needs_the_package_of_one_engine() -> None:
    """Only `engines.py` opens stores.

    From Python 3.13 on, plyvel may be missing, and then the tests of a module that imports it would not run.
    """
    found = []
    for folder in ("crawler", "tests", "scripts"):
        for path in sorted((ROOT.parent / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if not any(name in text for name in ("plyvel", "rocksdict", "level_store", "rocks_store")):
                continue
            for node in ast.parse(text).body:  # top-level imports only
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
                if {"plyvel", "rocksdict"} & {each.partition(".")[0] for each in names} or any(
                    each.endswith((".level_store", ".rocks_store")) for each in names
                ):
                    found.append(path.relative_to(ROOT.parent).as_posix())
    assert found == ["crawler/storage/level_store.py", "crawler/storage/rocks_store.py"]


PLAIN = (int, float, str, bytes, bool, type(None), Part)  # a Part holds a file, digests and plain data
HOLDERS = (tuple, list, dict, abc.Sequence, typing.Union, types.UnionType)


def test_structs_without_garbage_collection_hold_only_plain_data() -> None:
    """A class with gc=False must not be part of a reference cycle (a request that refers to its process, say),
    because such a cycle would never be freed.
    """
    for path in _modules():
        if "gc=False" in path.read_text(encoding="utf-8"):
            importlib.import_module(f"crawler.{_relative(path).removesuffix('.py').replace('/', '.')}")
    structs = [each for each in _below(msgspec.Struct) if not each.__struct_config__.gc]
    assert len(structs) > 30
    for struct in structs:
        for name, kind in typing.get_type_hints(struct).items():
            assert _is_data(kind), f"{struct.__module__}.{struct.__name__}.{name}: {kind}"


def _below(kind: type) -> Iterator[Any]:
    for each in kind.__subclasses__():
        if each.__module__.startswith("crawler."):
            yield each
        yield from _below(each)


def _is_data(kind: Any) -> bool:
    if typing.get_origin(kind) in HOLDERS:
        return all(each is Ellipsis or _is_data(each) for each in typing.get_args(kind))
    if not isinstance(kind, type):
        return False
    if issubclass(kind, msgspec.Struct):
        return not kind.__struct_config__.gc
    return issubclass(kind, (*PLAIN, enum.Enum))
