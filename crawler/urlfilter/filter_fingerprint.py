"""Computes a fingerprint of a user's URL filter, so that its verdicts are not used after the filter has changed.

The fingerprint covers the name and the code of the filter, the source file of its module and the version of its
package. It also covers the values that the filter was made with: defaults, variables of an enclosing function,
arguments of `functools.partial`, and attributes of an object. Values that are neither plain data nor functions count
only by their types. Files that the filter reads, and other modules that it imports, are not covered.
"""

import hashlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, EllipsisType, FunctionType, MethodType
from typing import Any

FINGERPRINT_BYTES = 16
# A collection with more items counts only by their number. Sorting this many strings takes 0.1 s.
ITEMS_MAX = 100_000
_PLAIN = (str, bytes, bool, int, float, complex, type(None), EllipsisType)


def filter_fingerprint(hook: Callable[[str], object]) -> bytes:
    """Return 16 bytes that are equal for equal filters, also in different runs of a program."""
    digest = hashlib.blake2b(digest_size=FINGERPRINT_BYTES)
    for part in _parts(hook, set()):
        digest.update(part.encode("utf-8", "backslashreplace") + b"\0")
    return digest.digest()


def _parts(value: Any, seen: set[int]) -> Iterator[str]:
    """Yield what identifies a value. `seen` are the ids of the values that have been covered already."""
    if isinstance(value, _PLAIN):
        yield repr(value)
        return
    yield type(value).__qualname__
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, dict):
        yield from _items(list(value.items()), seen)
    elif isinstance(value, list | tuple):
        yield from _items(value, seen)
    elif isinstance(value, set | frozenset):
        yield from _items(sorted(value, key=repr) if len(value) <= ITEMS_MAX else list(value), seen)
    elif isinstance(value, partial):
        yield from _items([value.func, value.args, value.keywords], seen)
    elif isinstance(value, MethodType):
        yield from _items([value.__func__, value.__self__], seen)
    elif isinstance(value, FunctionType):
        yield from _of_function(value, seen)
    elif callable(value) and type(value).__module__ != "builtins":
        yield from _of_module(type(value).__module__)
        yield from _items([type(value).__qualname__, getattr(value, "__dict__", {})], seen)


def _items(values: Any, seen: set[int]) -> Iterator[str]:
    yield str(len(values))
    for each in values if len(values) <= ITEMS_MAX else ():
        yield from _parts(each, seen)


def _of_function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    yield function.__qualname__
    yield from _of_module(function.__module__)
    yield from _of_code(function.__code__)
    cells = [_content(cell) for cell in function.__closure__ or ()]
    yield from _items([function.__defaults__, function.__kwdefaults__, cells], seen)


def _of_code(code: CodeType) -> Iterator[str]:
    """Yield what identifies code, including the code of inner functions. The line tells lambdas of one file apart."""
    yield f"{code.co_firstlineno} {code.co_code.hex()} {code.co_names}"
    for value in code.co_consts:
        yield from _of_code(value) if isinstance(value, CodeType) else _parts(value, set())


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable is not assigned yet
        return None


def _of_module(name: str) -> Iterator[str]:
    """Yield the name of a module, the version of its package, and the digest of its source file, if it has one."""
    package = sys.modules.get(name.partition(".")[0])
    yield f"{name} {getattr(package, '__version__', '')}"
    file = getattr(sys.modules.get(name), "__file__", None)
    try:
        yield "" if file is None else hashlib.blake2b(Path(file).read_bytes()).hexdigest()
    except OSError:
        yield ""
