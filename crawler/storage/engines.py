"""The engines of stores on disk: which there are, which one a folder holds, opening it.

    leveldb      LevelDB by plyvel: wheels up to Python 3.12, else a compiler and LevelDB's headers
    rocksdict    RocksDB by rocksdict: wheels for all

The files of a store show its engine, so a store is opened without configuration;
`store.engine` is the engine of a store that is created.
"""

import importlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

from crawler.errors import DamageError, DirectoryError, UsageError
from crawler.storage.kv import DiskStore

Engine = Literal["leveldb", "rocksdict"]
Choice = Literal["auto", "leveldb", "rocksdict"]
AUTO: Final = "auto"
ENGINES: tuple[Engine, ...] = ("leveldb", "rocksdict")
_MODULES: dict[Engine, str] = {
    "leveldb": "crawler.storage.level_store",
    "rocksdict": "crawler.storage.rocks_store",
}
_CLASSES = {"leveldb": "LevelStore", "rocksdict": "RocksStore"}
_PACKAGES = {
    "leveldb": "`pip install plyvel` (from Python 3.13 on with a compiler and LevelDB's headers; Debian: "
    "apt-get install gcc g++ libleveldb-dev python3-dev)",
    "rocksdict": "`pip install rocksdict`",
}
# Files that only a RocksDB has: its identity, options, rocksdict's own, tables.
_OF_ROCKS = ("IDENTITY", "OPTIONS-*", "rocksdict-config.json", "*.sst")


def engine_of(path: Path) -> Engine | None:
    """The engine of the store in the folder `path`; None if there is none."""
    if any(next(path.glob(name), None) for name in _OF_ROCKS):
        return "rocksdict"
    return "leveldb" if any(next(path.glob(name), None) for name in ("CURRENT", "*.ldb", "*.log")) else None


def _module(engine: Engine) -> ModuleType | None:
    """What opens stores of `engine`; None where its package cannot be imported."""
    try:
        return importlib.import_module(_MODULES[engine])
    except ImportError:
        return None


def chosen(engine: Choice = AUTO) -> Engine:
    """The engine of a new store: `engine`, or the first that can be imported.

    Raises:
        UsageError: `engine` cannot be imported here, or none.
    """
    wanted: list[Engine] = list(_MODULES) if engine == AUTO else [engine]
    for name in wanted:
        if _module(name):
            return name
    raise UsageError(f"store.engine = {engine!r}: not installed: {_PACKAGES[wanted[-1]]}")


def open_store(path: Path, engine: Choice = AUTO, **sizes: int) -> DiskStore:
    """The store in the folder `path`, a new one of `engine` if there is none; `sizes` as of `LevelStore`.

    Raises:
        DirectoryError: it is of another engine than `engine`, or its engine is not installed here.
        DamageError, StoreError: as the engine's class.
    """
    found = engine_of(path)
    if found and engine not in (AUTO, found):
        raise another_engine(path, found, engine)
    name = found or chosen(engine)
    return _class(name, path)(path, **sizes)


def another_engine(where: Path, found: str, wanted: str) -> DirectoryError:
    """The error of a crawl or store in `where` that is of the engine `found`."""
    change = f"`crawler reshard --to N --set store.engine={wanted}`, N its number of processes, changes that"
    return DirectoryError(f'{where}: was begun with store.engine = "{found}"; {change}')


def _class(engine: Engine, path: Path) -> Any:
    module = _module(engine)
    if module is None:
        raise DirectoryError(f'store {path}: is of store.engine = "{engine}": {_PACKAGES[engine]}')
    return getattr(module, _CLASSES[engine])


def repair(path: Path, engine: Choice = AUTO, before: Callable[[], None] = lambda: None) -> tuple[str, bool]:
    """Rebuild a store that cannot be opened or read to its end from what can be read.

    What was done, "" if nothing, and whether it was rebuilt; opening it may have cut a torn tail.

    An engine's repair reads every table and makes a new manifest. What it cannot
    read it moves to `lost/`. Nobody else may have the store open. `before` is called before it is rebuilt.

    Raises:
        DamageError: nothing helps.
    """
    try:
        with closing(open_store(path, engine)) as store:
            for _ in store.scan(b""):
                pass
        return store.mended, False
    except DamageError as error:
        found = str(error)
    module = _module(engine_of(path) or chosen(engine))
    assert module is not None, "it was opened above"
    before()
    module.rebuild(path)
    lost = sum(1 for _ in path.glob("lost/*"))
    done = f"{found.partition(';')[0]}: rebuilt, {lost} files that could not be read are in {path / 'lost'}"
    return done, True
