"""Does the work on one page of an export; any of the processes that share the export may do it.

This module combines the formats of `crawler/pages` with `crawler/extract`, which finds the encoding and the
links of a page, and decides whether the page may be parsed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from crawler.config import Config, ExtractConfig
from crawler.errors import DamageError
from crawler.export.stored_pages import StoredPages
from crawler.extract.decode import to_utf8
from crawler.extract.parser_guard import Judgement, judge
from crawler.extract.rewrite import rewrite_css_bytes, rewrite_html
from crawler.extract.survey import survey
from crawler.pages.archive import read_capture
from crawler.pages.captures import StoredPage
from crawler.pages.formats import language, mirror, text
from crawler.pages.formats.metadata import read_metadata
from crawler.pages.formats.rows import CONTENT_FIELDS, METADATA_FIELDS, Known
from crawler.pages.formats.selection import shows_content
from crawler.pages.formats.simhash import minhash, simhash
from crawler.pages.reading import codings_of, decode_payload
from crawler.pages.stored_bodies import Copy, decoded, open_capture
from crawler.records import Capture
from crawler.urls.media_type import CSS, SVG, XHTML, is_html, is_page, may_be_page


class Done(NamedTuple):
    """The result of one piece of work: a value for each page, and the problems that occurred."""

    values: list[Any]
    problems: list[str]


def read_known(folders: Sequence[Path], known: Known) -> StoredPage | None:
    """Return the newest copy of a page; None if that copy does not show the page's content.

    Raises:
        DamageError: the copy cannot be read.
    """
    if (capture := _with_content(known)) is None:
        return None
    page = read_capture(folders[known.archive], capture, known.original)
    return page if 200 <= page.status < 300 else None


def open_known(folders: Sequence[Path], known: Known) -> Copy | None:
    """Open the copy that `read_known` would return, so that the caller can read it in pieces.

    Raises:
        DamageError: the copy cannot be read.
    """
    if (capture := _with_content(known)) is None:
        return None
    copy = open_capture(folders[known.archive], capture, known.original)
    return copy if 200 <= copy.status < 300 else None


def _with_content(known: Known) -> Capture | None:
    """Return the newest copy of a page, unless it shows no content, or the response that it repeats is missing."""
    capture = known.capture
    is_lost = capture is not None and capture.refers_to and known.original is None
    return capture if capture is not None and shows_content(capture) and not is_lost else None


def may_have_text(content_type: str) -> bool:
    """Return whether a copy of this type may have text: plain text, or a type that may be a page."""
    return content_type == "text/plain" or may_be_page(content_type)


def is_tame(utf8: bytes, config: ExtractConfig) -> bool:
    """Return whether the page may be parsed. If the guard's quick check does not allow it, all tags are checked."""
    if judge(utf8, config) is Judgement.SAFE:
        tags, end_tags, _ = survey(utf8)
        if tags - 2 * end_tags <= text.UNCLOSED_TAGS_MAX:
            return True
    return text.is_tame(utf8)


