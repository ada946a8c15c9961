"""Words for people: a number with its noun in singular or plural, a state, an outcome of a fetch.

`several(1, "page", "have")` is "1 page has", and `several(2, "page", "have")` is "2 pages have".
"""

import re
from collections.abc import Iterable, Mapping

# Outcomes of fetches, and causes of waits, whose names need an explanation; other names are shown as words.
_OUTCOMES = {
    "bad_redirect": "redirects badly",
    "license_required": "demands a licence",
    "client_error": "request refused",
    "temporary": "server error",
    "host_busy": "server busy",
    "truncated": "answer cut short",
    "header_timeout": "no answer in time",
    "dns_error": "no answer from DNS",
    "dns_not_found": "the host name does not exist",
    "connect_error": "connection refused or timed out",
    "certificate_expired": "its certificate has expired or is not valid yet",
    "certificate_mismatch": "its certificate is for another name",
    "certificate_untrusted": "its certificate is self-signed or of an unknown authority",
    "tls_error": "no TLS connection",
    "reset": "connection closed without an answer",
    "proxy_error": "the proxy does not answer or refuses (see fetch.proxy)",
    "refusals": "refused too often",
}
_SINGULAR_VERBS = {"are": "is", "have": "has", "were": "was"}
_PLURALS = {"copy": "copies", "process": "processes", "refresh": "refreshes", "try": "tries"}


# Why a URL is parked, by the rule that parked it
PARKED_BY = {
    "depth": "it is deeper than crawl.depth allows",
    "pages_per_host": "its host has reached crawl.pages_per_host",
    "pages_per_domain": "its domain has reached crawl.pages_per_domain",
    "hosts_per_domain": "its domain has reached crawl.hosts_per_domain",
    "maps_per_host": "its host has reached sitemaps.maps_per_host_max",
}


def several(count: int, noun: str, verb: str = "") -> str:
    """Return a number, the noun and, if given, a verb that agrees with the number.

    Args:
        count: the number. It is written with commas between the thousands.
        noun: the noun in singular, which may follow adjectives.
        verb: the verb in plural.
    """
    if count == 1:
        verb = _SINGULAR_VERBS.get(verb, verb and f"{verb}s")
    else:
        rest, blank, last = noun.rpartition(" ")
        noun = f"{rest}{blank}{_PLURALS.get(last, f'{last}s')}"
    return f"{count:,} {noun}{' ' * bool(verb)}{verb}"


def not_one_of(given: str, choices: Iterable[str], further: str = "") -> str:
    """Describe a value that is not one of the allowed names: `'x' is not one of a, b`. `further` ends the list.

    `given` is the value as the message shows it.
    """
    return f"{given} is not one of {', '.join(choices)}{further}"


_KINDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_OTHER_KIND = re.compile(r"Expected `(\w+)(?: \| null)?`, got `(\w+)`")


def wrong_field(message: str) -> str:
    """Rewrite the message of a `msgspec.ValidationError` about a request. The result begins with the field, if any.

    >>> wrong_field("Expected `str`, got `int` - at `$.urls[0]`")
    'urls[0]: expected text, got a whole number'
    >>> wrong_field("Object contains unknown field `prefx`")
    "there is no field 'prefx'"
    """
    what, _, where = message.partition(" - at `$")
    if named := re.fullmatch(r"Object (contains unknown|missing required) field `(.*)`", what):
        what = f"there is no field {named[2]!r}" if named[1].endswith("unknown") else f"{named[2]} is missing"
    elif kinds := _OTHER_KIND.fullmatch(what):
        expected, got = (_KINDS.get(kind, kind) for kind in kinds.groups())
        what = f"expected {expected}, got {got}"
    field = where.removesuffix("`").removeprefix(".")
    return f"{field}: {what}" if field else what


def to_install(extra: str) -> str:
    """Say how an extra of the package, such as `lab`, is installed."""
    return f"install the extra {extra} (scripts/setup {extra}, or pip install 'crawler[{extra}]')"


def words(name: str) -> str:
    """Return the name of a state or a counter as words: `in_flight` becomes "in flight"."""
    return name.replace("_", " ")


def describe_outcome(outcome: str) -> str:
    """Describe in words an outcome of a fetch (`records.Outcome`), or a cause of `HostStatus`."""
    return _OUTCOMES.get(outcome, words(outcome))


def count_outcomes(counts: Mapping[str, int]) -> str:
    """Return how often each outcome occurred, as in "gone 1, server error 3"; "" if there was none."""
    return ", ".join(f"{describe_outcome(name)} {n:,}" for name, n in counts.items() if n)
