"""Test the CLOCK cache, compiled and interpreted, against a model and the properties that any cache must have."""

import random
import sys
import threading

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from crawler.bench.cache import DictClock
from crawler.bench.streams import crawl_links
from crawler.urls.fingerprint import cache_keys
from tests.forms import installed, interpreted

INSTALLED = installed("crawler.urls.clock_cache")
INTERPRETED = interpreted("crawler.urls.clock_cache")
FORMS = {"installed": INSTALLED.ClockCache, "interpreted": INTERPRETED.ClockCache}

form = pytest.fixture(params=list(FORMS.values()), ids=list(FORMS))(lambda request: request.param)

LAST = 2**64 - 1


def key(home: int, short: int, bits: int) -> int:
    """Return a key with this home slot; `short` is its part that the cache stores. The unused low bits are 0."""
    return home << (64 - bits) | short << 2


@st.composite
def keys_of(draw: st.DrawFn, bits: int) -> int:
    """Draw a key with few home slots and short parts, so that keys collide, or one at an end of the range."""
    if draw(st.integers(0, 15)) == 0:
        return draw(st.sampled_from([0, 3, 4, LAST, LAST - 4, 1 << 63]))
    return key(draw(st.integers(0, 2**bits - 1)), draw(st.integers(0, 3)), bits)


