"""IndexNow (indexnow.org/documentation): sites report which of their URLs have changed.

    GET  /indexnow?url=U&key=K[&keyLocation=L]
    POST /indexnow  {"host": H, "key": K, "keyLocation": L, "urlList": [...]}

The key K proves that the sender owns the site, because the file `http://H/K.txt` contains the key. (Instead,
a file L on the same host may contain the key, for URLs below L's directory.) The crawl fetches the file
politely, once per host and day. All waiting URLs together may use `pending_bytes_max` bytes, and the URLs of one
site may use 1/`SITE_PART` of that. So the notices of other sites are still accepted if the key file of one site
never arrives. If a file is missing or lacks the key, it is fetched again for the first notice after
`REFUSED_AGE_MAX`.

    200  accepted               400  malformed                422  URLs of another host, or an invalid key
    202  key not checked yet    403  the file lacks the key   429  too many at once
"""

import math
import re
from collections import Counter, OrderedDict
from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec

from crawler.records import UNDECODABLE
from crawler.serve.http_error import HttpError
from crawler.urls.canonical import authority, canonical, hostname
from crawler.urls.suffixes import registrable_domain

KEY_AGE_MAX = 86_400.0  # number of seconds for which a key file that contains the key is trusted
# number of seconds for which a key is refused after its file was missing or did not contain the key
REFUSED_AGE_MAX = 600.0
# one registrable domain, or all bare addresses together, may use 1/16 of the memory for waiting URLs
SITE_PART = 16
_URL_BYTES = 57  # bytes of memory that a URL uses besides its characters
PARAMETERS = ("url", "key", "keyLocation")  # of a GET notification
_KEY = re.compile(r"[A-Za-z0-9-]{8,128}")


class KeyUnreadError(Exception):
    """The key file was not read because the crawl is stopping, so it is unknown whether the key is valid."""


class Notice(msgspec.Struct, frozen=True):
    """A well-formed notification: `location` is the key file's URL, and `urls` are the changed URLs in request form."""

    host: str
    key: str
    location: str
    urls: tuple[str, ...]


class _Posted(msgspec.Struct):
    host: str
    key: str
    urlList: list[str]
    keyLocation: str = ""


def parse_get(fields: dict[str, str]) -> Notice:
    """Parse the query of a GET notification.

    Raises:
        HttpError: 400 or 422.
    """
    if not fields.get("url") or "key" not in fields:
        raise HttpError(400, "bad_request", "the parameters url and key are required")
    url = canonical(fields["url"])
    if url is None:
        raise HttpError(400, "bad_request", "url is not an http(s) URL")
    return _notice(hostname(url), fields["key"], fields.get("keyLocation", ""), [fields["url"]])


def parse_post(body: bytes, urls_max: int) -> Notice:
    """Parse the JSON body of a POST notification.

    Raises:
        HttpError: 400 or 422.
    """
    try:
        posted = msgspec.json.decode(body, type=_Posted)
    except UNDECODABLE as error:
        raise HttpError(400, "bad_request", f"host, key and urlList are required: {error}") from None
    url = canonical(f"http://{posted.host}/")
    if url is None or not posted.urlList:
        raise HttpError(400, "bad_request", "host is not a host name, or urlList is empty")
    if len(posted.urlList) > urls_max:
        raise HttpError(400, "bad_request", f"urlList may have at most {urls_max} URLs")
    return _notice(hostname(url), posted.key, posted.keyLocation, posted.urlList)


