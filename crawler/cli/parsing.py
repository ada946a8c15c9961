"""Command-line parsers that report an error in one line and suggest the flag or command that was meant.

Options and arguments may be given in any order. For completions and manual pages, `parser_of` gets the parser
of a command without running the command.
"""

import argparse
import errno
import math
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn

from crawler.errors import UsageError
from crawler.printable import is_unicode
from crawler.typed_number import KINDS, READERS, Number, not_a_number, number_of, out_of_range
from crawler.wording import not_one_of

_wanted: ContextVar[bool] = ContextVar("wanted", default=False)


class _Made(Exception):
    """Carries the parser of a command from its `main` to the caller, before the command runs."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def suggestion(word: str, words: Iterable[str]) -> str:
    """Return `; did you mean X?` if one of `words` resembles `word`, else ""."""
    import difflib  # imported here because it is rarely needed

    close = difflib.get_close_matches(word, list(words), 1, 0.6)
    return f"; did you mean {close[0]}?" if close else ""


def listed(values: Iterable[str]) -> list[str]:
    """Return the words of a repeatable option whose values are lists, such as `pdf,image/*`."""
    return [word.strip() for text in values for word in text.split(",") if word.strip()]


def quoted(word: object) -> str:
    """Return a path or URL quoted for pasting into a shell."""
    return shlex.quote(str(word))


def parser_of(main: Callable[[str, list[str]], int], command: str) -> argparse.ArgumentParser | None:
    """Return the parser of a command, None if it has none."""
    token = _wanted.set(True)
    try:
        main(command, [])
    except _Made as made:
        return made.parser
    except UsageError:
        pass
    finally:
        _wanted.reset(token)
    return None


def one_of(option: str, value: str, choices: Collection[str]) -> str:
    """Return the value of an option, which must be one of `choices`; else raise UsageError."""
    if value not in choices:
        raise UsageError(f"{option}: {not_one_of(repr(value), choices)}")
    return value


def some_of(option: str, text: str, choices: Collection[str]) -> list[str]:
    """Return the names in the value of an option, which are separated by commas, each name once.

    Raises:
        UsageError: a name is not among `choices`, or there is none.
    """
    names = list(dict.fromkeys(listed([text])))
    for name in names or [text]:
        one_of(option, name, choices)
    return names


def numbers(
    option: str,
    text: str,
    kind: type[Number],
    least: float = -math.inf,
    most: float = math.inf,
    *,
    above: float = -math.inf,
) -> list[Number]:
    """Return the numbers in the value of an option, which are separated by commas, each number once.

    Raises:
        UsageError: there is no number, or `number_of` rejects one.
    """
    words = listed([text]) or [text]
    return list(dict.fromkeys(number_of(option, word, kind, least, most, above=above) for word in words))


class UnknownFlag(UsageError):
    """A command got a flag that it does not have."""

    def __init__(self, flag: str, message: str, hint: str, usage: str) -> None:
        super().__init__(f"{message}{hint}; {usage}")
        self.flag = flag
        self._message = message
        self._usage = usage

    def naming(self, commands: Iterable[str]) -> str:
        """Return the message, with the names of the commands that have the flag as its hint."""
        found = ", ".join(f"`crawler {command}`" for command in commands)
        return f"{self._message}; it is a flag of {found}; {self._usage}"


# argparse names the Python function that converts an argument; these words say what the argument must be.
_INVALID = re.compile(r"invalid (\w+) value:")
_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)", re.DOTALL)
_QUOTED = re.compile(r"'([^']*)'")
_EXPECTED = {kind.__name__: f"expected a {name}, got" for kind, name in KINDS.items()}


def positive_count(most: float = math.inf) -> Callable[[str], float]:
    """Return the type of an option whose value is a whole number from 1 to `most`."""
    return number(int, 1, most)


def maybe_empty(argument: str) -> str:
    """Return the argument. This is the type of an option whose value may be empty."""
    return argument


def number(kind: type[int] | type[float], least: float, most: float = math.inf) -> Callable[[str], float]:
    """Return the type of an option whose value is a finite number from `least` to `most`."""

    def read(argument: str) -> float:
        try:
            value = READERS[kind](argument)
        except ValueError:
            raise argparse.ArgumentTypeError(not_a_number(kind, argument)) from None
        if expected := out_of_range(value, least, most):
            raise argparse.ArgumentTypeError(expected)
        return value

    return read


def result_file(argument: str) -> Path:
    """Return the path of a file for results. This is the type of an option.

    An error of this function is reported before the command does its work, which may take hours. The file need not
    exist, and neither need its parents.
    """
    path = Path(argument)
    _require_writable(path, is_folder=False)
    return path


def result_folder(argument: str) -> Path:
    """Return the path of a folder for results; the same as `result_file` otherwise."""
    path = Path(argument)
    _require_writable(path, is_folder=True)
    return path


def _require_writable(path: Path, *, is_folder: bool) -> None:
    """Raise `ArgumentTypeError` if no results could be written to `path`."""
    problem = 0
    try:
        existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error.strerror}") from error
    if not existing.is_dir() and (is_folder or existing != path):
        problem = errno.ENOTDIR
    elif existing == path and existing.is_dir() and not is_folder:
        problem = errno.EISDIR
    elif not os.access(existing, os.W_OK):
        problem = errno.EACCES
    if problem:
        raise argparse.ArgumentTypeError(f"{path}: {os.strerror(problem)}")


class PlainHelp(argparse.RawDescriptionHelpFormatter):
    """Help whose usage line shows only required flags and arguments."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:
        optional = argparse.Action([], "options", metavar="[options]")
        needed = [action for action in actions if action.required or not action.option_strings]
        super().add_usage(usage, [optional, *needed], [], prefix)


