"""Run `tests.faults.planted`, and handle signals during its imports as `python -m crawler` does.

python -m tests.faults.signalled BUG crawl ...
"""

import runpy
import sys

from crawler import early_signals

if __name__ == "__main__":
    early_signals.install()
    try:
        runpy.run_module("tests.faults.planted", run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:
        sys.exit(early_signals.interrupted())
