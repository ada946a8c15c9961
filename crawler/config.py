"""The configuration: TOML into frozen structs, one a stage.

Every stage receives its own struct and nothing else. Values come, from weakest
to strongest, from the defaults below, a TOML file, `CRAWLER_SECTION__KEY`
environment variables, and flags (`--set section.key=value` among them); the
source of each value is kept for `crawler config show`. An unknown key or a bad
unit is a ConfigError that names its path. `config/default.toml` lists every
key with unit and reason, and a test keeps the two equal.

Lengths of time are numbers of seconds or text such as "5 min"; sizes are
numbers of bytes or text such as "10 MiB".
"""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from crawler.errors import ConfigError

_TIME_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
_ENDLESS = 2.0**62  # no number of the configuration is larger; infinity and NaN are none of its numbers
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)


class Seconds(float):
    """A length of time in seconds; written as a number or with ms, s, min, h or d."""

    @classmethod
    def parse(cls, value: Any) -> "Seconds":
        return cls(_quantity(value, _TIME_UNITS, 'a time such as 30, "5 min" or "24 h"'))


class ByteCount(int):
    """A size in bytes; written as a number or with kB, MB, GB, KiB, MiB or GiB."""

    @classmethod
    def parse(cls, value: Any) -> "ByteCount":
        return cls(_quantity(value, _SIZE_UNITS, 'a size such as 4096 or "10 MiB"'))


def _quantity(value: Any, units: Mapping[str, float], wanted: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return value
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2].lower() not in units:
        raise ValueError(f"expected {wanted}, got {value!r}")
    return float(match[1]) * units[match[2].lower()]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class CrawlConfig(_Section, frozen=True):
    """What is crawled and when it ends."""

    scope: str = "host"  # host | domain | prefix | any
    max_pages: int = 0  # of this run; 0 = no limit
    max_time: Seconds = Seconds(0)
    max_bytes: ByteCount = ByteCount(0)
    depth: int = -1  # -1 = no limit (20 in scope any)
    pages_per_host: int = -1  # -1 = no limit (10,000 in scope any)
    pages_per_domain: int = -1  # -1 = no limit (20,000 in scope any)
    hosts_per_domain: int = -1  # -1 = no limit (200 in scope any)
    patience: Seconds = Seconds(300)
    requisites: bool = False
    rate: float = 0.0  # pages per second over all processes; 0 = no limit
    concurrency: int = 500
    processes: int = 1
    trace: bool = False


class IdentityConfig(_Section, frozen=True):
    """Who asks."""

    token: str = "crawler"
    contact: str = ""
    accept: str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    accept_language: str = "en;q=0.9,*;q=0.5"
    headers: tuple[str, ...] = ()  # "Name: value"


class PolitenessConfig(_Section, frozen=True):
    """Gaps between requests (`fetch-behaviour.md`, section 1)."""

    delay: Seconds = Seconds(1.0)  # least gap a host
    delay_factor: float = 10.0  # gap as a multiple of the last answer time
    delay_max: Seconds = Seconds(30.0)  # most the factor can make of it
    crawl_delay_max: Seconds = Seconds(86_400)
    retry_after_max: Seconds = Seconds(86_400)
    address_delay_share: float = 0.5  # gap per address as a share of `delay`
    shared_address_domains: int = 50  # from so many registrable domains on, an address is shared hosting
    shared_address_in_flight: int = 16
    backoff_first: Seconds = Seconds(60)
    backoff_max: Seconds = Seconds(14_400)
    give_up_after: Seconds = Seconds(259_200)  # 3 days without any answer
    refusals_max: int = 20  # 401, 403, 406, 451 in a row hold the host as if blocked
    slowdown_max: float = 64.0  # most that 429 and 503, each doubling it, make of the gap
    slowdown_recovery: float = 0.98  # the factor shrinks by this with each good answer: halved after 34
    slowdown_gap: Seconds = Seconds(0.5)  # what is doubled where `delay` is less


class FrontierConfig(_Section, frozen=True):
    """Queues, retries and memory of the frontier."""

    front_factor: int = 4  # hosts kept as objects: this times concurrency
    read_ahead: int = 48  # queue entries read at once for a host in the front
    tries: int = 3  # of a URL in all
    retry_delays: tuple[float, ...] = (30.0, 120.0)  # seconds between the tries
    retry_jitter: float = 0.2
    strikes_max: int = 5  # host failures on one URL while the host answers others: then the URL has failed
    later_max: int = 128  # URLs of one host that wait for a retry or robots.txt; then the host waits
    entries_max: int = 32_768  # URLs in memory, 350 bytes each; `read_ahead` a front host may exceed it
    addresses_max: int = 20_000  # addresses remembered: those in use and the latest others
    address_waiters_max: int = 64  # hosts of the front that wait for one address; more go back


