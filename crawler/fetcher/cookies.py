"""Cookies (RFC 6265) within size limits, kept for the crawl or for one visit of a page.

A visit consists of the redirect chain of a page and, if a browser shows the page, of its later requests.

`fetcher/README.md`, "Cookies, credentials and TLS", states the limits. The prefixes `__Secure-` and `__Host-` are
enforced, and a plain http answer can neither set a Secure cookie nor replace one (RFC 6265bis 5.7). SameSite is
ignored, because it concerns requests made by pages of other sites, and a crawler makes none.

A jar `lasts` if it outlives one visit. Such a jar may hold a login, from a file (Netscape's
`cookies.txt`, as written by browser add-ons, curl and wget) or from a submitted form. So the values of cookies
that it receives are not recorded, as those that any jar sends (`redaction.py`).
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

from crawler import http_dates
from crawler.errors import ConfigError
from crawler.fetcher.fetch_request import Target
from crawler.input_files import read_bytes
from crawler.urls.suffixes import suffix_list

COOKIE_BYTES_MAX = 4096
PER_DOMAIN_MAX = 50
REQUEST_BYTES_MAX = 8192
DOMAINS_MAX = 10_000

_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_DATE_DELIMITER = re.compile(r"[\x09\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+")
_FOREVER = float("inf")


class Cookie(msgspec.Struct, gc=False):
    """A stored cookie. `domain` has no leading dot. With `host_only`, the cookie is sent only to the host that set it."""

    name: str
    value: str
    domain: str
    path: str
    expires: float
    host_only: bool
    secure: bool
    created: int


class CookieJar:
    """The cookies of one visit, or of a crawl if `lasts` is True. `now` is wall time in seconds."""

    __slots__ = ("_created", "_domains", "_domains_max", "lasts")

    def __init__(self, domains_max: int = DOMAINS_MAX, *, lasts: bool = False) -> None:
        self.lasts = lasts
        self._domains: dict[str, dict[tuple[str, str, str], Cookie]] = {}
        self._domains_max = domains_max
        self._created = 0

    def store(self, target: Target, lines: list[bytes], now: float) -> None:
        """Store the cookies in the Set-Cookie `lines` of an answer from `target`. Ignore unusable lines."""
        for line in lines:
            if len(line) > COOKIE_BYTES_MAX:
                continue
            cookie = _parse(line.decode("utf-8", "replace"), target, now)
            if cookie is not None and not self._replaces_secure(cookie, target):
                self.add(cookie, now)

    def header(self, target: Target, now: float) -> str:
        """Return the Cookie header value for a request to `target`; "" if there is none (RFC 6265 5.4)."""
        path = target.path.partition("?")[0]
        matching = [
            cookie
            for cookie in self._domains.get(_group(target.hostname), {}).values()
            if cookie.expires > now
            and (target.hostname == cookie.domain or not cookie.host_only)
            and _domain_matches(target.hostname, cookie.domain)
            and _path_matches(path, cookie.path)
            and (target.scheme == "https" or not cookie.secure)
        ]
        matching.sort(key=lambda cookie: (-len(cookie.path), cookie.created))
        pairs: list[str] = []
        size = 0
        for cookie in matching:
            pair = f"{cookie.name}={cookie.value}" if cookie.name else cookie.value
            size += len(pair.encode()) + 2
            if size > REQUEST_BYTES_MAX:
                break
            pairs.append(pair)
        return "; ".join(pairs)

    def _replaces_secure(self, cookie: Cookie, target: Target) -> bool:
        """Return whether this cookie, set over plain http, would shadow a Secure cookie of the same name."""
        return target.scheme != "https" and any(
            held.secure
            and held.name == cookie.name
            and (_domain_matches(held.domain, cookie.domain) or _domain_matches(cookie.domain, held.domain))
            and _path_matches(cookie.path, held.path)
            for held in self._domains.get(_group(cookie.domain), {}).values()
        )

    def __iter__(self) -> Iterator[Cookie]:
        for held in self._domains.values():
            yield from held.values()

    def add(self, cookie: Cookie, now: float) -> None:
        """Store a cookie without further checks, unless it has expired."""
        group = _group(cookie.domain)
        held = self._domains.setdefault(group, {})
        key = (cookie.name, cookie.domain, cookie.path)
        previous = held.pop(key, None)
        if cookie.expires > now:
            self._created += 1
            cookie.created = previous.created if previous is not None else self._created
            held[key] = cookie
        if len(held) > PER_DOMAIN_MAX:
            del held[next(iter(held))]
        if not held:
            del self._domains[group]
        if len(self._domains) > self._domains_max:
            del self._domains[next(iter(self._domains))]

    def __len__(self) -> int:
        return sum(len(held) for held in self._domains.values())

    def _check(self) -> None:
        assert len(self._domains) <= self._domains_max
        for group, held in self._domains.items():
            assert 0 < len(held) <= PER_DOMAIN_MAX, group
            for key, cookie in held.items():
                assert key == (cookie.name, cookie.domain, cookie.path) and _group(cookie.domain) == group

    def __repr__(self) -> str:
        return f"CookieJar({len(self)} cookies of {len(self._domains)} domains)"


def jar_begun_by(target: Target, fields: Iterable[tuple[bytes, bytes]], now: float) -> CookieJar:
    """Return a jar with the cookies that an answer from `target` sets. `fields` are the header fields of the answer."""
    jar = CookieJar()
    jar.store(target, [value for name, value in fields if name.lower() == b"set-cookie"], now)
    return jar


class CookieJars:
    """The named jars of a crawl's requests. Above `jars_max` jars, the least recently used jar is dropped."""

    def __init__(self, jars_max: int, domains_max: int) -> None:
        self._jars: dict[str, CookieJar] = {}
        self._jars_max = jars_max
        self._domains_max = domains_max

    def of(self, name: str) -> CookieJar:
        """Return the jar with that name; make an empty jar if there is none."""
        jar = self._jars.pop(name, None)
        if jar is None:
            jar = CookieJar(self._domains_max, lasts=True)
        self._jars[name] = jar
        if len(self._jars) > self._jars_max:
            del self._jars[next(iter(self._jars))]
        return jar


