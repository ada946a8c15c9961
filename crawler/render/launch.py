"""Turns this process into a browser that has no network and ends with its parent.

This file is a separate program, which imports only the standard library:

    launch.py PARENT READ WRITE HOME USER ISOLATE PROGRAM ARGUMENT...

`READ` and `WRITE` become file descriptors 3 and 4, the browser's protocol pipe. When the process `PARENT`,
which started the browser, ends, the kernel ends the browser. If `ISOLATE` is 1 and the system allows it, the
browser gets a network namespace of its own, in which no interface is up. If `USER` is not "-", the browser
runs as that user.
"""

import ctypes
import os
import pwd
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000  # linux/sched.h


def main(arguments: list[str]) -> None:
    """Set up the process and run the browser in it."""
    parent, read, write, home, user, isolate = arguments[:6]
    command = arguments[6:]
    _place(int(read), int(write))
    libc = ctypes.CDLL(None, use_errno=True)
    if isolate == "1":
        _leave_network(libc)
    if user != "-":
        _become(user)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):  # the parent had ended before prctl took effect
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.execve(command[0], command, {"HOME": home, "PATH": os.defpath, "LANG": "C.UTF-8", "TZ": "UTC"})


def _place(read: int, write: int) -> None:
    """Move one end of each of the two pipes to the file descriptors 3 and 4."""
    read, write = (os.dup(os.dup(os.dup(fd))) for fd in (read, write))
    os.dup2(read, 3)
    os.dup2(write, 4)
    os.closerange(5, 64)


def _leave_network(libc: ctypes.CDLL) -> None:
    """Enter a new network namespace, with a new user namespace if needed. Do nothing if both attempts fail."""
    if libc.unshare(_CLONE_NEWNET) == 0:
        return
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        return
    for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(line)


def _become(user: str) -> None:
    entry = pwd.getpwnam(user)
    os.setgroups([])
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


if __name__ == "__main__":
    main(sys.argv[1:])
