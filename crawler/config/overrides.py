"""`[[override]]` tables, which set different values for parts of the web."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from crawler.config.schema import Override
from crawler.config.units import shown
from crawler.errors import ConfigError
from crawler.urls.canonical import canonical, hostname
from crawler.urls.surt_prefix import begins_url, surt_of, surt_prefix
from crawler.urls.typed_url import cut, typed_host

_EVERYWHERE = "http://("  # the SURT prefix of all URLs


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


def check_match(match: str) -> None:
    """Check that the `match` of an override table can match a URL.

    Raises:
        ConfigError: the `match` is empty, or matches no URL, for example because a host name has a port or capital
            letters. If a similar `match` would work, the message contains it.
    """
    if not match:
        raise ConfigError("missing; give a host, *.domain or URL prefix")
    if not _can_match(match):
        meant = next((f"; did you mean {cut(each)!r}?" for each in _similar(match) if _can_match(each)), "")
        raise ConfigError(f"{shown(match)} matches no URL{meant or '; give a host, *.domain or URL prefix'}")


def _can_match(match: str) -> bool:
    """Return whether a URL can match the `match` of an override table."""
    if "://" not in match:
        name = match.removeprefix("*.")
        return name != "" and _is_name(name) and typed_host(name) == name
    is_exact = match.endswith("$")
    prefix = _with_path(match).removesuffix("$")
    if "://(" not in match:
        return begins_url(prefix, is_exact=is_exact) and _is_name(hostname(prefix))
    if is_exact and ")/" not in prefix:
        return False
    return prefix == _EVERYWHERE or surt_prefix(prefix) == prefix


def _is_name(host: str) -> bool:
    """Return whether a host has none of the signs that have a meaning in a `match`."""
    return not any(sign in host for sign in "*(),$")


def _similar(match: str) -> Iterator[str]:
    """Yield texts that the user of a `match` which matches no URL may have meant."""
    end = "$" * match.endswith("$")
    plain = match.removesuffix("$")
    if found := surt_prefix(plain):
        yield found + end
    scheme, separator, rest = plain.rpartition("://")
    if rest.startswith("*."):
        yield f"*.{typed_host(rest[2:])}"
    elif (url := canonical(f"{scheme or 'http'}://{rest}")) is not None:
        if separator:
            yield url + end
        elif url == f"http://{hostname(url)}/":
            yield hostname(url)
        else:
            yield surt_of(url) + end
    elif name := typed_host(match):
        yield name
