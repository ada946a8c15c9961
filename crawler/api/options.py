"""Defines once the arguments that `run`, `run_async` and `Crawl` share.

This module also defines `configure`. Type checkers and editors read the arguments from `CrawlOptions`. The
decorator `takes_options` adds the shared arguments to the signatures that `help()` shows.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict, TypeVar, get_args, get_type_hints

from crawler.api.delivery import ItemProcessor, OnError
from crawler.api.follow_rules import Follow
from crawler.api.hooks import LinkExtractorHook, PageSinkHook, UrlFilterHook
from crawler.api.item_files import ItemsGiven
from crawler.config import Config, Layers, environment_overrides
from crawler.errors import UsageError

Settings = Config | Mapping[str, Any] | None
Taker = TypeVar("Taker", bound=Callable[..., Any])


class CrawlOptions(TypedDict, total=False):
    """The arguments that the functions and `Crawl` share. `DEFAULTS` has their defaults, `DESCRIPTION` describes each."""

    directory: str | Path
    items: ItemsGiven
    follow: Follow
    on_error: OnError
    processors: Sequence[ItemProcessor]
    url_filter: UrlFilterHook | None
    link_extractor: LinkExtractorHook | None
    page_sink: PageSinkHook | None


DEFAULTS: CrawlOptions = {
    "directory": "crawl",
    "items": "",
    "follow": True,
    "on_error": "continue",
    "processors": (),
    "url_filter": None,
    "link_extractor": None,
    "page_sink": None,
}

DESCRIPTION = """\
directory: the crawl directory; a crawl that exists there is continued.
items: file of the items, named .jsonl, .csv or .parquet; items are appended to an existing file. A
    Parquet file is written when the crawl ends; until then its rows are in NAME.parquet.rows (JSONL).
    A mapping of classes to files, such as {Tea: "teas.csv", Review: "reviews.jsonl"}, writes each type of
    items to a file of its own; `dict` stands for items that are mappings.
follow: links to follow in addition to the requests: True all links in scope, False none, or
    rules: regular expressions of URLs, and CSS selectors prefixed with "css:".
on_error: the reaction to an error of the user's code, "continue" or "stop".
processors: functions of (item, page) through which each item passes before it is written; each returns
    the item, changed or not, or None to drop it.
url_filter, link_extractor, page_sink: see `Hooks`."""


def takes_options(function: Taker) -> Taker:
    """Show the shared arguments in the signature and the docstring of a function that takes `**options`.

    In the docstring, the descriptions of the arguments replace the line `**options`.
    """
    types = get_type_hints(CrawlOptions)
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[name])
        for name, default in DEFAULTS.items()
    ]
    found = inspect.signature(function)
    own = [each for each in found.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    function.__signature__ = found.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
    lines = (inspect.getdoc(function) or "").split("\n")
    for number, line in enumerate(lines):
        if line.strip() == "**options":
            indent = line[: -len("**options")]
            lines[number] = "\n".join(indent + each for each in DESCRIPTION.split("\n"))
    function.__doc__ = "\n".join(lines)
    return function


def completed(name: str, options: CrawlOptions) -> CrawlOptions:
    """Return `options` with defaults for the missing ones; `name` is the called function, for error messages.

    Raises:
        TypeError: there is no such option.
        UsageError: the value of an option is of the wrong kind.
    """
    for unknown in options.keys() - DEFAULTS.keys():
        raise TypeError(f"{name}() got an unexpected keyword argument {unknown!r}")
    given: CrawlOptions = {**DEFAULTS, **options}
    directory, items, follow = given["directory"], given["items"], given["follow"]
    expect("directory", directory, isinstance(directory, str | PathLike), "a path")
    for path in items.values() if isinstance(items, Mapping) else (items,):
        is_path = path is None or isinstance(path, str | PathLike)
        expect("items", path, is_path, "a path, or a mapping of classes to paths")
    are_rules = isinstance(follow, Sequence) and all(isinstance(rule, str) for rule in follow)
    fits = isinstance(follow, bool) or (are_rules and not isinstance(follow, str))
    expect("follow", follow, fits, "True, False or a list of rules")
    if given["on_error"] not in get_args(OnError):
        raise UsageError(f"on_error: {given['on_error']!r} is not one of {', '.join(get_args(OnError))}")
    for hook in ("url_filter", "link_extractor", "page_sink"):
        value = given[hook]  # type: ignore[literal-required]
        expect(hook, value, value is None or callable(value), "a function")
    expect(
        "processors", given["processors"], isinstance(given["processors"], Iterable), "a list of functions"
    )
    given["processors"] = tuple(given["processors"])
    for processor in given["processors"]:
        expect("processors", processor, callable(processor), "a function")
    return given


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
    for path, value in environment_overrides().items():
        layers.set("environment", path, value)
    return layers
