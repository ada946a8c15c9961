"""Defines every section of the configuration as a frozen struct, with the type and the range of each key.

Every stage receives only its own struct. `config/default.toml` lists every key with its unit and reason; a
test checks that the two files agree. Rules that involve several fields are in `checks.py`.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from crawler.config.units import (
    ByteCount,
    Count,
    Delays,
    Limit,
    Number,
    Port,
    Positive,
    Seconds,
    Size,
    Timeout,
)
from crawler.urls.canonical import LENGTH_MAX

ScopeName = Literal["host", "domain", "prefix", "any"]
RobotsPolicy = Literal["obey", "ignore"]
TlsPolicy = Literal["verify", "record"]
ChangeKind = Literal["raw", "text", "simhash"]
RenderWhen = Literal["never", "auto", "always"]
BitCount = Annotated[int, Meta(ge=0, le=64)]
ARMS_MAX = 16  # maximum number of refresh policies that are compared at the same time
SIGNATURE_LIFETIME_MAX = 86_400.0  # seconds; Web Bot Auth allows at most one day
RefreshPolicy = Literal["ncis", "greedy", "cis", "azar-lds", "uniform", "interval"]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class CrawlConfig(_Section, frozen=True):
    """The scope and the limits of the crawl."""

    scope: ScopeName = "host"
    surts: tuple[str, ...] = ()  # SURT prefixes that are in scope in addition to the seeds' scope
    max_pages: Count = 0  # limit for this run; 0 = no limit
    max_time: Seconds = Seconds(0)
    max_bytes: ByteCount = ByteCount(0)
    depth: Limit = -1  # link hops from a seed; -1 = no limit, or 20 if the scope is `any`
    pages_per_host: Limit = -1  # URLs per host; -1 = no limit, or 10,000 if the scope is `any`
    # URLs per registrable domain; -1 = no limit, or 20,000 if the scope is `any`
    pages_per_domain: Limit = -1
    hosts_per_domain: Limit = -1  # hosts per registrable domain; -1 = no limit, or 200 if the scope is `any`
    timestamping: bool = False  # for this run only: fetch known pages again
    # For this run only: use the stored answers of these crawl directories again.
    answers_from: tuple[str, ...] = ()
    patience: Seconds = Seconds(300)
    requisites: bool = False
    check_external: bool = False
    rate: Number = 0.0  # pages per second over all processes; 0 = no limit
    concurrency: Positive = 500
    processes: Positive = 1
    trace: bool = False
    stall_max: Timeout = Seconds(10)
    drain_max: Seconds = Seconds(120)
    shutdown_step_max: Timeout = Seconds(10)


class IdentityConfig(_Section, frozen=True):
    """The identity of the crawler in its requests."""

    token: str = "crawler"
    contact: str = ""
    accept: str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    accept_language: str = "en;q=0.9,*;q=0.5"
    headers: tuple[str, ...] = ()  # "Name: value"
    signature: Literal["off", "dictionary", "string"] = "off"
    sign_when: Literal["always", "challenge"] = "always"
    signature_agent: str = ""  # https origin that serves the key directory
    key_file: str = ""  # empty = signing.key in the crawl directory
    signature_lifetime: Annotated[Seconds, Meta(extra={"least": 1})] = Seconds(7200)
    signature_reuse: Seconds = Seconds(3600)
    signature_hosts_max: Positive = 20_000


class PolitenessConfig(_Section, frozen=True):
    """The gaps between requests (`frontier/README.md`, "Politeness")."""

    delay: Seconds = Seconds(1.0)  # minimum gap per host
    delay_factor: Number = 10.0  # gap, as a multiple of the time that the last answer took
    delay_max: Seconds = Seconds(30.0)  # upper limit of the gap that `delay_factor` gives
    crawl_delay_max: Seconds = Seconds(86_400)
    retry_after_max: Seconds = Seconds(86_400)
    address_delay_share: Number = 0.5  # gap per address, as a share of `delay`
    shared_address_domains: Count = 50  # an address with this many registrable domains is shared hosting
    shared_address_in_flight: Count = 16
    shared_address_rate: Number = 8.0  # requests/s to a shared address over all processes; 0 = no limit
    domain_rate: Number = 8.0  # requests/s to a registrable domain over all its hosts; 0 = no limit
    backoff_first: Seconds = Seconds(60)
    backoff_max: Seconds = Seconds(14_400)
    give_up_after: Seconds = Seconds(259_200)  # 3 days; after this time without an answer, a host is given up
    refusals_max: Count = 20  # after this number of 401, 403, 406 or 451 in a row, a host counts as blocked
    # Each 429 or 503 doubles the slowdown factor of the gap, up to this limit.
    slowdown_max: Number = 64.0
    # each good answer multiplies the slowdown factor by this; 34 good answers halve the factor
    slowdown_recovery: Number = 0.98
    # The slowdown factor f multiplies the gap of the host. The result is at least this gap times f - 1, so hosts
    # without a gap are slowed down, too.
    slowdown_gap: Seconds = Seconds(0.5)


class FrontierConfig(_Section, frozen=True):
    """Queues, retries and memory of the frontier."""

    front_factor: Positive = 12  # number of hosts kept as objects, as a multiple of `concurrency`
    read_ahead: Positive = 16  # number of queue entries that are read at once for a host in the front
    # After this many fetch tasks, a front host leaves the front, and a host that waits outside takes its
    # place.
    turn_max: Positive = 48
    tries: Positive = 3  # attempts per URL, including the first
    retry_delays: Delays = (30.0, 120.0)  # seconds between the attempts
    retry_jitter: Number = 0.2
    # After this many failures of a URL while its host answers other URLs, the URL is given up.
    strikes_max: Count = 5
    # if more than this number of URLs of a host wait for a retry or robots.txt, the whole host waits
    later_max: Count = 128
    # URLs in memory (350 bytes each); each front host may add `read_ahead` more
    entries_max: Count = 32_768
    addresses_max: Count = 20_000  # addresses in memory: the ones in use, and the last ones used
    # share of the fetch slots that new hosts, and hosts whose last answer was slow, may use
    untried_share: Number = 0.8
    # number of front hosts that may wait for the same address; further ones leave the front
    address_waiters_max: Count = 64


class OrderConfig(_Section, frozen=True):
    """The order in which new URLs are fetched (`orders/`)."""

    name: Annotated[str, Meta(min_length=1, max_length=100)] = "breadth-first"
    file: str = ""
    depth_decay: Annotated[float, Meta(gt=0, le=1)] = 0.5
    first_come: Annotated[float, Meta(gt=0, le=1)] = 0.2
    raise_classes: Annotated[int, Meta(ge=0, le=255)] = 2
    wait_max: Annotated[float, Meta(gt=0, le=3600)] = 1.0
    wait_share: Annotated[float, Meta(ge=0, le=1)] = 0.5


class RefreshConfig(_Section, frozen=True):
    """Which known pages are fetched again, and when (`frontier/refresh/`)."""

    # 0 = new URLs always go first; default = what `fetch_share` returns
    share: Annotated[float, Meta(ge=0, le=1)] | Literal["auto", "default"] = "default"
    endless: bool = False
    policy: RefreshPolicy = "ncis"
    arms: tuple[str, ...] = ()  # policies to compare; a hash assigns each page to a policy
    prior: Literal["uniform", "depth"] = "uniform"
    prior_requests: Annotated[float, Meta(gt=0, le=1e12)] = 1.0
    importance_file: str = ""
    neighbourhood: bool = True
    pooling: bool = True
    explore: Annotated[float, Meta(ge=0, lt=1)] = 0.05
    min_age: Seconds = Seconds(3600)
    max_age: Seconds = Seconds(0)  # 0 = none
    discard_window: Seconds = Seconds(0)
    clock_min: Annotated[Seconds, Meta(extra={"least": 0.001})] = Seconds(60)
    clock_max: Seconds = Seconds(7_776_000)
    new_page_weight: Annotated[float, Meta(ge=0, le=1000)] = 2.0
    discovery_share_max: Annotated[float, Meta(gt=0, le=1)] = 0.5
    first_interval: Annotated[Seconds, Meta(extra={"least": 0.001})] = Seconds(2_592_000)
    retry_age: Seconds = Seconds(3600)
    gone_age: Seconds = Seconds(2_592_000)
    retry_for: Seconds = Seconds(2_592_000)
    speed: Positive = 1
    conditional: bool = True
    same_answers_max: Positive = 5
    check_every: Positive = 8
    distrust: Seconds = Seconds(604_800)

    @property
    def fetch_share(self) -> float | Literal["auto"]:
        """The share of the fetches that goes to known pages while there are new URLs.

        The default is "auto" in a crawl that refreshes known pages without end, and 0 in any other crawl.
        """
        if self.share == "default":
            return "auto" if self.endless else 0.0
        return self.share


class RobotsConfig(_Section, frozen=True):
    """robots.txt (RFC 9309; `robots/README.md`, "Answers")."""

    policy: RobotsPolicy = "obey"
    bytes_max: ByteCount = ByteCount(512_000)
    copy_max_age: Timeout = Seconds(86_400)
    # in seconds; the last delay of the list repeats
    unreachable_delays: Delays = (60.0, 300.0, 1800.0, 3600.0)
    # 30 days; after this time, an unreachable file allows everything
    unreachable_max: Seconds = Seconds(2_592_000)
    redirects_max: Count = 5
    nofollow_links: bool = True  # obey rel=nofollow
    rules_max: Positive = 10_000  # allow and disallow lines read per file
    wildcards_max: Positive = 1_000  # rules with * or $ read per file
    sitemaps_max: Count = 500  # Sitemap lines read per file


class ConsentConfig(_Section, frozen=True):
    """The uses that sites allow (`consent/README.md`)."""

    unknown: Literal["allow", "refuse"] = "refuse"
    retroactive: bool = False
    tdmrep: bool = False
    licenses: bool = True
    files_max_age: Seconds = Seconds(86_400)
    files_memory_max: ByteCount = ByteCount(32 << 20)


class FetchConfig(_Section, frozen=True):
    """Limits of one fetch (`fetcher/README.md`, "Time and size limits")."""

    connect_timeout: Timeout = Seconds(10)
    tls_timeout: Timeout = Seconds(10)
    header_timeout: Timeout = Seconds(20)
    silence_timeout: Timeout = Seconds(20)
    total_timeout: Timeout = Seconds(60)
    crowded_timeout: Timeout = Seconds(15)  # total timeout of a slow host while other hosts wait for a slot
    header_bytes_max: Size = ByteCount(65_536)
    header_field_bytes_max: Size = ByteCount(65_536)
    header_fields_max: Positive = 256
    body_bytes_max: Size = ByteCount(10 << 20)  # decoded
    wire_bytes_max: Size = ByteCount(10 << 20)
    external_bytes_max: ByteCount = ByteCount(16 << 10)
    held_bytes_max: ByteCount = ByteCount(160 << 20)  # memory for bodies that are being received
    files: Literal["auto", "all"] = "auto"  # which files count as requested by the user
    file_bytes_max: ByteCount = ByteCount(0)  # maximum size of a file that the user requested; 0 = no limit
    file_held_bytes: ByteCount = ByteCount(1 << 20)  # larger files are kept on disk, not in memory
    file_rate_min: ByteCount = ByteCount(1 << 10)  # minimum bytes/s while a requested file arrives
    resumes_max: Count = 20  # maximum number of requests in a row that resume the same file
    decode_step_bytes: ByteCount = ByteCount(256 << 10)
    redirects_max: Count = 10
    keep_alive_extra: Seconds = Seconds(5)  # an idle connection is kept for the host's gap plus this time
    keep_alive_max: Seconds = Seconds(35)
    # maximum number of idle connections to all hosts; with TLS, each takes 60 KiB
    idle_connections_max: Count = 3000
    cookies: bool | Literal["auto"] = "auto"  # auto: only if the user's Python code makes requests
    cookie_domains_max: Count = 10_000  # registrable domains whose cookies are kept
    cookie_jars_max: Positive = 1000  # cookie jars named by requests of Python code (`Request.jar`)
    request_proxies_max: Positive = 100  # proxies named by requests of Python code (`Request.proxy`)
    cookies_file: str = ""  # a file in Netscape's format; records never contain its cookies
    tls: TlsPolicy = "verify"
    proxy: str = ""  # http(s)://, socks5:// or socks4://
    bytes_per_second: ByteCount = ByteCount(0)  # bytes received, over all processes; 0 = no limit


class NetworkConfig(_Section, frozen=True):
    """Addresses and names (`fetcher/README.md`, "Addresses")."""

    allow_networks: tuple[str, ...] = ()
    allow_ports: tuple[Port, ...] = ()  # ports to allow although other protocols use them (WHATWG Fetch)
    dns_timeout: Annotated[Seconds, Meta(extra={"least": 0.001, "most": 86_400})] = Seconds(5)
    dns_patience: Seconds = Seconds(1.5)
    dns_concurrency: Positive = 256
    dns_servers: tuple[str, ...] = ()  # empty = the system's servers
    dns_ttl_min: Seconds = Seconds(60)
    dns_ttl_max: Seconds = Seconds(86_400)
    dns_negative_ttl: Seconds = Seconds(3600)
    dns_cache_entries_max: Positive = 100_000


class UrlsConfig(_Section, frozen=True):
    """The canonical form and the fingerprints of URLs (`urls/README.md`, "Forms of a URL" and "Fingerprint")."""

    length_max: Annotated[int, Meta(ge=0, le=LENGTH_MAX)] = LENGTH_MAX
    strip_session_ids: bool = True
    fingerprint: Literal["mmh3", "blake2b"] = "mmh3"
    partition: Literal["domain", "host"] = "domain"


class ExtractConfig(_Section, frozen=True):
    """Link extraction (`extract/README.md`, "Types and charset" and "Links")."""

    cpu_seconds_max: Timeout = Seconds(2.0)
    links_max: Positive = 20_000
    attributes_max: Count = 2_000  # maximum number of attributes per tag; a page with more gets a plain scan
    depth_max: Count = 2_000  # maximum number of open elements; a page with more gets a plain scan
    tags_max: Count = 200_000  # maximum number of start tags; a page with more gets a plain scan
    all_attributes: bool = False  # extract every attribute that holds a URL, not only links
    inline_bytes_max: ByteCount = ByteCount(512 << 10)  # larger pages are parsed in a worker
    inline_tags_max: Count = 25_000  # pages with more tags are parsed in a worker
    # maximum number of pages that wait for the worker; further pages get a plain scan
    worker_queue_max: Positive = 32
    worker_memory_bytes_max: ByteCount = ByteCount(256 << 20)  # limit of the worker's data segment


class FilterConfig(_Section, frozen=True):
    """The URL filter (`urlfilter/README.md`)."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    exclude_extensions: tuple[str, ...] = ()  # file name extensions, such as ".zip"
    accept: tuple[str, ...] = ()  # kinds of files, such as "pdf", "image/*", "report-*.csv"; () = all
    reject: tuple[str, ...] = ()
    memo_bytes_max: ByteCount = ByteCount(24 << 20)  # memory for the cached results of the link filter


