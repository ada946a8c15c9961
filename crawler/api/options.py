"""Checks the arguments of `run`, `run_async` and `Crawl`; makes their configuration."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, get_args

from msgspec.structs import asdict

from crawler.api.delivery import OnError
from crawler.api.hooks import Hooks
from crawler.config import Config, Layers
from crawler.errors import UsageError
from crawler.wording import not_one_of

Settings = Config | Mapping[str, Any] | None


def check_arguments(
    directory: object, items: object, follow: object, on_error: object, processors: object, hooks: Hooks
) -> None:
    """Raise UsageError if the value of an argument of `Crawl` is of the wrong kind."""
    expect("directory", directory, isinstance(directory, str | PathLike), "a path")
    for path in items.values() if isinstance(items, Mapping) else (items,):
        is_path = path is None or isinstance(path, str | PathLike)
        expect("items", path, is_path, "a path, or a mapping of classes to paths")
    are_rules = isinstance(follow, Sequence) and all(isinstance(rule, str) for rule in follow)
    fits = isinstance(follow, bool) or (are_rules and not isinstance(follow, str))
    expect("follow", follow, fits, "True, False or a list of rules")
    if on_error not in get_args(OnError):
        raise UsageError(f"on_error: {not_one_of(repr(on_error), get_args(OnError))}")
    for name, hook in asdict(hooks).items():
        expect(name, hook, hook is None or callable(hook), "a function")
    expect("processors", processors, isinstance(processors, Sequence), "a list of functions")
    for processor in processors if isinstance(processors, Sequence) else ():
        expect("processors", processor, callable(processor), "a function")


def expect(name: str, value: object, fits: bool, wanted: str) -> None:
    """Raise UsageError if the value of an argument does not fit; `wanted` describes the values that do."""
    if not fits:
        raise UsageError(f"{name}: expected {wanted}, got {value!r:.100}")


def configure(settings: Mapping[str, Any] | None = None) -> Config:
    """Return the default configuration, changed by these nested settings.

    An invalid key raises a ConfigError that names the key. Environment variables `CRAWLER_SECTION__KEY`
    override the settings, as on the command line.

    >>> crawler.configure({"crawl": {"max_time": "2 h"}}).crawl.max_time
    7200.0
    """
    return layered(settings, Layers()).config()


def layered(settings: Mapping[str, Any] | None, layers: Layers) -> Layers:
    """Add nested settings, and then the environment, to `layers`; return them."""
    is_mapping = settings is None or isinstance(settings, Mapping)
    expect("config", settings, is_mapping, "a mapping or a crawler.Config")
    layers.add("", settings or {})
    layers.add_environment()
    return layers
