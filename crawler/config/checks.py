"""Converts a nested mapping to a checked `Config`. The message of each error is one line that names the key."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any, get_args, get_origin

import msgspec

from crawler.config.forms import (
    file_name_part,
    header_field,
    host_port,
    https_origin,
    listen_at,
    named_addresses,
    process_name,
    product_token,
)
from crawler.config.key_words import fields, keys, sections, words
from crawler.config.schema import (
    ARMS_MAX,
    SIGNATURE_LIFETIME_MAX,
    Config,
    RefreshPolicy,
    SplitterConfig,
)
from crawler.config.units import ByteCount, Seconds
from crawler.errors import ConfigError, bad_setting

LINK_BYTES_MAX = 16 << 10  # maximum size of a link (URL and metadata) that is sent to another process
FRAME_BYTES_MAX = 1 << 20
PROXY = r"(?:https?|socks4a?|socks5h?)://[^/\s]"


def _decode_hook(kind: type, value: object) -> object:
    if kind in (Seconds, ByteCount):
        return kind.parse(value)
    raise NotImplementedError(kind)


def convert(tree: Mapping[str, Any]) -> Config:
    """Return the configuration that a nested mapping describes.

    Raises:
        ConfigError: an unknown key, a wrong type or a bad unit; the message gives the key's path.
    """
    try:
        config = msgspec.convert(tree, Config, dec_hook=_decode_hook, str_keys=True)
    except msgspec.ValidationError as error:
        raise _as_setting(_readable(str(error))) from error
    check_values(config)
    return config


def _as_setting(readable: str) -> ConfigError:
    """Turn a message "key: reason" into a ConfigError."""
    key, colon, what = readable.partition(": ")
    return bad_setting(key, what) if colon else ConfigError(f"configuration: {readable}")


def _readable(message: str) -> str:
    """Rewrite an error message of msgspec. The new message begins with the key, written as in the file."""
    what, _, where = message.partition(" - at `$.")
    path = where.removesuffix("`")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what):
        key = f"{path}.{unknown[1]}" if path else unknown[1]
        return f"{key}: there is no such key{_meant(key)}; config/default.toml lists all"
    if what.startswith("Invalid enum value"):
        what = f"{what.removeprefix('Invalid enum value ')} is not one of {', '.join(words(path))}"
    names = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}
    for kind, name in names.items():
        what = re.sub(rf"`{kind}(?: \| null)?`", name, what)
    what = what.replace("`array`", "a list").replace("`object`", "a section")
    return f"{path}: {what[:1].lower()}{what[1:]}" if path else what


def _meant(key: str) -> str:
    """Return a hint that names an existing key similar to `key`, or "" if there is none."""
    import difflib  # imported here because it is rarely needed

    known = [field.name for field in fields(Config)] + list(keys())
    if close := difflib.get_close_matches(key, known, 1, 0.75):
        return f"; did you mean {close[0]}?"
    leaf = [each for each in known if each.rpartition(".")[2] == key.rpartition(".")[2]]
    return f"; did you mean {leaf[0]}?" if leaf else ""


def check_values(config: Config) -> None:
    """Raise ConfigError for a value that has the right type but makes no sense, or that contradicts another value."""
    for name, _ in sections():
        _check_sizes(name, getattr(config, name))
    _check_forms(config)
    _check_together(config)
    if config.fetch.proxy and not re.match(PROXY, config.fetch.proxy):
        wrong = repr(re.sub(r"//[^/@]*@", "//", config.fetch.proxy))
        raise bad_setting(
            "fetch.proxy", f"{wrong} is not a URL such as http://proxy:3128 or socks5://proxy:1080"
        )
    for text in config.network.dns_servers:
        _check_server(text)
    for text in config.network.allow_networks:
        _check_network(text)
    for name in ("include", "exclude"):
        for text in getattr(config.filter, name):
            _check_pattern(f"filter.{name}", text)
    for text in [*config.pages.ignore, *(text for table in config.override for text in table.ignore or ())]:
        _check_pattern("pages.ignore", text)
    _check_arms(config.refresh.arms)
    _check_ages("refresh", config.refresh.min_age, config.refresh.max_age)
    for table in config.override:
        least = config.refresh.min_age if table.min_age is None else table.min_age
        _check_ages("override", least, config.refresh.max_age if table.max_age is None else table.max_age)
        if not table.match:
            raise bad_setting("override.match", "missing; give a host, *.domain or URL prefix")


def _check_forms(config: Config) -> None:
    """Raise ConfigError for text that does not have the syntax of its key."""
    from crawler.urls.canonical import canonical  # imported here because these modules load slowly
    from crawler.urls.surt_prefix import surt_prefix
    from crawler.urls.typed_url import LOGIN_REFUSED, split_login

    splitter, serve = config.splitter, config.serve
    with _of("identity.token"):
        product_token(config.identity.token)
    for key, lines in [
        ("identity.headers", config.identity.headers),
        *(("override.headers", table.headers or ()) for table in config.override),
    ]:
        for line in lines:
            with _of(key):
                header_field(line)
    with _of("pages.prefix"):
        file_name_part(config.pages.prefix)
    with _of("splitter.name"):
        process_name(splitter.name)
    with _of("splitter.peers"):
        named_addresses(splitter.peers)
    with _of("splitter.listen"):
        host_port(splitter.listen)
    with _of("serve.peers"):
        named_addresses(serve.peers)
    if serve.address:
        with _of("serve.address"):
            listen_at(serve.address)
    if serve.bot_listen:
        with _of("serve.bot_listen"):
            listen_at(serve.bot_listen)
    if config.identity.signature_agent:
        with _of("identity.signature_agent"):
            https_origin(config.identity.signature_agent)
    if config.admin.address != "off":
        with _of("admin.address"):
            listen_at(config.admin.address)
    for text in config.crawl.surts:
        if not surt_prefix(text):
            raise bad_setting(
                "crawl.surts", f"{text!r} is not a SURT prefix such as http://(org,example,)/docs/"
            )
    for url in config.seeds:
        plain, login = split_login(url)
        if login:
            raise bad_setting("seeds", f"{plain!r}: {LOGIN_REFUSED}")
        if canonical(url) is None:
            raise bad_setting("seeds", f"{url!r} is not an http(s) URL")
    for line in serve.websub:
        parts = line.split()
        if len(parts) != 2 or None in (canonical(parts[0]), canonical(parts[1])):
            raise bad_setting("serve.websub", f"{line!r}: expected the URL of a feed and the URL of its hub")


@contextmanager
def _of(key: str) -> Iterator[None]:
    """Add the key to the message of each ConfigError that is raised in the `with` block."""
    try:
        yield
    except ConfigError as error:
        raise bad_setting(key, str(error)) from None


def _check_together(config: Config) -> None:
    """Raise ConfigError for values that contradict one another."""
    refresh, splitter, serve = config.refresh, config.splitter, config.serve
    if refresh.clock_min > refresh.clock_max:
        raise bad_setting(
            "refresh.clock_max", f"{refresh.clock_max:g} s is less than clock_min, {refresh.clock_min:g} s"
        )
    check_limits(splitter)
    tls = [name for name in ("tls_certificate", "tls_key", "tls_authority") if getattr(splitter, name)]
    if len(tls) in (1, 2):
        raise bad_setting(
            f"splitter.{tls[0]}", "tls_certificate, tls_key and tls_authority must be given together"
        )
    if config.pages.keep_copies and config.pages.ship:
        raise bad_setting(
            "pages.keep_copies",
            "old copies cannot be dropped from WARC files that pages.ship copies to object storage; "
            "set only one of these keys",
        )
    identity = config.identity
    if identity.signature != "off" and not identity.signature_agent:
        raise bad_setting(
            "identity.signature_agent", "missing; give the https origin at which sites find the keys"
        )
    if identity.signature_lifetime > SIGNATURE_LIFETIME_MAX:
        raise bad_setting("identity.signature_lifetime", "a signature may be valid for a day at most")
    if identity.signature_reuse >= identity.signature_lifetime:
        raise bad_setting("identity.signature_reuse", "must be less than signature_lifetime")
    if serve.websub and not re.match(r"https?://", serve.public_url):
        raise bad_setting(
            "serve.websub", "hubs call back, so serve.public_url must give the http(s) URL they can reach"
        )


def check_limits(config: SplitterConfig) -> None:
    """Check that an outbox entry and the longest URL fit into a frame, and that an entry fits into the window.

    Raises:
        ConfigError: an entry or a URL does not fit.
    """
    least = config.entry_bytes + LINK_BYTES_MAX
    if not least <= config.frame_bytes_max <= FRAME_BYTES_MAX:
        raise bad_setting(
            "splitter.frame_bytes_max",
            f"{config.frame_bytes_max}: expected {least} (entry_bytes and the longest link) to {FRAME_BYTES_MAX}",
        )
    if config.window_bytes < config.entry_bytes:
        raise bad_setting("splitter.window_bytes", f"{config.window_bytes}: must be at least entry_bytes")


def _check_ages(where: str, least: float, most: float) -> None:
    """Raise ConfigError if the maximum age is below the minimum age."""
    if most and most < least:
        raise bad_setting(f"{where}.max_age", f"{most:g} s is less than min_age, {least:g} s")


def _check_arms(arms: tuple[str, ...]) -> None:
    """Raise ConfigError unless all arms are refresh policies and there are at most `ARMS_MAX` of them."""
    policies = get_args(RefreshPolicy)
    for text in arms:
        if text not in policies:
            raise bad_setting("refresh.arms", f"{text!r} is not one of {', '.join(policies)}")
    if len(arms) > ARMS_MAX:
        raise bad_setting("refresh.arms", f"{len(arms)} arms; at most {ARMS_MAX}")


def _check_network(text: str) -> None:
    """Raise ConfigError unless `text` is an IP network."""
    import ipaddress  # imported here because it is rarely needed

    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise bad_setting("network.allow_networks", str(error)) from None


def _check_pattern(path: str, text: str) -> None:
    """Raise ConfigError unless `text` is a regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise bad_setting(path, f"{text!r} is not a regular expression: {error}") from None


