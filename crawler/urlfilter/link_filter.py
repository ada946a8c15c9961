# cython: annotation_typing=False
"""Turns the hrefs of a page into accepted links. This part of the URL filter must be fast.

    hrefs --> cut the fragment --> unique --> memo --(miss)--> canonical form, verdict, fingerprint
                                                |
                                          accepted: unique by fingerprint;  rejected: counted by rule

Pages of one directory share most of their hrefs (navigation, index), and the meaning of a relative href
depends only on the directory of the base. So there is one table per directory, which maps each href to its
result. With this table, a link costs one dictionary look-up. Three kinds of hrefs are not in the table but
are resolved each time. An href that is empty or begins with `?` depends on the file name or the query of the
base. The URL standard treats an href such as `http:x` as relative if the base has the same scheme. In an href
with tabs or newlines, the parser removes these characters. There are separate tables for pages in an encoding
other than UTF-8, and for links to requisites. `urlfilter/README.md`, "Bounds", states the limits of the memo.

A rejected href counts once per page, under the rule that rejected it; its fragment is ignored. Links that
consist only of a fragment are dropped earlier and do not count. A link to the page itself is treated like any
other link; the duplicate check recognizes it.
"""

import re
from array import array
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import cython
import msgspec
import numpy as np
from numpy.typing import NDArray

from crawler.urlfilter.rule_names import RULES
from crawler.urlfilter.url_filter import UrlFilter
from crawler.urls.canonical import (
    LENGTH_MAX,
    TOO_LONG,
    ancestors,
    directory,
    parse,
    plain_join,
    query_codec,
    resolve_or_rule,
)
from crawler.urls.fingerprint import Fingerprinter

COMPILED: bool = cython.compiled


# Matches the beginning of an href whose target depends on more than the directory of the base URL: an empty
# href, `?x` or `http:x`. Also matches a leading space, which the parser trims.
_NOT_BY_DIRECTORY = re.compile(r"$|[ ?]|https?:(?![/\\])", re.IGNORECASE)
# size in bytes of an entry without its characters: slot, link, integer and two string headers
_ENTRY_BYTES = 300
# Limits on the recently judged URLs whose results are stored: their number, and the length of a request form.
# The results take at most about 5 MB.
_JUDGED_MAX = 1 << 13
_JUDGED_LENGTH_MAX = 400
_TABLE_BYTES = 1000  # size of a table in bytes, without its entries and the characters of its ancestors

# Matches bases that are already request forms, which nearly all are. Such a base need not be parsed.
_REQUEST_FORM = re.compile(r"https?://[a-z0-9.-]+(?::[0-9]+)?/[!$-;=@-\[\]_a-z|~]*(?:\?[!$-;=?-~]*)?")


class Accepted(NamedTuple):
    """The accepted links of a page in order of appearance. No two links have the same fingerprint.

    `urls` are the request forms of the links, and `fingerprints` is the array of their fingerprints.
    `rejected` counts the other links by rule.
    """

    urls: list[str]
    fingerprints: NDArray[np.uint64]
    rejected: dict[str, int]


class Judged(NamedTuple):
    """One URL: its request form, its fingerprint, and the rule that rejects it ("" if it is accepted)."""

    url: str
    fingerprint: int
    rule: str


class Explanation(NamedTuple):
    """The forms of a URL and the verdict on it, as `crawler why` shows them. `reason` is a text for users."""

    url: str
    key: str
    fingerprint: int
    rule: str
    reason: str


class _Link(msgspec.Struct, frozen=True, gc=False):
    """An accepted link, as it is kept in the tables of the memo.

    The tables hold many links. The garbage collector would examine each link again and again if it were a
    tuple; it does not examine a struct without `gc`.
    """

    fingerprint: int
    url: str


_Entry = _Link | str  # a result: a link, or the name of the rule that rejects it


class _Table(dict[str, _Entry]):
    """The results of one directory. `above` are its ancestors; `size` is the table's approximate size in bytes."""

    __slots__ = ("above", "size")

    def __init__(self, directory: str) -> None:
        super().__init__()
        self.above = ancestors(directory)
        self.size = _TABLE_BYTES + len(directory) + sum(map(len, self.above))


