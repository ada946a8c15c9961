"""SURT prefixes, as in Heritrix. A SURT is a URL with its host name reversed; its prefixes select parts of the web.

    http://(org,example,)/docs/     below /docs/ of example.org
    http://(org,example,            example.org and all hosts below it
    http://(org,                    all of .org

The scheme is ignored: https is written as http. A reversed host name ends with a comma; IP addresses are not
reversed. SURTs in the form of CDX files, `org,example)/docs`, are also accepted. Some CDX files contain
reversed IP addresses, which are accepted, too: `1,0,0,127)/docs`.
"""

import re

from crawler.urls.canonical import canonical, hostname

_LOOSE = re.compile(r"(?:(?:https?://)?\()?([^()/]*)(\)?)(.*)", re.IGNORECASE | re.DOTALL)
_LABEL = r"[a-z0-9_-]"
_ADDRESS = r"[0-9.]+|\[[0-9a-f:.]*\]"
# a prefix that ends within the host name, within an address, or within the port
_UNCLOSED = re.compile(
    rf"http://\((?:(?:{_LABEL}+,)*(?:{_LABEL}*|:[0-9]*)|(?:{_ADDRESS}):?[0-9]*|\[[0-9a-f:.]*)", re.ASCII
)
# a prefix with a whole host name or a whole address, a port and a path
_CLOSED = re.compile(rf"http://\((?:((?:[^,()]+,)+)|({_ADDRESS}))(:[0-9]+)?\)(/.*)?", re.ASCII | re.DOTALL)
_TURNED_ADDRESS = re.compile(r"(?:\d{1,3},){3}\d{1,3},?", re.ASCII)


def surt_of(url: str) -> str:
    """Return the SURT of a canonical URL.

    >>> surt_of("https://www.example.org:8080/a?b")
    'http://(org,example,www,:8080)/a?b'
    """
    name = hostname(url)
    rest = url.partition("://")[2]
    authority, slash, path = rest.partition("/")
    port = authority[len(name) :]
    return f"http://({_turned(name)}{port}){slash}{path}"


def _turned(name: str) -> str:
    if name.endswith("]") or name.rpartition(".")[2].isdigit():
        return name
    return ",".join(reversed(name.split("."))) + ","


def surt_prefix(text: str) -> str:
    """Return a SURT prefix in the form that `surt_of` produces, or "" if the text is not a SURT prefix.

    A text that is a prefix of the SURT of no URL is not a SURT prefix. In `http://(example.org)/`, for example, the
    host name is not reversed.

    >>> surt_prefix("org,example)/docs"), surt_prefix("https://(org,example,")
    ('http://(org,example,)/docs', 'http://(org,example,')
    """
    found = _LOOSE.fullmatch(text.strip())
    if found is None or not found[1] or " " in text.strip():
        return ""
    names, closed, path = found[1].lower(), found[2], found[3]
    opened = text.lstrip().lower().startswith(("http://(", "https://(", "("))
    if not (closed or opened) or (path and not (closed and path.startswith("/"))):
        return ""
    host, colon, port = names.partition(":")
    if _TURNED_ADDRESS.fullmatch(host):
        host = ".".join(reversed(host.rstrip(",").split(",")))
    elif closed and not host.endswith(",") and "," in host:
        host += ","
    prefix = f"http://({host}{colon}{port}{closed}{path}"
    return prefix if _begins_surt(prefix) else ""


def _begins_surt(prefix: str) -> bool:
    """Return whether the SURT of a URL begins with `prefix`."""
    if ")" not in prefix:
        return _UNCLOSED.fullmatch(prefix) is not None
    if (found := _CLOSED.fullmatch(prefix)) is None:
        return False
    host = found[2] or ".".join(reversed(found[1][:-1].split(",")))
    place = f"{host}{found[3] or ''}{found[4] or '/'}"
    return begins_url(f"http://{place}") or begins_url(f"https://{place}")


def begins_url(prefix: str, *, is_exact: bool = False) -> bool:
    """Return whether a canonical URL begins with `prefix`, or, if `is_exact`, is equal to it.

    The prefix contains the slash after the host. A canonical URL may begin with a prefix that is not canonical: the
    canonical form of `http://a.org/b/.` is `http://a.org/b/`, but `http://a.org/b/.c` is canonical.
    """
    longer = f"{prefix}x"
    return canonical(prefix) == prefix or (not is_exact and canonical(longer) == longer)
