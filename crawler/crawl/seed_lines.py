"""Reads a seeds file. Each line has a URL, and limits for the pages under this URL.

    url                          scope    depth  limit  render
    https://example.org/docs/    prefix   3      500    auto
    https://example.com/
    +http://(net,example,

The first line may name the columns, in any order, separated by blanks, tabs or commas. If the first line does
not name the columns, they have the order `url scope depth limit render`. All columns but the URL may be
omitted. If another column follows an omitted column, `-` stands for the omitted column. A line that starts
with `+` contains a SURT prefix, as in Heritrix. A line with a SURT prefix adds a part of the web to the
scope, but no seed. The columns become `[[override]]` tables, which are saved with the crawl.

    scope    page, prefix, host, domain, or a SURT prefix
    depth    maximum number of link hops from a seed, in that part of the web
    limit    maximum number of URLs of the host, the seed included, or in scope domain of the registrable domain
    render   never, auto or always: whether pages of that part are shown in a browser
"""

import csv
import re
from collections.abc import Iterable, Iterator
from typing import Any, get_args

import msgspec

from crawler.config.schema import RenderWhen
from crawler.config.units import ENDLESS, whole_number
from crawler.errors import UsageError
from crawler.urls.canonical import canonical, directory, hostname
from crawler.urls.suffixes import registrable_domain
from crawler.urls.surt_prefix import surt_of, surt_prefix
from crawler.urls.typed_url import percent_encoded

COLUMNS = ("url", "scope", "depth", "limit", "render")
SCOPES = ("page", "prefix", "host", "domain")
TABLE_KEYS = frozenset({"match", "scope", "depth", "pages", "pages_per_domain", "render"})


class SeedLine(msgspec.Struct, frozen=True):
    """A line of a seeds file. `where` names the file and the line.

    The scope "" stands for the scope of the crawl. `depth` -1, `limit` -1 and `render` "" mean that the value is
    not set.
    """

    url: str
    scope: str = ""
    depth: int = -1
    limit: int = -1
    render: str = ""
    where: str = ""

    @property
    def is_plain(self) -> bool:
        return self.url != "" and not (self.scope or self.render) and self.depth < 0 and self.limit < 0


def seed_lines(lines: Iterable[str], name: str) -> Iterator[SeedLine]:
    """Yield the rows of the file `name`. Its bytes that are not UTF-8 were decoded with "surrogateescape".

    Raises:
        UsageError: an unknown column, an invalid word in a column, a file that is not text, or one without seeds.
    """
    columns: tuple[str, ...] = COLUMNS
    commas, first, empty = False, True, True
    for number, text in enumerate(lines, 1):
        line = percent_encoded(text.strip().removeprefix("\ufeff"))
        if not line or line.startswith("#"):
            continue
        where = f"{name}, line {number}"
        if "\0" in line:
            raise UsageError(
                f"{where}: has null bytes; a seeds file is text in UTF-8, not in UTF-16, and not compressed"
            )
        if first and re.match(r"url\b", line, re.IGNORECASE):
            commas = "," in line
            columns = _columns(_words(line, commas), where)
        else:
            empty = False
            yield _seed_line(line, columns, commas, where)
        first = False
    if empty:
        raise UsageError(f"{name}: contains no seeds")


def _seed_line(line: str, columns: tuple[str, ...], commas: bool, where: str) -> SeedLine:
    if line.startswith("+"):
        return SeedLine("", _surt(line[1:], where), where=where)
    return _row(dict(zip(columns, _fitting(_words(line, commas), columns, where), strict=False)), where)


def _words(line: str, commas: bool) -> list[str]:
    return [word.strip() for word in next(csv.reader([line]))] if commas else line.split()


def _columns(words: list[str], where: str) -> tuple[str, ...]:
    names = tuple(word.lower() for word in words)
    for name in names:
        if name not in COLUMNS:
            raise UsageError(f"{where}: there is no column {name!r}; the columns are {', '.join(COLUMNS)}")
        if names.count(name) > 1:
            raise UsageError(f"{where}: column {name} is given twice")
    return names


