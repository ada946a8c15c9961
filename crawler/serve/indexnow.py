"""IndexNow (indexnow.org/documentation): sites say which of their URLs changed.

    GET  /indexnow?url=U&key=K[&keyLocation=L]
    POST /indexnow  {"host": H, "key": K, "keyLocation": L, "urlList": [...]}

The key proves that the sender owns the site: the file `http://H/K.txt` (or L,
on the same host, for URLs below L's directory) holds it. It is fetched once a
host and day, politely, by the crawl; until then the answer is 202 and the URLs
wait, at most `PENDING_MAX` of them, in the store too.

    200  taken              400  not so formed        422  URLs of another host, or no such key
    202  key not looked at  403  the key is not there  429  too many at once
"""

import re
from collections import OrderedDict
from urllib.parse import urlsplit

import msgspec

from crawler.records import UNDECODABLE
from crawler.serve.http_error import HttpError
from crawler.urls.canonical import canonical, hostname

KEY_AGE_MAX = 86_400.0  # seconds for which a key file's answer holds
PENDING_MAX = 10_000  # URLs that wait for their keys
_KEY = re.compile(r"[A-Za-z0-9-]{8,128}")


class KeyUnreadError(Exception):
    """The key file was not read since the crawl stops; nothing is known of the key."""


class Notice(msgspec.Struct, frozen=True):
    """A notification, well-formed: `location` is the key file's URL, `urls` are request forms."""

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
    """The notification of a query.

    Raises:
        Refusal: 400 or 422.
    """
    if not fields.get("url") or "key" not in fields:
        raise HttpError(400, "bad_request", "url and key are needed")
    url = canonical(fields["url"])
    if url is None:
        raise HttpError(400, "bad_request", "url is no http(s) URL")
    return _notice(hostname(url), fields["key"], fields.get("keyLocation", ""), [fields["url"]])


def parse_post(body: bytes, urls_max: int) -> Notice:
    """The notification of a body.

    Raises:
        Refusal: 400 or 422.
    """
    try:
        posted = msgspec.json.decode(body, type=_Posted)
    except UNDECODABLE as error:
        raise HttpError(400, "bad_request", f"host, key and urlList are needed: {error}") from None
    url = canonical(f"http://{posted.host}/")
    if url is None or not posted.urlList:
        raise HttpError(400, "bad_request", "host is no host name, or urlList is empty")
    if len(posted.urlList) > urls_max:
        raise HttpError(400, "bad_request", f"urlList has at most {urls_max} URLs")
    return _notice(hostname(url), posted.key, posted.keyLocation, posted.urlList)


def _notice(host: str, key: str, location: str, raw_urls: list[str]) -> Notice:
    if not _KEY.fullmatch(key):
        raise HttpError(422, "refused", "a key has 8 to 128 letters, digits and dashes")
    urls = [canonical(url) for url in raw_urls]
    if not all(url is not None and hostname(url) == host for url in urls):
        raise HttpError(422, "refused", f"all URLs are to be of the host {host}")
    whole = tuple(url for url in urls if url is not None)
    place = (
        canonical(location)
        if location
        else f"{whole[0].partition('://')[0]}://{_authority(whole[0])}/{key}.txt"
    )
    if place is None or hostname(place) != host:
        raise HttpError(422, "refused", f"keyLocation is to be a URL of the host {host}")
    folder = urlsplit(place).path.rpartition("/")[0] + "/"
    if not all(urlsplit(url).path.startswith(folder) for url in whole):
        raise HttpError(422, "refused", f"the key file speaks for URLs below {folder} only")
    return Notice(host, key, place, whole)


def _authority(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]


class Keys:
    """What is known of key files, and the URLs that wait for them."""

    def __init__(self, files_max: int) -> None:
        self.files_max = files_max
        self._known: OrderedDict[tuple[str, str], tuple[bool, float]] = (
            OrderedDict()
        )  # -> (holds the key, instant)
        self._pending: OrderedDict[tuple[str, str], list[str]] = OrderedDict()
        self._waiting = 0

    def submit(self, notice: Notice, now: float) -> tuple[int, bool]:
        """(status, whether the key file is to be fetched now); URLs of a 202 wait for `found`.

        Raises:
            Refusal: 403 the key is not there, 429 too many wait.
        """
        name = (notice.location, notice.key)
        good, then = self._known.get(name, (False, -KEY_AGE_MAX))
        if now - then < KEY_AGE_MAX:
            if good:
                return 200, False
            raise HttpError(403, "refused", "the key file does not hold this key")
        if self._waiting + len(notice.urls) > PENDING_MAX:
            raise HttpError(429, "too_many", "too many notifications wait for their keys; try again later")
        return 202, self.wait(notice)

    def wait(self, notice: Notice) -> bool:
        """Let the URLs of a notice wait for `found`; whether the key file is to be fetched now."""
        name = (notice.location, notice.key)
        first = name not in self._pending
        self._pending.setdefault(name, []).extend(notice.urls)
        self._waiting += len(notice.urls)
        return first

    def found(self, notice: Notice, text: bytes | None, now: float) -> list[str]:
        """The key file came (None: it did not); the URLs that may pass now."""
        name = (notice.location, notice.key)
        urls = self._pending.pop(name, [])
        self._waiting -= len(urls)
        good = text is not None and text[:256].decode("utf-8", "replace").strip("\ufeff \t\r\n") == notice.key
        self._known[name] = (good, now)
        self._known.move_to_end(name)
        while len(self._known) > self.files_max:
            self._known.popitem(last=False)
        return urls if good else []

    def _check(self) -> None:
        """Assert what always holds."""
        assert self._waiting == sum(map(len, self._pending.values())) <= PENDING_MAX
        assert len(self._known) <= self.files_max
