"""Run a module in a new session, with a terminal (like a shell) or without one (like a service manager).

python -m tests.faults.terminal MODULE ARGUMENTS
python -m tests.faults.terminal --none MODULE ARGUMENTS
"""

import fcntl
import os
import sys
import termios

if __name__ == "__main__":
    os.setsid()
    words = sys.argv[1:]
    if words[0] == "--none":
        words.pop(0)
    else:
        window, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        # the process inherits `window`, so the terminal stays open until the process ends
        os.set_inheritable(window, True)
    os.execv(sys.executable, [sys.executable, "-m", *words])
