"""Makes page histories from the log of a git clone: `GitLog` reads the output of the git command `LOG`.

Only commits on the main line of development count (`--first-parent`). The date of a change is the date on
which the change reaches the main line, and a merge is one publication. A file is a page between two commits:
the one that adds it, and the one that deletes it. A rename is a deletion and an addition. If only the mode of
a file changes, the page has not changed. Only plain files are pages, not links or submodules. A commit that
touches a page is a publication of the site.

Committers' clocks may be wrong, so times are adjusted. Along the main line, the adjusted times never
decrease, and never exceed the time of the last commit. Paths are bytes, as in git. Of each path, only a hash
and the number that identifies its directory are kept.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b

import numpy as np

from crawler.errors import UsageError
from crawler.lab.league.histories import COLUMNS, ROWS_MAX, TIME_MAX, SiteHistory

COMMIT = b"\x1e"  # the character with which the line of a commit starts
# The arguments of the git command that prints the log for `GitLog`; pathspecs are appended.
LOG = (
    "log",
    "--first-parent",
    "-m",
    "--reverse",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-show-signature",
    "--no-color",
    "--no-abbrev",
    "--raw",
    "-z",
    "--format=tformat:%x1e%ct",
)
SIZES = "--numstat"
PAGES = ("*.html", "*.htm", "*.md", "*.mdx", "*.rst", "*.adoc", "*.asciidoc")
UNKNOWN = -1
LINES_MAX = 1 << 30


def split(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the parts of a stream that arrives in chunks. NULs separate the parts."""
    rest = b""
    for chunk in chunks:
        parts = (rest + chunk).split(b"\0")
        rest = parts.pop()
        yield from parts
    if rest:
        yield rest


class GitLog:
    """Reads a log in parts; `history` returns the result."""

    def __init__(self, latest: int = TIME_MAX - 1) -> None:
        self._latest = latest
        self._now = 0
        self._columns: dict[str, list[int]] = {name: [] for name in COLUMNS}
        self._living: dict[bytes, int] = {}
        self._folders: dict[bytes, int] = {}
        # path -> row of its change by this commit; the size of the change may follow later in the log
        self._rows: dict[bytes, int] = {}

    def read(self, parts: Iterable[bytes]) -> None:
        """Read the parts of a log.

        Raises:
            UsageError: the parts are not the output of `LOG`, or the log is too large.
        """
        stream = iter(parts)
        for part in stream:
            part = part.removeprefix(b"\n")
            if part.startswith(COMMIT):
                self._commit(part[1:])
            elif part.startswith(b":"):
                self._touch(part.split(), next(stream, b""))
            elif part:
                self._size(part)

    def _commit(self, text: bytes) -> None:
        if not text.strip().lstrip(b"-").isdigit():
            raise UsageError("git log printed a commit without a time")
        self._now = min(max(int(text), self._now, 1), self._latest)
        self._rows.clear()

    def _touch(self, words: list[bytes], path: bytes) -> None:
        """Record the change of one file by a commit. `words` are `:mode mode id id status`."""
        if len(words) < 5 or not path or not self._now:
            raise UsageError("git log printed a line that is not the change of a file")
        _, mode, before, after, _ = words[:5]
        page = self._living.get(path, -1)
        if not mode.startswith(b"100"):
            if page >= 0:
                self._columns["died"][page] = self._now
                del self._living[path]
                self._publish()
        elif page < 0:
            self._bear(path)
            self._publish()
        elif before != after:
            self._rows[path] = len(self._columns["page"])
            self._append(page=page, time=self._now, added=UNKNOWN, removed=UNKNOWN)
            self._publish()

    def _bear(self, path: bytes) -> None:
        self._living[path] = len(self._columns["born"])
        digest = int.from_bytes(blake2b(path, digest_size=8).digest(), "little")
        folder = self._folders.setdefault(path.rpartition(b"/")[0], len(self._folders))
        self._append(born=self._now, died=0, hash=digest, dir=folder)

    def _append(self, **row: int) -> None:
        for name, value in row.items():
            self._columns[name].append(value)
            if len(self._columns[name]) > ROWS_MAX:
                raise UsageError(f"more than {ROWS_MAX:,} pages or changes; select fewer files with --pages")

    def _publish(self) -> None:
        if self._columns["published"][-1:] != [self._now]:
            self._append(published=self._now)

    def _size(self, part: bytes) -> None:
        """Record a line `added TAB removed TAB path`.

        For a binary file, there are dashes instead of numbers, and the size of the change stays unknown.
        """
        words = part.split(b"\t", 2)
        row = self._rows.get(words[2]) if len(words) == 3 else None
        if row is not None and words[0].isdigit() and words[1].isdigit():
            self._columns["added"][row] = min(int(words[0]), LINES_MAX)
            self._columns["removed"][row] = min(int(words[1]), LINES_MAX)

    def history(self, name: str) -> SiteHistory:
        """Return the history of all parts read so far.

        Raises:
            UsageError: the log contains no page.
        """
        if not self._columns["born"]:
            raise UsageError("the history of this repository contains no page; select its pages with --pages")
        kinds = {name: np.uint64 if name == "hash" else np.int64 for name in COLUMNS}
        return SiteHistory(name, **{each: np.array(self._columns[each], kinds[each]) for each in COLUMNS})

    def __repr__(self) -> str:
        return f"GitLog({', '.join(f'{name} {len(rows)}' for name, rows in self._columns.items())})"
