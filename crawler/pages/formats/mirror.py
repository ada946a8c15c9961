"""Writes a mirror: the newest copy of each page as a file that any program can open, with rewritten links.

    <folder>/<host>[_<port>]/<path>            index.html for a path that ends in "/"
    .../page@a=1                               a query becomes part of the name
    .../page.html                              HTML, CSS, scripts and SVG get the suffix that programs expect

A mirror is written in two passes. The first pass gives every page a path, and creates an empty file at that
path. The paths are kept in an SQLite file (`MirrorPaths`), so memory stays bounded and many processes can
read them. The second pass fills each file. A link to a stored page becomes the path of that page's file, and
redirects are followed. Two URLs lead to the same file if the crawl treats them as one page. A link to
anything else becomes an absolute URL (`Linker`).

File names come from servers, so they are made harmless. Percent-encoded characters are decoded if they are
safe in a file name. Unsafe characters are percent-encoded. `.` and `..` cannot occur. Names that make a
program act as soon as it sees the file are escaped (`_safe`), so a mirror contains no `.git`, `.htaccess` or
`desktop.ini`. Names are cut to the length that file systems allow. A digest at the end keeps cut names
distinct. If two URLs need the same path, or if one needs a folder where the other has a file, the name of the
later one gets a digest of its URL. Paths that differ only in case or in Unicode normalization count as the
same, because they are the same on macOS and Windows. Files are always created, and never opened through an
existing link, so the folder must be empty at first. The functions raise StoreError if the disk fails, or if no name
is free.
"""

import hashlib
import os
import posixpath
import re
import sqlite3
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote_to_bytes

from crawler.errors import StoreError
from crawler.printable import printable
from crawler.storage.files import opened, store_errors, write_all
from crawler.urls.canonical import resolve

_NAME_BYTES_MAX = 200  # bytes; file systems allow 255, but the digest and the suffix need room
_PATH_BYTES_MAX = 3000  # bytes; Linux allows 4096 for a path, including the folder
_UNSAFE = re.compile(r'[<>:"\\|?*/]')
# Names of files on which a program acts when it enters the folder or is started there. The programs are file
# managers, web servers, Python, pytest, and git, to which a folder with a file HEAD is a repository. Names
# that begin with a dot (.git, .htaccess, .envrc) are handled separately.
_ACTIVE_NAMES = frozenset(
    ["autorun.inf", "desktop.ini", "folder.htt", "web.config", "head", "conftest.py", "sitecustomize.py"]
    + ["usercustomize.py", "__init__.py", "__main__.py"]
)
# A file manager that shows a folder opens files with these suffixes, or fetches pictures for them.
_ACTIVE_SUFFIX = re.compile(r"\.(?=(?:desktop|lnk|pif|scf|url|[a-z]+-ms)$)", re.IGNORECASE)
# Windows treats these names as devices, with any suffix.
_DEVICE = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9¹²³])(?:\.|$)", re.IGNORECASE)
# The suffixes by which programs recognize these media types. A name without any of these suffixes gets the
# first one.
_HTML_SUFFIXES = (".html", ".htm", ".xhtml")
_SUFFIXES = {
    "text/html": _HTML_SUFFIXES,
    "application/xhtml+xml": _HTML_SUFFIXES,
    "text/css": (".css",),
    "text/javascript": (".js", ".mjs"),
    "application/javascript": (".js", ".mjs"),
    "image/svg+xml": (".svg", ".svgz"),
}
_HEAD = re.compile(
    rb"\s*+(?:<!--(?s:.*?)-->\s*+)*+(?:<!doctype[^>]*+>\s*+)?+(?:<!--(?s:.*?)-->\s*+)*+"
    rb"(?:<html[^>]*+>\s*+)?+(?:<head(?:\s[^>]*+)?+>)?+",
    re.IGNORECASE,
)
_HOPS_MAX = 20  # number of redirects that are followed from one link
_PLAIN = "/!$'()*,;=@~+&"  # characters that are not escaped in a relative URL
_SIGNED = 1 << 63