class RobotsConfig(_Section, frozen=True):
    """robots.txt (RFC 9309; `fetch-behaviour.md`, section 2)."""

    policy: str = "obey"  # obey | ignore
    bytes_max: ByteCount = ByteCount(512_000)
    copy_max_age: Seconds = Seconds(86_400)
    unreachable_delays: tuple[float, ...] = (60.0, 300.0, 1800.0, 3600.0)  # the last one repeats
    unreachable_max: Seconds = Seconds(2_592_000)  # 30 days, then all is allowed
    redirects_max: int = 5
    nofollow_links: bool = True  # obey rel=nofollow


class FetchConfig(_Section, frozen=True):
    """Limits of one fetch (`fetch-behaviour.md`, sections 5 and 8 to 10)."""

    connect_timeout: Seconds = Seconds(10)
    tls_timeout: Seconds = Seconds(10)
    header_timeout: Seconds = Seconds(20)
    silence_timeout: Seconds = Seconds(20)
    total_timeout: Seconds = Seconds(60)
    header_bytes_max: ByteCount = ByteCount(65_536)
    header_field_bytes_max: ByteCount = ByteCount(65_536)
    header_fields_max: int = 256
    body_bytes_max: ByteCount = ByteCount(10 << 20)  # decoded
    wire_bytes_max: ByteCount = ByteCount(10 << 20)
    large_body_bytes: ByteCount = ByteCount(1 << 20)  # a body held in memory beyond this is large
    large_bodies_max: int = 24  # large bodies received at once; further ones wait, their clocks stopped
    decode_step_bytes: ByteCount = ByteCount(256 << 10)
    content_codings_max: int = 2
    redirects_max: int = 10
    keep_alive_extra: Seconds = Seconds(5)  # an idle connection is kept for the host's gap and this
    keep_alive_max: Seconds = Seconds(35)
    idle_connections_max: int = 400  # kept open over all hosts; with 500 in flight under 1,024 descriptors
    cookies: bool = False
    cookie_domains_max: int = 10_000  # registrable domains whose cookies are kept
    tls: str = "verify"  # verify | record
    proxy: str = ""


class NetworkConfig(_Section, frozen=True):
    """Addresses and names (`fetch-behaviour.md`, section 3)."""

    allow_networks: tuple[str, ...] = ()
    dns_timeout: Seconds = Seconds(5)
    dns_concurrency: int = 64
    dns_servers: tuple[str, ...] = ()  # empty = the system's
    dns_ttl_min: Seconds = Seconds(60)
    dns_ttl_max: Seconds = Seconds(86_400)
    dns_negative_ttl: Seconds = Seconds(3600)
    dns_cache_entries_max: int = 100_000


class UrlsConfig(_Section, frozen=True):
    """Canonical form and fingerprints (`fetch-behaviour.md`, section 4; `seen-urls.md`, section 1)."""

    length_max: int = 8192
    strip_session_ids: bool = True
    fingerprint: str = "mmh3"  # mmh3 | blake2b
    partition: str = "domain"  # domain | host


class ExtractConfig(_Section, frozen=True):
    """Link extraction (`fetch-behaviour.md`, sections 10 and 11)."""

    cpu_seconds_max: Seconds = Seconds(2.0)
    links_max: int = 20_000
    attributes_max: int = 2_000  # of one tag; a page with more gets a plain scan
    depth_max: int = 2_000  # of open elements; a page with more gets a plain scan
    all_attributes: bool = False  # every URL-bearing attribute, not only links
    inline_bytes_max: ByteCount = ByteCount(1 << 20)  # larger pages are parsed in a worker
    inline_tags_max: int = 25_000  # pages with more tags are parsed in a worker
    worker_queue_max: int = 32  # pages that wait for the worker; further ones get a plain scan
    worker_memory_bytes_max: ByteCount = ByteCount(512 << 20)  # of the worker's data


