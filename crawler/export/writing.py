"""Runs one export from beginning to end. The table `FORMATS` defines how each format is written."""

import contextlib
import itertools
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from crawler.config import ConsentConfig
from crawler.consent.use_rule import UseRule
from crawler.errors import UsageError
from crawler.export.archives import Crawled, opened
from crawler.export.consent_columns import consent_columns, receipt_block
from crawler.export.page_tasks import Done, LinkWork, MirrorWork, RowWork, may_have_text
from crawler.export.worker_pool import WorkerPool, batches
from crawler.pages.formats import dataset, language, mirror, text, wacz
from crawler.pages.formats.crawl_log import crawl_log_lines
from crawler.pages.formats.duplicates import Originals
from crawler.pages.formats.rows import CONTENT_FIELDS, FIELDS, METADATA_FIELDS, Known, known_rows
from crawler.pages.formats.selection import Say, Selection, ignore, shows_content
from crawler.pages.formats.warc_stream import ReceiptOf, cdxj_lines, warc_chunks
from crawler.pages.formats.where import compile_where, did_you_mean
from crawler.pages.shipping import refuse_elsewhere
from crawler.printable import printable
from crawler.records import Outcome, PageState
from crawler.storage.files import named_output, new_folder, refuse_occupied
from crawler.storage.rotating_file import generations, open_generation
from crawler.wording import to_install

PIECE_PAGES = 64
TEXT_EXTRA = to_install("text")
_TEXT_FIELDS = ("id", "url", "fetched_at", "content_type", "text")


class ExportRequest(msgspec.Struct):
    """The options of an export.

    `fields` names the columns of a row, in order ("" = all). `where` is a condition; it selects pages if the
    format is text, links or mirror, and rows otherwise. `allow` names a use, such as "train-ai": only copies
    that may be used for that purpose are written. `unknown` overrides `consent.unknown`. If `static` is set,
    pages that a browser rendered are exported as the server sent them. If `part_bytes` is set, `output` is a
    folder of files of about this size. `processes` is the number of processes that share the work on pages.
    If `replace` is set, a mirror may replace an existing mirror. `now` is the instant for which the column
    `fresh` is computed: the probability that a copy still equals the live page.
    """

    format: str
    output: Path | None = None  # None means standard output
    with_noarchive: bool = False
    static: bool = False
    where: str = ""
    allow: str = ""
    unknown: str = ""
    fields: str = ""
    main_content: bool = False
    part_bytes: int = 0
    processes: int = 1
    replace: bool = False
    now: float = 0.0