class MirrorPaths:
    """The file of each page and the target of each redirect, by fingerprint, in an SQLite file.

    The file also has the folded form of each path that is taken (`reserve`).
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._pid = 0
        self._connection: sqlite3.Connection | None = None
        with self._open() as connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("CREATE TABLE place (id INTEGER PRIMARY KEY, path TEXT, leads_to INTEGER)")
            connection.execute("CREATE TABLE taken (name TEXT PRIMARY KEY, folder INTEGER) WITHOUT ROWID")
        self.of = lru_cache(maxsize=1 << 14)(self._of)

    def reserve(self, path: PurePosixPath) -> bool:
        """Take a path for a file. Return False if another file has the path, or if a file and a folder collide.

        Two paths collide if they name the same file on a system that ignores case and normalization.
        """
        connection = self._open()
        name, *folders = [_folded(str(each)) for each in (path, *path.parents[:-1])]
        marks = ", ".join("?" * len(folders))
        if connection.execute(
            f"SELECT 1 FROM taken WHERE name = ? OR (name IN ({marks}) AND NOT folder)", (name, *folders)
        ).fetchone():
            return False
        connection.execute("INSERT INTO taken VALUES (?, 0)", (name,))
        connection.executemany("INSERT OR IGNORE INTO taken VALUES (?, 1)", [(each,) for each in folders])
        return True

    def add(self, fingerprint: int, path: str) -> None:
        """Store the path of a page's file, relative to the mirror's folder."""
        self._open().execute(
            "INSERT OR REPLACE INTO place VALUES (?, ?, NULL)", (fingerprint - _SIGNED, path)
        )

    def add_redirect(self, fingerprint: int, target: int) -> None:
        """Store a redirect, unless a page is stored for the URL."""
        self._open().execute(
            "INSERT OR IGNORE INTO place VALUES (?, NULL, ?)", (fingerprint - _SIGNED, target - _SIGNED)
        )

    def finish(self) -> None:
        """Commit the added paths, so that other processes can look them up."""
        self._open().commit()

    def close(self) -> None:
        self._open().close()

    def _of(self, fingerprint: int) -> str:
        """Return the path of a page's file, following redirects; "" if the page has no file."""
        cursor = self._open()
        for _ in range(_HOPS_MAX):
            row = cursor.execute(
                "SELECT path, leads_to FROM place WHERE id = ?", (fingerprint - _SIGNED,)
            ).fetchone()
            if row is None:
                break
            if row[0] is not None:
                return row[0]
            fingerprint = row[1] + _SIGNED
        return ""

    def _open(self) -> sqlite3.Connection:
        """Return the database connection of this process.

        A forked child opens its own connection, because it must not use its parent's.
        """
        if self._connection is None or self._pid != os.getpid():
            self._connection = sqlite3.connect(self._file)
            self._pid = os.getpid()
        return self._connection


class Linker:
    """Rewrites the URLs of one page. `path` is the path of the page's file, relative to the mirror."""

    def __init__(self, path: str, places: MirrorPaths, fingerprint: Callable[[str], int]) -> None:
        self._folder = posixpath.dirname(path)
        self._places = places
        self._fingerprint = fingerprint

    def __call__(self, url: str, kind: str) -> str:
        """Return the relative URL of the file for `url`, or `url` itself if there is no such file.

        The URL of a <base> becomes "", so that relative URLs start from the page's own file.
        """
        if kind == "base":
            return ""
        path = self._places.of(self._fingerprint(url))
        return relative_url(self._folder, path) if path else url


def relative_url(folder: str, path: str) -> str:
    """Return the URL of the file `path` for a page in `folder`. `path` and `folder` are relative to the mirror."""
    return quote(posixpath.relpath(path, folder), safe=_PLAIN, errors="surrogateescape")


def with_charset(content: bytes, encoding: str) -> bytes:
    """Insert a declaration of the encoding into an HTML page, right after `<head>` or the doctype."""
    head = _HEAD.match(content)
    at = head.end() if head else 0
    return b'%b<meta charset="%b">%b' % (content[:at], encoding.encode(), content[at:])