def _check_server(text: str) -> None:
    """Raise ConfigError unless `text` is an IP address, with or without a port."""
    import ipaddress  # imported here because it is rarely needed

    bracketed = re.fullmatch(r"\[(.+)\](?::(\d+))?", text) or re.fullmatch(r"([^:]+):(\d+)", text)
    address, port = bracketed.groups() if bracketed else (text, None)
    try:
        ipaddress.ip_address(address)
        if int(port or "53") not in range(1, 65536):
            raise ValueError
    except ValueError:
        raise bad_setting(
            "network.dns_servers", f"{text!r} is not an IP address, with or without a port (9.9.9.9:53)"
        ) from None


def _check_sizes(section: str, values: msgspec.Struct) -> None:
    """Raise ConfigError for a size below the minimum of its field (msgspec checks plain numbers only)."""
    for name, least in _minima(type(values)):
        if getattr(values, name) < least:
            value = int(getattr(values, name))
            raise bad_setting(f"{section}.{name}", f"{value} is out of range; must be at least {least}")


@cache
def _minima(kind: type[msgspec.Struct]) -> list[tuple[str, int]]:
    """Return the fields of a section that have a minimum, each with its minimum."""
    marked = (
        (name, get_args(each)[1].extra)
        for name, each in kind.__annotations__.items()
        if get_origin(each) is Annotated
    )
    return [(name, extra["least"]) for name, extra in marked if (extra or {}).get("least")]