class Export:
    """One export, which `run` writes.

    Args:
        progress: called often, with the number of pages so far.

    Raises:
        UsageError: the format, a field or the expression is invalid.
    """

    def __init__(
        self,
        request: ExportRequest,
        *,
        report: Say = ignore,
        progress: Callable[[int], None] = lambda n: None,
    ) -> None:
        if request.format not in FORMATS:
            raise UsageError(f"export: no format {request.format!r}; known formats: {', '.join(FORMATS)}")
        self._writer = FORMATS[request.format]
        if request.output is None and self._writer.to_path:
            raise UsageError(f"export --format {request.format} needs -o PATH")
        self._request = request
        self._report = report
        self._progress = progress
        self._fields = chosen_fields(request.fields)
        self._where = compile_where(request.where, FIELDS) if request.where else None
        self._check_options()
        self._writer.prepare()
        lacking = _fields_without_library()
        # the fields that stay empty because a library is not installed
        self.empty_fields = [name for name in self._fields if self._writer.rows and name in lacking]
        self._select = Selection(with_noarchive=request.with_noarchive, static=request.static)
        self._count = 0
        self.damage: list[str] = []  # segments that are missing or too short; a line for each
        self.incomplete = False  # True if segments are missing, or if copies could not be read
        self.entry = ""  # the file of a mirror that a user should open first

    def _check_options(self) -> None:
        request, writer = self._request, self._writer
        if request.part_bytes and not writer.rows:
            raise UsageError("export: --part-size is for the formats jsonl and parquet")
        if request.part_bytes and request.output is None:
            raise UsageError("export: --part-size needs -o FOLDER")
        if request.fields and not writer.rows:
            raise UsageError("export: --fields is for the formats jsonl and parquet")
        if request.main_content and not text.is_installed():
            raise UsageError(f"export: --main-content needs resiliparse: {TEXT_EXTRA}")
        UseRule.of(request.allow, ConsentConfig())
        if request.unknown and not request.allow:
            raise UsageError("export: --unknown needs --allow USE")
        if request.allow and not writer.copies:
            raise UsageError(f"export: --allow selects copies; the format {request.format} contains none")
        if request.static and not writer.selects:
            raise UsageError(
                f"export: --static chooses between the two copies of a page; the format {request.format} contains both"
            )
        if self._where is None:
            return
        if empty := self._where.fields & _fields_without_library():
            raise UsageError(f"export: --where: {', '.join(sorted(empty))} would be empty: {TEXT_EXTRA}")
        if not writer.selects:
            raise UsageError(
                f"export: --where selects pages, but the format {request.format} contains all captures; "
                f"formats that can select: {', '.join(name for name, each in FORMATS.items() if each.selects)}"
            )
        if (content := self._where.fields & CONTENT_FIELDS) and not writer.by_content:
            names = ", ".join(sorted(content))
            raise UsageError(f"export: --where cannot use {names} in the format {request.format}")

    def run(self, path: Path) -> int:
        """Write the export of the crawl in the directory `path`; return the number of exported pages (or lines).

        Raises:
            UsageError: the output cannot be written in this form.
            StoreError: the disk failed.
        """
        with opened(path) as crawled:
            request, self.damage = self._request, crawled.damage()
            self.incomplete = bool(self.damage)
            self._select = self._select._replace(
                disallowed=crawled.disallowed(),
                refused=crawled.refused(request.allow, request.unknown, self._report),
            )
            if self._reads_pages():
                refuse_elsewhere(_folders(crawled))
            return self._writer.write(self, crawled)

    def _reads_pages(self) -> bool:
        """Return whether the export reads the WARC files in addition to the stores."""
        if self._writer.rows:
            return bool(CONTENT_FIELDS & ({*self._fields} | self._where_fields()))
        return self._writer.reads

    def _report_unread(self, problem: str) -> None:
        self.incomplete = True
        self._report(problem)

    # -- streams

    def _warc(self, crawled: Crawled) -> Iterator[bytes]:
        chunks = warc_chunks(
            crawled.archives, self._select, report=self._report_unread, receipt_of=self._receipt_of()
        )
        return itertools.chain.from_iterable(chunk.pieces for chunk in chunks)

    def _receipt_of(self) -> ReceiptOf | None:
        """Return a function that reads whole receipts.

        Return None if no capture is left out, because every receipt is then exported with the capture that
        stores it.
        """
        return receipt_block if self._select.refused is not None else None

    def _cdxj(self, crawled: Crawled) -> Iterator[bytes]:
        return cdxj_lines(crawled.archives, self._select, consent_of=consent_columns)

    def _crawl_log(self, crawled: Crawled) -> Iterator[bytes]:
        path = crawled.directory.pages_file
        with contextlib.ExitStack() as stack:
            try:
                files: list[Iterable[bytes]] = [
                    stack.enter_context(open_generation(file)) for file in generations(path) or [path]
                ]
            except OSError as error:
                raise UsageError(f"{path}: cannot read: {error.strerror}") from error
            yield from crawl_log_lines(itertools.chain.from_iterable(files), crawled.archives)

    def _text(self, crawled: Crawled) -> Iterator[bytes]:
        wanted = (
            known
            for known in self._known(crawled)
            if known.capture is not None
            and shows_content(known.capture)
            and may_have_text(known.capture.content_type)
        )
        encode = msgspec.json.Encoder().encode
        for row in self._content(crawled, wanted, _TEXT_FIELDS):
            if row["text"] is not None:
                yield encode({name: row[name] for name in _TEXT_FIELDS}) + b"\n"

    def _links(self, crawled: Crawled) -> Iterator[bytes]:
        work = LinkWork(crawled.config, _folders(crawled))
        for source, targets in self._done(work, self._known(crawled)):
            head = _plain(source) + b"\t"
            yield b"".join([head + _plain(target) + b"\n" for target in targets])

    def _write_lines(self, lines: Iterable[bytes]) -> int:
        with self._file() as file:
            for line in lines:
                file.write(line)
                self._count += 1
                if not self._count % 1000:
                    self._progress(self._count)
        return self._count

    @contextlib.contextmanager
    def _file(self) -> Iterator[IO[bytes]]:
        """Open the output as a file: standard output, or a new file."""
        path = self._request.output
        if path is None:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        with named_output(path) as file:
            yield file

    # -- rows

    def _rows(self, crawled: Crawled) -> int:
        request = self._request
        rows = self._content(crawled, self._known(crawled), self._fields)
        if request.part_bytes and request.output is not None:
            return dataset.write_parts(
                rows, request.format, request.output, self._fields, part_bytes=request.part_bytes
            )
        with self._file() as file:
            return dataset.write_rows(rows, request.format, file, self._fields)

    def _known(self, crawled: Crawled) -> Iterator[Known]:
        """Yield the rows that `where` selects. If `where` depends on the content of pages, yield all rows."""
        want_via = "via" in self._fields or "via" in self._where_fields()
        found = known_rows(
            crawled.archives, self._select, crawled.owner, want_via=want_via, consent_of=consent_columns
        )
        if "fresh" in self._fields or "fresh" in self._where_fields():
            found = self._with_freshness(crawled, found)
        if self._where is None or self._where.fields & CONTENT_FIELDS:
            return found
        test = self._where.test
        return (known for known in found if test(known.row))

    def _with_freshness(self, crawled: Crawled, found: Iterator[Known]) -> Iterator[Known]:
        """Yield the rows. If a schedule knows the page of a row, add the probability that the copy is current."""
        now, schedules = self._request.now, crawled.schedules(self._request.now)
        for known in found:
            schedule, record = schedules[known.archive], known.row
            if schedule is not None and record["state"] == PageState.STORED:
                known.row["fresh"] = schedule.views.probability(int(record["id"], 16), known.fetched_at, now)
            yield known

    def _where_fields(self) -> frozenset[str]:
        return self._where.fields if self._where is not None else frozenset()

    def _content(
        self, crawled: Crawled, known: Iterable[Known], fields: Iterable[str]
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows with the fields that are read from pages.

        The row of a duplicate also has the URL of the first page with the same content.
        """
        names = {*fields} | self._where_fields()
        work = RowWork(crawled.config, _folders(crawled), [*names], main_content=self._request.main_content)
        originals = Originals() if "duplicate_of" in names else None
        test = self._where.test if self._where is not None and self._where.fields & CONTENT_FIELDS else None
        for row in self._done(work, known):
            if originals is not None and row["outcome"] in (Outcome.FETCHED, Outcome.UNCHANGED):
                minhash = bytes.fromhex(row["minhash"]) if row["minhash"] else None
                row["duplicate_of"] = originals.add(row["url"], row["digest"] or "", minhash) or None
            if test is None or test(row):
                yield row

    def _done(self, work: Callable[[list[Known], bool], Done], known: Iterable[Known]) -> Iterator[Any]:
        """Yield the values that `work` returns for the pages, and report the problems."""
        with WorkerPool(work, self._request.processes) as worker_pool:
            for done in worker_pool.results(batches(known, PIECE_PAGES)):
                for problem in done.problems:
                    self._report_unread(problem)
                self._count += len(done.values)
                self._progress(self._count)
                yield from done.values

    # -- formats that consist of more than one stream

    def _wacz(self, crawled: Crawled) -> int:
        assert self._request.output is not None
        newest = max(
            (capture.fetched_at for archive in crawled.archives for _, capture in archive.all_captures()),
            default=0.0,
        )
        pages = (
            known
            for known in known_rows(crawled.archives, self._select, crawled.owner, want_via=False)
            if known.capture is not None and wacz.is_page(known.row, known.flags)
        )
        return wacz.write_wacz(
            crawled.archives,
            self._request.output,
            self._select,
            self._content(crawled, pages, ("title",)),
            now=newest,
            report=self._report_unread,
            receipt_of=self._receipt_of(),
        )

    def _mirror(self, crawled: Crawled) -> int:
        target = self._request.output
        assert target is not None
        if not self._request.replace:
            refuse_occupied(target)
        with (
            new_folder(target, replace=self._request.replace) as folder,
            tempfile.TemporaryDirectory(prefix="crawler-mirror-") as scratch,
        ):
            places = mirror.MirrorPaths(Path(scratch) / "places")
            with contextlib.closing(places):
                self._claim(crawled, folder, places)
                work = MirrorWork(crawled.config, _folders(crawled), folder, places, crawled.fingerprint)
                return sum(self._done(work, self._shown(crawled)))

    def _shown(self, crawled: Crawled) -> Iterator[Known]:
        for known in self._known(crawled):
            if known.capture is not None and shows_content(known.capture):
                yield known

    def _claim(self, crawled: Crawled, folder: Path, places: mirror.MirrorPaths) -> None:
        """Assign a path to every page and a target to every redirect."""
        seed = 0
        for known in self._known(crawled):
            row, fingerprint = known.row, int(known.row["id"], 16)
            seed = fingerprint if row["seed"] and not seed else seed
            if known.capture is not None and shows_content(known.capture):
                kind = known.row["content_type"] or known.capture.content_type
                places.add(fingerprint, mirror.claim(folder, places, row["url"], kind))
            elif target := mirror.redirect_target(row["url"], row["location"] or ""):
                places.add_redirect(fingerprint, crawled.fingerprint(target))
        places.finish()
        self.entry = places.of(seed)


class Writer(NamedTuple):
    """A format: its description, and how an export of it is written.

    If `to_path` is set, the output must be a path, not standard output. If `copies` is set, the option
    --allow selects copies. If `rows` is set, the format supports --fields and --part-size. If `selects` is
    set, the option --where selects pages; if `by_content` is set, --where may also use fields of the content.
    If `reads` is set, an export needs the WARC files as well as the stores. `prepare` raises a UsageError if
    a library is missing.
    """

    about: str
    write: Callable[[Export, Crawled], int]
    to_path: bool = False
    copies: bool = True
    rows: bool = False
    selects: bool = True
    by_content: bool = True
    reads: bool = True
    prepare: Callable[[], object] = lambda: None


def _lines(made: Callable[[Export, Crawled], Iterable[bytes]]) -> Callable[[Export, Crawled], int]:
    """Return a function that writes a format which consists of a single stream."""
    return lambda export, crawled: export._write_lines(made(export, crawled))


# `crawler export --help` lists the formats in this order.
FORMATS = {
    "warc": Writer("WARC records as stored", _lines(Export._warc), selects=False),
    "cdxj": Writer(
        "index of the WARC files in the crawl directory", _lines(Export._cdxj), selects=False, reads=False
    ),
    "wacz": Writer(
        "one zip file for replay (pywb, replayweb.page)", Export._wacz, to_path=True, selects=False
    ),
    "mirror": Writer(
        "files with rewritten links, to read offline", Export._mirror, to_path=True, by_content=False
    ),
    "jsonl": Writer(
        "one row per URL: status, times, title, text, language, place of its record", Export._rows, rows=True
    ),
    "parquet": Writer(
        "the rows of jsonl as a table", Export._rows, to_path=True, rows=True, prepare=dataset.load_pyarrow
    ),
    "text": Writer("JSON lines with the text of each page", _lines(Export._text)),
    "links": Writer("source TAB target of each link", _lines(Export._links), by_content=False),
    "crawl-log": Writer(
        "one line per fetch, in Heritrix's format",
        _lines(Export._crawl_log),
        copies=False,
        selects=False,
        reads=False,
    ),
}


def renew_mirror(path: Path, folder: Path, *, processes: int, report: Say = ignore) -> str:
    """Replace the mirror in `folder` with a new mirror of the crawl; return the file to open first.

    Raises:
        StoreError: the disk failed; the old mirror is unchanged.
    """
    export = Export(
        ExportRequest("mirror", folder.absolute(), processes=processes, replace=True), report=report
    )
    export.run(path)
    return str(folder / export.entry)


def _fields_without_library() -> frozenset[str]:
    """Return the fields that stay empty, because the library that reads them is not installed."""
    found = frozenset() if text.is_installed() else METADATA_FIELDS
    return found if language.is_installed() else found | {"language", "language_confidence"}


def chosen_fields(text: str) -> tuple[str, ...]:
    """Return the fields that a comma-separated list names; all fields if the list is empty.

    Raises:
        UsageError: a field does not exist.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in FIELDS:
            raise UsageError(f"--fields: there is no field {name}{did_you_mean(name, FIELDS)}")
    return tuple(dict.fromkeys(names)) or tuple(FIELDS)


def _folders(crawled: Crawled) -> list[Path]:
    return [archive.folder for archive in crawled.archives]


def _plain(text: str) -> bytes:
    return printable(re.sub(r"[\t\r\n]", " ", text)).encode()