def _notice(host: str, key: str, location: str, raw_urls: list[str]) -> Notice:
    if not _KEY.fullmatch(key):
        raise HttpError(422, "refused", "a key must have 8 to 128 letters, digits and dashes")
    urls = [canonical(url) for url in raw_urls]
    if not all(url is not None and hostname(url) == host for url in urls):
        raise HttpError(422, "refused", f"all URLs must be on the host {host}")
    whole = tuple(url for url in urls if url is not None)
    place = canonical(location) if location else f"{authority(whole[0])}/{key}.txt"
    if place is None or hostname(place) != host:
        raise HttpError(422, "refused", f"keyLocation must be a URL on the host {host}")
    folder = urlsplit(place).path.rpartition("/")[0] + "/"
    if not all(urlsplit(url).path.startswith(folder) for url in whole):
        raise HttpError(422, "refused", f"the key file is valid only for URLs below {folder}")
    return Notice(host, key, place, whole)


def contains(text: bytes | None, key: str) -> bool:
    """Return whether a key file contains the key. `text` is None if the file could not be fetched."""
    return text is not None and text[:256].decode("utf-8", "replace").strip("\ufeff \t\r\n") == key


def _site(host: str) -> str:
    """Return the site under which the waiting URLs of a host are counted.

    The site is the registrable domain of the host. All IP addresses count as one site, "", because a single client
    can send notices for many addresses.
    """
    return "" if ":" in host or host.rpartition(".")[2].isdigit() else registrable_domain(host)


def _size(urls: Iterable[str]) -> int:
    return sum(_URL_BYTES + len(url) for url in urls)


class Keys:
    """The known key files, and the notices whose key files are unread. Waiting URLs use at most `pending_bytes_max`."""

    def __init__(self, files_max: int, pending_bytes_max: int) -> None:
        self.files_max = files_max
        self._pending_bytes_max = pending_bytes_max
        # (key file, key) -> (True if the file contains the key, time of the fetch)
        self._known: OrderedDict[tuple[str, str], tuple[bool, float]] = OrderedDict()
        self._pending: OrderedDict[tuple[str, str], list[str]] = OrderedDict()
        self._waiting: Counter[str] = Counter()  # site -> bytes of its waiting URLs

    def submit(self, notice: Notice, now: float) -> tuple[int, bool]:
        """Return the status, and whether to fetch the key file now.

        If the status is 202, the URLs wait until `found` is called with the result.

        Raises:
            HttpError: 403 the file does not contain the key; 429 too many URLs wait.
        """
        name = (notice.location, notice.key)
        good, then = self._known.get(name, (False, -math.inf))
        if good and now - then < KEY_AGE_MAX:
            return 200, False
        if now - then < REFUSED_AGE_MAX:
            raise HttpError(403, "refused", "the key file is missing or does not contain this key")
        if not self._fits(notice):
            raise HttpError(
                429, "too_many", "too many notifications wait for their key files; try again later"
            )
        return 202, self.wait(notice)

    def _fits(self, notice: Notice) -> bool:
        more, most = _size(notice.urls), self._pending_bytes_max
        own = self._waiting[_site(notice.host)]
        return own + more <= most // SITE_PART and self._waiting.total() + more <= most

    def wait(self, notice: Notice) -> bool:
        """Keep the URLs of a notice until `found` is called; return whether to fetch the key file now."""
        name = (notice.location, notice.key)
        first = name not in self._pending
        self._pending.setdefault(name, []).extend(notice.urls)
        self._waiting[_site(notice.host)] += _size(notice.urls)
        return first

    def found(self, notice: Notice, text: bytes | None, now: float) -> list[str]:
        """Record the text of a key file, or None if it could not be fetched. Return the URLs that the file authorizes."""
        name = (notice.location, notice.key)
        urls = self._pending.pop(name, [])
        self._waiting -= Counter({_site(notice.host): _size(urls)})
        good = contains(text, notice.key)
        self._known[name] = (good, now)
        self._known.move_to_end(name)
        while len(self._known) > self.files_max:
            self._known.popitem(last=False)
        return urls if good else []

    def _check(self) -> None:
        """Assert every invariant."""
        assert self._waiting.total() == sum(map(_size, self._pending.values())) <= self._pending_bytes_max
        assert all(waiting > 0 for waiting in self._waiting.values())
        assert len(self._known) <= self.files_max
