"""Compiles the expression that selects rows: `host == "x.org" and (status >= 400 or "shop" in url)`.

Names are fields of a row. Values are text in quotes, numbers, `true`, `false`, and lists of these. There are
comparisons (`==  !=  <  <=  >  >=  in  not in`), `and`, `or`, `not`, parentheses, `len(field)` and
`matches(field, "regular expression")`. A time is compared with a period, written as for all commands (`typed_time.py`):
`fetched_at == "2026-11"` is any time in November, and `fetched_at > "2026-11-28"` is after that day. Other texts are
refused as times. A missing field is neither equal to any value, nor less, nor greater.

Python's parser parses the text. The tree is compiled to closures, and never evaluated as Python. Anything not
listed above is rejected with a one-line message.
"""

import ast
import difflib
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from crawler.errors import ConfigError, UsageError
from crawler.typed_time import iso_prefix
from crawler.user_patterns import compiled

LENGTH_MAX = 4_000  # maximum length of an expression in characters; this also limits the depth of its tree
_DEPTH_MAX = 100

Row = Mapping[str, Any]
_Value = Callable[[Row], Any]
Compare = Callable[[Any, Any], bool]
_COMPARISONS: dict[type[ast.cmpop], Compare] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
# What users of other languages write, and what they should write here.
_HINTS = {
    r"[^=<>!]=[^=]": "equality is ==",
    r"&&": "write `and`",
    r"\|\|": "write `or`",
    r"!(?!=)": "write `not`",
    r"~": 'write matches(url, "regular expression")',
}
# Names of fields in CDXJ and in other tools
_ALIASES = {"mime": "content_type", "type": "content_type", "lang": "language", "code": "status"} | (
    dict.fromkeys(("timestamp", "date", "time"), "fetched_at")
)
# Fields whose text is a time in ISO 8601
TIMES = frozenset({"fetched_at", "changed_at", "published", "modified"})
_WORDS = {"true": True, "false": False}
_NAMES = {str: "text", int: "a number", float: "a number", bool: "true or false"}


class Where(NamedTuple):
    """A compiled expression: the fields that it uses, and the function that tests a row."""

    fields: frozenset[str]
    test: Callable[[Row], bool]


class _Part(NamedTuple):
    value: _Value
    kind: type | None  # None: a list


def compile_where(text: str, fields: Mapping[str, type]) -> Where:
    """Compile an expression over `fields` (name -> str, int, float or bool).

    Raises:
        UsageError: the expression is invalid; the message says where.
    """
    if len(text) > LENGTH_MAX:
        raise UsageError(f"--where: the expression is longer than {LENGTH_MAX} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        place = f" at character {error.offset}" if isinstance(error, SyntaxError) and error.offset else ""
        unquoted = re.sub(r"\"[^\"]*\"|'[^']*'", '""', text)
        hints = [hint for pattern, hint in _HINTS.items() if re.search(pattern, unquoted)]
        hint = hints[0] if hints else "use comparisons, and, or, not"
        raise UsageError(f"--where: {text!r} cannot be parsed{place}; {hint}") from None
    compiler = _Compiler(fields)
    test = compiler.condition(tree.body, 0)
    return Where(frozenset(compiler.used), test)


class _Compiler:
    def __init__(self, fields: Mapping[str, type]) -> None:
        self._fields = fields
        self.used: set[str] = set()

    def condition(self, node: ast.expr, depth: int) -> Callable[[Row], bool]:
        if depth > _DEPTH_MAX:
            raise UsageError("--where: the expression is nested too deeply")
        if isinstance(node, ast.BoolOp):
            parts = [self.condition(value, depth + 1) for value in node.values]
            every = all if isinstance(node.op, ast.And) else any
            return lambda row: every(part(row) for part in parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            part = self.condition(node.operand, depth + 1)
            return lambda row: not part(row)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.Call) and _called(node) == "matches":
            return self._matches(node)
        if isinstance(node, ast.Name | ast.Constant):
            value, kind = self._value(node)
            if kind is bool:
                return lambda row: value(row) is True
            raise UsageError(
                f"--where: {_shown(node)} is {_kind(kind)}, not a condition; compare it with something"
            )
        raise UsageError(f"--where: {_shown(node)} is not supported; use comparisons, and, or, not")

    def _comparison(self, node: ast.Compare) -> Callable[[Row], bool]:
        operands = [node.left, *node.comparators]
        values = [self._value(operand) for operand in operands]
        tests = []
        for place, sign in enumerate(node.ops):
            compare = _COMPARISONS.get(type(sign))
            if compare is None:
                raise UsageError("--where: `is` is not supported; use ==")
            left, right = values[place], values[place + 1]
            _check_kinds(sign, left.kind, right.kind, operands[place], operands[place + 1])
            left, right, compare = _with_periods(sign, compare, left, right, operands[place : place + 2])
            tests.append(
                _comparing(compare, left.value, right.value, isinstance(sign, ast.NotEq | ast.NotIn))
            )
        return lambda row: all(test(row) for test in tests)

    def _matches(self, node: ast.Call) -> Callable[[Row], bool]:
        usage = 'write it as matches(url, "regular expression")'
        if len(node.args) != 2 or node.keywords or not isinstance(node.args[1], ast.Constant):
            raise UsageError(f"--where: {usage}")
        value, kind = self._value(node.args[0])
        pattern = node.args[1].value
        if kind is not str or not isinstance(pattern, str):
            raise UsageError(f"--where: {usage}")
        try:
            search = compiled(pattern).search
        except ConfigError as error:
            raise UsageError(f"--where: {error}") from None
        return lambda row: search(value(row) or "") is not None

    def _value(self, node: ast.expr) -> _Part:
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float):
            constant = node.value
            return _Part(lambda row: constant, type(constant))
        if (
            isinstance(node, ast.UnaryOp)
            and isinstance(node.op, ast.USub)
            and isinstance(node.operand, ast.Constant)
        ):
            number = node.operand.value
            if isinstance(number, int | float):
                return _Part(lambda row: -number, type(number))
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            members = [self._value(each).value({}) for each in node.elts if isinstance(each, ast.Constant)]
            if len(members) == len(node.elts):
                return _Part(lambda row: members, None)
        if (
            isinstance(node, ast.Call)
            and _called(node) == "len"
            and len(node.args) == 1
            and not node.keywords
        ):
            inner = self._value(node.args[0])
            if inner.kind is str:
                return _Part(lambda row: len(inner.value(row) or ""), int)
        raise UsageError(f"--where: {_shown(node)} is not supported; use fields, quoted text and numbers")

    def _name(self, name: str) -> _Part:
        if name in _WORDS:
            return _Part(lambda row: _WORDS[name], bool)
        kind = self._fields.get(name)
        if kind is None:
            meant = did_you_mean(name, self._fields)
            quoted = f'; write text in quotes: "{name}"' if meant.startswith("; known") else ""
            raise UsageError(f"--where: there is no field {name}{quoted}{meant}")
        self.used.add(name)
        return _Part(lambda row: row.get(name), kind)