class TrapsConfig(_Section, frozen=True):
    """Trap limits (`urlfilter/README.md`, "Traps")."""

    path_segments_max: Count = 20
    repeated_segments_max: Count = 2
    same_digest_pages_max: Positive = 10
    chain_warned: Count = 100


class SitemapsConfig(_Section, frozen=True):
    """Sitemaps and feeds as link sources (`extract/README.md`, "Sitemaps and feeds")."""

    robots: bool = True  # follow Sitemap lines of robots.txt
    guess: bool = False  # also fetch /sitemap.xml
    feeds: bool = True  # follow links of feeds: RSS, Atom and JSON Feed
    bytes_max: ByteCount = ByteCount(50 << 20)
    urls_max: Count = 50_000
    cpu_seconds_max: Timeout = Seconds(20)
    maps_max: Count = 500
    # sitemaps per host; they do not count towards the host's page budget
    maps_per_host_max: Annotated[int, Meta(ge=0, le=65_535)] = 2_000
    depth_max: Count = 2


class CacheConfig(_Section, frozen=True):
    """The CLOCK caches in front of the DUE and the outbox (`urls/README.md`, "URL cache")."""

    bits: Annotated[int, Meta(ge=4, le=30)] = 18


class DueConfig(_Section, frozen=True):
    """The Duplicate URL Eliminator (`due/README.md`)."""

    buffer_entries_max: Annotated[int, Meta(ge=1, le=1 << 32)] = 1 << 18
    # maximum number of new links that one commit adds to the frontier during a flush
    part_links_max: Positive = 4096
    max_wait: Seconds = Seconds(5)
    merge_chunk_bytes: Annotated[ByteCount, Meta(extra={"most": 1 << 30})] = ByteCount(4 << 20)
    log_bytes_max: ByteCount = ByteCount(16 << 20)  # a new file of the links log is started at this size


