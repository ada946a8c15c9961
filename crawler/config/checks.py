"""From a nested mapping to a checked `Config`; an error is one line that names the key."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_origin

import msgspec

from crawler.config.key_words import keys, sections, words
from crawler.config.schema import ARMS_MAX, Config, RefreshPolicy
from crawler.config.units import ByteCount, Seconds
from crawler.errors import ConfigError

PROXY = r"(?:https?|socks4a?|socks5h?)://[^/\s]"


def _decode_hook(kind: type, value: object) -> object:
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
    check_values(config)
    return config


def _readable(message: str) -> str:
    """What msgspec says of a value, with the key in front as it stands in the file."""
    what, _, where = message.partition(" - at `$.")
    path = where.removesuffix("`")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what):
        key = f"{path}.{unknown[1]}" if path else unknown[1]
        return f"{key}: there is no such key{_meant(key)}; config/default.toml lists all"
    if what.startswith("Invalid enum value"):
        what = f"{what.removeprefix('Invalid enum value ')} is none of {', '.join(words(path))}"
    names = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}
    for kind, name in names.items():
        what = re.sub(rf"`{kind}(?: \| null)?`", name, what)
    what = what.replace("`array`", "a list").replace("`object`", "a section")
    return f"{path}: {what[:1].lower()}{what[1:]}" if path else what


def _meant(key: str) -> str:
    """The key that is like one that there is not."""
    import difflib  # imported here, as it is seldom needed

    known = [field.name for field in msgspec.structs.fields(Config)] + list(keys())
    if close := difflib.get_close_matches(key, known, 1, 0.75):
        return f"; did you mean {close[0]}?"
    leaf = [each for each in known if each.rpartition(".")[2] == key.rpartition(".")[2]]
    return f"; did you mean {leaf[0]}?" if leaf else ""


def check_values(config: Config) -> None:
    """Raises ConfigError for a value of the right type that means nothing."""
    for name, _ in sections():
        _check_sizes(name, getattr(config, name))
    if config.fetch.proxy and not re.match(PROXY, config.fetch.proxy):
        wrong = repr(re.sub(r"//[^/@]*@", "//", config.fetch.proxy))
        raise ConfigError(
            f"configuration: fetch.proxy: {wrong} is no URL such as http://proxy:3128 or socks5://proxy:1080"
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
            raise ConfigError("configuration: override.match: missing; a host, *.domain or URL prefix")


def _check_ages(where: str, least: float, most: float) -> None:
    """Raises ConfigError if a page would have to be asked sooner than it may be."""
    if most and most < least:
        raise ConfigError(f"configuration: {where}.max_age: {most:g} s is less than min_age, {least:g} s")


def _check_arms(arms: tuple[str, ...]) -> None:
    """Raises ConfigError unless they are policies, not too many."""
    policies = get_args(RefreshPolicy)
    for text in arms:
        if text not in policies:
            raise ConfigError(f"configuration: refresh.arms: {text!r} is none of {', '.join(policies)}")
    if len(arms) > ARMS_MAX:
        raise ConfigError(f"configuration: refresh.arms: {len(arms)} arms; at most {ARMS_MAX}")


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


def _check_sizes(section: str, values: msgspec.Struct) -> None:
    """Raises ConfigError for a size under the least one its field names (msgspec checks plain numbers only)."""
    for field in msgspec.structs.fields(values):
        if get_origin(field.type) is not Annotated:
            continue
        meta = get_args(field.type)[1]
        least = (meta.extra or {}).get("least", 0)
        if least and getattr(values, field.name) < least:
            value = int(getattr(values, field.name))
            raise ConfigError(
                f"configuration: {section}.{field.name}: {value} is out of range; at least {least}"
            )
