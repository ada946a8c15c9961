"""A program for `test_warm_start.py`: it prints the facts about its start as JSON, and then ends in a given way.

python -m tests.probe exit CODE | raise | interrupt | kill | crawl --processes

With `crawl --processes`, the program starts a second probe, as a supervisor starts a child again, and ends with its
exit code.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile


def given() -> dict[str, object]:
    """Return what a program can find out about its start."""
    return {
        "argv": sys.argv,
        "words": sys.orig_argv[1:],
        "name": __name__,
        "path": sys.path,
        "folder": os.getcwd(),
        "temporary": tempfile.gettempdir(),
        "environ": dict(os.environ),
        "parent": os.getppid(),
        "leads": [os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid()],
        "umask": os.umask(0o022),
        "ignored": [number for number in range(1, 32) if signal.getsignal(number) is signal.SIG_IGN],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "files": sorted(
            int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")
        ),
        "streams": [
            [each.encoding, each.errors, each.line_buffering, each.isatty()]
            for each in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "input": sys.stdin.read(),
        "flags": str(sys.flags),
    }


async def start_again() -> int:
    """Start a second probe, which ends with 7. Return its exit code."""
    words = (sys.executable, "-m", "tests.probe", "exit", "7")
    second = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.DEVNULL)
    return await second.wait()


if __name__ == "__main__":
    facts = {**given(), "process": os.getpid(), "warm": "crawler.process.process" in sys.modules}
    print(json.dumps(facts), flush=True)
    match sys.argv[1:]:
        case ["exit", code, *_]:
            sys.exit(int(code))
        case ["raise"]:
            raise ValueError("planted")
        case ["interrupt"]:
            os.kill(os.getpid(), signal.SIGINT)
        case ["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["crawl", "--processes"]:
            sys.exit(asyncio.run(start_again()))
