"""Run `crawler export` with one page per piece of work and a delay in each piece, so that a test can kill a process.

python -m tests.export.slow_export SECONDS export ...
"""

import sys
import time
from typing import Any

from crawler import cli
from crawler.export import writing
from crawler.export.page_tasks import Done, RowWork

SECONDS = float(sys.argv[1])
_fill = RowWork.__call__


def _slowly(self: RowWork, piece: list[Any], careful: bool) -> Done:
    time.sleep(SECONDS)
    return _fill(self, piece, careful)


writing.PIECE_PAGES = 1
RowWork.__call__ = _slowly  # type: ignore[method-assign]
if __name__ == "__main__":
    sys.exit(cli.main(sys.argv[2:]))