class FilterConfig(_Section, frozen=True):
    """URL filter."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    exclude_extensions: tuple[str, ...] = ()  # such as ".zip"
    memo_bytes_max: ByteCount = ByteCount(24 << 20)  # remembered results of raw links


class TrapsConfig(_Section, frozen=True):
    """Trap limits (`fetch-behaviour.md`, section 12)."""

    path_segments_max: int = 20
    repeated_segments_max: int = 2
    same_digest_pages_max: int = 20


class SitemapsConfig(_Section, frozen=True):
    """Sitemaps and feeds as link sources (`fetch-behaviour.md`, section 14)."""

    robots: bool = True  # follow Sitemap lines of robots.txt
    guess: bool = False  # also ask /sitemap.xml
    feeds: bool = True  # take links of RSS and Atom
    bytes_max: ByteCount = ByteCount(50 << 20)
    urls_max: int = 50_000
    maps_max: int = 500
    depth_max: int = 2


class CacheConfig(_Section, frozen=True):
    """The CLOCK caches before the DUE and before the outbox (`seen-urls.md`, section 2)."""

    bits: int = 18


class DueConfig(_Section, frozen=True):
    """The Duplicate URL Eliminator (`seen-urls.md`, section 3)."""

    method: str = "runs"  # runs | one_file | memory
    buffer_entries_max: int = 1 << 18
    part_links_max: int = 4096  # new links of a flush that reach the frontier in one turn of the loop
    max_wait: Seconds = Seconds(5)
    merge_chunk_bytes: ByteCount = ByteCount(4 << 20)
    log_bytes_max: ByteCount = ByteCount(16 << 20)  # a links log file of this size is followed by a new one


class StoreConfig(_Section, frozen=True):
    """Durability and space (`durability.md`)."""

    durability: str = "power"  # power | process
    group_entries_max: int = 256  # results of one commit
    commit_delay: Seconds = Seconds(0.05)  # that a commit waits for more results while more can come
    write_buffer_bytes: ByteCount = ByteCount(8 << 20)
    block_cache_bytes: ByteCount = ByteCount(16 << 20)
    table_bytes: ByteCount = ByteCount(2 << 20)
    tables_max: int = 64  # tables open, and mapped, at a time
    low_water_bytes: ByteCount = ByteCount(2 << 30)  # or 5 % of the disk, if that is less: stop fetching
    stop_water_bytes: ByteCount = ByteCount(256 << 20)  # stop cleanly
    ballast_bytes: ByteCount = ByteCount(0)


class PagesConfig(_Section, frozen=True):
    """The page cache (`archive.md`)."""

    store: str = "raw"  # raw | decoded
    segment_bytes: ByteCount = ByteCount(10**9)
    gzip_level: int = 1  # isal 0 to 3; 9 = zlib's best, for archivists
    prefix: str = "crawl"


class HooksConfig(_Section, frozen=True):
    """Names of entry points that installed packages offer (groups crawler.filters, .extractors, .sinks)."""

    url_filter: str = ""
    link_extractor: str = ""
    page_sink: str = ""


class SplitterConfig(_Section, frozen=True):
    """The host splitter (`durability.md`, section 2)."""

    name: str = "p0"
    peers: tuple[str, ...] = ()  # "name=host:port", this process among them
    table_file: str = ""  # bucket table (JSON); empty = equal ranges over the sorted names
    crawl: str = ""  # identity of the crawl, the same in all processes; empty = derived from the secret
    listen: str = "127.0.0.1:0"
    secret_file: str = ""
    window_bytes: ByteCount = ByteCount(1 << 20)
    entry_bytes: ByteCount = ByteCount(8 << 10)
    frame_bytes_max: ByteCount = ByteCount(1 << 20)
    silence_max: Seconds = Seconds(30)
    backoff_min: Seconds = Seconds(0.1)
    backoff_max: Seconds = Seconds(30)
    handshake_timeout: Seconds = Seconds(10)
    strangers_max: int = 4  # connections beside one a peer that have not shown the secret
    heartbeat: Seconds = Seconds(1)
    spool_bytes_max: ByteCount = ByteCount(1 << 30)
    tls_certificate: str = ""
    tls_key: str = ""
    tls_authority: str = ""


class ServeConfig(_Section, frozen=True):
    """The page server (`crawler serve`; `serve/README.md`)."""

    address: str = ""  # ADDRESS:PORT; empty = no page server beside the crawl
    names: tuple[str, ...] = ()  # host names it answers to, beside addresses and localhost
    connections_max: int = 1000
    header_bytes_max: ByteCount = ByteCount(32 << 10)
    idle_timeout: Seconds = Seconds(15)
    write_timeout: Seconds = Seconds(30)
    request_body_bytes_max: ByteCount = ByteCount(1 << 20)
    held_bytes_max: ByteCount = ByteCount(1 << 20)
    ready_bytes_max: ByteCount = ByteCount(32 << 20)
    fresh_enough: float = 0.95
    ahead_max: int = 1000
    request_half_life: Seconds = Seconds(604_800)
    counted_pages_max: int = 100_000
    count_bots: bool = False
    signals_per_second: float = 100.0
    signal_urls_max: int = 10_000
    key_files_max: int = 10_000


class AdminConfig(_Section, frozen=True):
    """The admin server: dashboard, metrics, state changes (`admin/README.md`)."""

    address: str = "127.0.0.1:8081"  # ADDRESS:PORT or "off"
    names: tuple[str, ...] = ()  # host names it answers to, beside addresses and localhost
    connections_max: int = 64
    history: Seconds = Seconds(86_400)
    history_interval: Seconds = Seconds(10)


class Override(_Section, frozen=True):
    """`[[override]]`: other values for a part of the web (a host, `*.domain`, or URL prefix)."""

    match: str = ""
    delay: Seconds | None = None
    delay_factor: float | None = None
    pages: int | None = None
    depth: int | None = None
    robots: str | None = None
    tls: str | None = None
    headers: tuple[str, ...] | None = None
    body_bytes_max: ByteCount | None = None
    total_timeout: Seconds | None = None


class Overrides:
    """The `[[override]]` tables, asked by URL; where several match, the later one wins key by key.

    A table matches a host by its name, a domain with all hosts below it by
    `*.domain`, and a part of a site by a URL prefix (with `://` in it).
    """

    def __init__(self, tables: Sequence[Override]) -> None:
        self.tables = tuple(tables)
        self._values = [_set_values(table) for table in tables]

    def __bool__(self) -> bool:
        return bool(self.tables)

    def for_url(self, url: str, hostname: str) -> Override:
        """The values for a URL; None where no table sets one."""
        values: dict[str, Any] = {}
        for table, own in zip(self.tables, self._values, strict=True):
            if _override_matches(table.match, url, hostname):
                values.update(own)
        return Override(**values)


def _set_values(table: Override) -> dict[str, Any]:
    return {key: value for key, value in msgspec.structs.asdict(table).items() if value is not None}


def _override_matches(match: str, url: str, hostname: str) -> bool:
    if "://" in match:
        return url.startswith(match)
    if match.startswith("*."):
        return hostname == match[2:] or hostname.endswith(match[1:])
    return hostname == match


class Config(_Section, frozen=True):
    """All sections; `seeds` are URLs given in the file."""

    seeds: tuple[str, ...] = ()
    crawl: CrawlConfig = CrawlConfig()
    identity: IdentityConfig = IdentityConfig()
    politeness: PolitenessConfig = PolitenessConfig()
    frontier: FrontierConfig = FrontierConfig()
    robots: RobotsConfig = RobotsConfig()
    fetch: FetchConfig = FetchConfig()
    network: NetworkConfig = NetworkConfig()
    urls: UrlsConfig = UrlsConfig()
    extract: ExtractConfig = ExtractConfig()
    filter: FilterConfig = FilterConfig()
    traps: TrapsConfig = TrapsConfig()
    sitemaps: SitemapsConfig = SitemapsConfig()
    cache: CacheConfig = CacheConfig()
    due: DueConfig = DueConfig()
    store: StoreConfig = StoreConfig()
    pages: PagesConfig = PagesConfig()
    hooks: HooksConfig = HooksConfig()
    splitter: SplitterConfig = SplitterConfig()
    serve: ServeConfig = ServeConfig()
    admin: AdminConfig = AdminConfig()
    override: tuple[Override, ...] = ()


def _decode_hook(kind: type, value: Any) -> Any:
    if kind in (Seconds, ByteCount):
        return kind.parse(value)
    raise NotImplementedError(kind)


def convert(tree: Mapping[str, Any]) -> Config:
    """Return the configuration of a nested mapping.

    Raises:
        ConfigError: an unknown key, a wrong type, a bad unit; with its path.
    """
    try:
        config = msgspec.convert(tree, Config, dec_hook=_decode_hook, str_keys=True)
    except msgspec.ValidationError as error:
        raise ConfigError(f"configuration: {_readable(str(error))}") from error
    _check_values(config)
    return config


# Text that must be one of a few words, and the smallest number where that is not 0.
CHOICES = {
    "crawl.scope": ("host", "domain", "prefix", "any"),
    "robots.policy": ("obey", "ignore"),
    "fetch.tls": ("verify", "record"),
    "urls.fingerprint": ("mmh3", "blake2b"),
    "urls.partition": ("domain", "host"),
    "due.method": ("runs", "one_file", "memory"),
    "store.durability": ("power", "process"),
    "pages.store": ("raw", "decoded"),
}
SMALLEST = {
    "crawl.depth": -1,
    "crawl.pages_per_host": -1,
    "crawl.pages_per_domain": -1,
    "crawl.hosts_per_domain": -1,
    "crawl.concurrency": 1,
    "crawl.processes": 1,
    "frontier.front_factor": 1,
    "frontier.read_ahead": 1,
    "frontier.tries": 1,
    "network.dns_concurrency": 1,
    "extract.worker_queue_max": 1,
    "cache.bits": 4,
    "due.buffer_entries_max": 1,
    "due.part_links_max": 1,
    "store.table_bytes": 1 << 20,
    "store.tables_max": 64,
    "store.group_entries_max": 1,
    "pages.segment_bytes": 1,
    "serve.connections_max": 1,
    "serve.header_bytes_max": 1024,
    "serve.held_bytes_max": 1,
    "serve.request_half_life": 1,
    "serve.counted_pages_max": 4,
    "admin.connections_max": 1,
    "admin.history_interval": 1,
}
LARGEST = {"cache.bits": 30, "pages.gzip_level": 9, "serve.fresh_enough": 1}


def _readable(message: str) -> str:
    """What msgspec says of a value, with the key in front as it stands in the file."""
    what, _, where = message.partition(" - at `$.")
    path = where.removesuffix("`")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what):
        key = f"{path}.{unknown[1]}" if path else unknown[1]
        return f"{key}: there is no such key; config/default.toml lists all"
    names = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}
    for kind, name in names.items():
        what = re.sub(rf"`{kind}(?: \| null)?`", name, what)
    what = what.replace("`array`", "a list").replace("`object`", "a section")
    return f"{path}: {what[:1].lower()}{what[1:]}" if path else what


def _check_values(config: Config) -> None:
    """Raises ConfigError for a value of the right type that means nothing."""
    for section in msgspec.structs.fields(Config):
        values = getattr(config, section.name)
        if isinstance(values, msgspec.Struct):
            for key, value in msgspec.structs.asdict(values).items():
                _check_value(f"{section.name}.{key}", value)
    if config.fetch.proxy and not re.match(r"https?://[^/\s]", config.fetch.proxy):
        wrong = repr(config.fetch.proxy)
        raise ConfigError(f"configuration: fetch.proxy: {wrong} is no http(s) URL such as http://proxy:3128")
    for text in config.network.dns_servers:
        _check_server(text)
    for text in config.network.allow_networks:
        _check_network(text)
    for name in ("include", "exclude"):
        for text in getattr(config.filter, name):
            _check_pattern(f"filter.{name}", text)
    for table in config.override:
        if not table.match:
            raise ConfigError("configuration: override.match: missing; a host, *.domain or URL prefix")
        for key, value in _set_values(table).items():
            _check_value({"robots": "robots.policy", "tls": "fetch.tls"}.get(key, f"override.{key}"), value)


def _check_network(text: str) -> None:
    """Raises ConfigError unless `text` is a network."""
    import ipaddress  # imported here, as it is seldom needed

    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise ConfigError(f"configuration: network.allow_networks: {error}") from None


def _check_pattern(path: str, text: str) -> None:
    """Raises ConfigError unless `text` is a regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(f"configuration: {path}: {text!r} is no regular expression: {error}") from None


