"""The keys of the configuration, such as `section.key`, and the words that they accept as values."""

from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from crawler.config.schema import Config, Override


@cache
def fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a section, without evaluating its annotations in each call, which takes 0.1 ms."""
    return msgspec.structs.fields(kind)


def sections() -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """Yield (name, struct) for each section."""
    for section in fields(Config):
        if isinstance(section.type, type) and issubclass(section.type, msgspec.Struct):
            yield section.name, section.type


def keys() -> dict[str, tuple[str, ...]]:
    """Return all keys in the order of the schema, each with the words that it accepts, () if there are none."""
    return {f"{name}.{field.name}": _words(field.type) for name, kind in sections() for field in fields(kind)}


def words(path: str) -> tuple[str, ...]:
    """Return the words that the key `path` accepts, () if there are none.

    The path of a key in an override is written `override[3].key`.
    """
    section, _, key = path.partition(".")
    if not section.startswith("override"):
        return keys().get(path, ())
    return next((_words(field.type) for field in fields(Override) if field.name == key), ())


def accepts_number(path: str) -> bool:
    """Return whether the key `path` accepts a number in addition to its words."""
    section, _, key = path.partition(".")
    kinds = dict(sections())
    return section in kinds and any(
        get_origin(each) is Annotated and get_args(each)[0] in (int, float)
        for field in fields(kinds[section])
        if field.name == key
        for each in _kinds(field.type)
    )


def _words(kind: Any) -> tuple[str, ...]:
    return tuple(word for each in _kinds(kind) for word in _words_of(each))


def _kinds(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _words_of(kind: Any) -> tuple[str, ...]:
    if kind is bool:
        return ("true", "false")
    return get_args(kind) if get_origin(kind) is Literal else ()