def _fitting(words: list[str], columns: tuple[str, ...], where: str) -> list[str]:
    if len(words) > len(columns):
        raise UsageError(
            f"{where}: {words[len(columns)]!r} has no column; the columns are {', '.join(columns)} "
            "(write a blank in a URL as %20)"
        )
    return words


def _row(cells: dict[str, str], where: str) -> SeedLine:
    given = {name: "" if cell == "-" else cell for name, cell in cells.items()}
    scope = given.get("scope", "")
    if scope.lower() in SCOPES:
        scope = scope.lower()
    elif scope:
        scope = _surt(scope, where)
    depth, limit = (_number(name, given.get(name, ""), where) for name in ("depth", "limit"))
    if scope == "page" and (depth >= 0 or limit >= 0):
        raise UsageError(f"{where}: a seed of scope page can have neither depth nor limit")
    render = given.get("render", "").lower()
    if render and render not in get_args(RenderWhen):
        raise UsageError(f"{where}: render {render[:100]!r} is not one of {', '.join(get_args(RenderWhen))}")
    return SeedLine(given["url"], scope, depth, limit, render, where)


def _surt(text: str, where: str) -> str:
    if found := surt_prefix(text):
        return found
    if text.lower() == "any":
        raise UsageError(f"{where}: scope any applies to the whole crawl; use --scope any")
    raise UsageError(
        f"{where}: scope {text[:100]!r} is not one of {', '.join(SCOPES)}, nor a SURT prefix "
        "such as http://(org,example,)/docs/ (write a blank in a URL as %20)"
    )


def _number(name: str, text: str, where: str) -> int:
    if not text:
        return -1
    try:
        number = whole_number(text)
    except ValueError:
        raise UsageError(f"{where}: {name} {text!r} is not a whole number") from None
    if not 0 <= number <= ENDLESS:
        raise UsageError(f"{where}: {name} {text!r} is out of range")
    return number


def tables_of(rows: Iterable[SeedLine], crawl_scope: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the `[[override]]` tables for the rows that have limits, and the SURT prefixes that are in scope.

    Raises:
        UsageError: two limits would apply to the same URLs.
    """
    tables: list[dict[str, Any]] = []
    surts: list[str] = []
    limited: dict[str, str] = {}
    for row in rows:
        url = canonical(row.url) if row.url else None
        if "(" in row.scope:
            surts.append(row.scope)
        if url is None or row.is_plain:
            continue
        kind = row.scope if row.scope in SCOPES else "page" if row.scope else crawl_scope
        if kind == "any":
            raise UsageError(
                f"{row.where}: depth, limit and render apply to a part of the web; give a scope, too"
            )
        values: dict[str, Any] = {"scope": "page" if "(" in row.scope else row.scope} if row.scope else {}
        if row.depth >= 0:
            values["depth"] = row.depth
        if row.limit >= 0:
            values["pages_per_domain" if kind == "domain" else "pages"] = row.limit
            _check_limit(
                limited, row, registrable_domain(hostname(url)) if kind == "domain" else hostname(url)
            )
        if row.render:
            values["render"] = row.render
        part = row.scope if "(" in row.scope else ""
        matches = [f"{surt_of(url)}$", part] if part else _matches(kind, url)
        tables += [
            {"match": match} | (values if match != part else _without_scope(values)) for match in matches
        ]
    return [table for table in tables if len(table) > 1], list(dict.fromkeys(surts))


def _without_scope(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "scope"}


def _check_limit(limited: dict[str, str], row: SeedLine, counted: str) -> None:
    other = limited.setdefault(counted, row.where)
    if other != row.where:
        raise UsageError(
            f"{row.where}: {counted} already has a limit ({other}), which applies to all its URLs"
        )


def _matches(kind: str, url: str) -> list[str]:
    """Return the values of `override.match` that match the pages under a seed."""
    name = hostname(url)
    if kind == "page":
        return [f"{surt_of(url)}$"]
    if kind == "prefix":
        return [surt_of(directory(url))]
    if kind == "domain":
        return [f"*.{registrable_domain(name)}"]
    twin = name.removeprefix("www.") if name.startswith("www.") else f"www.{name}"
    return [name] if name.rpartition(".")[2].isdigit() or "." not in name else [name, twin]