class StoreConfig(_Section, frozen=True):
    """Durability and disk space (`storage/README.md`)."""

    # storage engine of a new crawl; only `crawler reshard` changes it later
    engine: Literal["auto", "leveldb", "rocksdict"] = "auto"
    durability: Literal["power", "process"] = "power"
    group_entries_max: Positive = 256  # results per commit
    commit_delay: Seconds = Seconds(0.05)  # a commit waits this long for more results, if some are expected
    write_buffer_bytes: ByteCount = ByteCount(8 << 20)
    block_cache_bytes: ByteCount = ByteCount(16 << 20)
    table_bytes: Annotated[ByteCount, Meta(extra={"least": 1 << 20})] = ByteCount(2 << 20)
    tables_max: Annotated[int, Meta(ge=64, le=1 << 20)] = 64  # tables that may be open and mapped at once
    # Fetching stops if less space than this is free. If this value is more than 5 % of the disk, the limit is
    # 5 % of the disk instead.
    low_water_bytes: ByteCount = ByteCount(2 << 30)
    stop_water_bytes: ByteCount = ByteCount(256 << 20)  # stop cleanly
    ballast_bytes: ByteCount = ByteCount(0)


class PagesConfig(_Section, frozen=True):
    """The page cache (`pages/README.md`, "WARC")."""

    store: Literal["raw", "decoded", "none"] = "raw"
    segment_bytes: Annotated[ByteCount, Meta(extra={"least": 1})] = ByteCount(10**9)
    # levels 0 to 3 use isal; level 9 is the best of zlib, and suits archives
    gzip_level: Annotated[int, Meta(ge=0, le=9)] = 1
    block_digests: bool = False
    prefix: str = "crawl"
    change: ChangeKind = "text"
    simhash_distance: BitCount = 3
    ignore: tuple[str, ...] = ()
    withdrawals_max: Positive = 100_000
    keep_copies: Count = 0  # 0 = all
    request_bodies: bool = True
    ship: str = ""
    ship_delete: bool = False
    ship_interval: Seconds = Seconds(60)
    ship_patience: Seconds = Seconds(600)


