"""Decides which files are downloaded, by lists of file kinds in the syntax of wget's --accept and --reject.

A *kind* is one of

    image/png  image/*     a media type, of the answer
    pdf  .pdf  *.pdf       the end of the file name
    report-*.pdf  a?c      a pattern of the whole file name (with * ? [ in it)

The file name in a URL decides whether the URL is requested. A URL of a rejected kind is not requested. If
`accept` lists kinds, a URL is requested only if its file may be of such a kind, or may be a page or style
sheet that leads to such files. After the request, the answer decides whether the file is stored. A page that
was fetched only for its links is not stored.
"""

import fnmatch
import functools
import re
from collections.abc import Iterable

_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]+/(\*|[a-z0-9!#$&^_.+-]+)", re.IGNORECASE)
# Media types of files that lead to other files
_PAGES = frozenset({"text/html", "application/xhtml+xml", "application/xml", "text/xml", "text/css"})


# Endings that Python's own table lacks in some or all versions, by media type (IANA's registry and Debian's mime.types)
_MORE_ENDINGS = {
    "application/epub+zip": "epub",
    "application/gzip": "gz tgz",
    "application/java-archive": "jar",
    "application/octet-stream": "deb dmg img iso msi pkg rpm",
    "application/vnd.android.package-archive": "apk",
    "application/vnd.ms-fontobject": "eot",
    "application/vnd.oasis.opendocument.presentation": "odp",
    "application/vnd.oasis.opendocument.spreadsheet": "ods",
    "application/vnd.oasis.opendocument.text": "odt",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.rar": "rar",
    "application/x-7z-compressed": "7z",
    "application/x-bittorrent": "torrent",
    "application/x-bzip2": "bz2 tbz2",
    "application/x-mobipocket-ebook": "mobi",
    "application/x-xz": "txz xz",
    "application/zstd": "zst",
    "audio/flac": "flac",
    "audio/mp4": "m4a",
    "audio/ogg": "oga ogg opus",
    "audio/x-ms-wma": "wma",
    "font/otf": "otf",
    "font/ttf": "ttf",
    "font/woff": "woff",
    "font/woff2": "woff2",
    "image/avif": "avif",
    "image/jxl": "jxl",
    "image/svg+xml": "svgz",
    "image/vnd.adobe.photoshop": "psd",
    "image/webp": "webp",
    "text/calendar": "ics",
    "video/mp4": "m4v",
    "video/ogg": "ogv",
    "video/x-flv": "flv",
    "video/x-matroska": "mkv",
    "video/x-ms-wmv": "wmv",
}


@functools.lru_cache(1)
def _types() -> dict[str, str]:
    """Return media types by the ending of a file name, such as ".pdf".

    The types are those of Python's own table and of `_MORE_ENDINGS`. If the system's table were used, crawls
    would differ between machines.
    """
    import mimetypes  # imported here, because few crawls use kinds and the import also reads the system's table

    more = {f".{ending}": kind for kind, endings in _MORE_ENDINGS.items() for ending in endings.split()}
    return {**mimetypes.MimeTypes().types_map[True], **more}


def _type_by_name(name: str) -> str:
    """Return the media type that the end of a file name suggests, or "" if there is none."""
    _, dot, ending = name.rpartition(".")
    return _types().get(dot + ending, "")


class _Wanted:
    """A set of kinds, with which file names and media types are compared."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self.types: list[str] = []
        self._endings: tuple[str, ...] = ()
        self._patterns: list[re.Pattern[str]] = []
        for kind in kinds:
            text = kind.strip().lower()
            bare = text.removeprefix("*").removeprefix(".")
            if _TYPE.fullmatch(text):
                self.types.append(text)
            elif not re.search(r"[*?\[]", bare):
                self._endings += (f".{bare}",) if bare else ()
            else:
                self._patterns.append(re.compile(fnmatch.translate(text)))

    def __bool__(self) -> bool:
        return bool(self.types or self._endings or self._patterns)

    def name(self, name: str) -> bool:
        """Return whether a file name, in lower case, is of one of these kinds."""
        return name.endswith(self._endings) or any(pattern.match(name) for pattern in self._patterns)

    def type(self, media_type: str) -> bool:
        return any(
            media_type == kind or (kind.endswith("/*") and media_type.startswith(kind[:-1]))
            for kind in self.types
        )


class Kinds:
    """Applies `accept` and `reject` to URLs and answers. The object is false if both are empty."""

    def __init__(self, accept: Iterable[str] = (), reject: Iterable[str] = ()) -> None:
        self._accept = _Wanted(accept)
        self._reject = _Wanted(reject)

    def __bool__(self) -> bool:
        return bool(self._accept or self._reject)

    def may_ask(self, url: str) -> bool:
        """Return whether a URL may be of a wanted kind, or may be a page or style sheet that leads to such files.

        >>> kinds = Kinds(["pdf", "image/*"], ["gif"])
        >>> [kinds.may_ask(f"http://x/{name}") for name in ("a.pdf", "a.jpg", "a.gif", "a.zip", "a.html", "a.css")]
        [True, True, False, False, True, True]
        """
        name = _name(url)
        guess = _type_by_name(name)
        if self._reject.name(name) or self._reject.type(guess):
            return False
        if not self._accept or not guess or guess in _PAGES:
            return True
        return self._accept.name(name) or self._accept.type(guess)

    def keeps(self, url: str, media_type: str) -> bool:
        """Return whether an answer of this media type is stored.

        >>> kinds = Kinds(["pdf", "image/*"])
        >>> kinds.keeps("http://x/a.pdf", "text/html"), kinds.keeps("http://x/a", "image/png")
        (True, True)
        >>> kinds.keeps("http://x/", "text/html")
        False
        """
        if not self:
            return True
        name = _name(url)
        if self._reject.name(name) or self._reject.type(media_type):
            return False
        return not self._accept or self._accept.name(name) or self._accept.type(media_type)


def _name(url: str) -> str:
    """Return the last segment of the path, in lower case."""
    return url[url.index("/", 8) :].partition("?")[0].rpartition("/")[2].lower()
