"""Handles the signals that stop a crawl, even before the crawl has begun and after it has ended.

    SIGINT, SIGTERM     stop the crawl cleanly
    SIGHUP              the same in a terminal, which sends it when it closes; ignored without a terminal,
                        or if it was ignored when the program started (`nohup`)
    SIGUSR1             blocked, so that it ends neither the process nor its children; a process that writes logs
                        waits for it in a thread and reopens them (`storage/rotating_file.py`)

Without a terminal, SIGHUP is ignored, because it comes from a service manager or from logrotate. Service
managers and logrotate send SIGHUP to make a daemon reread its configuration or reopen its logs, not to stop
it.

A supervisor may stop the crawler before its imports are complete. A SIGTERM or SIGHUP that arrives during the
imports is remembered, and the command stops as soon as it has begun. A second signal ends the process at
once. When a command has ended, `leave` makes the process ignore the signals that stop a crawl. A signal that
arrives while the process ends would otherwise replace the exit code. This module is imported first and
imports almost nothing.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Asks a process to reopen its logs. The signal is blocked in this process and in its child processes, because
# a service manager may send it to all of them.
REOPEN = signal.SIGUSR1
AT_ONCE = 130  # exit code after a second signal, or after a Ctrl-C before anything has begun
_came: list[int] = []
_begun: list[bool] = []  # this list has an element as soon as a crawl handles the signals itself


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a crawl cleanly."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) if ignored else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def install() -> None:
    """Remember stop signals from now on, except SIGINT. This works only in the main thread of a program."""
    if not _has_terminal():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in _noted():
        signal.signal(number, _note)
    signal.pthread_sigmask(signal.SIG_BLOCK, (REOPEN,))


def begin() -> bool:
    """Record that the crawl now handles the signals itself; return whether a signal has already arrived."""
    _begun.append(True)
    return has_signal()


def leave() -> None:
    """Ignore stop signals, since the exit code is decided. Only programs that are about to end may call this."""
    for number in stop_signals():
        signal.signal(number, signal.SIG_IGN)


def has_signal() -> bool:
    """Return whether a signal has arrived."""
    return bool(_came)


def forget() -> None:
    """Forget the signals of the parent process, after a fork."""
    _came.clear()


def deliver() -> None:
    """Let stop signals end the process again, and deliver a signal that has already arrived.

    This is for commands without a clean stop.
    """
    for number in _noted():
        if signal.getsignal(number) is _note:
            signal.signal(number, signal.SIG_DFL)
    if _came:
        os.kill(os.getpid(), _came[0])


def interrupted() -> int:
    """Print that Ctrl-C has ended the program; return the exit code."""
    if sys.stderr is not None:
        os.write(2, b"crawler: interrupted\n")
    return AT_ONCE


@contextmanager
def ending() -> Iterator[None]:
    """Delay a Ctrl-C while modules are imported.

    After the imports, the Ctrl-C ends the program with one line instead of a traceback.

    A module that is interrupted while it is imported may even crash. At a prompt, KeyboardInterrupt is raised as
    usual. A handler that the user's program has installed is kept.
    """
    before = signal.getsignal(signal.SIGINT)
    came: list[bool] = []
    holds = before is signal.default_int_handler
    try:
        if holds:
            signal.signal(signal.SIGINT, lambda *_: came.append(True))
    except ValueError:  # only the main thread may set a handler, and this is another thread
        holds = False
    try:
        yield
    finally:
        if holds:
            signal.signal(signal.SIGINT, before)
    if came and hasattr(sys, "ps1"):
        raise KeyboardInterrupt
    if came:
        sys.exit(interrupted())


@contextmanager
def noted(*, leaves: bool = False) -> Iterator[None]:
    """Remember stop signals while the context is entered, and restore the previous handlers afterwards.

    If the program `leaves` after the command, stop signals are ignored from the end of the context on. If
    they were not ignored, a signal that arrives right after `crawler stop` would end the process before the
    process can report its exit code.
    """
    _begun.clear()
    before = {number: signal.getsignal(number) for number in (*stop_signals(), signal.SIGHUP)}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        install()
    except ValueError:  # this is not the main thread, so it receives no signals
        before = {}
    try:
        yield
    finally:
        forget()
        if leaves:
            leave()
        else:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _noted() -> tuple[signal.Signals, ...]:
    """Return the stop signals that are remembered. For SIGINT, Python itself raises KeyboardInterrupt."""
    return tuple(number for number in stop_signals() if number is not signal.SIGINT)


def _has_terminal() -> bool:
    """Return whether this process belongs to a terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _note(number: int, _frame: object) -> None:
    if _came:
        os._exit(AT_ONCE)
    _came.append(number)
    if sys.stderr is not None and not _begun:
        os.write(2, b"stopping as soon as the crawl has begun\n")