def _check_server(text: str) -> None:
    """Raises ConfigError unless `text` is an IP address, with or without a port."""
    import ipaddress  # imported here, as it is seldom needed

    bracketed = re.fullmatch(r"\[(.+)\](?::(\d+))?", text) or re.fullmatch(r"([^:]+):(\d+)", text)
    address, port = bracketed.groups() if bracketed else (text, None)
    try:
        ipaddress.ip_address(address)
        if int(port or "53") not in range(1, 65536):
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"configuration: network.dns_servers: {text!r} is no IP address, nor one with a port (9.9.9.9:53)"
        ) from None


def _check_value(path: str, value: Any) -> None:
    if path in CHOICES and value not in CHOICES[path]:
        raise ConfigError(f"configuration: {path}: {value!r} is none of {', '.join(CHOICES[path])}")
    for number in value if isinstance(value, tuple) else (value,):
        if not isinstance(number, int | float):
            continue
        if not SMALLEST.get(path, 0) <= number <= LARGEST.get(path, _ENDLESS):
            raise ConfigError(f"configuration: {path}: {value!r} is out of range{_range(path)}")


def _range(path: str) -> str:
    least, most = SMALLEST.get(path, 0), LARGEST.get(path)
    return f"; at least {least}" if most is None else f"; {least} to {most}"