class LinkFilter:
    """Turns raw URLs into accepted links.

    Args:
        length_max: limit on a request form, in bytes.
        memo_bytes_max: limit on all stored results together, in bytes; with 0, none are stored.
    """

    def __init__(
        self,
        url_filter: UrlFilter,
        fingerprinter: Fingerprinter,
        *,
        length_max: int = LENGTH_MAX,
        memo_bytes_max: int = 24 << 20,
    ) -> None:
        self.filter = url_filter
        self.fingerprinter = fingerprinter
        self._fingerprint = fingerprinter.fingerprint
        self._length_max = length_max
        self._size_max = memo_bytes_max
        self._size = 0
        self._tables: OrderedDict[object, _Table] = OrderedDict()  # the least recently used is first
        self._judged: dict[str, _Entry] = {}
        self._revision = self._present_revision()
        self.links = 0  # number of hrefs so far; an href that occurs several times in a page counts once
        self.misses = 0

    def filter_links(
        self, base_url: str, hrefs: Iterable[str], encoding: str = "utf-8", flags: int = 0
    ) -> Accepted:
        """Return the accepted links among `hrefs`, the raw hrefs of a page, which are relative to `base_url`.

        `encoding` is the encoding of the page. `flags` are the flags of all its links. No content of a page
        can make this function raise an exception.
        """
        return _sort_out(self._results(base_url, _without_fragments(hrefs), encoding, flags))

    def filter_spelled(
        self, base_url: str, hrefs: Iterable[str], encoding: str = "utf-8", flags: int = 0
    ) -> tuple[Accepted, list[str]]:
        """Return the result of `filter_links`, and in its order the first spelling of each link, without fragment."""
        raw = _without_fragments(hrefs)
        results = self._results(base_url, raw, encoding, flags)
        spellings: dict[int, str] = {}
        for href, entry in zip(raw, results, strict=True):
            if entry.__class__ is _Link:
                spellings.setdefault(entry.fingerprint, href)
        return _sort_out(results), list(spellings.values())

    def _results(self, base_url: str, raw: Collection[str], encoding: str, flags: int) -> list[Any]:
        """Return the result for each of the `raw` hrefs."""
        base: str | None = base_url
        if not _REQUEST_FORM.fullmatch(base_url):
            base = (parse(base_url) or "").partition("#")[0] or None
        table = self._table(base, encoding, flags)
        results = list(map(table.get, raw))
        if not all(results):
            self._fill(results, raw, table, base, encoding, flags)
        self._shrink()
        self.links += len(results)
        return results

    def one(
        self, raw_url: str, flags: int = 0, *, base: str | None = None, encoding: str = "utf-8"
    ) -> Judged:
        """Judge one URL, such as a redirect or an entry of a sitemap. Without a base, the URL must be absolute."""
        url, rule = self._form(base, raw_url, plain_join((), raw_url), encoding)
        if rule:
            return Judged("", 0, rule)
        return Judged(url, self._fingerprint(url), self.filter.verdict(url, flags))

    def form(self, raw_url: str) -> tuple[str, str]:
        """Return (request form, "") for an absolute URL, or ("", name of the rule that rejects it)."""
        return self._form(None, raw_url, plain_join((), raw_url), "utf-8")

    def explain(self, raw_url: str, flags: int = 0) -> Explanation:
        """Explain why an absolute URL is accepted or rejected."""
        url, fingerprint, rule = self.one(raw_url, flags)
        key = self.fingerprinter.key(url).decode("ascii") if url else ""
        reason = RULES[rule] if rule else "it passes the URL filter"
        if detail := self.filter.detail(url, rule):
            reason = f"{reason}: {detail}"
        return Explanation(url, key, fingerprint, rule, reason)

    def _table(self, base: str | None, encoding: str, flags: int) -> _Table:
        """Return the table of the base's directory and mark it as most recently used."""
        if self._revision != self._present_revision():
            self._forget()
        codec = "utf-8" if encoding == "utf-8" else query_codec(encoding)
        place = directory(base) if base and base.startswith(("http://", "https://")) else base or ""
        key = place if codec == "utf-8" and not flags else (place, codec, int(flags))
        table = self._tables.get(key)
        if table is None:
            self._tables[key] = table = _Table(place)
            self._size += table.size
        self._tables.move_to_end(key)
        return table

    def _fill(
        self,
        results: list[_Entry | None],
        raw: Iterable[str],
        table: _Table,
        base: str | None,
        encoding: str,
        flags: int,
    ) -> None:
        """Compute the results that are still None. Store those that depend only on the directory."""
        form, verdict, fingerprint, above = self._form, self.filter.verdict, self._fingerprint, table.above
        size, length_max, depends_on_base = 0, self._length_max, _NOT_BY_DIRECTORY.match
        judged = self._judged
        position: cython.Py_ssize_t = -1
        for href in raw:
            position += 1
            if results[position] is not None:
                continue
            self.misses += 1
            rule = ""
            url = plain = plain_join(above, href)
            if not plain or len(plain) > length_max:
                url, rule = form(base, href, plain, encoding)
            known: _Entry | None = rule or (None if flags else judged.get(url))
            if known is None:
                known = verdict(url, flags) or _Link(fingerprint(url), url)
                if not flags and self._size_max and len(url) <= _JUDGED_LENGTH_MAX:
                    if len(judged) >= _JUDGED_MAX:
                        judged.clear()
                    judged[url] = known
            results[position] = entry = known
            # Only printable hrefs are stored, so no stored href contains a tab or a newline.
            if plain or (href.isprintable() and not depends_on_base(href)):
                table[href] = entry
                size += _ENTRY_BYTES + len(href) + len(url)
        table.size += size
        self._size += size

    def _form(self, base: str | None, href: str, plain: str, encoding: str) -> tuple[str, str]:
        """Return (request form, "") or ("", rule that rejects the href). `plain` is the result of `plain_join`."""
        if not plain:
            return resolve_or_rule(base, href, encoding=encoding, length_max=self._length_max)
        return (plain, "") if len(plain) <= self._length_max else ("", TOO_LONG)

    def _shrink(self) -> None:
        """Evict the tables of the least recently used directories until all tables together are within the bound."""
        while self._size > self._size_max:
            self._size -= self._tables.popitem(last=False)[1].size

    def _present_revision(self) -> int:
        """Return a number that changes whenever results may change: the sum of two revisions that only grow."""
        return self.filter.revision + self.fingerprinter.revision

    def _forget(self) -> None:
        self._tables.clear()
        self._judged.clear()
        self._size = 0
        self._revision = self._present_revision()

    def _check(self) -> None:
        assert self._size == sum(table.size for table in self._tables.values()), self
        assert self._size <= self._size_max and len(self._judged) <= _JUDGED_MAX, self

    def __repr__(self) -> str:
        memo = f"{len(self._tables)} directories, {self._size} bytes"
        return f"LinkFilter({memo}, {self.links} links, {self.misses} misses)"


def _without_fragments(hrefs: Iterable[str]) -> Collection[str]:
    """Return the hrefs, each once, without their fragments.

    A fragment after a blank is kept. Without the fragment, the blank would be at the end of the href, where
    the parser trims it.
    """
    raw = dict.fromkeys(hrefs)
    if "#" not in "".join(raw):
        return raw
    return dict.fromkeys(
        [href[: end + (href[end - 1] <= " ")] if end > 0 else href for href in raw if (end := href.find("#"))]
    )


def _sort_out(results: list) -> Accepted:
    """Return the accepted links, the first of each fingerprint, and the number of links rejected by each rule."""
    unique: dict[int, str] = {}
    rejected: dict[str, int] = {}
    for entry in results:
        if entry.__class__ is _Link:
            unique.setdefault(entry.fingerprint, entry.url)
        else:
            rejected[entry] = rejected.get(entry, 0) + 1
    fingerprints = np.frombuffer(array("Q", unique), np.uint64)
    return Accepted(list(unique.values()), fingerprints, rejected)
