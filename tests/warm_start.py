"""Starts the Python programs of the tests quickly: it forks a process that has already imported the crawler.

`install` replaces the last step of `subprocess`, so tests start programs in the usual way. A program is
started warm on two conditions. The program must be `python -m MODULE` of this repository. Everything that
Python reads before it runs MODULE must be the same as what the server of warm programs read. Every other
program is started as usual. A warm program is a real child of the test's process, with its own process id,
arguments, environment, folder, files and signals. A warm program differs from any other only in that the
modules of the crawler are already imported, and some data is already read (`read_data`). A warm start saves most
of the 0.4 s of CPU time that a start takes. A warm program ends without freeing its memory, because this memory is
shared with the server, and to free it would copy it first, which takes 0.15 s.

    test's process          server (`python -m tests.warm_start FD`)
    request, files    ─►    forks a helper, which forks the program and ends
    process id        ◄─    the kernel gives the program to the test's process, which is its nearest subreaper

A supervisor starts a new program for each child that has died. If a warm program may be a supervisor, the server
also forks a server for this program, so that the children that it starts again are warm, too. This server ends
with the program.
"""

import asyncio
import atexit
import ctypes
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from crawler.forked_children import ForkedChild, end_with_parent
from crawler.quick_exit import end

ROOT = Path(__file__).resolve().parent.parent
# The server imports the modules that a crawl and the most frequent commands import. None of these modules may
# start a thread.
MODULES = (
    "encodings.ascii", "encodings.cp1252", "encodings.idna", "encodings.utf_8_sig", "uvloop",
    "crawler.admin.lazy_server", "crawler.admin.server", "crawler.api", "crawler.cli.change", "crawler.cli.check",
    "crawler.cli.crawl", "crawler.cli.export", "crawler.cli.inspect", "crawler.cli.node", "crawler.cli.progress",
    "crawler.cli.refresh", "crawler.cli.reshard", "crawler.cli.running", "crawler.cli.serve", "crawler.cli.summary",
    "crawler.fetcher.client", "crawler.fetcher.resolver", "crawler.process.process", "crawler.serve.rewriting",
    "crawler.serve.server", "crawler.signing.request_signer", "crawler.storage.level_store",
    "crawler.storage.rocks_store", "crawler.storage.torn_log", "crawler.supervision.child",
    "crawler.supervision.supervisor", "crawler.upkeep.check", "crawler.upkeep.recover", "crawler.upkeep.repair",
    "publicsuffixlist", "tests.faults.harness",
)  # fmt: skip
_EXECUTABLE = sys.executable  # a test may replace `sys.executable` by a program that does not exist
_COLD = (__name__, "tests.faults.early")  # `early` sends itself a signal while it imports the crawler
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_REQUEST_BYTES_MAX = 1 << 20
_FILES_MAX = 64
# if the test ignores these signals, the program does, too
_INHERITED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
# received descriptors first get numbers from this one on, because the program expects certain lower numbers
_HIGH = 512

_lock = threading.Lock()
# at most one server, started when it is first needed, and a function that waits for its end
_servers: list[tuple[socket.socket, Callable[[], object]]] = []
_Popen = subprocess.Popen  # a test may replace `subprocess.Popen`
_cold: Callable[..., int] = subprocess._fork_exec  # type: ignore[attr-defined]


def install() -> None:
    """Let `subprocess` start programs warm from now on. This has an effect only on Linux."""
    if sys.platform == "linux":
        subprocess._fork_exec = _start  # type: ignore[attr-defined]