# the placeholder for an option's value in its help, by the type of the value
_METAVARS: dict[type, str] = {int: "N", float: "X", Path: "FILE"}


def add_option(
    group: argparse._ActionsContainer,
    flag: str,
    default: Any,
    text: str = "",
    *,
    least: float = 0,
    **more: Any,
) -> None:
    """Add an option to a parser or a group. The option has the type of its default, and its help ends with the default.

    An option without a default gets a type instead, such as `Path`. False makes a switch, and [] an option that
    can be repeated. If `text` ends with a parenthesis, nothing is appended to it. A number must be at least
    `least`. `more` is passed to argparse.
    """
    if default is False:
        group.add_argument(flag, action="store_true", help=text, **more)
        return
    if default == []:
        group.add_argument(flag, action="append", default=default, help=text, **more)
        return
    kind = default if isinstance(default, type) else Path if isinstance(default, Path) else type(default)
    if default is not kind:
        more["default"] = default
        if default and not text.endswith(")"):
            large = isinstance(default, int) and default >= 10_000
            text += f" ({default:{',' if large else 'g' if kind in (int, float) else ''}})"
    if "choices" not in more:
        more.setdefault("metavar", _METAVARS.get(kind))
    read = number(kind, least) if kind in KINDS else kind
    group.add_argument(flag, **{"type": read, **more}, help=text.strip())


class OptionParser(argparse.ArgumentParser):
    """An argument parser with the method `option`."""

    option = add_option

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Convert the arguments of an action, of which none may be empty, unless the type is `maybe_empty`.

        An argument is usually empty because a shell variable is not set. Many options would take it for their
        default, or, as a path, for the current folder. An argument that is text must be UTF-8; a path need not be.
        """
        if "" in arg_strings and action.type is not maybe_empty:
            raise argparse.ArgumentError(action, "the value is empty")
        if action.type in (None, str) and not all(is_unicode(each) for each in arg_strings or ()):
            raise argparse.ArgumentError(action, "the value is not UTF-8 text")
        return super()._get_values(action, arg_strings)


class Parser(OptionParser):
    """An argument parser that raises UsageError where argparse would print its usage and exit."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse options and arguments in any order."""
        if _wanted.get():
            raise _Made(self)
        mixable = not any(
            action.nargs in (argparse.PARSER, argparse.REMAINDER) for action in self._get_positional_actions()
        )
        if mixable:
            return self.parse_intermixed_args(args, namespace)
        return super().parse_args(args, namespace)

    def _flags(self) -> set[str]:
        """Return all flags, including those of subcommands."""
        below = [
            parser
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for parser in action.choices.values()
        ]
        return set(self._option_string_actions).union(*(parser._option_string_actions for parser in below))

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print the help. The method of argparse ignores a full disk and a closed pipe."""
        print(message, end="", file=file, flush=True)

    def error(self, message: str) -> NoReturn:
        message = _INVALID.sub(lambda found: _EXPECTED.get(found[1], "invalid value:"), message)
        message = _CHOICE.sub(
            lambda found: not_one_of(repr(found[1]), _QUOTED.sub(r"\1", found[2]).split(", ")), message
        )
        message = message.removeprefix("argument ")
        usage = f"`{self.prog} --help` lists the flags"
        if found := re.match(r"unrecognized arguments: (\S+)(.*)", message, re.DOTALL):
            if self.prog == "crawler crawl":
                from crawler.cli.foreign_flags import translation  # imported here because it is rarely needed

                if instead := translation([found[1], *found[2].split()]):
                    raise UsageError(f"{message}; {instead}; {usage}")
            flag = found[1].partition("=")[0]
            raise UnknownFlag(flag, message, suggestion(flag, self._flags()), usage)
        raise UsageError(f"{message}{self._similar_choice(message)}; {usage}")

    def _similar_choice(self, message: str) -> str:
        """Return a suggestion if the error is an unknown choice, "" if it is not or no choice is similar."""
        if found := re.match(r"(\S+?): '(.*?)' is not one of ", message):
            for action in self._actions:
                if found[1].split("/")[0] in (*action.option_strings, action.dest, action.metavar):
                    return suggestion(found[2], map(str, action.choices or ()))
        return ""
