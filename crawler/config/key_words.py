"""The keys of the configuration, `section.key`, and the words that may be their values."""

from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from crawler.config.schema import Config, Override


def sections() -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """The sections, each with its struct."""
    for section in msgspec.structs.fields(Config):
        if isinstance(section.type, type) and issubclass(section.type, msgspec.Struct):
            yield section.name, section.type


def keys() -> dict[str, tuple[str, ...]]:
    """All keys in the order of the schema, with the words that they may be; () for those that are no words."""
    return {
        f"{name}.{field.name}": _words(field.type)
        for name, kind in sections()
        for field in msgspec.structs.fields(kind)
    }


def words(path: str) -> tuple[str, ...]:
    """The words that the key `path` may be; an override's key is named `override[3].key`."""
    section, _, key = path.partition(".")
    if not section.startswith("override"):
        return keys()[path]
    return next(_words(field.type) for field in msgspec.structs.fields(Override) if field.name == key)


def _words(kind: Any) -> tuple[str, ...]:
    if kind is bool:
        return ("true", "false")
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return tuple(word for each in kinds if get_origin(each) is Literal for word in get_args(each))
