"""What may be shown and kept of a request and its answer: names of credentials, never their values.

All records, logs and exports draw from `Fetch.request_head` and `Fetch.headers`, so the
client redacts there and nowhere else, whether a value was configured, came from a
cookie jar or was set by a server.
"""

from crawler.config.credentials import REDACTED, redacted_headers

Fields = tuple[tuple[bytes, bytes], ...]


def redacted_head(head: bytes) -> bytes:
    """A request head with `[redacted]` for the value of each field that lets its bearer in somewhere."""
    first, *lines = head.decode("latin-1").split("\r\n")
    return "\r\n".join((first, *redacted_headers(lines))).encode("latin-1")


def redacted_fields(fields: Fields) -> Fields:
    """Fields of an answer with the names of the cookies that it sets, without their values."""
    return tuple(
        (name, value.partition(b"=")[0] + b"=" + REDACTED.encode())
        if name.lower() == b"set-cookie"
        else (name, value)
        for name, value in fields
    )
