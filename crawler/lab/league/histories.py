"""Change histories of the pages of real sites: the data of the league.

`crawler lab histories` makes one file `SITE.npz` per site from a git clone. The file holds
facts only: times, counts and hashes, but no text and no file names.

    born, died      (pages,)    seconds since 1970, UTC; died 0: the page still exists
    hash            (pages,)    64-bit hash of the page's path
    dir             (pages,)    number of the page's directory in its site
    page, time      (changes,)  which page changed, and when; births are not changes
    added, removed  (changes,)  lines; -1: unknown
    published       (k,)        every publication of the site

A rename is a death and a birth, so a renamed file is two pages. Times need not be sorted. `read` validates a
history, so its callers need not do so.
"""

from pathlib import Path
from zipfile import BadZipFile

import msgspec
import numpy as np

from crawler.errors import UsageError, reason_of

BY_PAGE = ("born", "died", "hash", "dir")
BY_CHANGE = ("page", "time", "added", "removed")
COLUMNS = (*BY_PAGE, *BY_CHANGE, "published")
ROWS_MAX = 20_000_000  # maximum number of rows per column; 20 million rows take 160 MB
SITES_MAX = 10_000
TIME_MAX = 1 << 33  # a time in the year 2242; a larger number cannot be a time in seconds


class SiteHistory(msgspec.Struct, frozen=True):
    """The history of a site, as the arrays that the module docstring describes.

    All arrays are int64, except `hash`, which is uint64.
    """

    name: str
    born: np.ndarray
    died: np.ndarray
    hash: np.ndarray
    dir: np.ndarray
    page: np.ndarray
    time: np.ndarray
    added: np.ndarray
    removed: np.ndarray
    published: np.ndarray

    @property
    def end(self) -> int:
        """The last instant in the history."""
        return max(int(column.max(initial=0)) for column in (self.born, self.died, self.time, self.published))

    def __repr__(self) -> str:
        return f"History({self.name}: {len(self.born)} pages, {len(self.page)} changes)"


def read_folder(folder: Path) -> list[SiteHistory]:
    """Return all sites of a folder, in the order of their names.

    Raises:
        UsageError: the folder is missing, has no history, or has one that `read` rejects.
    """
    paths = sorted(folder.glob("*.npz")) if folder.is_dir() else []
    if not paths:
        raise UsageError(
            f"{folder}: the folder has no histories (SITE.npz); create some with `crawler lab histories`"
        )
    if len(paths) > SITES_MAX:
        raise UsageError(f"{folder}: {len(paths)} histories; the limit is {SITES_MAX:,}")
    return [read(path) for path in paths]


def read(path: Path) -> SiteHistory:
    """Read and validate one site's history.

    Raises:
        UsageError: the file is not a page history, or its columns contradict one another.
    """
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            missing = [name for name in COLUMNS if name not in file.files]
            if missing:
                raise UsageError(f"{path}: missing column {', '.join(missing)}")
            columns = {name: _column(path, name, file[name]) for name in COLUMNS}
    except (OSError, ValueError, BadZipFile, EOFError, AttributeError, KeyError) as error:
        raise UsageError(f"{path}: not a page history: {reason_of(error)}") from None
    history = SiteHistory(name=path.stem, **columns)
    _check(path, history)
    return history


def _column(path: Path, name: str, values: np.ndarray) -> np.ndarray:
    if values.ndim != 1 or len(values) > ROWS_MAX or values.dtype.kind not in "iu":
        raise UsageError(f"{path}: {name} must be a one-dimensional array of up to {ROWS_MAX:,} integers")
    return values.astype(np.uint64 if name == "hash" else np.int64)


def _check(path: Path, history: SiteHistory) -> None:
    pages, changes = len(history.born), len(history.page)
    if not pages:
        raise UsageError(f"{path}: the history has no pages")
    for name in BY_PAGE:
        if len(getattr(history, name)) != pages:
            raise UsageError(f"{path}: {name} must have one row per page")
    for name in BY_CHANGE:
        if len(getattr(history, name)) != changes:
            raise UsageError(f"{path}: {name} must have one row per change")
    if changes and not 0 <= history.page.min() <= history.page.max() < pages:
        raise UsageError(f"{path}: a change refers to a page that does not exist")
    for name in ("born", "died", "time", "published"):
        column = getattr(history, name)
        if len(column) and not 0 <= column.min() <= column.max() < TIME_MAX:
            raise UsageError(f"{path}: {name} contains a value that is not a valid time")
    if np.any((history.died > 0) & (history.died < history.born)):
        raise UsageError(f"{path}: a page died before it was born")


def write(path: Path, history: SiteHistory) -> None:
    """Write a history to a file, with the narrowest integer type for each column.

    Raises:
        UsageError: the file cannot be written.
    """
    columns = {name: getattr(history, name) for name in COLUMNS}
    largest = max(int(np.abs(column).max(initial=0)) for column in (history.added, history.removed))
    sizes = np.int32 if largest >= 1 << 15 else np.int16
    narrow = {
        name: column
        if name == "hash"
        else column.astype(sizes if name in ("added", "removed") else np.uint32)
        for name, column in columns.items()
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            np.savez_compressed(file, **narrow)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
