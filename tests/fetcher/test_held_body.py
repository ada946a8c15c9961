"""Test that a body in memory contains the bytes received, however they are split, and that no large body is copied."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from crawler.fetcher import held_body
from crawler.fetcher.held_body import HeldBody


@given(st.lists(st.one_of(st.binary(max_size=40), st.none()), max_size=30), st.integers(0, 64))
def test_a_body_has_the_bytes_received(pieces: list[bytes | None], small: int) -> None:
    """A None among the pieces means that the test reads the body received so far."""
    kept, held_body._PIECES_BYTES_MAX = held_body._PIECES_BYTES_MAX, small
    try:
        body, came = HeldBody(), b""
        for piece in pieces:
            if piece is None:
                assert body.joined() == came and body.joined() is body.joined()
            else:
                body.append(piece)
                came += piece
            assert body.size == len(came) and came.startswith(body.start)
        assert body.joined() == came
    finally:
        held_body._PIECES_BYTES_MAX = kept


def test_a_large_body_is_held_once() -> None:
    """In an earlier version, a large body took twice its size in memory while its pieces were being joined."""
    piece, number = bytes(64 << 10), 320
    tracemalloc.start()
    body = HeldBody()
    for _ in range(number):
        body.append(bytes(piece))
    assert len(body.joined()) == number * len(piece)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.3 * number * len(piece)
