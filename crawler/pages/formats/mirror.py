"""The newest copy of each page as files, to be looked at with any program.

    <folder>/<host>[_<port>]/<path>            index.html for a path that ends in "/"
    .../page@a=1                               a query becomes part of the name
    .../page.html                              HTML gets the suffix that programs expect

Names come from servers, so they are made harmless: percent-codes are decoded
where the character is safe in a file name, all others stay or become
percent-codes, `.` and `..` cannot arise, and names are cut to what file systems
take, with a digest of the URL at the end so that they stay distinct. Where two
URLs want one place, or one wants a directory where another has a file, the
later one goes to a name with its digest. Files are created anew (never opened
through a link that is already there), which is why the folder must be empty.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote_to_bytes

from crawler.errors import StoreError, UsageError
from crawler.pages.archive import Archive
from crawler.pages.export import Report, Select, ignore, pages
from crawler.storage.files import write_all

_NAME_BYTES_MAX = 200  # file systems take 255; digest and suffix need room
_PATH_BYTES_MAX = 3000  # Linux takes 4096 with the folder
_UNSAFE = frozenset('<>:"\\|?*\x7f') | {chr(code) for code in range(32)}
_HTML = ("text/html", "application/xhtml+xml")


def write_mirror(
    archives: Sequence[Archive], folder: Path, select: Select, *, report: Report = ignore
) -> int:
    """Write the files; return how many.

    Raises:
        UsageError: `folder` is not empty.
        StoreError: the disk failed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(folder.iterdir())
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}") from error
    if occupied:
        raise UsageError(f"{folder}: is not empty; name a new directory for the mirror")
    count = 0
    for _, page in pages(archives, select, report=report):
        _place(folder, page.capture.url, page.capture.content_type, page.content)
        count += 1
    return count


def _place(folder: Path, url: str, content_type: str, content: bytes) -> None:
    """Write one file, at its own path or, if that is taken, at one with a digest in its name."""
    path = mirror_path(url, content_type)
    candidates = (path, with_digest(path, url), PurePosixPath(path.parts[0], _digest(url) + path.suffix[:16]))
    for candidate in candidates:
        if _create(folder / candidate, content):
            return
    raise StoreError(f"{folder / path}: cannot be created for {url}")


def _create(path: Path, content: bytes) -> bool:
    """Write a new file; False if its place, or that of a parent, is taken by something else.

    Raises:
        StoreError: the disk failed.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        return False
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    try:
        write_all(descriptor, content)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return True


def mirror_path(url: str, content_type: str) -> PurePosixPath:
    """The relative path of a canonical URL's file: always below its host's folder."""
    rest = url.partition("://")[2].partition("#")[0]
    location, mark, query = rest.partition("?")
    authority, _, path = location.partition("/")
    *folders, name = path.split("/")
    name = (name or "index.html") + ("@" + query if mark else "")
    if content_type in _HTML and not name.lower().endswith((".html", ".htm", ".xhtml")):
        name += ".html"
    parts = [_safe(part) for part in folders if part] + [_safe(name)]
    host = _safe(authority.rpartition("@")[2].replace(":", "_"))
    result = PurePosixPath(host, *(_short(part) for part in parts))
    if len(os.fsencode(str(result))) > _PATH_BYTES_MAX:
        result = PurePosixPath(host, _digest(url) + PurePosixPath(_short(parts[-1])).suffix[:16])
    return result


def _safe(part: str) -> str:
    """A path segment as a file name: never empty, `.` or `..`, without separators and control characters."""
    decoded = unquote_to_bytes(part).decode("utf-8", "surrogateescape")
    name = "".join(
        [
            _code(char) if char in _UNSAFE or char == "/" or "\ud800" <= char <= "\udfff" else char
            for char in decoded
        ]
    )
    if name.endswith((".", " ")):
        name = name[:-1] + _code(name[-1])
    return name or "_"


def _code(char: str) -> str:
    return "".join([f"%{byte:02X}" for byte in char.encode("utf-8", "surrogateescape")])


def _short(name: str) -> str:
    """`name`, cut to what a file system takes; a digest keeps cut names apart."""
    encoded = name.encode()
    if len(encoded) <= _NAME_BYTES_MAX:
        return name
    suffix = PurePosixPath(name).suffix
    suffix = suffix if len(suffix.encode()) <= 16 else ""
    kept = encoded[: _NAME_BYTES_MAX - 30].decode("utf-8", "ignore")
    return f"{kept}~{_digest(name)}{suffix}"


def with_digest(path: PurePosixPath, url: str) -> PurePosixPath:
    """`path` with a digest of `url` before its suffix."""
    return path.with_name(_short(f"{path.stem}~{_digest(url)}{path.suffix}"))


def _digest(text: str) -> str:
    return hashlib.sha1(text.encode("utf-8", "replace")).hexdigest()[:12]