def _start(*arguments: Any) -> int:
    """Start a program, with the arguments of `_posixsubprocess.fork_exec`. Return its process id."""
    (
        words, _, close_files, kept, folder, environ, stdin, _, _, stdout, _, stderr, _, told,
        restore_signals, new_session, group, gid, gids, uid, umask, prepare, *_,
    ) = arguments  # fmt: skip
    plain = close_files and restore_signals and group < 0 and umask < 0 and prepare is None
    plain = plain and gid is None and gids is None and uid is None
    words = [os.fsdecode(word) for word in words]
    variables = dict(os.environ) if environ is None else _variables(environ)
    folder = os.fsdecode(folder or os.getcwd())
    if not plain or not _can_be_warm(words, variables, folder):
        return _cold(*arguments)
    given = [0 if stdin < 0 else stdin, 1 if stdout < 0 else stdout, 2 if stderr < 0 else stderr]
    numbers = [0, 1, 2, *(number for number in kept if number != told)]
    request = {
        "words": words,
        "environ": variables,
        "folder": folder,
        "session": new_session,
        "numbers": numbers,
        "umask": _umask(),
        "ignored": [number for number in _INHERITED if signal.getsignal(number) is signal.SIG_IGN],
        "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    }
    with _lock:
        if not _servers:
            _servers.append(_start_server())
        try:
            return _ask(_servers[0][0], json.dumps(request).encode(), [*given, *numbers[3:]])
        except (OSError, ValueError):  # the server has died; the next program starts another
            _end_server()
            return _cold(*arguments)


def _umask() -> int:
    """Return the umask. `os.umask` would have to change the umask for a moment, which would affect other threads."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1], 8) for line in lines if line.startswith("Umask:"))


def _variables(environ: Iterable[bytes]) -> dict[str, str]:
    pairs = (os.fsdecode(entry).partition("=") for entry in environ)
    return {name: value for name, _, value in pairs}


def _can_be_warm(words: list[str], variables: Mapping[str, str], folder: str) -> bool:
    """Return whether a program is from this repository and behaves the same if it is started warm."""
    if len(words) < 3 or words[:2] != [_EXECUTABLE, "-m"] or words[2] in _COLD:
        return False
    if words[2].partition(".")[0] not in ("crawler", "tests"):
        return False
    if variables.get("PYTHONPATH", str(ROOT)) != str(ROOT):
        return False
    if not os.path.isdir(folder) or (Path(folder) != ROOT and (Path(folder) / "crawler").exists()):
        return False
    return _decisive(variables) == _decisive(os.environ)


def _decisive(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that have an effect before the first line of a program, or while it imports the crawler."""
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "CRAWLER_INTERPRETED"))
        and name != "PYTHONPATH"
    }


def _start_server() -> tuple[socket.socket, Callable[[], object]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        number = theirs.fileno()
        environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # numpy would start threads
        environ.pop("PYTHONPATH", None)
        server = _Popen(
            [sys.executable, "-m", __name__, str(number)],
            cwd=ROOT,
            env=environ,
            stdin=subprocess.DEVNULL,
            pass_fds=[number],
        )
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES_MAX)
    return ours, server.wait


@atexit.register
def _end_server() -> None:
    while _servers:
        link, wait = _servers.pop()
        link.close()
        wait()


def _ask(server: socket.socket, request: bytes, files: list[int]) -> int:
    """Let the server start a program, which becomes a child of this process. Return its process id."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        socket.send_fds(server, [request], files)
        return int(server.recv(100))
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0)


# In the server


def _serve(link: socket.socket) -> dict[str, Any]:
    """Fork a child for each request until the test's process ends. Return only in a child, with its request."""
    while True:
        data, files, _, _ = socket.recv_fds(link, _REQUEST_BYTES_MAX, _FILES_MAX)
        if not data:
            os._exit(0)
        request: dict[str, Any] = json.loads(data)
        if "export" in request["words"]:
            read_data()
            gc.freeze()
        ready, release = os.pipe()
        told, tell = os.pipe()
        helper = os.fork()
        if not helper:
            program = os.fork()
            if program:
                os.write(tell, str(program).encode())
                os._exit(0)
            for number in (release, told, tell):
                os.close(number)
            os.read(ready, 1)  # wait until the test's process is the parent of this process
            os.close(ready)
            link.close()
            _place(files, request["numbers"])
            return request
        os.waitpid(helper, 0)
        link.send(os.read(told, 100))
        for number in (ready, release, told, tell, *files):
            os.close(number)