class Model:
    """A model of the cache without bit operations. A slot is [key, mark], and a circle is a list of slots."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.slots: list[list[int] | None] = [None] * 2**bits
        self.circles: dict[int, list[int]] = {}
        self.hand = 0

    def _home(self, key: int) -> int:
        return key >> (64 - self.bits)

    def add(self, key: int) -> bool:
        key, home = key & ~3, self._home(key)
        for slot in self.circles.get(home, []):
            if self.slots[slot][0] == key:
                self.slots[slot][1] = 1
                return False
        slot = home if self.slots[home] is None else self._room()
        if home in self.circles:
            self.circles[home].insert(1, slot)
            self.slots[slot] = [key, 0]
            return True
        if slot != home:
            circle = self.circles[self._home(self.slots[home][0])]
            circle[circle.index(home)] = slot
            self.slots[slot] = self.slots[home]
        self.circles[home], self.slots[home] = [home], [key, 0]
        return True

    def _room(self) -> int:
        if None in self.slots:
            return self.slots.index(None)
        while self.slots[self.hand][1]:
            self.slots[self.hand][1] = 0
            self.hand = (self.hand + 1) % len(self.slots)
        victim, self.hand = self.hand, (self.hand + 1) % len(self.slots)
        circle = self.circles[self._home(self.slots[victim][0])]
        if circle[0] != victim:
            circle.remove(victim)
        elif len(circle) == 1:
            del self.circles[victim]
        else:
            successor = circle.pop(1)
            self.slots[victim], victim = self.slots[successor], successor
        self.slots[victim] = None
        return victim

    def keys(self) -> list[int]:
        return [self.slots[slot][0] for home in sorted(self.circles) for slot in self.circles[home]]


class CacheMachine(RuleBasedStateMachine):
    """Compares every answer and position of the compiled cache, the interpreted cache and the model."""

    @initialize(bits=st.integers(1, 4))
    def make(self, bits: int) -> None:
        self.bits = bits
        self.size = 2**bits
        self.caches = [cache(bits) for cache in FORMS.values()]
        self.model = Model(bits)
        self.asked: set[int] = set()
        self.last: int | None = None

    def _expect(self, asked: int, was_new: bool) -> None:
        """Check an answer against the model and against the properties that any cache must have."""
        assert was_new == self.model.add(asked)
        asked &= ~3
        if asked not in self.asked:
            assert was_new, "a hit on a key that was never added"
        elif len(self.asked) <= self.size or asked == self.last:
            assert not was_new, "a key was evicted that must be held"
        self.asked.add(asked)
        self.last = asked

    @rule(data=st.data())
    def add(self, data: st.DataObject) -> None:
        asked = data.draw(keys_of(self.bits))
        answers = {cache.add(asked) for cache in self.caches}
        assert len(answers) == 1
        self._expect(asked, answers.pop())

    @rule(data=st.data())
    def add_many(self, data: st.DataObject) -> None:
        asked = data.draw(st.lists(keys_of(self.bits), max_size=40))
        first, second = (cache.add_many(np.array(asked, np.uint64)) for cache in self.caches)
        assert first == second and len(first) == len(asked)
        for one, was_new in zip(asked, first, strict=True):
            self._expect(one, bool(was_new))

    @rule(data=st.data())
    def contains(self, data: st.DataObject) -> None:
        asked = data.draw(keys_of(self.bits))
        before = [repr(cache) for cache in self.caches]
        for cache in self.caches:
            held = cache.keys()
            assert (asked in cache) == (asked & ~3 in held)
        assert before == [repr(cache) for cache in self.caches]

    @rule(chance=st.integers(0, 9))
    def clear(self, chance: int) -> None:
        if chance == 0:
            for cache in self.caches:
                cache.clear()
            self.asked.clear()
            self.model = Model(self.bits)
            self.last = None

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "caches"):
            return
        first, second = self.caches
        first._check()
        second._check()
        assert first.keys() == second.keys() == self.model.keys()
        assert repr(first) == repr(second)
        assert set(first.keys()) <= self.asked
        assert len(first) == min(self.size, len(self.asked))


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=40, stateful_step_count=30)


def test_the_example_of_the_docstring(form: type) -> None:
    """E and C have home 2, and B has home 5. So E is in slot 2, B is in slot 5, and C is in the lowest free slot."""
    cache = form(3)
    e, b, c = key(2, 7, 3), key(5, 1, 3), key(2, 9, 3)
    assert [cache.add(one) for one in (e, b, c, e)] == [True, True, True, False]
    assert cache.keys() == [e, c, b]
    assert (cache.hits, cache.misses, len(cache)) == (1, 3, 3)
    cache._check()


def test_clock_evicts_the_first_unmarked_key_before_the_hand(form: type) -> None:
    """Of the keys a to d in slots 0 to 3, a and c are marked: the hand passes a, evicts b, passes c, evicts d."""
    a, b, c, d = (key(home, 1, 2) for home in range(4))
    e, f = key(1, 2, 2), key(3, 2, 2)
    cache = form(2)
    for one in (a, b, c, d, a, c):
        cache.add(one)
    cache.add(e)
    assert set(cache.keys()) == {a, c, d, e}
    cache.add(f)
    assert set(cache.keys()) == {a, c, e, f}, "c was marked, so d had to go"
    cache._check()


def test_a_new_key_is_unmarked(form: type) -> None:
    """Only a hit marks a key (section 3.4 of the paper). So of two keys in a full cache, the one with a hit stays."""
    cache = form(1)
    a, b, c = key(0, 1, 1), key(1, 1, 1), key(0, 2, 1)
    for one in (a, b, b, c):
        cache.add(one)
    assert set(cache.keys()) == {b, c}


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize(
    "homes",
    [lambda n, size: 0, lambda n, size: n % 2 * (size - 1), lambda n, size: n % size],
    ids=["one home", "two homes", "all homes"],
)
def test_hostile_keys(form: type, bits: int, homes) -> None:
    """k + 1 keys in rotation from a cache of k keys. With one home slot, one circle contains all keys."""
    size = 2**bits
    asked = [key(homes(n, size), n, bits) for n in range(size + 1)] * 3
    cache = form(bits)
    for number, one in enumerate(asked):
        cache.add(one)
        if size <= 16 or number % 97 == 0:
            cache._check()
    cache._check()
    assert len(cache) == size and asked[-1] in cache


def test_the_ends_of_the_range(form: type) -> None:
    for bits in (1, 2, 12):
        cache = form(bits)
        assert cache.add(0) and cache.add(LAST)
        assert not cache.add(0) and not cache.add(LAST)
        assert not cache.add(3), "the two lowest bits are not used"
        assert cache.keys() == [0, LAST & ~3]


def test_both_forms_agree_with_the_model_on_a_crawl() -> None:
    """The crawl is long enough for marks to be moved and to decide which keys are evicted."""
    links = crawl_links(20_000, hosts=4)
    model = Model(6)
    expected = bytes(map(model.add, links.tolist()))
    for cache in [cache(6) for cache in FORMS.values()]:
        assert cache.add_many(links) == expected
        assert cache.keys() == model.keys()


@pytest.mark.parametrize("bits", [1, 8, 15])
def test_no_bit_of_a_key_is_lost(form: type, bits: int) -> None:
    """Keys that differ in one of the 62 bits are different keys, and are returned unchanged."""
    base = 0x9E3779B97F4A7C14
    for place in range(2, 64):
        cache = form(bits)
        other = base ^ 1 << place
        assert cache.add(base) and cache.add(other) and not cache.add(base)
        assert sorted(cache.keys()) == sorted([base, other])


@pytest.mark.parametrize("wrong", [-1, 2**64])
def test_a_key_of_more_than_64_bits_is_refused(form: type, wrong: int) -> None:
    with pytest.raises(OverflowError):
        form(4).add(wrong)


@pytest.mark.parametrize("bits", [0, 31, -1])
def test_sizes_out_of_range_are_refused(form: type, bits: int) -> None:
    with pytest.raises(ValueError, match="bits"):
        form(bits)


@pytest.mark.parametrize(
    "wrong", [np.zeros(4, np.uint32), np.zeros((2, 2), np.uint64), np.zeros(4, np.float64)]
)
def test_other_buffers_are_refused_and_change_nothing(form: type, wrong: np.ndarray) -> None:
    cache = form(4)
    with pytest.raises(ValueError, match=r"Buffer (dtype mismatch|has wrong number)"):
        cache.add_many(wrong)
    with pytest.raises(ValueError, match=r"Buffer (dtype mismatch|has wrong number)"):
        cache.missing(wrong)
    assert len(cache) == 0 and cache.add(5)


def test_add_many_is_add_one_by_one(form: type) -> None:
    generator = random.Random(4)
    asked = [key(generator.randrange(64), generator.randrange(5), 6) for _ in range(3000)]
    one, many = form(6), form(6)
    expected = bytes(one.add(each) for each in asked)
    buffer = np.array(asked, np.uint64)
    buffer.flags.writeable = False
    assert many.add_many(buffer[:1000]) + many.add_many(buffer[1000:]) == expected
    assert many.keys() == one.keys() and repr(many) == repr(one)
    assert many.add_many(np.zeros(0, np.uint64)) == b""


def test_missing_adds_rotated_fingerprints(form: type) -> None:
    """`missing` returns the positions that `add_many` reports for the keys of the fingerprints."""
    fingerprints = np.random.default_rng(3).integers(0, LAST, 300, np.uint64)[
        np.random.default_rng(4).integers(0, 300, 2000)
    ]
    one, other = form(6), form(6)
    expected = np.flatnonzero(np.frombuffer(one.add_many(cache_keys(fingerprints)), np.uint8)).tolist()
    assert other.missing(fingerprints[:1]) == [0] and other.missing(fingerprints[:0]) == []
    assert [0, *(1 + place for place in other.missing(fingerprints[1:]))] == expected
    assert other.keys() == one.keys() and (other.hits, other.misses) == (one.hits, one.misses)


def test_both_forms_agree_on_a_crawl() -> None:
    links = crawl_links(30_000, hosts=6)
    first, second = (cache(9) for cache in FORMS.values())
    assert first.add_many(links) == second.add_many(links)
    assert first.keys() == second.keys()


@pytest.mark.parametrize("bits", [8, 10, 12])
def test_miss_rate_is_that_of_an_ideal_clock(bits: int) -> None:
    """The moves of keys, which change the order in which the hand meets them, cost at most 2 % more misses."""
    links = crawl_links(150_000, hosts=20)
    cache = INSTALLED.ClockCache(bits)
    ideal = DictClock(2**bits)
    misses = cache.add_many(links).count(1)
    assert misses == pytest.approx(sum(map(ideal.add, links.tolist())), rel=0.02)


def test_memory_is_a_word_per_entry() -> None:
    """A cache takes eight bytes per entry and at most 256 bytes for the rest, or more if it is interpreted."""
    for bits in (1, 10, 18):
        assert sys.getsizeof(INTERPRETED.ClockCache(bits)) - (8 << bits) <= 256
        assert sys.getsizeof(INSTALLED.ClockCache(bits)) - (8 << bits) <= 256


def test_a_second_thread_gets_an_error() -> None:
    """Other threads get an error while one thread is in `add_many`, which releases the interpreter lock."""
    cache = INSTALLED.ClockCache(10)
    keys = np.random.default_rng(1).integers(0, 2**64, 2_000_000, dtype=np.uint64)
    thread = threading.Thread(target=cache.add_many, args=(keys,))
    refused = 0
    thread.start()
    while thread.is_alive():
        try:
            cache.add(5)
        except RuntimeError:
            refused += 1
    thread.join()
    cache._check()
    assert refused > 0 or not INSTALLED.COMPILED
