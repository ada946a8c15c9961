"""Run `crawler export` or `report` with one page per piece of work and a delay in each piece.

The delay gives a test the time to kill the command while it runs.

python -m tests.export.slow_pages SECONDS export ...
"""

import sys
import time
from typing import Any

from crawler import cli
from crawler.audit import collect
from crawler.export import writing
from crawler.export.page_tasks import Done, RowWork

SECONDS = float(sys.argv[1])


def _slow_down(work: Any) -> None:
    read = work.__call__

    def slowly(self: Any, piece: list[Any], careful: bool) -> Done:
        time.sleep(SECONDS)
        return read(self, piece, careful)  # type: ignore[no-any-return]

    work.__call__ = slowly


writing.PIECE_PAGES = collect.PIECE_PAGES = 1
_slow_down(RowWork)
_slow_down(collect.PageReader)
if __name__ == "__main__":
    sys.exit(cli.main(sys.argv[2:]))