class RowWork:
    """Fills the row fields that are read from the page itself."""

    def __init__(
        self, config: Config, folders: Sequence[Path], fields: Sequence[str], *, main_content: bool = False
    ) -> None:
        self._extract = config.extract
        self._folders = folders
        wanted = CONTENT_FIELDS & set(fields)
        self._reads = bool(wanted)
        self._title = "title" in wanted
        self._metadata = bool(wanted & METADATA_FIELDS)
        self._text = bool(wanted - METADATA_FIELDS - {"title"})
        self._pages = StoredPages(config)
        self._language = bool(wanted & {"language", "language_confidence"})
        if self._language:
            language.load()
        self._simhash = "simhash" in wanted
        self._minhash = bool(wanted & {"minhash", "duplicate_of"})
        self._main_content = main_content

    def __call__(self, piece: list[Known], careful: bool) -> Done:
        """Fill the content fields of each row whose page has content; return the rows."""
        problems: list[str] = []
        for known in piece:
            if self._reads:
                try:
                    self._fill(known, careful)
                except DamageError as error:
                    problems.append(str(error))
        return Done([known.row for known in piece], problems)

    def _fill(self, known: Known, careful: bool) -> None:
        capture = known.capture
        if capture is None or not may_have_text(capture.content_type):
            return
        page = read_known(self._folders, known)
        if page is None:
            return
        row = known.row
        if self._title:
            row["title"] = self._pages.title(page, known.flags, careful=careful) or None
        if not self._text and not self._metadata:
            return
        content, kind = page.content, page.capture.content_type
        utf8, _ = to_utf8(content, page.header_charset)
        if kind == "text/plain":
            self._add_text(row, utf8.decode("utf-8", "replace"), content)
        elif is_page(kind, content):
            tree = text.tree_of(utf8, tame=not careful and is_tame(utf8, self._extract))
            if self._metadata and tree is not None:
                row |= read_metadata(tree, utf8, page.capture.url, self._pages.header_links(page))
            if self._text:
                self._add_text(row, text.text_in(tree, utf8, main_content=self._main_content), content)

    def _add_text(self, row: dict[str, Any], shown: str, content: bytes) -> None:
        """Add the text that a reader sees, and the fields that are computed from it."""
        row["text"] = shown
        if self._language and (found := language.language(shown, language.declared(content))):
            row["language"], row["language_confidence"] = found.code, round(found.confidence, 3)
        if self._simhash and (fingerprint := simhash(shown)) is not None:
            row["simhash"] = f"{fingerprint:016x}"
        if self._minhash and (signature := minhash(shown)) is not None:
            row["minhash"] = signature.hex()


class LinkWork:
    """Extracts the links of pages. Each returned value is (URL of the page, URLs to which the page links)."""

    def __init__(self, config: Config, folders: Sequence[Path]) -> None:
        self._pages = StoredPages(config)
        self._folders = folders

    def __call__(self, piece: list[Known], careful: bool) -> Done:
        """Return (source, targets) for each page that has links."""
        done = Done([], [])
        for known in piece:
            try:
                page = read_known(self._folders, known)
            except DamageError as error:
                done.problems.append(str(error))
                continue
            if page is not None and (found := self._pages.links(page, known.flags, careful=careful)):
                done.values.append((known.row["url"], found))
        return done


@dataclass(eq=False, repr=False)
class MirrorWork:
    """Writes the files of a mirror with rewritten links.

    The returned value is 1 for each page whose file is written.
    """

    config: Config
    folders: Sequence[Path]
    target: Path
    places: mirror.MirrorPaths
    fingerprint: Callable[[str], int]

    def __call__(self, piece: list[Known], careful: bool) -> Done:
        """Write the files that `places` lists for these pages."""
        done = Done([], [])
        for known in piece:
            path = self.places.of(int(known.row["id"], 16))
            try:
                if path and (pieces := self._pieces(known, path)) is not None:
                    mirror.fill(self.target, path, pieces)
                    done.values.append(1)
            except DamageError as error:
                done.problems.append(str(error))
        return done

    def _pieces(self, known: Known, path: str) -> Iterable[bytes] | None:
        """Return the content of a page's file in pieces; None if no copy may be shown.

        A file of a type with links is returned as one piece.
        """
        kind = known.capture.content_type if known.capture is not None else ""
        if not is_html(kind) and kind not in (SVG, CSS):
            copy = open_known(self.folders, known)
            if copy is None:
                return None
            pieces = decoded(copy.pieces(), copy.codings, copy.length)
            start = next(pieces, b"")
            if not is_page(kind, start):
                return chain((start,), pieces)
        page = read_known(self.folders, known)
        return None if page is None else (self._content(page, kind, path),)

    def _content(self, page: StoredPage, kind: str, path: str) -> bytes:
        content = page.content
        if not content:  # not rewritten, because the coding is unknown; the file stays encoded
            return decode_payload(page.payload, codings_of(page.headers))
        linker = mirror.Linker(path, self.places, self.fingerprint)
        if kind == CSS:
            return rewrite_css_bytes(content, page.header_charset, page.capture.url, linker)
        _, encoding = to_utf8(content, page.header_charset)
        xhtml = kind in (XHTML, SVG)
        # A file has no HTTP header, so if only the header names the encoding, the encoding must be written
        # into the page.
        if not xhtml and not content.isascii() and to_utf8(content)[1] != encoding:
            content = mirror.with_charset(content, encoding)
        return rewrite_html(content, encoding, page.capture.url, linker, xhtml=xhtml)
