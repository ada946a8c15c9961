"""The current statements of the sites of a crawl: robots.txt, tdmrep.json, licence documents.

`site(authority)` returns the current `Site`. When an answer has arrived, the fetch task records the digest of
the current `Site`. When the page is stored, `noted` returns the `Site` with this digest. So a robots.txt that
is fetched after the answer has arrived but before the page is stored does not count
(draft-ietf-aipref-attach).

The files are fetched by the crawl (`process/fetching/site_files.py`), at most once per site within
`consent.files_max_age`. The store holds the files in parsed form:

    L/<8 bytes><authority>    (SiteFile, parsed content) of each file, sealed msgpack

The first 8 bytes of a key are the fingerprint of the site's root URL, whose top 16 bits are the bucket of the
site. The files of recently used sites stay in memory up to `consent.files_memory_max`, and their statements
up to the same limit.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

import msgspec

from crawler.config import ConsentConfig
from crawler.consent.paths import longest, path_of
from crawler.consent.receipts import SiteFile, SiteStatements, packed
from crawler.consent.resolving import HostStatements
from crawler.consent.rsl import ANNOUNCED_MAX, RslDocument, announced_licenses, read_rsl, terms_paths
from crawler.consent.tdmrep import TdmFile, read_tdm_file
from crawler.errors import DamageError
from crawler.records import Fetch, Outcome
from crawler.robots.cache import RobotsCache, RobotsCopy
from crawler.robots.rules import Parsed, RobotsRules
from crawler.storage.keys import SITE_FILES
from crawler.storage.kv import KeyValue, seal, unseal
from crawler.urls.canonical import canonical, resolve
from crawler.urls.media_type import is_page

TDMREP, RSL = "tdmrep", "rsl"
WELL_KNOWN = "/.well-known/tdmrep.json"
# maximum number of sites in memory; it exceeds the number of sites that are crawled at the same time
SITES_MAX = 4096
SITE_BYTES = 2000  # memory of a site without statements
FILES_OVERHEAD = 200  # bytes of memory per site, in addition to the size of its files
PROBLEM_CHARS_MAX = 200
_ABSENT = (Outcome.GONE, Outcome.CLIENT_ERROR)


class KnownFile(msgspec.Struct, frozen=True, array_like=True):
    """A parsed file with a site's statements. If its fetch failed, the file has neither entries nor contents."""

    facts: SiteFile
    tdm: TdmFile | None = None
    rsl: RslDocument | None = None