_HTTP_ONLY = "#HttpOnly_"  # curl writes this before the domain of a cookie that scripts may not read
_FILE_HEAD = "# Netscape HTTP Cookie File\n"


def load_cookies(path: str, now: float, domains_max: int = DOMAINS_MAX) -> CookieJar:
    """Return a jar with the cookies of a file in Netscape's format; expired cookies are skipped.

    Raises:
        ConfigError: the file cannot be read, or one of its lines is not a cookie.
    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "the file is not UTF-8 text"
        raise ConfigError(f"cookies {path}: {reason}") from error
    jar = CookieJar(domains_max, lasts=True)
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or (line.startswith("#") and not line.startswith(_HTTP_ONLY)):
            continue
        cookie = _of_line(line.removeprefix(_HTTP_ONLY))
        if cookie is None:  # the line itself is a secret, so the message does not show it
            raise ConfigError(
                f"cookies {path}: line {number} is not a cookie; expected seven fields separated by tabs: "
                "domain, TRUE or FALSE, path, TRUE or FALSE, expiry, name, value"
            )
        jar.add(cookie, now)
    return jar


def _of_line(line: str) -> Cookie | None:
    """Read a line with domain, subdomains (TRUE or FALSE), path, secure, expiry (0: end of session), name, value."""
    fields = line.rstrip("\r\n").split("\t")
    if len(fields) == 6:  # the value is empty, and an editor has removed the tab before the value
        fields.append("")
    if len(fields) != 7:
        return None
    domain, below, path, secure, expiry, name, value = fields
    flags = {below.upper(), secure.upper()}
    if not flags <= {"TRUE", "FALSE"} or not re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]+)?", expiry):
        return None
    if not domain or not path.startswith("/") or not name or _CONTROLS.search(line.replace("\t", " ")):
        return None
    expires = float(expiry) or _FOREVER
    host_only = below.upper() == "FALSE" or _is_public(domain.lstrip("."))
    return Cookie(
        name, value, domain.lstrip(".").lower(), path, expires, host_only, secure.upper() == "TRUE", 0
    )


def as_file(jar: CookieJar) -> str:
    """Return the jar in the format that `load_cookies` reads."""
    lines = [_FILE_HEAD]
    for cookie in jar:
        dot, below = ("", "FALSE") if cookie.host_only else (".", "TRUE")
        expiry = "0" if cookie.expires == _FOREVER else str(int(cookie.expires))
        fields = (dot + cookie.domain, below, cookie.path, str(cookie.secure).upper(), expiry, cookie.name)
        lines.append("\t".join((*fields, cookie.value)) + "\n")
    return "".join(lines)


def _parse(line: str, target: Target, now: float) -> Cookie | None:
    """Return the cookie of a Set-Cookie line (RFC 6265 5.2 and 5.3); None if it must be ignored."""
    pair, *attributes = line.split(";")
    name, equals, value = pair.partition("=")
    if not equals:
        name, value = "", name
    name, value = name.strip(" \t"), value.strip(" \t")
    if not (name or value) or _CONTROLS.search(line):
        return None
    cookie = Cookie(name, value, target.hostname, _default_path(target.path), _FOREVER, True, False, 0)
    return cookie if _apply(cookie, attributes, target, now) else None


def _apply(cookie: Cookie, attributes: list[str], target: Target, now: float) -> bool:
    """Apply the attributes to the cookie; return False if the cookie must be rejected."""
    max_age: float | None = None
    domain = ""
    for attribute in attributes:
        name, _, value = attribute.partition("=")
        name, value = name.strip(" \t").lower(), value.strip(" \t")
        if name == "max-age" and re.fullmatch(r"-?[0-9]{1,15}", value):
            max_age = now + int(value) if int(value) > 0 else 0.0
        elif name == "expires":
            expires = parse_cookie_date(value)
            cookie.expires = cookie.expires if expires is None else expires
        elif name == "domain":
            domain = value.removeprefix(".").lower()
        elif name == "path":
            cookie.path = value if value.startswith("/") else _default_path(target.path)
        elif name == "secure":
            cookie.secure = True
    if max_age is not None:
        cookie.expires = max_age
    if cookie.secure and target.scheme != "https":
        return False
    return _set_domain(cookie, domain, target.hostname) and _keeps_prefix(cookie, domain)


def _keeps_prefix(cookie: Cookie, domain: str) -> bool:
    """Return whether the cookie meets the conditions of its name's prefix (RFC 6265bis 4.1.3).

    If a cookie has no name, its value is checked as if it were the name.
    """
    name = (cookie.name or cookie.value).lower()
    if name.startswith("__secure-"):
        return bool(cookie.name) and cookie.secure
    if name.startswith("__host-"):
        return bool(cookie.name) and cookie.secure and not domain and cookie.path == "/"
    return True


def _set_domain(cookie: Cookie, domain: str, hostname: str) -> bool:
    if not domain or domain == hostname:
        cookie.host_only = not domain or _is_public(domain)
        return True
    if _is_public(domain) or not _domain_matches(hostname, domain):
        return False
    cookie.domain, cookie.host_only = domain, False
    return True


def _domain_matches(hostname: str, domain: str) -> bool:
    """Return whether `hostname` matches `domain` (RFC 6265 5.1.3); an address matches only itself."""
    if hostname == domain:
        return True
    return (
        hostname.endswith("." + domain) and not hostname.rpartition(".")[2].isdigit() and ":" not in hostname
    )


def _path_matches(path: str, cookie_path: str) -> bool:
    """Return whether `path` matches `cookie_path` (RFC 6265 5.1.4)."""
    return path == cookie_path or (
        path.startswith(cookie_path) and (cookie_path.endswith("/") or path[len(cookie_path)] == "/")
    )


def _default_path(path: str) -> str:
    path = path.partition("?")[0]
    return path[: path.rfind("/")] or "/"


def _group(hostname: str) -> str:
    """Return the registrable domain, or the host itself if it has none."""
    if ":" in hostname or hostname.rpartition(".")[2].isdigit():
        return hostname
    return suffix_list().privatesuffix(hostname) or hostname


def _is_public(domain: str) -> bool:
    return bool(suffix_list().is_public(domain))


def parse_cookie_date(text: str) -> float | None:
    """Return the time in a cookie's Expires; None if it is unreadable. Its parts may be in any order (RFC 6265 5.1.1)."""
    found: dict[str, str] = {}
    for token in _DATE_DELIMITER.split(text):
        for part, pattern in _DATE_PARTS:
            match = pattern.match(token)
            if part not in found and match is not None:
                found[part] = match[1]
                break
    if len(found) != len(_DATE_PARTS):
        return None
    year = int(found["year"])
    year += 1900 if 70 <= year <= 99 else 2000 if year <= 69 else 0
    hour, minute, second = (part.zfill(2) for part in found["time"].split(":"))
    return http_dates.instant(
        f"Day, {int(found['day']):02d} {found['month'][:3]} {year:04d} {hour}:{minute}:{second} GMT"
    )


_DATE_PARTS = (
    ("time", re.compile(r"(\d{1,2}:\d{1,2}:\d{1,2})(?:\D|$)")),
    ("day", re.compile(r"(\d{1,2})(?:\D|$)")),
    ("month", re.compile(r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)", re.IGNORECASE)),
    ("year", re.compile(r"(\d{2,4})(?:\D|$)")),
)