class HooksConfig(_Section, frozen=True):
    """Names of entry points that installed packages offer, in the groups crawler.filters, .extractors and .sinks."""

    url_filter: str = ""
    link_extractor: str = ""
    page_sink: str = ""


class SplitterConfig(_Section, frozen=True):
    """The host splitter (`splitter/README.md`, "Protocol")."""

    name: str = "p0"
    peers: tuple[str, ...] = ()  # "name=host:port" of all processes, including this one
    table_file: str = ""  # bucket table (JSON); empty = equal ranges over the sorted names
    crawl: str = ""  # identity of the crawl, the same in all processes; empty = derived from the secret
    listen: str = "127.0.0.1:0"
    secret_file: str = ""
    window_bytes: ByteCount = ByteCount(1 << 20)
    entry_bytes: ByteCount = ByteCount(8 << 10)
    frame_bytes_max: ByteCount = ByteCount(1 << 20)
    silence_max: Timeout = Seconds(30)
    backoff_min: Seconds = Seconds(0.1)
    backoff_max: Seconds = Seconds(30)
    handshake_timeout: Timeout = Seconds(10)
    strangers_max: Count = 4  # unauthenticated connections, in addition to one per peer
    heartbeat: Timeout = Seconds(1)
    spool_bytes_max: ByteCount = ByteCount(1 << 30)
    tls_certificate: str = ""
    tls_key: str = ""
    tls_authority: str = ""