_decoder = msgspec.msgpack.Decoder(list[KnownFile])


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Recent(Generic[K, V]):
    """The most recently used values, at most `SITES_MAX`, and at most `bytes_max` bytes of them."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K) -> V | None:
        held = self._kept.get(key)
        if held is None:
            return None
        self._kept.move_to_end(key)
        return held[0]

    def keep(self, key: K, value: V, size: int) -> None:
        """Keep a value of `size` bytes, and drop the values that were not used for the longest time."""
        self.drop(key)
        self._bytes += size
        self._kept[key] = value, size
        while len(self._kept) > 1 and (self._bytes > self._bytes_max or len(self._kept) > SITES_MAX):
            self.drop(next(iter(self._kept)))

    def drop(self, key: K) -> None:
        """Forget a value; do nothing if there is none under this key."""
        _, size = self._kept.pop(key, (None, 0))
        self._bytes -= size


class Site:
    """The statements of an authority at one time, ready for resolving.

    Two pages with equal headers get equal answers if `place` returns the same value for their paths.
    """

    __slots__ = ("_paths", "data", "digest", "licenses", "rules", "statements", "tdm", "tdm_unread")

    def __init__(self, statements: SiteStatements, rules: RobotsRules, files: Iterable[KnownFile]) -> None:
        self.statements = statements
        self.digest, self.data = packed(statements)
        self.rules = rules
        self.tdm = next((each.tdm for each in files if each.tdm is not None), TdmFile())
        self.licenses = {each.facts.url: each.rsl for each in files if each.rsl is not None}
        self.tdm_unread = any(each.facts.kind == TDMREP and each.facts.problem for each in files)
        lists = [
            [path_of(line) for line in rules.parsed.usage],
            [path_of(line) for line in rules.parsed.signals],
            [each.location for each in self.tdm.entries],
            *(terms_paths(each, statements.authority) for each in self.licenses.values()),
        ]
        self._paths = [paths for paths in lists if any(path != "/" for path in paths)]

    def place(self, target: str) -> tuple[tuple[int, ...], ...]:
        """Return a key that is equal for two targets if the same statements about paths apply to them."""
        return tuple(tuple(longest(paths, target)) for paths in self._paths)

    def host(self, announced: Iterable[str]) -> HostStatements:
        """Return the host's statements about a page. `announced` are the URLs of the page's licence documents."""
        known = tuple(found for url in announced if (found := self.licenses.get(url)) is not None)
        return HostStatements(self.rules, self.tdm, known)

    def has_read(self, announced: Iterable[str]) -> bool:
        """Return whether all of these licence documents could be read."""
        return all((found := self.licenses.get(url)) is not None and not found.problem for url in announced)


class SiteBook:
    """The current statements of each authority.

    Args:
        fingerprint: returns the fingerprint of a URL (request form).
        record_of: a function (URL of a robots.txt, instant) -> `c/` key of the capture, or b"" if none is stored.
        processes: the number of processes on this machine, which divide the memory among themselves.
    """

    def __init__(
        self,
        store: KeyValue,
        robots: RobotsCache,
        config: ConsentConfig,
        *,
        token: str,
        fingerprint: Callable[[str], int],
        record_of: Callable[[str, float], bytes],
        processes: int = 1,
    ) -> None:
        self._store, self._robots, self._config, self._token = store, robots, config, token
        self._fingerprint, self._record_of = fingerprint, record_of
        bytes_max = config.files_memory_max // processes
        self._sites: _Recent[str, tuple[RobotsCopy, Site]] = _Recent(bytes_max)
        self._noted: _Recent[bytes, Site] = _Recent(bytes_max)
        self._files: _Recent[str, list[KnownFile]] = _Recent(bytes_max)

    def site(self, authority: str) -> Site:
        """Return the current statements of an authority."""
        copy = self._robots.copy(authority)
        found = self._sites.get(authority)
        if found is not None and found[0] is copy:
            return found[1]
        files = self._known_files(authority)
        made = Site(self._statements(authority, copy, files), self._robots.rules(authority), files)
        self._sites.keep(authority, (copy, made), _size(made))
        return made

    def note(self, authority: str) -> bytes:
        """Return the digest of the current statements, and keep the statements for a later call of `noted`."""
        site = self.site(authority)
        if self._noted.get(site.digest) is not site:
            self._noted.keep(site.digest, site, _size(site))
        return site.digest

    def noted(self, digest: bytes, authority: str) -> Site:
        """Return the statements with this digest. If they are no longer in memory, return the current statements."""
        return self._noted.get(digest) or self.site(authority)

    def announced(self, site: Site, page_url: str, found: Iterable[str]) -> tuple[str, ...]:
        """Return the URLs (request form) of the licence documents for a page.

        Args:
            found: raw URLs that the page's header and link elements announce.
        """
        raw = [*announced_licenses(site.statements.licenses), *found]
        urls = dict.fromkeys(url for each in raw if (url := resolve(page_url, each)) is not None)
        return tuple(urls)[: ANNOUNCED_MAX + 1]

    def wanted(self, authority: str, announced: Iterable[str], now: float) -> list[str]:
        """Return the URLs of the files to fetch for an authority; [] if all files are known and recent."""
        urls = [f"{authority}{WELL_KNOWN}"] if self._config.tdmrep else []
        if self._config.licenses:
            urls += announced
        if not urls:
            return []
        known = {each.facts.url: each.facts.at for each in self._known_files(authority)}
        room = ANNOUNCED_MAX + self._config.tdmrep - len(known)
        found = []
        for url in dict.fromkeys(urls):
            if url not in known and room > 0:
                room -= 1
                found.append(url)
            elif url in known and abs(now - known[url]) >= self._config.files_max_age:
                found.append(url)
        return found

    def learn(self, authority: str, url: str, fetch: Fetch, now: float) -> tuple[bytes, bytes]:
        """Record the answer to the request for the file `url`; return the (key, value) that must be stored."""
        known = [each for each in self._known_files(authority) if each.facts.url != url]
        known.append(_read(authority, url, fetch, now))
        data = msgspec.msgpack.encode(known)
        self._files.keep(authority, known, len(data) + FILES_OVERHEAD)
        self._sites.drop(authority)
        return self._key(authority), seal(data)

    def _statements(self, authority: str, copy: RobotsCopy, files: list[KnownFile]) -> SiteStatements:
        source, parsed = copy.source, copy.parsed or Parsed()
        robots_url, at = (source.url, source.at) if source is not None else ("", copy.fetched_at)
        if not robots_url and copy.fetched_at:
            robots_url = f"{authority}/robots.txt"
        return SiteStatements(
            authority,
            self._token,
            robots_url,
            at,
            source.status if source is not None else copy.status if copy.fetched_at else 0,
            source.digest if source is not None else b"",
            self._record_of(robots_url, at) if robots_url else b"",
            parsed.group,
            parsed.usage,
            parsed.signals,
            parsed.licenses,
            tuple(each.facts for each in files),
        )

    def _known_files(self, authority: str) -> list[KnownFile]:
        held = self._files.get(authority)
        if held is not None:
            return held
        key = self._key(authority)
        value = self._store.get(key)
        try:
            data = b"" if value is None else unseal(key, value)
            known = _decoder.decode(data) if data else []
        except (DamageError, msgspec.MsgspecError):  # damaged files can be fetched again
            data, known = b"", []
        self._files.keep(authority, known, len(data) + FILES_OVERHEAD)
        return known

    def _key(self, authority: str) -> bytes:
        root = self._fingerprint(f"{authority}/").to_bytes(8, "big")
        return SITE_FILES + root + authority.encode("utf-8", "surrogatepass")


def _size(site: Site) -> int:
    """Return the approximate size in bytes of a site in memory. Its files are counted elsewhere."""
    return SITE_BYTES + site.rules.weight


def _read(authority: str, url: str, fetch: Fetch, now: float) -> KnownFile:
    kind = TDMREP if url == canonical(f"{authority}{WELL_KNOWN}") else RSL
    at, body = fetch.began or now, fetch.content
    if (absent := kind == TDMREP and _is_absent(fetch)) or not _is_whole(fetch):
        # A site without a tdmrep.json states nothing. A failed fetch is a problem, because the file might
        # contain a reservation.
        problem = "" if absent else (fetch.error or str(fetch.outcome))[:PROBLEM_CHARS_MAX]
        return KnownFile(SiteFile(kind, url, at, fetch.status, problem=problem))
    digest = hashlib.sha256(body).digest()
    if kind == TDMREP:
        tdm = read_tdm_file(body)
        return KnownFile(SiteFile(kind, url, at, fetch.status, digest, tdm.problem), tdm=tdm)
    rsl = read_rsl(body)
    return KnownFile(SiteFile(kind, url, at, fetch.status, digest, rsl.problem), rsl=rsl)


def _is_absent(fetch: Fetch) -> bool:
    """Return whether the site has no such file: it refuses the file for good, or sends a page instead."""
    return fetch.outcome in _ABSENT or (
        200 <= fetch.status < 300 and is_page(fetch.content_type, fetch.content)
    )


def _is_whole(fetch: Fetch) -> bool:
    """Return whether the answer is the whole file."""
    return 200 <= fetch.status < 300 and not fetch.truncated and not fetch.undecoded
