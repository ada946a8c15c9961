"""Converts a nested mapping to a checked `Config`. The message of each error is one line that names the key."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any, get_args, get_origin

import msgspec

from crawler.config import forms
from crawler.config.key_words import accepts_number, fields, keys, sections, words
from crawler.config.schema import (
    ARMS_MAX,
    SIGNATURE_LIFETIME_MAX,
    Config,
    Override,
    RefreshPolicy,
    SplitterConfig,
)
from crawler.config.units import ENDLESS, ByteCount, Seconds, shown, whole_numbers
from crawler.errors import ConfigError, bad_setting
from crawler.printable import is_unicode
from crawler.wording import not_one_of

LINK_BYTES_MAX = 16 << 10  # maximum size of a link (URL and metadata) that is sent to another process
FRAME_BYTES_MAX = 1 << 20


def _decode_hook(kind: type, value: object) -> object:
    if kind in (Seconds, ByteCount):
        return kind.parse(value)
    raise NotImplementedError(kind)


def convert(tree: Mapping[str, Any]) -> Config:
    """Return the configuration that a nested mapping describes.

    Raises:
        ConfigError: an unknown key, a wrong type or a bad unit; the message gives the key's path.
    """
    _check_text(tree)
    tree = whole_numbers(tree)
    try:
        config = msgspec.convert(tree, Config, dec_hook=_decode_hook, str_keys=True)
    except msgspec.ValidationError as error:
        raise _as_setting(_readable(str(error), tree)) from error
    check_values(config)
    return config


def _check_text(value: object, path: str = "") -> None:
    """Raise ConfigError for a text with bytes that were not UTF-8, which no file of settings can contain.

    The command line and the environment decode such bytes to lone surrogates (PEP 383).
    """
    if isinstance(value, str) and not value.isascii() and not is_unicode(value):
        raise bad_setting(path, "the value is not UTF-8 text")
    if isinstance(value, Mapping):
        for key, each in value.items():
            name = f"{path}.{key}" if path else str(key)
            _check_text(key, name)
            _check_text(each, name)
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            _check_text(each, f"{path}[{number}]")


def _as_setting(readable: str) -> ConfigError:
    """Turn a message "key: reason" into a ConfigError."""
    key, colon, what = readable.partition(": ")
    return bad_setting(key, what) if colon else ConfigError(f"configuration: {readable}")


_NAMES = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}
# an expected number, true or false; msgspec states the type of the given value, or the bound that it violates
_EXPECTED = re.compile(r"Expected `(int|float|bool)(?: \| null)?`(?: ([<>]=) ([0-9.e+-]+))?(?:, got .*)?")


def _readable(message: str, tree: Mapping[str, Any]) -> str:
    """Rewrite an error message of msgspec about `tree`. The new message begins with the key, written as in the file."""
    what, _, where = message.partition(" - at `$.")
    path = where.removesuffix("`")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what):
        key = f"{path}.{unknown[1]}" if path else unknown[1]
        return f"{key}: there is no such key{_meant(key)}; config/default.toml lists all"
    if expected := _EXPECTED.fullmatch(what):
        kind, sign, bound = expected.groups()
        limit = f" {sign} {bound.removesuffix('.0')}" if sign else ""
        what = f"expected {_NAMES[kind]}{limit}, got {shown(_value_at(tree, path))}"
    elif choices := words(path):
        given = shown(_value_at(tree, path))
        *first, last = ("a number", *choices)
        expected_number = f"expected {', '.join(first)} or {last}, got {given}"
        what = expected_number if accepts_number(path) else not_one_of(given, choices)
    if what == "Expected `str` of length >= 1":
        what = "the value is empty"
    for kind, name in _NAMES.items():
        what = re.sub(rf"`{kind}(?: \| null)?`", name, what)
    what = what.replace(" | null`", "`").replace("`array`", "a list").replace("`object`", "a section")
    return f"{path}: {what[:1].lower()}{what[1:]}" if path else what


def _value_at(tree: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path such as `section.key` or `override[1].key[0]`."""
    value: Any = tree
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        value = value[int(index)] if index else value[name]
    return value


def _meant(key: str) -> str:
    """Return a hint that names an existing key similar to `key`, or "" if there is none."""
    import difflib  # imported here because it is rarely needed

    known = [field.name for field in fields(Config)] + list(keys())
    if close := difflib.get_close_matches(key, known, 1, 0.75):
        return f"; did you mean {close[0]}?"
    leaf = [each for each in known if each.rpartition(".")[2] == key.rpartition(".")[2]]
    return f"; did you mean {leaf[0]}?" if leaf else ""


def _each(form: Callable[[str], object]) -> Callable[[tuple[str, ...]], object]:
    """Return the form of a list whose entries have the given form."""
    return lambda entries: [form(text) for text in entries]


def _off_or_address(text: str) -> object:
    return text == "off" or forms.listen_at(text)


