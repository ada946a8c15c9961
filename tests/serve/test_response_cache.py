"""Test the response cache: its size limit, and which answers it keeps when it is full."""

import random

from crawler.serve.interfaces import Located
from crawler.serve.representation import Representation
from crawler.serve.response_cache import CachedResponse, ResponseCache

UNIT = 200  # bytes, the unit of the sizes below
BOUND = 1000 * UNIT
EMPTY = Representation(200, "", "", 0, lambda: iter(()), BOUND).size


def answer(key: int, size: int = 100, proof: bytes = b"1") -> CachedResponse:
    ready = Representation(200, "", "", 0, lambda: iter(()), BOUND, body=bytes(UNIT * size - EMPTY))
    return CachedResponse(key, Located(key, None), 0, proof, None, 1.0, ready)


def ask(cache: ResponseCache, key: int, size: int = 100) -> bool:
    """Look up an answer as the server does, and add it if it is missing. Return whether it was in the cache."""
    if (shown := cache.find(key)) is not None:
        cache.use(shown)
        assert cache.find_by_request(f"GET {key}") in (shown, None)
        cache.remember_request(f"{'GET' if key % 3 else 'get'} {key}", shown)
        return True
    cache.put(answer(key, size))
    cache._check()
    return False


def test_a_client_that_requests_everything_once_replaces_nothing() -> None:
    cache = ResponseCache(BOUND)
    for key in range(10):
        ask(cache, key)
    for key in range(100, 50_000):
        assert not ask(cache, key)
    assert all(ask(cache, key) for key in range(10))


def test_a_full_cache_keeps_what_is_requested_again() -> None:
    """The least recently used answer is removed."""
    cache = ResponseCache(BOUND)
    for key in range(10):
        ask(cache, key)
    assert [ask(cache, 50) for _ in range(3)] == [False, False, True]
    assert not ask(cache, 0) and ask(cache, 1)


def test_a_newer_answer_replaces_the_older_one() -> None:
    cache = ResponseCache(BOUND)
    for key in range(10):
        ask(cache, key)
    cache.put(answer(3, proof=b"2"))
    cache._check()
    assert cache.find(3).proof == b"2"


def test_the_size_of_the_cache_is_bounded() -> None:
    rng = random.Random(5)
    cache = ResponseCache(BOUND)
    for _ in range(5000):
        ask(cache, rng.randrange(40), rng.choice([20, 100, 125, 126, 2000]))
    assert 0 < cache.bytes <= BOUND


def test_prepared_answers_are_dropped_one_at_a_time() -> None:
    """Answers that clients have requested stay, also those that were prepared first."""
    cache = ResponseCache(BOUND)
    ask(cache, 0)
    for key in range(1, 6):
        cache.prepare(answer(key))
        cache._check()
    ask(cache, 3)
    for left, _ in enumerate(cache.dropping_prepared(), start=1):
        cache._check()
        assert len(cache) == 6 - left
    assert {key for key in range(6) if cache.find(key)} == {0, 3}