def read_file(path: Path) -> dict[str, Any]:
    """Return the nested mapping of a TOML file."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"configuration {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration {path}: {error}") from error


def environment_overrides(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`CRAWLER_SECTION__KEY=value` as {"section.key": value}."""
    found = {}
    for name, value in environ.items():
        if name.startswith("CRAWLER_") and "__" in name:
            section, key = name[len("CRAWLER_") :].lower().split("__", 1)
            found[f"{section}.{key}"] = value
    return found


def _field_type(section: str, key: str) -> Any:
    """The annotated type of `section.key`, None if there is no such key."""
    fields = {field.name: field.type for field in msgspec.structs.fields(Config)}
    if section:
        kind = fields.get(section)
        if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            return None
        fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return fields.get(key)


def _from_text(text: str, kind: Any) -> Any:
    """The value that `text` means for a key of type `kind`: TOML syntax, or plain text where that is meant."""
    if kind is str:
        return text
    if kind == tuple[str, ...] and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",")] if text else []
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def set_key(tree: dict[str, Any], path: str, value: Any) -> None:
    """Put `value` at "section.key" of `tree`; text is read as the key's type asks."""
    section, dot, key = path.partition(".")
    if not dot:
        section, key = "", section
    if isinstance(value, str):
        value = _from_text(value, _field_type(section, key))
    target = tree.setdefault(section, {}) if section else tree
    if not isinstance(target, dict):
        raise ConfigError(f"configuration: {section} is not a section")
    target[key] = value


