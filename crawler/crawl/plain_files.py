"""Checks that the files of a crawl directory are plain files, because another user may have made the directory.

A crawl writes and reads files with fixed names. If one of these names is a symbolic link, the crawl would
write to a file elsewhere. If one of the files is a pipe or a device, opening the file may take forever. So
before any file of a crawl directory is opened, the directory is examined. The directory itself, the folder of
each process and the subfolders of these folders may contain plain files, directories and sockets. Only two
things may be symbolic links to directories: the folder of a process, and a subfolder of such a folder.
Symbolic links in these two places allow a crawl to be spread over several disks. Folders of other names, such
as mirrors and exports, are not entered. An entry with a fixed name must be of the kind that the crawl
expects, a file or a folder. A file that is read into memory as a whole must not be larger than
`WHOLE_BYTES_MAX`.

The examination opens no file, and takes 0.5 us per file.
"""

import os
import stat
from collections.abc import Iterator, Set
from contextlib import suppress
from pathlib import Path

PROCESS_LEVELS = 2  # levels of folders: the folder of a process, and its subfolders
STORE = "store"  # the subfolder by which the folder of a process is recognized
WHOLE_BYTES_MAX = 64 << 20  # larger files are not those of a crawl; a table of all buckets takes 2 MB
_READ_WHOLE = {"crawl.toml", "seed", "format", "buckets.json", "admin-token", "blocked.json"}
# Entries with names in `_FILES` must be files. Entries with names in `_FOLDERS` must be folders. `_FILES` and
# `_FOLDERS` are about the crawl directory. `_FILES_OF_PROCESS` and `_FOLDERS_OF_PROCESS` are about the folder
# of a process.
_FILES = _READ_WHOLE | {
    "journal.json", "withdrawn.json", "crawler.log", "pages.jsonl", "report.json", "supervisor.lock",
}  # fmt: skip
_FOLDERS = {".reshard", ".resharded"}
_FILES_OF_PROCESS, _FOLDERS_OF_PROCESS = (
    {"control.sock", "node.lock", "ballast", "gaps"},
    {STORE, "warc", "due", "links"},
)


def strange_entry(directory: Path) -> str:
    """Return a message about an entry that a crawl must not open; "" if there is no such entry."""
    # unlike `Path.exists`, `os.path.exists` is False for a name that is too long
    if os.path.exists(directory) and not os.path.isdir(directory):
        return f"{directory}: is a file, not a directory"
    for entry in _entries(directory):
        is_process = entry.is_dir() and os.path.lexists(os.path.join(entry.path, STORE))
        if problem := _problem(entry, may_link=is_process) or _mistaken(entry, _FILES, _FOLDERS):
            return problem
        if is_process and (problem := _below(entry.path, PROCESS_LEVELS)):
            return problem
    return ""


def _below(folder: str, levels: int) -> str:
    for entry in _entries(folder):
        if problem := _problem(entry, may_link=levels > 1):
            return problem
        if levels > 1 and (problem := _mistaken(entry, _FILES_OF_PROCESS, _FOLDERS_OF_PROCESS)):
            return problem
        if levels > 1 and entry.is_dir() and (problem := _below(entry.path, levels - 1)):
            return problem
    return ""


def _mistaken(entry: os.DirEntry[str], files: Set[str], folders: Set[str]) -> str:
    """Return a message if an entry has a name that a crawl uses, but is not of the expected kind or is too large."""
    if entry.name in folders and not entry.is_dir():
        return f"{entry.path} is a file, but a crawl has a folder of this name: remove it"
    if entry.name in files and entry.is_dir():
        return f"{entry.path} is a folder, but a crawl has a file of this name: remove it"
    if entry.name in _READ_WHOLE and entry.stat().st_size > WHOLE_BYTES_MAX:
        return f"{entry.path} is larger than {WHOLE_BYTES_MAX >> 20} MiB, so it is not the file of a crawl"
    return ""


def _entries(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder.

    A missing or unreadable folder yields none. The error is reported when the crawl opens the folder.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        yield from entries


def _problem(entry: os.DirEntry[str], *, may_link: bool) -> str:
    if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
        return ""
    if entry.is_symlink():
        if may_link and entry.is_dir():
            return ""
        return f"{entry.path} is a symbolic link; a crawl neither reads nor writes through it: remove it"
    if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
        return ""
    return f"{entry.path} is a pipe or a device, not a file; a crawl does not open it: remove it"
