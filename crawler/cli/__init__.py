"""The `crawler` command. Each command has one file in this folder.

Only the file of the given command is imported, so `--help` and short commands start fast. If a command fails
because of a server, the disk or the configuration, it prints one line on standard error. The exit code of the
command is that of the error's class (`errors.py`).
"""

import contextlib
import gc
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from crawler import early_signals
from crawler.cli.command_table import COMMANDS, END_WITH_READER, IN_ORDER
from crawler.errors import CrawlerError, UsageError, blame_of_system, exit_code_of, system_failed
from crawler.printable import discard, printable_output
from crawler.process.lifecycle.garbage_collection import collect_rarely, settings_kept, uncollected

USAGE = """\
usage: crawler COMMAND [options]

A polite, durable web crawler. Every command has --help with an example.

{commands}

examples:
  crawler demo
  crawler crawl https://example.org/ --dir example --contact you@example.org
  crawler status --dir example
  crawler export --dir example --format cdxj
"""


def _usage() -> str:
    width = max(map(len, COMMANDS)) + 2
    rows = (f"  {name:<{width}}{line}" for name, (_, line) in COMMANDS.items())
    return USAGE.format(commands="\n".join(rows))


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (the process's own if None) and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    with printable_output(outlives_reader=not words or words[0] not in END_WITH_READER):
        if argv is not None:
            with settings_kept():
                return _main(words, leaves=False)
        try:
            return _main(words, leaves=True)
        # an exception here is a bug; it is printed here, because its message may contain text from a web page
        except Exception:
            traceback.print_exc()
            return 1


def _main(argv: list[str], *, leaves: bool) -> int:
    """Run a command line. If `leaves` is true and the command ran an event loop, exit the process here."""
    collect_rarely()
    # OpenBLAS, which numpy loads, would start threads that use CPU even when idle. The crawler multiplies no
    # matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    arguments = list(argv)
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help", "help"):
        return _guarded(name, lambda: _print(_usage()))
    if name in ("-V", "--version"):
        return _guarded(name, lambda: _print(_version()))
    if name not in COMMANDS:
        return _fail(_no_command(name), 2)
    if name in IN_ORDER:
        with early_signals.noted(leaves=leaves):
            code = _run(name, arguments[1:])
    else:
        early_signals.deliver()
        code = _run(name, arguments[1:])
    # imported only by commands that run an event loop
    shutdown = sys.modules.get("crawler.process.lifecycle.shutdown")
    return shutdown.leave(code) if leaves and shutdown is not None else code


def _version() -> str:
    """Return the version, and a line about kernels that run interpreted, if there are any."""
    from crawler.kernel_selection import said_of_kernels
    from crawler.version import __version__

    line = said_of_kernels()
    return f"crawler {__version__}\n" + (f"{line}\n" if line else "")


def _no_command(name: str) -> str:
    from crawler.cli.parsing import suggestion

    if name.startswith("-"):
        return f"{name}: flags come after the command, as in `crawler crawl {name} ...`; `crawler --help` lists commands"
    if "://" in name or "." in name:
        from crawler.urls.typed_url import typed_url

        if typed_url(name) is None:
            return f"{name!r} is neither a command nor a URL; `crawler --help` lists the commands"
        return f"{name!r} is not a command; did you mean `crawler crawl {name}`?"
    return f"no command {name!r}{suggestion(name, COMMANDS)}; `crawler --help` lists them"


def _print(text: str) -> int:
    print(text, end="", flush=True)
    return 0


def _run(name: str, arguments: list[str]) -> int:
    def call() -> int:
        with uncollected():
            module = importlib.import_module(COMMANDS[name][0])
        return module.main(name, arguments)  # type: ignore[no-any-return]

    return _guarded(name, call, arguments)


def _guarded(name: str, call: Callable[[], int], arguments: Sequence[str] = ()) -> int:
    """Return the exit code of `call`, or that of an expected error after printing the error.

    An OSError about a path that `arguments` contain, or about a file below it, is a mistake of the user, unless the
    disk fails. Other errors of the system are not (`blame_of_system`).
    """
    try:
        code = call()
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()  # here, where an error is reported; the exit of the interpreter would print its traceback
        return code
    except CrawlerError as error:
        from crawler.cli.flags import as_flags

        return _fail(as_flags(_message(error), name), exit_code_of(error))
    except BrokenPipeError:  # the program that reads our output, such as `head`, has closed the pipe
        _discard_output()
        return 0
    except KeyboardInterrupt:
        return early_signals.interrupted() if name in IN_ORDER else early_signals.AT_ONCE
    except (OSError, MemoryError, RuntimeError) as error:
        if (expected := blame_of_system(error)) is None:
            raise
        if isinstance(error, OSError):
            if system_failed(error):
                _discard_output()
            elif _is_given(error.filename, arguments):
                return _fail(str(expected), UsageError.exit_code)
        return _fail(str(expected), expected.exit_code)
    finally:
        gc.enable()


def _is_given(path: object, arguments: Sequence[str]) -> bool:
    """Return whether an argument, or the value of a flag, is this path or a folder above it."""
    if not isinstance(path, str | os.PathLike):
        return False
    places = {str(place) for place in (Path(path), *Path(path).parents)} - {".", "/"}
    words = [word.partition("=")[2] if word.startswith("-") and "=" in word else word for word in arguments]
    return any(str(Path(word)) in places for word in words if word)


def _discard_output() -> None:
    """Discard what is still buffered for a standard stream that cannot be written. A stream without a file is left."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                discard(stream)


def _message(error: CrawlerError) -> str:
    from crawler.cli.parsing import UnknownFlag

    if isinstance(error, UnknownFlag):
        from crawler.cli.completion import parsers

        if commands := [name for name, parser in parsers() if error.flag in parser._option_string_actions]:
            return error.naming(commands)
    return str(error)


def _fail(message: str, code: int) -> int:
    # standard error may be a file on a full disk; the exit code still tells the cause
    with contextlib.suppress(OSError):
        print(f"crawler: {' '.join(message.split())}", file=sys.stderr, flush=True)
    return code
