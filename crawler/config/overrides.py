"""`[[override]]` tables, which set different values for parts of the web."""

from collections.abc import Sequence
from typing import Any

import msgspec

from crawler.config.schema import Override
from crawler.urls.surt_prefix import surt_of


class Overrides:
    """The `[[override]]` tables, looked up by URL. If several tables match, the last one that sets a key wins.

    A table matches one of three things: a host, given by its name; a domain with all hosts below it, given as
    `*.domain`; or a part of a site. A part of a site is given as a URL prefix, which contains `://`, or as a
    SURT prefix, which contains `://(`. A SURT prefix matches both http and https. A URL without a path, such as
    `http://a.org`, stands for the whole site. A prefix that ends in `$` matches only that URL. Tables are indexed
    by host, so a crawl may have a table for each seed.
    """

    def __init__(self, tables: Sequence[Override]) -> None:
        self.tables = tuple(tables)
        self._matches = [_with_path(table.match) for table in tables]
        self._values = [
            {key: value for key, value in msgspec.structs.asdict(table).items() if value is not None}
            for table in tables
        ]
        self._of_host: dict[str, list[int]] = {}
        self._of_domain: dict[str, list[int]] = {}
        self._of_any: list[int] = []
        for number, match in enumerate(self._matches):
            if match.startswith("*."):
                self._of_domain.setdefault(match[2:], []).append(number)
            elif (host := _host_of(match)) or "://(" not in match:
                self._of_host.setdefault(host, []).append(number)
            else:
                self._of_any.append(number)

    def __bool__(self) -> bool:
        return bool(self.tables)

    def for_url(self, url: str, hostname: str) -> Override:
        """Return the values for a URL. The value of a key that no table sets is None."""
        near = [*self._of_any, *self._of_host.get(hostname, ())]
        if self._of_domain:
            name = hostname
            while name:
                near += self._of_domain.get(name, ())
                name = name.partition(".")[2]
        values: dict[str, Any] = {}
        for number in sorted(near):
            if _override_matches(self._matches[number], url):
                values.update(self._values[number])
        return Override(**values)


def _with_path(match: str) -> str:
    """Return the `match` of a table, with the path `/` if it is a URL without a path."""
    scheme, separator, rest = match.partition("://")
    if not separator or rest.startswith("(") or "/" in rest:
        return match
    return f"{scheme}://{rest.removesuffix('$')}/{'$' * rest.endswith('$')}"


def _host_of(match: str) -> str:
    """Return the host name in a `match`; "" if it is a SURT prefix that may match several hosts."""
    if "://" not in match:
        return match
    if "://(" in match:
        names, closed, _ = match.partition("://(")[2].partition(")")
        if not closed or ":" in names:
            return ""
        return names if not names.endswith(",") else ".".join(reversed(names.split(",")[:-1]))
    authority = match.partition("://")[2].partition("/")[0]
    name, colon, port = authority.rpartition(":")
    return name if colon and port.isdigit() else authority


def _override_matches(match: str, url: str) -> bool:
    """Return whether a URL matches the `match` of an override table; the caller has already compared the host."""
    if "://" not in match:
        return True
    form = surt_of(url) if "://(" in match else url
    return form == match[:-1] if match.endswith("$") else form.startswith(match)
