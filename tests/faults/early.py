"""Run `crawler` and send it a signal when it imports a given module.

python -m tests.faults.early SIGNAL MODULE crawl ...
"""

import os
import runpy
import signal
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder


class _Trap(MetaPathFinder):
    """An import hook that never finds a module, but sends the signal when `module` is imported for the first time."""

    def __init__(self, number: int, module: str) -> None:
        self.left = [module]
        self._number = number

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: object = None) -> None:
        if name in self.left:
            self.left.remove(name)
            os.kill(os.getpid(), self._number)


def plant(number: str, module: str) -> _Trap:
    """Send this process the signal named `number` when it imports `module`."""
    trap = _Trap(signal.Signals[number], module)
    sys.meta_path.insert(0, trap)
    return trap


if __name__ == "__main__":
    planted = plant(sys.argv[1], sys.argv[2])
    sys.argv[1:] = sys.argv[3:]
    try:
        runpy.run_module("crawler", run_name="__main__", alter_sys=True)
    finally:
        assert not planted.left, f"{planted.left} was never imported"