def did_you_mean(name: str, known: Mapping[str, Any]) -> str:
    """Return the text `; did you mean X?`, or a list of the known names if none is similar."""
    if _ALIASES.get(name) in known:
        return f"; did you mean {_ALIASES[name]}?"
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]}?" if close else f"; known names: {', '.join(known)}"


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _shown(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else text[:57] + "..."


def _kind(kind: type | None) -> str:
    return "a list" if kind is None else _NAMES[kind]


def _check_kinds(sign: ast.cmpop, left: type | None, right: type | None, a: ast.expr, b: ast.expr) -> None:
    if isinstance(sign, ast.In | ast.NotIn):
        if right is not None and (left, right) != (str, str):
            raise UsageError(f"--where: {_shown(b)} is {_kind(right)}; `in` needs a text or a [list]")
        return
    if left is None or right is None or _NAMES[left] != _NAMES[right]:
        raise UsageError(
            f"--where: {_shown(a)} is {_kind(left)} and {_shown(b)} is {_kind(right)}; they cannot be compared"
        )


def _with_periods(
    sign: ast.cmpop, compare: Compare, left: _Part, right: _Part, operands: Sequence[ast.expr]
) -> tuple[_Part, _Part, Compare]:
    """Return both sides of a comparison and its function. If one side is a time, a text on the other is a period."""
    of_left, of_right = map(_time, operands)
    if isinstance(sign, ast.In | ast.NotIn):
        if not of_left or right.kind is not None:
            return left, right, compare
        return left, right, _within_some(of_left, right.value({}), wanted=isinstance(sign, ast.In))
    if of_left and not isinstance(operands[1], ast.Name):
        return *_cut(of_left, left, right), compare
    if of_right and not isinstance(operands[0], ast.Name):
        time, period = _cut(of_right, right, left)
        return period, time, compare
    return left, right, compare


def _time(node: ast.expr) -> str:
    """Return the name of the field if an operand is a time, else ""."""
    return node.id if isinstance(node, ast.Name) and node.id in TIMES else ""


def _within_some(field: str, texts: Sequence[object], *, wanted: bool) -> Compare:
    periods = tuple(_period(field, each) for each in texts)
    return lambda value, _: value.startswith(periods) is wanted


def _cut(field: str, time: _Part, text: _Part) -> tuple[_Part, _Part]:
    """Return a time that is cut to the precision of the period that a text names, and the period."""
    period = _period(field, text.value({}))
    length = len(period)
    return _Part(lambda row: (value := time.value(row)) and value[:length], str), _Part(
        lambda row: period, str
    )


def _period(field: str, text: object) -> str:
    try:
        return iso_prefix(str(text))
    except UsageError as error:
        raise UsageError(f"--where: {field}: {error}") from None


def _comparing(compare: Compare, left: _Value, right: _Value, absent: bool) -> Callable[[Row], bool]:
    """Return a function that tests a row; `absent` is the result of the test if a field is missing."""

    def test(row: Row) -> bool:
        a, b = left(row), right(row)
        return absent if a is None or b is None else compare(a, b)

    return test
