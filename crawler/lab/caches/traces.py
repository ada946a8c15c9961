"""Reads and writes URL traces (`crawler.urls.trace` describes the format).

A `Trace` maps the files into memory and reads them on demand. If a trace is too large to read as a whole,
`first` limits the number of links that are read. Broder, Najork, Wiener (2003) use 7e7 links for each of
their experiments with different numbers of threads.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crawler.errors import DamageError, DirectoryError, UsageError
from crawler.input_files import read_bytes
from crawler.urls.canonical import canonical, hostname
from crawler.urls.fingerprint import Fingerprinter
from crawler.urls.trace import FORMAT, INFO_FILE, LINK, LINKS_FILE, PAGE, PAGES_FILE, TraceWriter, is_cross


class Trace:
    """A trace of complete pages and their links. It is in memory or mapped from files.

    `pages` are records of `trace.PAGE`; `links` holds one word for each of their links, one page after
    another. The links of page i are links[starts[i]:starts[i + 1]].
    """

    def __init__(
        self, links: NDArray[np.uint64], pages: NDArray[Any], info: dict[str, Any], name: str
    ) -> None:
        ends = np.cumsum(pages["links"], dtype=np.int64)
        self.starts: NDArray[np.int64] = np.concatenate([[0], ends])
        self.links = links
        self.pages = pages
        self.info = info
        self.name = name
        assert self.starts[-1] == len(links), self

    @classmethod
    def open(cls, folder: Path, first: int = 0) -> "Trace":
        """Open the trace in a folder. Ignore bytes that a crash left after the last complete page.

        Args:
            first: read only this number of links, rounded up to whole pages; 0 = all.

        Raises:
            DirectoryError: the folder has no trace, or one of another format.
            DamageError: pages or links cannot be read.
        """
        info = _read_info(folder)
        links, pages = _mapped(folder / LINKS_FILE, LINK), _mapped(folder / PAGES_FILE, PAGE)
        ends = np.cumsum(pages["links"], dtype=np.int64)
        whole = int(np.searchsorted(ends, len(links), side="right"))
        if first:
            whole = min(whole, int(np.searchsorted(ends, first)) + 1)
        read = int(ends[whole - 1]) if whole else 0
        return cls(links[:read], pages[:whole], info, str(folder))

    @classmethod
    def joined(cls, parts: Iterable[tuple[NDArray[Any], NDArray[Any]]], info: dict[str, Any]) -> "Trace":
        """Return a trace in memory, built from parts (words, pages)."""
        words, pages = zip(*parts, strict=True)
        return cls(np.concatenate(words), np.concatenate(pages), info, str(info.get("source", "")))

    def head(self, links: int) -> "Trace":
        """Return the first pages, which together have `links` links.

        If the trace has fewer links, return all pages.
        """
        count = min(len(self.pages), int(np.searchsorted(self.starts, links)))
        return Trace(self.links[: self.starts[count]], self.pages[:count], self.info, self.name)

    @property
    def threads(self) -> int:
        """Return the number of threads.

        If neither the info nor the pages state it, return the mean number of hosts that are crawled at the
        same time.
        """
        if threads := int(self.info.get("threads", 0)):
            return threads
        by_pages = int(self.pages["thread"].max(initial=0)) + 1
        return by_pages if by_pages > 1 else max(1, round(hosts_at_a_time(self.pages["host"])))

    def words(self, stream: str = "full") -> NDArray[np.uint64]:
        """Return the 64-bit words of all links as an array in memory.

        With `stream` "cross", return only the words of links to other processes.
        """
        words = np.array(self.links, np.uint64)
        return words[is_cross(words)] if stream == "cross" else words

    def __repr__(self) -> str:
        return f"Trace({self.name}, {len(self.pages)} pages, {len(self.links)} links)"


def _read_info(folder: Path) -> dict[str, Any]:
    try:
        info = json.loads(read_bytes(folder / INFO_FILE))
    except OSError as error:
        raise DirectoryError(
            f"{folder}: no trace here; see `crawler lab trace --help` to make one"
        ) from error
    except ValueError as error:
        raise DamageError(f"{folder / INFO_FILE}: not JSON") from error
    if not isinstance(info, dict) or info.get("format") != FORMAT:
        raise DirectoryError(f"{folder}: not a trace of the format {FORMAT!r}")
    return info


def _mapped(path: Path, kind: np.dtype[Any]) -> NDArray[Any]:
    try:
        count = path.stat().st_size // kind.itemsize
        return np.memmap(path, kind, "r", shape=(count,)) if count else np.empty(0, kind)
    except OSError as error:
        raise DamageError(f"{path}: cannot read: {error.strerror}") from error


def hosts_at_a_time(hosts: NDArray[np.uint64]) -> float:
    """Return the mean number of hosts that are being crawled at the same time.

    `hosts` holds the host of each page. A host is being crawled from its first to its last page.
    """
    if not len(hosts):
        return 0.0
    _, first, inverse = np.unique(hosts, return_index=True, return_inverse=True)
    last = np.zeros(len(first), np.int64)
    np.maximum.at(last, inverse, np.arange(len(hosts)))
    return float((last - first + 1).sum() / len(hosts))


def write(folder: Path, info: dict[str, Any], parts: Iterable[tuple[NDArray[Any], NDArray[Any]]]) -> Trace:
    """Write a trace from parts (words, pages).

    The words must already contain the final names (63-bit numbers) of the URLs, not the preliminary ones.

    Raises:
        UsageError: the folder exists or cannot be written.
    """
    try:
        folder.mkdir(parents=True)
        text = json.dumps({"format": FORMAT, **info}, indent=2) + "\n"
        (folder / INFO_FILE).write_text(text, encoding="utf-8")
        with (folder / LINKS_FILE).open("wb") as links, (folder / PAGES_FILE).open("wb") as pages:
            for words, records in parts:
                words.astype(LINK).tofile(links)
                records.astype(PAGE).tofile(pages)
    except OSError as error:
        raise UsageError(f"{folder}: cannot write a trace: {error.strerror or error}") from error
    return Trace.open(folder)


def of_crawl(directory: Path) -> list[Path]:
    """Return the traces that a crawl wrote, `DIR/p0/trace/0001` and so on."""
    found = sorted(path.parent for path in directory.glob(f"*/trace/*/{INFO_FILE}"))
    if not found:
        raise DirectoryError(f"{directory}: the directory has no traces; crawl with --trace")
    return found


def import_link_lines(folder: Path, lines: Iterable[str], *, processes: int, key: bytes) -> TraceWriter:
    """Make a trace from lines `source TAB target`, as `crawler export --format links` writes them.

    Consecutive lines with the same source are a page. A link to another host is a cross link if its target
    belongs to another process than its source. The preliminary names of URLs depend on `key` (16 random
    bytes). The writer replaces them by the final names.

    Raises:
        UsageError: a line has another form; the message names the line.
    """
    fingerprinter = Fingerprinter(key, method="blake2b")
    writer = TraceWriter(folder, {"source": "link lines", "tags": "as exported", "processes": processes})
    for source, targets in _pages_of(lines):
        fingerprints = fingerprinter.fingerprints(targets)
        own = fingerprinter.bucket(hostname(source)) % processes
        cross = (fingerprints >> np.uint64(48)) % np.uint64(processes) != np.uint64(own)
        writer.write_page(fingerprinter.host_key(hostname(source)), fingerprints, cross)
    writer.close()
    return writer


def _pages_of(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield (source, targets) for each group of consecutive lines with the same source.

    Skip URLs that no crawl would follow.
    """
    page, targets = "", list[str]()
    for number, line in enumerate(lines, 1):
        source, tab, target = line.rstrip("\r\n").partition("\t")
        if not tab:
            raise UsageError(f"line {number}: expected `source TAB target`, got {line[:60]!r}")
        if source != page:
            if targets:
                yield page, targets
            page, targets = source, []
        if (url := canonical(target)) and canonical(source):
            targets.append(url)
    if targets:
        yield page, targets
