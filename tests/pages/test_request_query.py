"""Test that the queries for requests are the same as those of pywb 2.10 (`MethodQueryCanonicalizer`)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.pages.request_query import QUERY_CHARS_MAX, parts_of, query_of_request, request_query

FORM, JSON = "application/x-www-form-urlencoded", "application/json"
PARTS = b'--X\r\nContent-Disposition: form-data; name="a"\r\n\r\nb c\r\n--X--\r\n'


@pytest.mark.parametrize(
    ("method", "content_type", "body", "query"),
    [
        ("GET", "", b"", ""),
        ("POST", FORM, b"", "__wb_method=POST"),
        ("POST", FORM, b"foo=bar&dir=%2Fbaz&do=true", "__wb_method=POST&foo=bar&dir=/baz&do=true"),
        ("PUT", FORM, b"q=green+tea", "__wb_method=PUT&q=green tea"),
        ("PATCH", FORM, b"q=tea", "__wb_method=PATCH"),
        ("DELETE", "", b"", "__wb_method=DELETE"),
        ("POST", FORM, b"a=\xff", "__wb_method=POST&__wb_post_data=YT3/"),
        ("POST", JSON, b'{"a": "b", "c": {"a": 2, "d": "e"}, "f": true, "g": [false, null]}',
         "__wb_method=POST&a=b&a.2_=2&d=e&f=true&g=false&g.2_=null"),
        ("POST", JSON + "; charset=utf-8", b'{"n": [35.7, 4.0]}', "__wb_method=POST&n=35.7&n.2_=4"),
        ("POST", JSON, b"{not json", "__wb_method=POST"),
        ("POST", "text/plain", b'{"a": 1}', "__wb_method=POST&a=1"),
        ("POST", "text/plain", b"tea", "__wb_method=POST&__wb_post_data=dGVh"),
        ("POST", "", b"tea", "__wb_method=POST&__wb_post_data=dGVh"),
        ("POST", "multipart/form-data; boundary=X", PARTS, "__wb_method=POST&a=b+c"),
        ("POST", "multipart/form-data", b"abc", "__wb_method=POST&__wb_post_data=YWJj"),
    ],
)  # fmt: skip
def test_queries_are_those_of_pywb(method: str, content_type: str, body: bytes, query: str) -> None:
    assert request_query(method, content_type, body) == query
    head = f"{method} /x HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\n\r\n".encode()
    assert query_of_request(head + body) == query


@given(
    st.sampled_from(["POST", "PUT", "PATCH"]),
    st.sampled_from(["", FORM, JSON, "text/plain", "multipart/form-data; boundary=X", "multipart/x"]),
    st.binary(max_size=200) | st.just(b"[" * 100_000) | st.just(b"a=" + b"x" * 9000),
)
def test_any_body_has_a_query_of_bounded_length(method: str, content_type: str, body: bytes) -> None:
    query = request_query(method, content_type, body)
    assert len(query) <= len(f"__wb_method={method}&") + QUERY_CHARS_MAX
    assert parts_of(query)[0] == method


def test_a_plain_get_has_no_query() -> None:
    assert query_of_request(b"") == query_of_request(b"GET / HTTP/1.1\r\n\r\n") == ""
