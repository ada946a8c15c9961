"""Test which values in the body of a request are recorded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.fetcher.redaction import redacted_body, redacted_request

FORM, JSON = "application/x-www-form-urlencoded", "application/json"
PARTS = "multipart/form-data; boundary=X"


@pytest.mark.parametrize(
    ("content_type", "body", "recorded"),
    [
        (FORM, b"q=green+tea&page=2", b"q=green+tea&page=2"),
        (FORM, b"user=me&password=pw", b"user=me&password=%5Bredacted%5D"),
        (FORM, b"user[Password]=pw&x", b"user[Password]=%5Bredacted%5D&x"),
        (FORM, b"csrf_token=1&api-key=2&pin=3&pwd=4&new_passwd2=5",
         b"csrf_token=%5Bredacted%5D&api-key=%5Bredacted%5D&pin=%5Bredacted%5D&pwd=%5Bredacted%5D"
         b"&new_passwd2=%5Bredacted%5D"),
        (FORM, b"pass%77ord=pw", b"pass%77ord=%5Bredacted%5D"),
        (FORM, b"geheim=pw", b"geheim=%5Bredacted%5D"),  # this field is named in `secrets`
        (FORM, b"compass=n&pinned=1&keyword=tea&passenger=2", b"compass=n&pinned=1&keyword=tea&passenger=2"),
        (JSON, b'{"a":  1}', b'{"a":  1}'),
        (JSON, b'{"in": [{"user": "me", "secret": {"x": 1}}]}', b'{"in": [{"user": "me", "secret": "[redacted]"}]}'),
        (JSON, b"{broken", b"{broken"),
        (PARTS, b'--X\r\nContent-Disposition: form-data; name="token"\r\n\r\n1', b"[redacted]"),
        (PARTS, b'--X\r\nContent-Disposition: form-data; name="a"\r\n\r\n1',
         b'--X\r\nContent-Disposition: form-data; name="a"\r\n\r\n1'),
        ("application/octet-stream", b"password=pw", b"password=pw"),
    ],
)  # fmt: skip
def test_values_of_secret_fields_are_not_recorded(content_type: str, body: bytes, recorded: bytes) -> None:
    assert redacted_body(body, content_type, ("geheim",)) == recorded


def test_the_length_is_that_of_the_recorded_body() -> None:
    head = b"POST / HTTP/1.1\r\ncontent-type: %b\r\nContent-Length: 13\r\n\r\n" % FORM.encode()
    shown, body = redacted_request(head, b"password=1234", ())
    assert (b"Content-Length: %d\r\n" % len(body)) in shown and body == b"password=%5Bredacted%5D"
    assert redacted_request(head, b"q=tea", ()) == (head, b"q=tea")


@given(st.binary(max_size=100), st.sampled_from([FORM, JSON, "text/plain", "multipart/x", ""]))
def test_no_body_raises(body: bytes, content_type: str) -> None:
    redacted_body(body, content_type, ())