class RenderConfig(_Section, frozen=True):
    """Pages that need a browser (`render/README.md`)."""

    when: RenderWhen = "never"
    browser: str = ""  # a program; "" = the first browser that is installed
    sandbox: bool = True
    chance: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.01
    pages: Positive = 4
    wall_max: Annotated[Seconds, Meta(extra={"least": 1})] = Seconds(30)
    cpu_max: Annotated[Seconds, Meta(extra={"least": 1})] = Seconds(10)
    quiet: Seconds = Seconds(0.5)
    post: bool = False
    requests_max: Positive = 200
    bytes_max: ByteCount = ByteCount(20 << 20)
    heap_bytes_max: ByteCount = ByteCount(64 << 20)
    memory_bytes_max: ByteCount = ByteCount(1 << 30)
    pages_per_browser: Positive = 100
    cache_bytes_max: ByteCount = ByteCount(32 << 20)
    images: bool = False
    screenshot: bool = False


class ServeConfig(_Section, frozen=True):
    """The page server (`crawler serve`; `serve/README.md`)."""

    address: str = ""  # ADDRESS:PORT; empty = no page server during the crawl
    names: tuple[str, ...] = ()  # host names that the server accepts, besides addresses and localhost
    bot_listen: str = ""  # ADDRESS:PORT of the public page about the bot and its keys; empty = none
    peers: tuple[str, ...] = ()  # "name=host:port", the page servers of the other nodes
    public_url: str = ""  # http(s) URL by which hubs reach this page server
    websub: tuple[str, ...] = ()  # feeds to subscribe to; each is written "TOPIC HUB" (two URLs)
    connections_max: Positive = 1000
    header_bytes_max: Annotated[ByteCount, Meta(extra={"least": 1024})] = ByteCount(32 << 10)
    idle_timeout: Timeout = Seconds(15)
    write_timeout: Timeout = Seconds(30)
    request_body_bytes_max: ByteCount = ByteCount(1 << 20)
    held_bytes_max: ByteCount = ByteCount(1 << 20)
    ready_bytes_max: ByteCount = ByteCount(32 << 20)
    head_bytes_max: ByteCount = ByteCount(64 << 20)
    disk_cache_bytes: ByteCount = ByteCount(1 << 30)
    fill_share: Annotated[float, Meta(ge=0, le=1)] = 0.2
    disk_cache_folder: str = ""  # a folder for the cache on disk; empty = the crawl directory
    segments_open_max: Positive = 64
    on_disallow: Literal["keep", "withhold"] = "keep"
    allow: str = ""  # a use, such as "search"; only copies that may be used for it are served
    fresh_enough: Annotated[float, Meta(ge=0, le=1)] = 0.95
    ahead_max: Count = 1000
    request_half_life: Annotated[Seconds, Meta(extra={"least": 1})] = Seconds(604_800)
    counted_pages_max: Annotated[int, Meta(ge=4)] = 100_000
    count_bots: bool = False
    signals_per_second: Number = 100.0
    signal_urls_max: Positive = 10_000
    key_files_max: Positive = 10_000
    pending_bytes_max: ByteCount = ByteCount(32 << 20)

    @property
    def withholds_disallowed(self) -> bool:
        """True if copies are withheld while robots.txt forbids their page."""
        return self.on_disallow == "withhold"


