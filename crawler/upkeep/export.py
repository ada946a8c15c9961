"""The page cache in other formats, written to files: ties `pages.export` to the link extractor."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from crawler.config import Config
from crawler.errors import StoreError, UsageError
from crawler.extract.findings import Context
from crawler.extract.guard import Judgement, judge
from crawler.extract.links import parse, prepare
from crawler.extract.scan import scan_utf8
from crawler.extract.types import is_html, is_xhtml
from crawler.pages import export, mirror, wacz
from crawler.pages.archive import Archive
from crawler.pages.captures import StoredPage
from crawler.urls.canonical import resolve

FORMATS = ("warc", "cdxj", "jsonl", "links", "text", "mirror", "wacz", "parquet")
FOLDER_FORMATS = ("mirror",)


def write(
    archives: Sequence[Archive], config: Config, form: str, path: Path, with_noarchive: bool = False
) -> list[str]:
    """Write all archives to `path` in a format of FORMATS; return what could not be read, a line each.

    Raises:
        UsageError: no such format, a package is missing, or the folder of a mirror is not empty.
        StoreError: the disk failed.
    """
    problems: list[str] = []
    select = export.selection(with_noarchive=with_noarchive)
    if form == "mirror":
        mirror.write_mirror(archives, path, select, report=problems.append)
    elif form == "wacz":
        now = max(
            (capture.fetched_at for archive in archives for _, capture in archive.all_captures()), default=0.0
        )
        wacz.write_wacz(archives, path, select, now=now, report=problems.append)
    elif form == "parquet":
        export.write_parquet(archives, path)
    else:
        _write_lines(path, _lines(archives, config, form, select, problems))
    return problems


def _lines(
    archives: Sequence[Archive], config: Config, form: str, select: export.Select, problems: list[str]
) -> Iterable[bytes]:
    note = problems.append
    if form == "warc":
        return (chunk.data for chunk in export.warc_chunks(archives, select, report=note))
    if form == "cdxj":
        return export.cdxj_lines(archives, select)
    if form == "jsonl":
        return export.jsonl_lines(archives)
    if form == "links":
        return export.link_lines(archives, select, lambda page: links_of(page, config), report=note)
    if form == "text":
        return export.text_lines(archives, select, report=note)
    raise UsageError(f"export: no format {form!r}; there are {', '.join(FORMATS)}")


def _write_lines(path: Path, lines: Iterable[bytes]) -> None:
    try:
        file = path.open("wb")
    except OSError as error:
        raise UsageError(f"export: {path}: {error.strerror}") from error
    with file:
        try:
            file.writelines(lines)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error


def links_of(page: StoredPage, config: Config) -> list[str]:
    """The canonical URLs that a stored HTML page links to, unique, in order."""
    kind = page.capture.content_type
    if not is_html(kind):
        return []
    context = Context(page.capture.url, page.header_charset, config.identity.token, xhtml=is_xhtml(kind))
    utf8, encoding = prepare(page.content, context)
    # There is no time limit here, so all that the guard suspects gets the plain scan.
    read = parse if judge(utf8, config.extract) is Judgement.SAFE else scan_utf8
    found = read(utf8, encoding, context, config.extract)
    urls = (resolve(found.base, href, encoding=found.encoding) for href in found.hrefs)
    return list(dict.fromkeys(url for url in urls if url is not None))
