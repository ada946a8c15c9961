"""Describes why a host or URL waits, for status, `why`, progress lines and the log of -v."""

from crawler.wording import words

# Outcomes and causes whose names need an explanation; other names are shown as they are.
_WORDS = {
    "connect_error": "connection refused or timed out",
    "certificate_expired": "its certificate has expired or is not valid yet",
    "certificate_mismatch": "its certificate is for another name",
    "certificate_untrusted": "its certificate is self-signed or of an unknown authority",
    "tls_error": "no TLS connection",
    "dns_error": "no answer from DNS",
    "dns_not_found": "the host name does not exist",
    "host_busy": "429 or 503",
    "temporary": "5xx or 408",
    "header_timeout": "no answer in time",
    "proxy_error": "the proxy does not answer or refuses (see fetch.proxy)",
    "reset": "connection closed without an answer",
    "refusals": "refused too often",
}


def describe_cause(cause: str) -> str:
    """Describe in words a cause of `HostStatus`, or an outcome."""
    return _WORDS.get(cause, words(cause))