class AdminConfig(_Section, frozen=True):
    """The admin server: dashboard, metrics, state changes (`admin/README.md`)."""

    address: str = "127.0.0.1:8081"  # ADDRESS:PORT or "off"
    names: tuple[str, ...] = ()  # host names that the server accepts, besides addresses and localhost
    connections_max: Positive = 64
    history: Seconds = Seconds(86_400)
    history_interval: Annotated[Seconds, Meta(extra={"least": 1})] = Seconds(10)


class LogsConfig(_Section, frozen=True):
    """Rotation of `crawler.log` and `pages.jsonl` in the crawl directory (`OPERATING.md`, "Logs and disk space")."""

    bytes_max: ByteCount = ByteCount(1 << 30)
    age_max: Seconds = Seconds(0)  # 0 = no limit
    log_files: Count = 8  # former files of crawler.log that are kept; 0 = all
    fetch_files: Count = 0  # former files of pages.jsonl that are kept, for exports and the ledger; 0 = all


class Override(_Section, frozen=True):
    """`[[override]]`: different values for a part of the web (a host, `*.domain`, URL or SURT prefix)."""

    match: str = ""
    delay: Seconds | None = None
    delay_factor: Number | None = None
    pages: Count | None = None  # maximum number of URLs of a host
    pages_per_domain: Count | None = None
    scope: Literal["page", "prefix", "host", "domain"] | None = None  # scope of the seeds in this part
    depth: Count | None = None
    robots: RobotsPolicy | None = None
    tls: TlsPolicy | None = None
    headers: tuple[str, ...] | None = None
    body_bytes_max: Size | None = None
    total_timeout: Timeout | None = None
    fetcher: str | None = None
    render: RenderWhen | None = None
    change: ChangeKind | None = None
    simhash_distance: BitCount | None = None
    ignore: tuple[str, ...] | None = None
    min_age: Seconds | None = None
    max_age: Seconds | None = None


class Config(_Section, frozen=True):
    """All sections of the configuration. `seeds` are the URLs that are given in the configuration file."""

    seeds: tuple[str, ...] = ()
    crawl: CrawlConfig = CrawlConfig()
    identity: IdentityConfig = IdentityConfig()
    politeness: PolitenessConfig = PolitenessConfig()
    frontier: FrontierConfig = FrontierConfig()
    order: OrderConfig = OrderConfig()
    refresh: RefreshConfig = RefreshConfig()
    robots: RobotsConfig = RobotsConfig()
    consent: ConsentConfig = ConsentConfig()
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
    render: RenderConfig = RenderConfig()
    hooks: HooksConfig = HooksConfig()
    splitter: SplitterConfig = SplitterConfig()
    serve: ServeConfig = ServeConfig()
    admin: AdminConfig = AdminConfig()
    logs: LogsConfig = LogsConfig()
    override: tuple[Override, ...] = ()
