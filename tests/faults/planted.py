"""`python -m tests.faults.planted BUG crawl ...`: the crawler with a bug planted, to see the tests fail.

page-before-links    a page's record is committed at once, its links a group later
no-truncation        WARC files are not cut to their committed lengths when they are opened
links-not-synced     the links log is written, but not synced before the batch that counts on it
no-room-for-runs     no bug, but a disk that refuses the first three run files
"""

import sys
from functools import partial
from operator import attrgetter
from typing import Any

from crawler.storage import commit


def page_before_links() -> None:
    """Put the links of every change into a change of their own behind it: a crash between loses them."""
    take = commit.CommitPoint.take_made

    def take_half(self: commit.CommitPoint) -> list[commit.Change]:
        group = take(self)
        for change in filter(attrgetter("captures"), group):
            links = commit.Change()
            links.links, change.links = change.links, []
            change.after.append(partial(self.add, links))
        return group

    commit.CommitPoint.take_made = take_half  # type: ignore[method-assign]


def no_truncation() -> None:
    """Let segments keep what no commit names."""
    from crawler.pages import segments

    segments.cut = lambda path, length: 0  # type: ignore[assignment]


def links_not_synced() -> None:
    """Let a group be acknowledged whose links a power cut would lose."""
    from crawler.due.links_log import LinksLog

    LinksLog.sync = LinksLog.write_out  # type: ignore[method-assign]


def no_room_for_runs() -> None:
    """Let the first writes of DUE runs fail."""
    from crawler.due import runs
    from crawler.errors import StoreError

    write = runs.DiskRuns.write
    left = [3]

    def write_or_fail(*arguments: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise StoreError("run: cannot write: No space left on device")
        return write(*arguments, **options)

    runs.DiskRuns.write = write_or_fail  # type: ignore[method-assign]


BUGS = {
    "page-before-links": page_before_links,
    "no-truncation": no_truncation,
    "links-not-synced": links_not_synced,
    "no-room-for-runs": no_room_for_runs,
}

if __name__ == "__main__":
    BUGS[sys.argv[1]]()
    from crawler.cli import main

    raise SystemExit(main(sys.argv[2:]))
