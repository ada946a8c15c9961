"""Parses configuration values that have a syntax of their own.

The stages read these values with the functions of this module. When a configuration is loaded, `checks.py`
calls these functions for every key that has such a value, so all values are valid when a crawl starts. The
message of an error says which syntax is expected; the caller adds the key.
"""

import re
from collections.abc import Iterable

from crawler.errors import ConfigError

Address = tuple[str, int]

_PRODUCT = re.compile(r"[A-Za-z_-]+")
_FIELD_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HTTPS_ORIGIN = re.compile(r"https://(?:[0-9a-z.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?/?")
_HOST = re.compile(r"[^\s/@\[\]]+")
_PROCESS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_FILE_NAME_PART = re.compile(r"[A-Za-z0-9._-]{1,100}")
_LISTEN = re.compile(r"\[?([0-9A-Za-z.:_-]*)\]?:([0-9]{1,5})")


def product_token(text: str) -> str:
    """Return `text` if it is a product token that robots.txt can name (RFC 9309, section 2.2.1).

    Raises:
        ConfigError: `text` is not valid.
    """
    if not _PRODUCT.fullmatch(text):
        raise ConfigError(f"{text!r}: only letters, - and _ are allowed (RFC 9309, 2.2.1)")
    return text


def header_field(line: str) -> tuple[str, str]:
    """Return (name, value) of a header field given as "Name: value".

    Raises:
        ConfigError: the name is invalid, or the value would end the field. The message never shows the value,
            which may be secret.
    """
    name, colon, value = line.partition(":")
    value = value.strip(" \t")
    if not colon or not _FIELD_NAME.fullmatch(name):
        raise ConfigError(f'{re.split("[: =]", line, maxsplit=1)[0]!r}: expected "Name: value"')
    if any(byte in value for byte in "\r\n\0"):
        raise ConfigError(f"{name!r}: its value contains a line break or a zero byte")
    return name, value


def host_port(text: str) -> Address:
    """Return (host, port) of a text "host:port" or "[address]:port".

    Raises:
        ConfigError: `text` has neither form.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"expected host:port, got {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def http_origin(host: str, port: int) -> str:
    """Return the origin of a listener for use in links. An IPv6 address is put in brackets (RFC 3986, 3.2.2)."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listen_at(text: str) -> Address:
    """Return (host, port) of an address such as "127.0.0.1:8080". A port alone means a port on the loopback address.

    Raises:
        ConfigError: `text` is not ADDRESS:PORT.
    """
    match = _LISTEN.fullmatch(text if ":" in text else f"127.0.0.1:{text}")
    if match is None or int(match[2]) > 65_535 or not match[1]:
        raise ConfigError(f"{text!r} is not ADDRESS:PORT such as 127.0.0.1:8080")
    return match[1], int(match[2])


def https_origin(text: str) -> str:
    """Return `text` if it is an https origin (RFC 6454, 6.2), such as https://bot.example.org. It may end in a slash.

    Raises:
        ConfigError: `text` is not valid.
    """
    if not _HTTPS_ORIGIN.fullmatch(text):
        raise ConfigError(f"{text!r} is not an https origin such as https://bot.example.org")
    return text


def process_name(text: str) -> str:
    """Return `text` if it is a valid process name. Process names are parts of store keys and of messages.

    Raises:
        ConfigError: `text` is not valid.
    """
    if not _PROCESS_NAME.fullmatch(text):
        raise ConfigError(f"{text!r} is not a process name (letters, digits, '.', '_', '-'; at most 63)")
    return text


def named_addresses(entries: Iterable[str]) -> dict[str, Address]:
    """Return a mapping from the name to the address of each entry "name=host:port".

    Raises:
        ConfigError: an entry does not have this form, a name occurs twice, or an address has no host.
    """
    found: dict[str, Address] = {}
    for text in entries:
        name, equals, address = text.partition("=")
        if not equals or process_name(name) in found:
            raise ConfigError(f"expected name=host:port entries with different names, got {text!r}")
        found[name] = host_port(address)
        if not _HOST.fullmatch(found[name][0]):
            raise ConfigError(f"expected name=host:port, got {text!r}")
    return found


def file_name_part(text: str) -> str:
    """Return `text` if it can be part of a file name.

    Raises:
        ConfigError: `text` contains characters that are not allowed in a file name.
    """
    if not _FILE_NAME_PART.fullmatch(text):
        raise ConfigError(f"{text!r} cannot be part of a file name; use letters, digits, . _ -")
    return text
