"""The value of reading a source of signals (a sitemap, a feed, a listing) again.

A reading costs one request, whose price is the level L. It saves what its signals bring to the pages that it tells
of: they are refreshed when they have changed, not when their turn comes. Of a page with importance mu,
change rate D and signals of precision p, value is gained per time with at most

    g(T) = mu ((1 - exp(-(a+c) T))/(a+c) - L/mu) / ((1 - exp(-c T))/c)     a = 0, c = D/p

by refreshing it at every signal and at the latest after T; without signals a = D, c = 0. The page's gain b is the
difference of the two maxima, and never negative: a source that lies saves nothing. Reading it only
every tau leaves a true signal unheard for tau/2, which loses mu D tau/2 of it per time. So

    slope      s = sum of mu D over pages with a gain
    interval   sqrt(2 L/s), where price and loss of delay are equal
    worth it   sqrt(2 L s) < sum of b: else it is a page like any other

Sums run over what a source told, seen by then or not: a page in the news of a time t stands for D t/p of them.
So a source that tells of few changes counts for those few, and the recall that the schedule measures, which
is low where a source is read late, does not matter. Sums fade with each reading.

Intervals are plain time, not the neighbourhood's clock: that would read a source many times in the days of a burst,
and rarely else. And a reading teaches nothing of its site: a source changes with every page it names.
"""

import math
import struct
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from crawler.errors import DamageError
from crawler.frontier.refresh.settings import DAY
from crawler.storage import keys
from crawler.storage.kv import Batch, KeyValue, scan_prefix, seal, unseal

SOURCES_MAX = 100_000  # with sums, some 150 bytes each; beyond, those read longest ago are met anew
TOLD_MAX = 256  # pages of a reading looked at; a longer one is sampled evenly
FADE = 0.7  # of the sums, at each reading
FIRST_PRECISION = 0.5  # of a source read once
STEPS_AN_OCTAVE = 2  # of intervals: the schedule keeps few different bounds of ages
_TIMES = np.geomspace(0.02, 50.0, 64)  # T times D

_RECORD = struct.Struct("<3d")  # span, slope, gain

Column = NDArray[np.float64]


class Announced(msgspec.Struct, frozen=True):
    """What a reading told: importance and change rate of pages, of which there were `count`."""

    importance: Sequence[float]
    rate: Sequence[float]
    count: int


class _Sums(msgspec.Struct):
    """Over readings, faded: time; mu D t and b t of the pages told of. `unread`: time since the last reading."""

    span: float = 0.0
    slope: float = 0.0
    gain: float = 0.0
    unread: float = 0.0


class Readings:
    """What the readings of each source, by fingerprint, have told; times are the schedule's."""

    def __init__(self) -> None:
        self._sums: dict[int, _Sums] = {}

    def begin(self, source: int, pages: int, rate: float, level: float) -> float:
        """Take up a source, read for the first time, that names so many pages; the interval at which it pays.

        `rate` of the site's pages and `level` are for an importance of 1.
        """
        if not pages or not rate > 0.0 or not level > 0.0:
            return math.inf
        gain = pages * float(gains(np.ones(1), np.full(1, rate), level, FIRST_PRECISION)[0])
        slope = pages * FIRST_PRECISION * rate if gain > 0.0 else 0.0
        span = math.sqrt(2.0 * level / slope) if slope else 1.0 / rate
        self._keep(source, _Sums(span, slope * span, gain * span))
        return self.interval(source, level)

    def pass_time(self, source: int, span: float) -> None:
        """The source was asked again after `span`; `hear` says what it told."""
        sums = self._sums.pop(source) if source in self._sums else _Sums()
        sums.unread += max(span, 0.0)
        self._keep(source, sums)

    def hear(self, source: int, news: Announced, level: float, precision: float) -> float:
        """Learn from a reading, whose signals are true with `precision`; the interval at which the source pays.

        Infinite if it does not pay at all.
        """
        sums = self._sums.get(source)
        if sums is None or not sums.unread or not level > 0.0:
            return self.interval(source, level)
        slope = gain = 0.0
        if news.importance:
            importance, rate = np.array(news.importance), np.array(news.rate)
            share = precision * news.count / len(importance)
            each = gains(importance, rate, level, precision)
            slope = share * float(importance[each > 0.0].sum())
            gain = share * float((each / rate).sum())
        sums.span = FADE * sums.span + sums.unread
        sums.slope, sums.gain, sums.unread = FADE * sums.slope + slope, FADE * sums.gain + gain, 0.0
        return self.interval(source, level)

    def interval(self, source: int, level: float) -> float:
        """The time between readings at which the source pays; infinite if it does not."""
        sums = self._sums.get(source)
        if sums is None or not sums.slope or not sums.span or not level > 0.0:
            return math.inf
        slope, gain = sums.slope / sums.span, sums.gain / sums.span
        return math.sqrt(2.0 * level / slope) if 2.0 * level * slope < gain * gain else math.inf

    def open(self, store: KeyValue) -> Iterator[int]:
        """Take up what is stored; the fingerprints of the sources.

        Raises:
            DamageError: a record is not whole.
        """
        for key, value in scan_prefix(store, keys.READINGS):
            payload = unseal(key, value)
            if len(key) != 10 or len(payload) != _RECORD.size:
                raise DamageError(f"store: readings record {key!r} has {len(payload)} bytes")
            numbers = _RECORD.unpack(payload)
            if not all(0.0 <= number < math.inf for number in numbers):
                raise DamageError(f"store: readings record {key!r} has {numbers}")
            source = int.from_bytes(key[2:], "big")
            self._keep(source, _Sums(*numbers))
            yield source

    def stage(self, source: int, batch: Batch) -> None:
        """Put the sums of a source into a batch; nothing if there are none."""
        if (sums := self._sums.get(source)) is not None:
            record = _RECORD.pack(sums.span, sums.slope, sums.gain)
            batch.put(keys.READINGS + source.to_bytes(8, "big"), seal(record))

    def _keep(self, source: int, sums: _Sums) -> None:
        if len(self._sums) >= SOURCES_MAX:
            del self._sums[next(iter(self._sums))]
        self._sums[source] = sums

    def __repr__(self) -> str:
        return f"Readings({len(self._sums)} sources)"


def ages(interval: float, least: float, most: float) -> tuple[float, float]:
    """(min_age, max_age) that make a page be read about every `interval` or more often, within `least` and `most`."""
    if interval == math.inf:
        return least, most
    octaves = min(max(math.log2(max(interval, 1.0) / DAY), -8.0), 16.0)
    step = DAY * 2.0 ** (round(octaves * STEPS_AN_OCTAVE) / STEPS_AN_OCTAVE)
    return least, min(max(step, least), most)


def gains(importance: Column, rate: Column, level: float, precision: float) -> Column:
    """What signals of this precision add to each page's value per time, (n,); see the module."""
    price = level * rate / importance
    told = _best(price, 1.0 / precision, 0.0)
    return np.asarray(importance * np.maximum(told - _best(price, 0.0, 1.0), 0.0))


def _best(price: Column, signals: float, silent: float) -> Column:
    """The greatest g(T)/mu, (n,), of at least 0; rates in units of D, `price` is L D/mu."""
    fresh = -np.expm1(-(signals + silent) * _TIMES) / (signals + silent)
    length = -np.expm1(-signals * _TIMES) / signals if signals else _TIMES
    return np.maximum(((fresh - price[:, None]) / length).max(axis=1), 0.0)
