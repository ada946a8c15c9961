"""Test the parts of a request's URL, and that no value can break the head of a request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config import FetchConfig, IdentityConfig
from crawler.errors import ConfigError
from crawler.fetcher.fetch_request import FetchRequest, RequestWriter, Target, split
from crawler.fetcher.redaction import redacted_fields, redacted_head

URLS = [
    ("http://host.test/", Target("http", "host.test", "host.test", 80, "/")),
    ("https://host.test/a/b?c=d", Target("https", "host.test", "host.test", 443, "/a/b?c=d")),
    ("http://host.test:8080/?", Target("http", "host.test:8080", "host.test", 8080, "/?")),
    ("http://host.test?q", Target("http", "host.test", "host.test", 80, "/?q")),
    ("http://host.test", Target("http", "host.test", "host.test", 80, "/")),
    ("http://[::1]/x", Target("http", "[::1]", "::1", 80, "/x")),
    ("https://[2600::1]:8443/x:1/y", Target("https", "[2600::1]:8443", "2600::1", 8443, "/x:1/y")),
]


@pytest.mark.parametrize(("url", "target"), URLS, ids=[row[0] for row in URLS])
def test_split(url: str, target: Target) -> None:
    assert split(url) == target


def asking(**changes: object) -> RequestWriter:
    return RequestWriter(IdentityConfig(**changes), "bot/1")  # type: ignore[arg-type]


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_no_value_can_break_the_head_of_a_request(path: str, etag: str, modified: str, cookie: str) -> None:
    """Whatever values were stored or found, a head has one request line, one line per field, and no control bytes."""
    request = FetchRequest("http://host.test/" + path.replace("#", ""), etag=etag, last_modified=modified)
    lines = asking().head(request, split(request.url), cookie=cookie).split(b"\r\n")
    assert lines[0].startswith(b"GET /") and lines[0].endswith(b" HTTP/1.1") and lines[0].count(b" ") == 2
    assert len(lines) == 1 + 5 + bool(etag) + bool(modified) + bool(cookie) + 1 + 2
    assert not any(byte < 32 or byte == 127 for line in lines for byte in line)


def test_headers_of_a_request_replace_the_configured_ones() -> None:
    request = FetchRequest(
        "http://h.test/", headers=("accept-language: de", "X-A: 1"), accept="text/plain", keep_alive=1.0
    )
    head = asking(headers=("X-A: 0", "X-B: 2")).head(request, split(request.url)).decode()
    assert "accept-language: de\r\n" in head and "Accept-Language" not in head
    assert (
        "Accept: text/plain\r\n" in head
        and "X-A: 1\r\n" in head
        and "X-B: 2\r\n" in head
        and "X-A: 0" not in head
    )


@pytest.mark.parametrize("line", ["no colon", "a b: c", ": x", "A: b\r\nC: d", "A: \0"])
def test_bad_configured_headers_are_refused(line: str) -> None:
    with pytest.raises(ConfigError):
        asking(headers=(line,))


def test_limits_of_a_request() -> None:
    default = FetchConfig()
    assert FetchRequest("http://h.test/").limits(default) is default
    own = FetchRequest("http://h.test/", body_bytes_max=7, total_timeout=3.0).limits(default)
    assert (own.body_bytes_max, own.total_timeout, own.wire_bytes_max) == (7, 3.0, default.wire_bytes_max)


def test_credentials_are_sent_only_on_request_and_never_shown() -> None:
    headers = ("Authorization: Basic x", "X-Api-Key: k", "cookie: a=b", "X-Study: 7")
    asking = RequestWriter(IdentityConfig(headers=headers), "agent")
    target = split("http://h.test/")
    plain, trusted = FetchRequest("http://h.test/"), FetchRequest("http://h.test/", credentials=True)
    assert not asking.is_secret(plain) and asking.is_secret(trusted)
    assert b"X-Study: 7" in asking.head(plain, target)
    shown = redacted_head(asking.head(trusted, target))
    for secret in (b"Basic x", b"X-Api-Key: k", b"a=b"):
        assert secret not in asking.head(plain, target)
        assert secret in asking.head(trusted, target)
        assert secret not in shown
    assert b"Authorization: [redacted]" in shown and b"X-Study: 7" in shown
    own = FetchRequest("http://h.test/", headers=("X-Auth-Token: t", "Accept-Language: de"))
    assert asking.is_secret(own)
    assert b"X-Auth-Token: t\r\n" in asking.head(own, target)
    shown = redacted_head(asking.head(own, target))
    assert b"X-Auth-Token: [redacted]\r\n" in shown and b"Accept-Language: de" in shown


def test_cookies_that_a_server_sets_keep_their_names() -> None:
    fields = ((b"X", b"a=b"), (b"Set-COOKIE", b"sid=s3cr3t; Path=/"), (b"set-cookie", b"bare"))
    kept = ((b"X", b"a=b"), (b"Set-COOKIE", b"sid=[redacted]"), (b"set-cookie", b"bare=[redacted]"))
    assert redacted_fields(fields) == kept


@pytest.mark.parametrize("name", ["Cookie", "cookie", "Authorization", "PROXY-AUTHORIZATION", "X-Api-Key"])
def test_redaction_changes_only_the_secrets_of_a_head(name: str) -> None:
    lines = ["GET /a:b?cookie: c HTTP/1.1", "Host: h.test", f"{name}: s3cr3t: x", "Accept: */*", "", ""]
    shown = redacted_head("\r\n".join(lines).encode())
    lines[2] = f"{name}: [redacted]"
    assert shown == "\r\n".join(lines).encode()
    assert redacted_head(shown) == shown
