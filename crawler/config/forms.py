"""Parses configuration values that have a syntax of their own.

The stages read these values with the functions of this module. When a configuration is loaded, `checks.py`
calls these functions for every key that has such a value, so all values are valid when a crawl starts. Each
function raises ConfigError for a text of another form. The message of the error says which syntax is expected;
the caller adds the key.
"""

import re
from collections.abc import Callable, Iterable
from urllib.parse import SplitResult, urlsplit

from crawler.config.units import shown
from crawler.errors import ConfigError, UsageError
from crawler.user_patterns import compiled
from crawler.wording import not_one_of

Address = tuple[str, int]

# The uses of a page that a site can allow or refuse (`consent/README.md`), by their names in settings and messages.
USE_NAMES = {"search": "search", "ai-input": "ai_input", "train-ai": "train_ai", "tdm": "tdm"}
_PROXY = re.compile(r"(?:https?|socks4a?|socks5h?)://[^/\s]")
_FIELD_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HOST = re.compile(r"[^\s/@\[\]]+")
_LISTEN = re.compile(r"\[?([0-9A-Za-z.:_-]*)\]?:([0-9]{1,5})")


def _matching(pattern: str, wrong: str) -> Callable[[str], str]:
    """Return a function that returns a text that matches `pattern`, and says of any other text that it is `wrong`."""
    form = re.compile(pattern)

    def read(text: str) -> str:
        if not form.fullmatch(text):
            raise ConfigError(f"{shown(text)}{wrong}")
        return text

    return read


# a product token that robots.txt can name
product_token = _matching(r"[A-Za-z_-]+", ": only letters, - and _ are allowed (RFC 9309, 2.2.1)")
# an https origin (RFC 6454, 6.2), which may end in a slash
https_origin = _matching(
    r"https://(?:[0-9a-z.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?/?",
    " is not an https origin such as https://bot.example.org",
)
# the name of a process, which is a part of store keys and of messages
process_name = _matching(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", " is not a process name (letters, digits, '.', '_', '-'; at most 63)"
)
file_name_part = _matching(
    r"[A-Za-z0-9._-]{1,100}", " cannot be part of a file name; use letters, digits, . _ -"
)


def header_field(line: str) -> tuple[str, str]:
    """Return (name, value) of a header field given as "Name: value".

    The value must not end the field. The message of an error never shows the value, which may be secret.
    """
    name, colon, value = line.partition(":")
    value = value.strip(" \t")
    if not colon or not _FIELD_NAME.fullmatch(name):
        raise ConfigError(f'{shown(re.split("[: =]", line, maxsplit=1)[0])}: expected "Name: value"')
    if not _may_be_sent(value):
        raise ConfigError(f"{shown(name)}: its value contains a line break or a zero byte")
    return name, value


def field_value(text: str) -> None:
    """Check that a text can be the value of a header field, or a part of one."""
    if not _may_be_sent(text):
        raise ConfigError("contains a line break or a zero byte")


def _may_be_sent(value: str) -> bool:
    return not any(byte in value for byte in "\r\n\0")


def use_of(text: str) -> str:
    """Return the use that a name such as "train-ai" stands for. Case does not matter, and `_` is the same as `-`."""
    use = USE_NAMES.get(text.strip().lower().replace("_", "-"))
    if use is None:
        raise ConfigError(not_one_of(shown(text), USE_NAMES))
    return use


def host_port(text: str) -> Address:
    """Return (host, port) of a text "host:port" or "[address]:port"."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"expected host:port, got {shown(text)}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def http_origin(host: str, port: int) -> str:
    """Return the origin `http://HOST:PORT`. An IPv6 address is put in brackets (RFC 3986, 3.2.2)."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listen_at(text: str) -> Address:
    """Return (host, port) of an address such as "127.0.0.1:8080". A port alone means a port on the loopback address."""
    match = _LISTEN.fullmatch(text if ":" in text else f"127.0.0.1:{text}")
    if match is None or int(match[2]) > 65_535 or not match[1]:
        raise ConfigError(f"{shown(text)} is not ADDRESS:PORT such as 127.0.0.1:8080")
    return match[1], int(match[2])


def named_addresses(entries: Iterable[str]) -> dict[str, Address]:
    """Return a mapping from the name to the address of each entry "name=host:port". Each name occurs once."""
    found: dict[str, Address] = {}
    for text in entries:
        name, equals, address = text.partition("=")
        if not equals or process_name(name) in found:
            raise ConfigError(f"expected name=host:port entries with different names, got {shown(text)}")
        found[name] = host_port(address)
        if not _HOST.fullmatch(found[name][0]):
            raise ConfigError(f"expected name=host:port, got {shown(text)}")
    return found


def proxy_url(text: str) -> tuple[SplitResult, Address]:
    """Return the parts of the URL of a proxy, and the proxy's (host, port). The default port is that of the scheme.

    The message of an error does not show the user and password of the URL.
    """
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:  # the port is not a number up to 65535, or a bracket is missing
        host = ""
    if not host or not _PROXY.match(text):
        without_login = shown(re.sub(r"//.*@", "//", text))
        raise ConfigError(f"{without_login} is not a URL such as http://proxy:3128 or socks5://proxy:1080")
    return parts, (host, port or (443 if parts.scheme == "https" else 80))


def name_server(text: str) -> None:
    """Check that a text is an IP address, with or without a port."""
    import ipaddress  # imported here because it is rarely needed

    bracketed = re.fullmatch(r"\[(.+)\](?::(\d+))?", text) or re.fullmatch(r"([^:]+):(\d+)", text)
    address, port = bracketed.groups() if bracketed else (text, None)
    try:
        ipaddress.ip_address(address)
        if int(port or "53") not in range(1, 65536):
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"{shown(text)} is not an IP address, with or without a port (9.9.9.9:53)"
        ) from None


def ip_network(text: str) -> None:
    """Check that a text is an IP network."""
    import ipaddress  # imported here because it is rarely needed

    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ConfigError(f"{shown(text)} is not an IP network such as 10.0.0.0/8") from None


def regular_expression(text: str) -> None:
    """Check that a text is a regular expression."""
    compiled(text)


def ignored_pattern(text: str) -> None:
    """Check that a text, encoded in UTF-8, is a regular expression for bytes."""
    compiled(text.encode("utf-8"))


def seed_url(text: str) -> None:
    """Check that a text is an http(s) URL without a login."""
    from crawler.urls.typed_url import (
        LOGIN_REFUSED,
        crawled,
        split_login,
    )  # imported here because it loads slowly

    plain, login = split_login(text)
    if login:
        raise ConfigError(f"{shown(plain)}: {LOGIN_REFUSED}")
    try:
        crawled(text)
    except UsageError as error:
        raise ConfigError(str(error)) from None


def scope_prefix(text: str) -> None:
    """Check that a text is a SURT prefix."""
    from crawler.urls.surt_prefix import surt_prefix  # imported here because it loads slowly

    if not surt_prefix(text):
        raise ConfigError(f"{shown(text)} is not a SURT prefix such as http://(org,example,)/docs/")


def override_match(text: str) -> None:
    """Check that the `match` of an override table can match a URL."""
    from crawler.config.overrides import check_match  # imported here because it loads slowly

    check_match(text)


def feed_and_hub(text: str) -> None:
    """Check that a text contains the http(s) URL of a feed and that of its hub."""
    from crawler.urls.canonical import canonical  # imported here because it loads slowly

    urls = [canonical(each) for each in text.split()]
    if len(urls) != 2 or None in urls:
        raise ConfigError(f"{shown(text)}: expected the URL of a feed and the URL of its hub")
