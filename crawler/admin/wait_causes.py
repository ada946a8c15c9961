"""The words for why a host or URL waits, in status, `why`, progress and the log of -v."""

# Outcomes and causes whose names do not say it; of any other its name does.
_WORDS = {
    "connect_error": "connection refused or timed out",
    "tls_error": "no TLS connection",
    "dns_error": "no answer from DNS",
    "dns_not_found": "dns not found",
    "host_busy": "429 or 503",
    "temporary": "5xx or 408",
    "header_timeout": "no answer in time",
    "proxy_error": "the proxy does not answer or refuses (see --proxy)",
    "reset": "connection closed without an answer",
    "refusals": "refused too often",
}


def describe_cause(cause: str) -> str:
    """A cause of `HostStatus`, or an outcome; "" stays so."""
    return _WORDS.get(cause, cause.replace("_", " "))
