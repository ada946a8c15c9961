"""Lists the store engines, recognizes the engine of an existing store, and opens stores.

    leveldb      LevelDB through plyvel: wheels up to Python 3.12, otherwise a compiler and LevelDB's headers
    rocksdict    RocksDB through rocksdict: wheels for all

The files of a store show its engine, so a store can be opened without a configuration. `store.engine` only
determines the engine of new stores.
"""

import importlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Final, Literal

from crawler.errors import DamageError, DirectoryError, UsageError
from crawler.storage.kv import DiskStore
from crawler.wording import several

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
# Files that only a RocksDB store has: the identity, the options, the configuration of rocksdict, and the
# tables.
_OF_ROCKS = ("IDENTITY", "OPTIONS-*", "rocksdict-config.json", "*.sst")


def engine_of(path: Path) -> Engine | None:
    """Return the engine of the store in the folder `path`; None if there is no store."""
    if any(next(path.glob(name), None) for name in _OF_ROCKS):
        return "rocksdict"
    return "leveldb" if any(next(path.glob(name), None) for name in ("CURRENT", "*.ldb", "*.log")) else None


def _module(engine: Engine) -> ModuleType | None:
    """Return the module that opens stores of `engine`; None if its package cannot be imported."""
    try:
        return importlib.import_module(_MODULES[engine])
    except ImportError:
        return None


def chosen(engine: Choice = AUTO) -> Engine:
    """Return the engine for a new store: `engine`, or the first engine that can be imported.

    Raises:
        UsageError: `engine` cannot be imported or, if `engine` is AUTO, no engine can be imported.
    """
    wanted: list[Engine] = list(_MODULES) if engine == AUTO else [engine]
    for name in wanted:
        if _module(name):
            return name
    raise UsageError(f"store.engine = {engine!r} is not installed: {_PACKAGES[wanted[-1]]}")


def require_utf8(path: Path) -> None:
    """Raise DirectoryError if a path is not UTF-8, because no engine can open a store there."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise DirectoryError(
            f"{path}: a store cannot be opened there, because the path is not UTF-8"
        ) from error


def open_store(path: Path, engine: Choice = AUTO, **options: int) -> DiskStore:
    """Open the store in the folder `path`, or create one with `engine`. `options` are arguments of the store's class.

    Raises:
        DirectoryError: the store has an engine other than `engine`, its engine is not installed, or the path is not
            UTF-8, which the engines cannot open.
        DamageError, StoreError: see the engine's class.
    """
    require_utf8(path)
    found = engine_of(path)
    if found and engine not in (AUTO, found):
        raise another_engine(path, found, engine)
    name = found or chosen(engine)
    if (module := _module(name)) is None:
        raise DirectoryError(
            f"store {path}: it needs the engine {name}, which is not installed: {_PACKAGES[name]}"
        )
    return getattr(module, _CLASSES[name])(path, **options)


def another_engine(where: Path, found: str, wanted: str) -> DirectoryError:
    """Return the exception to raise if the crawl or store in `where` has the engine `found` instead of `wanted`."""
    change = f"`crawler reshard --to N --set store.engine={wanted}` converts it; N is its number of processes"
    return DirectoryError(f'{where}: was created with store.engine = "{found}"; {change}')


def repair(path: Path, engine: Choice = AUTO, before: Callable[[], None] = lambda: None) -> tuple[str, bool]:
    """Rebuild a store from the data that can be read, if the store cannot be opened or cannot be read to its end.

    Return a description of what was done ("" if nothing), and whether the store was rebuilt. Sometimes it is
    enough to open the store, because opening may cut a torn tail of the log; then the store is not rebuilt.
    In a rebuild, the engine reads every table, writes a new manifest, and moves the files that it cannot read
    to `lost/`. No other process may have the store open. `before` is called before the rebuild.

    Raises:
        DamageError: the store cannot be rebuilt.
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
    done = f"{found.partition(';')[0]}: rebuilt; {path / 'lost'} holds {several(lost, 'unreadable file')}"
    return done, True