def _may_supervise(words: list[str]) -> bool:
    """Return whether a program may start a child again."""
    return "crawl" in words and "--processes" in words


def _fork_server(numbers: list[int]) -> socket.socket | None:
    """Fork a server for this program. Return its link in the server, and None in the program."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES_MAX)
    program = os.getpid()
    if os.fork():
        theirs.close()
        _servers.append((ours, lambda: None))
        subprocess._fork_exec = _start  # type: ignore[attr-defined]
        asyncio.create_subprocess_exec = _create_warm
        return None
    ours.close()
    end_with_parent(program)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in numbers:  # the files of the program
        if number <= 2:
            os.dup2(nothing, number)
        else:
            os.close(number)
    os.close(nothing)
    return theirs


_create = asyncio.create_subprocess_exec


async def _create_warm(*words: str, **options: Any) -> Any:
    """Start a program warm. A program that uses pipes is started as usual, because uvloop connects its pipes."""
    if subprocess.PIPE in options.values():
        return await _create(*words, **options)
    program = subprocess.Popen(words, **options)
    program.returncode = 0  # the event loop waits for the program
    return ForkedChild(program.pid, _servers[0][0])


def _place(files: list[int], numbers: list[int]) -> None:
    """Give the received files the numbers that the program expects."""
    import fcntl

    high = [fcntl.fcntl(file, fcntl.F_DUPFD, _HIGH) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(high, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)


def _become(request: dict[str, Any]) -> str:
    """Give this process the session, folder, environment and arguments of the program.

    Return the program's module.
    """
    if request["session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
    os.umask(request["umask"])
    os.chdir(request["folder"])
    sys.orig_argv[:] = request["words"]
    module, *rest = request["words"][2:]
    sys.argv[:] = [module, *rest]
    sys.path[0:1] = [request["folder"], *([str(ROOT)] if "PYTHONPATH" in request["environ"] else [])]
    os.environ.clear()
    os.environ.update(request["environ"])
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = _again(getattr(sys, name), mode)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    for name in (module, f"{module}.__main__"):  # runpy would warn about a module that is already imported
        if not hasattr(sys.modules.get(name), "__path__"):
            sys.modules.pop(name, None)
    tempfile.tempdir = None  # the temporary folder of the server
    from crawler.storage import faults

    faults.reach.__init__()  # type: ignore[misc]
    return module


def _again(stream: io.TextIOWrapper, mode: str) -> io.TextIOWrapper:
    """Return a new stream on the same file, because only a new stream checks whether the file is a terminal."""
    number = stream.fileno()
    terminal = os.isatty(number)
    raw = stream.write_through
    return io.TextIOWrapper(
        open(number, f"{mode}b", 0 if raw and mode == "w" else -1, closefd=False),
        stream.encoding,
        stream.errors,
        line_buffering=not raw and (terminal or number == 2),
        write_through=raw,
    )


def read_small_data() -> None:
    """Read the list of suffixes, and let msgspec read the types of the settings, as nearly every command would."""
    from crawler.config.checks import convert
    from crawler.urls.suffixes import suffix_list

    suffix_list()
    convert({})


def read_data() -> None:
    """Read all data that commands read when they first need it. The model of languages takes 0.7 s."""
    from crawler.pages.formats import language

    read_small_data()
    language.load()


def main() -> None:
    """Import the crawler, then fork a child for each requested program. `_serve` returns only in a child."""
    link = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(link.fileno(), False)
    # The server is started by the first test that needs it. That test may ignore or block signals, but later
    # programs must not inherit these settings.
    for number in _INHERITED:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for name in MODULES:
        importlib.import_module(name)
    read_small_data()
    assert len(os.listdir("/proc/self/task")) == 1, "a module started a thread, so forking is unsafe"
    gc.collect()
    gc.freeze()
    while True:
        request = _serve(link)
        if not _may_supervise(request["words"]) or (server := _fork_server(request["numbers"])) is None:
            break
        link = server
    module = _become(request)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code: object = 0
    except SystemExit as ended:
        code = ended.code or 0
        if not isinstance(code, int):
            raise
    end(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