def redirect_target(url: str, location: str) -> str | None:
    """Return the URL to which a redirect leads, in request form, or None if the answer states no URL."""
    return resolve(url, location) if location else None


def claim(folder: Path, places: MirrorPaths, url: str, content_type: str) -> str:
    """Create an empty file for a page; return the file's path relative to `folder`."""
    path, digest = mirror_path(url, content_type), _digest(url)
    with_digest = path.with_name(_short(f"{path.stem}~{digest}{path.suffix}"))
    for candidate in (path, with_digest, PurePosixPath(path.parts[0], f"{digest}{path.suffix}")):
        if places.reserve(candidate) and _create(folder / candidate):
            return str(candidate)
    raise StoreError(f"{folder / path}: cannot create a file for {url}")


def fill(folder: Path, path: str, pieces: Iterable[bytes]) -> None:
    """Write the content to a file that `claim` created, piece by piece."""
    file, flags = folder / path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW
    with store_errors(file, "write"), opened(file, flags) as descriptor:
        for piece in pieces:
            write_all(descriptor, piece)


def _create(path: Path) -> bool:
    """Create a new file. Return False if its path is taken, or if a file has the path of its parent folder."""
    with store_errors(path, "create"):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644))
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            return False
    return True


def mirror_path(url: str, content_type: str) -> PurePosixPath:
    """Return the relative path of the file for a canonical URL. The file is in the folder of the URL's host."""
    rest = url.partition("://")[2].partition("#")[0]
    location, mark, query = rest.partition("?")
    authority, _, path = location.partition("/")
    *folders, name = path.split("/")
    name = (name or "index.html") + ("@" + query if mark else "")
    suffixes = _SUFFIXES.get(content_type)
    if suffixes and not name.lower().endswith(suffixes):
        name += suffixes[0]
    parts = [_safe(part) for part in folders if part] + [_safe(name)]
    host = _safe(authority.rpartition("@")[2].replace(":", "_"))
    result = PurePosixPath(host, *(_short(part) for part in parts))
    if len(os.fsencode(str(result))) > _PATH_BYTES_MAX:
        result = PurePosixPath(host, _digest(url) + PurePosixPath(_short(parts[-1])).suffix[:16])
    return result


def _folded(path: str) -> str:
    """Return the form of a path that is equal for all paths that macOS or Windows may treat as one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def _safe(part: str) -> str:
    """Turn a path segment into a file name that is not empty and that no program acts on or misreads.

    The function escapes separators, invisible characters and characters that reorder text. The last character
    of a name is also escaped if it is a dot or a blank. In names that begin with a dot or a hyphen, in device
    names and in `_ACTIVE_NAMES`, the first character is escaped. In names with an `_ACTIVE_SUFFIX`, the dot
    of the suffix is escaped. No name is `.` or `..`.
    """
    decoded = unquote_to_bytes(part).decode("utf-8", "surrogateescape")
    name = "".join(
        [_code(char) if _UNSAFE.match(char) or char != printable(char) else char for char in decoded]
    )
    if name.endswith((".", " ")):
        name = name[:-1] + _code(name[-1])
    if name.startswith((".", "-")) or name.lower() in _ACTIVE_NAMES or _DEVICE.match(name):
        name = _code(name[0]) + name[1:]
    name = _ACTIVE_SUFFIX.sub("%2E", name)
    return name or "_"


def _code(char: str) -> str:
    return "".join([f"%{byte:02X}" for byte in char.encode("utf-8", "surrogateescape")])


def _short(name: str) -> str:
    """Return `name` cut to the length that file systems allow. A digest keeps cut names distinct."""
    encoded = name.encode()
    if len(encoded) <= _NAME_BYTES_MAX:
        return name
    suffix = PurePosixPath(name).suffix
    suffix = suffix if len(suffix.encode()) <= 16 else ""
    kept = encoded[: _NAME_BYTES_MAX - 30].decode("utf-8", "ignore")
    return f"{kept}~{_digest(name)}{suffix}"


def _digest(text: str) -> str:
    return hashlib.sha1(text.encode("utf-8", "replace")).hexdigest()[:12]