class Layers:
    """Configuration layers, weakest first, merged key by key; remembers where each value came from."""

    def __init__(self) -> None:
        self.tree: dict[str, Any] = {}
        self.sources: dict[str, str] = {}

    def add(self, source: str, tree: Mapping[str, Any]) -> None:
        """Lay the nested mapping `tree` over what is there."""
        for section, value in tree.items():
            if isinstance(value, Mapping):
                if not isinstance(self.tree.get(section, {}), dict):
                    raise ConfigError(f"configuration ({source}): {section} is not a section")
                for key, inner in value.items():
                    self.set(source, f"{section}.{key}", inner)
            else:
                self.tree[section] = value
                self.sources[section] = source

    def set(self, source: str, path: str, value: Any) -> None:
        """Set one key by its path."""
        set_key(self.tree, path, value)
        self.sources[path] = source

    def config(self) -> Config:
        return convert(self.tree)


# Limits of one run, not of the crawl: they do not bind when the crawl goes on later.
RUN_KEYS = ("max_pages", "max_time", "max_bytes")


def to_toml(config: Config, *, skip_run_keys: bool = False) -> str:
    """The whole configuration as TOML that `read_file` reads back to the same."""
    tree = msgspec.to_builtins(config, enc_hook=lambda value: value + 0)
    overrides = tree.pop("override")
    lines = [f"seeds = {_toml_value(tree.pop('seeds'))}"]
    for section, keys in tree.items():
        lines += ["", f"[{section}]"]
        skipped = RUN_KEYS if skip_run_keys and section == "crawl" else ()
        lines += [f"{key} = {_toml_value(value)}" for key, value in keys.items() if key not in skipped]
    for override in overrides:
        lines += ["", "[[override]]"]
        lines += [f"{key} = {_toml_value(value)}" for key, value in override.items() if value is not None]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    # A JSON string is a TOML basic string but for DEL.
    return msgspec.json.encode(str(value)).decode().replace("\x7f", "\\u007f")
