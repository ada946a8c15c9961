"""Ends the process with one line if a mapped file cannot be read.

LevelDB maps its tables, and the DUE maps its runs. If the disk cannot read a page of a mapped file, or the
file has been truncated, the kernel sends SIGBUS. By default, SIGBUS ends the process silently. The handler of
this module names the file and ends the process with the exit code of a failing disk, as other read errors do.
The sudden end loses no data, because a crawl survives a kill at any moment.

The handler of this module is written in Python and called through ctypes. A handler of the module `signal`
would never run: the C handler of Python only sets a flag and returns, so the faulty read would be repeated
endlessly.
"""

import ctypes
import os
import re
import signal
import sys
from pathlib import Path

from crawler.errors import StoreError

_SIGINFO, _RESET = 4, 0x80000000  # SA_SIGINFO, SA_RESETHAND
_ADDRESS_AT = 16  # offset of si_addr in siginfo_t on 64-bit Linux
_PRIVATE = re.compile(r"/snapshot-[^/]+")  # the folder of a reader's private copy (`storage/snapshot.py`)
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    """`struct sigaction` of the C libraries of 64-bit Linux (glibc and musl)."""

    _fields_ = [
        ("handler", _HANDLER),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    ]


def install() -> None:
    """Handle SIGBUS, unless this program handles it already. Call this before a file of a crawl is mapped."""
    if signal.getsignal(signal.SIGBUS) is signal.SIG_DFL and not _installed and sys.maxsize > 1 << 32:
        action = _Action(_HANDLER(_end), flags=_SIGINFO | _RESET - (1 << 32))
        _installed.append(action)
        ctypes.CDLL(None).sigaction(signal.SIGBUS, ctypes.byref(action), None)


_installed: list[_Action] = []  # without this reference, Python would free the handler


def _end(_number: int, info: int, _context: int) -> None:
    """Name the file whose mapping cannot be read; end the process."""
    try:
        name = _mapped_file(ctypes.c_uint64.from_address(info + _ADDRESS_AT).value)
        os.write(2, f"crawler: {name}: cannot be read: the disk fails, or the file is truncated\n".encode())
    finally:
        os._exit(StoreError.exit_code)


def _mapped_file(address: int) -> str:
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        span, *rest = line.split(maxsplit=5)
        begin, _, end = span.partition("-")
        if len(rest) > 4 and int(begin, 16) <= address < int(end, 16):
            return _PRIVATE.sub("", rest[4])
    return "memory"