def _refresh_policies(arms: tuple[str, ...]) -> None:
    """Check that all arms are refresh policies, and that there are at most `ARMS_MAX` of them."""
    policies = get_args(RefreshPolicy)
    for text in arms:
        if text not in policies:
            raise ConfigError(not_one_of(shown(text), policies))
    if len(arms) > ARMS_MAX:
        raise ConfigError(f"{len(arms)} arms; at most {ARMS_MAX}")


# The keys whose values have a syntax of their own, with the functions that raise ConfigError for other values.
_FORMS: dict[str, Callable[[Any], object]] = {
    "seeds": _each(forms.seed_url),
    "crawl.surts": _each(forms.scope_prefix),
    "identity.token": forms.product_token,
    "identity.contact": forms.field_value,
    "identity.accept": forms.field_value,
    "identity.accept_language": forms.field_value,
    "identity.headers": _each(forms.header_field),
    "identity.signature_agent": forms.https_origin,
    "refresh.arms": _refresh_policies,
    "fetch.proxy": forms.proxy_url,
    "network.dns_servers": _each(forms.name_server),
    "network.allow_networks": _each(forms.ip_network),
    "filter.include": _each(forms.regular_expression),
    "filter.exclude": _each(forms.regular_expression),
    "pages.prefix": forms.file_name_part,
    "pages.ignore": _each(forms.ignored_pattern),
    "splitter.name": forms.process_name,
    "splitter.peers": forms.named_addresses,
    "splitter.listen": forms.host_port,
    "serve.address": forms.listen_at,
    "serve.allow": forms.use_of,
    "serve.bot_listen": forms.listen_at,
    "serve.peers": forms.named_addresses,
    "serve.websub": _each(forms.feed_and_hub),
    "admin.address": _off_or_address,
    "override.headers": _each(forms.header_field),
    "override.ignore": _each(forms.ignored_pattern),
}
_DEFAULTS = {"": Config(), "override": Override(), **{name: kind() for name, kind in sections()}}


def check_values(config: Config) -> None:
    """Raise ConfigError for a value that has the right type but makes no sense, or that contradicts another value."""
    for name in [section for section, _ in sections()] + ["override"]:
        for where, values in _tables(config, name):
            _check_sizes(where, values)
    for key, form in _FORMS.items():
        section, _, name = key.rpartition(".")
        default = getattr(_DEFAULTS[section], name)
        for path, values in _tables(config, section):
            if (value := getattr(values, name)) != default:
                with _of(f"{path}{name}"):
                    form(value)
    _check_together(config)
    _check_ages("refresh", config.refresh.min_age, config.refresh.max_age)
    for number, table in enumerate(config.override):
        least = config.refresh.min_age if table.min_age is None else table.min_age
        most = config.refresh.max_age if table.max_age is None else table.max_age
        _check_ages(f"override[{number}]", least, most)
        with _of(f"override[{number}].match"):
            forms.override_match(table.match)


def _tables(config: Config, section: str) -> Sequence[tuple[str, msgspec.Struct]]:
    """Return the structs that hold the keys of a section: all tables of `override`, one struct for any other.

    Each struct is preceded by what precedes the names of its keys in messages: `override[1].`, `fetch.` or "".
    """
    if section == "override":
        return [(f"override[{number}].", table) for number, table in enumerate(config.override)]
    return [(f"{section}.", getattr(config, section))] if section else [("", config)]


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
    _check_copy_age(config)
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


def _check_copy_age(config: Config) -> None:
    """Raise ConfigError if a copy of robots.txt would always be too old when the gap that follows it has ended."""
    longest = max(config.politeness.delay, *(table.delay or 0.0 for table in config.override), 0.0)
    if config.robots.policy != "ignore" and config.robots.copy_max_age <= longest:
        raise bad_setting(
            "robots.copy_max_age",
            f"{config.robots.copy_max_age:g} s is not more than the longest politeness.delay or override.delay, "
            f"{longest:g} s: only robots.txt would ever be fetched",
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


def _check_sizes(where: str, values: msgspec.Struct) -> None:
    """Raise ConfigError for a time or a size out of the range of its field (msgspec checks plain numbers only).

    `where` precedes the names of the fields in messages, as in `_tables`.
    """
    for name, least, most in _ranges(type(values)):
        value = getattr(values, name)
        if value is not None and not least <= value <= most:
            bound = f"at least {least:.15g}" if value < least else f"at most {most:.15g}"
            raise bad_setting(f"{where}{name}", f"{value:.15g} is out of range; must be {bound}")


@cache
def _ranges(kind: type[msgspec.Struct]) -> list[tuple[str, float, float]]:
    """Return the times and sizes of a section that have a range, each with its minimum and maximum."""
    marked = (
        (name, get_args(each)[1].extra or {})
        for name, form in kind.__annotations__.items()
        for each in (form, *get_args(form))  # an optional field is a union
        if get_origin(each) is Annotated
    )
    return [(name, extra.get("least", 0), extra.get("most", ENDLESS)) for name, extra in marked if extra]
