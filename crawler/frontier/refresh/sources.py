"""The value of rereading a source of signals (a sitemap, a feed, a listing).

A reading costs one request, whose price is the level L. The signals of a source save fetches of the pages
that it lists, because these pages are refreshed when they have changed instead of at regular intervals. A
page with importance mu and change rate D, whose signals have the precision p, gains a value per time of at
most the maximum of g(T) over all T:

    g(T) = mu ((1 - exp(-(a+c) T))/(a+c) - L/mu) / ((1 - exp(-c T))/c)     a = 0, c = D/p

if the page is refreshed at every signal, but at the latest after T. Without signals, a = D and c = 0. The
page's gain b is the maximum with signals minus the maximum without them. If the signals lower the maximum, b
is 0, because useless signals can be ignored. If the source is read only every tau, a true signal is delayed
by tau/2 on average, which loses mu D tau/2 per time. Therefore

    slope      s = sum of mu D over pages with a gain
    interval   sqrt(2 L/s), where the price equals the loss by delay
    worth it   sqrt(2 L s) < sum of b: otherwise the interval is twice as long

The sums of mu D and of b include every page that a source listed, even if a crawl had already seen the listed
change. A page is listed D t/p times on average in a time t, so each listing of the page adds the fraction
p/(D t) of its mu D and b. If a source lists only a part of the changes, the sums therefore contain only the
gain from this part. A reading that comes far later than planned has a smaller weight in the sums: after a
year without readings, or after a run whose clock was wrong, one reading says little about the pace of the
source. The interval does not depend on the recall that the schedule measures: a source that is read late has
a low recall for this reason alone, and would then be read even later. Both sums, that of mu D and that of b,
decay with each reading.

A source whose readings cost more than they gain is still read, because it may only have given too few signals
so far. If such a source were refreshed like an ordinary page, honest sources would not be read during a third
of the time. Only a source without any gain (s = 0) is refreshed like an ordinary page.
`frontier/refresh/README.md`, "Signals", explains this rule, and why intervals are measured in ordinary time,
not on the neighbourhood clock.
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

# maximum number of sources with sums, 150 bytes each; if there are more, the least recently read are dropped
SOURCES_MAX = 100_000
# maximum number of pages that are examined when a source is read; if it lists more, they are sampled evenly
TOLD_MAX = 256
FADE = 0.9  # each reading multiplies the older sums by this
UNPAID = 2.0  # if the readings of a source cost more than they gain, its interval is multiplied by this
# If a reading comes later than this many intervals after the previous one, it has no more weight than a reading
# after exactly this many intervals.
LATE_MAX = 4.0
FIRST_PRECISION = 0.5  # assumed precision of a source read once
# intervals are rounded to powers of 2^(1/2), because the schedule can hold only a few different age bounds
STEPS_AN_OCTAVE = 2
_TIMES = np.geomspace(0.02, 50.0, 64)  # the values of T that are tried, in units of 1/D

_RECORD = struct.Struct("<3d")  # span, slope, gain

Column = NDArray[np.float64]


class Announced(msgspec.Struct, frozen=True):
    """The result of a reading: the importances and change rates of a sample of the `count` listed pages."""

    importance: Sequence[float]
    rate: Sequence[float]
    count: int


class _Sums(msgspec.Struct):
    """Decaying sums over the readings of a source.

    Each reading adds one term to each sum. `span` is the sum of t, the time since the previous reading.
    `slope` is the sum of mu D t, and `gain` the sum of b t, over the listed pages of each reading (mu, D and b
    are explained in the module's docstring). `unread` is the time since the last reading.
    """

    span: float = 0.0
    slope: float = 0.0
    gain: float = 0.0
    unread: float = 0.0


class Readings:
    """The sums over the readings of each source, by its fingerprint; times are on the schedule's clock."""

    def __init__(self) -> None:
        self._sums: dict[int, _Sums] = {}

    def begin(self, source: int, pages: int, rate: float, level: float) -> float:
        """Start the sums of a source read for the first time, which lists `pages` pages; return the reading interval.

        `rate` is the change rate of the site's pages. `level` is the level of the schedule divided by the
        importance of the source, because all pages are assumed to be as important as the source.
        """
        if not pages or not rate > 0.0 or not level > 0.0:
            return math.inf
        gain = pages * float(gains(np.ones(1), np.full(1, rate), level, FIRST_PRECISION)[0])
        slope = pages * FIRST_PRECISION * rate if gain > 0.0 else 0.0
        span = math.sqrt(2.0 * level / slope) if slope else 1.0 / rate
        self._keep(source, _Sums(span, slope * span, gain * span))
        return self.interval(source, level)

    def pass_time(self, source: int, span: float) -> None:
        """Record that the source was refetched after `span`. The caller then adds the result with `hear`."""
        sums = self._sums.pop(source) if source in self._sums else _Sums()
        sums.unread += max(span, 0.0)
        self._keep(source, sums)

    def hear(self, source: int, news: Announced, level: float, precision: float) -> float:
        """Add a reading whose signals are true with probability `precision`; return the new reading interval.

        If the schedule ignores the signals of the source, they save no fetches, and `precision` is 0. The interval is
        infinite if the source has no gain.
        """
        sums = self._sums.get(source)
        if sums is None or not sums.unread or not level > 0.0:
            return self.interval(source, level)
        slope = gain = 0.0
        if news.importance and precision > 0.0:
            importance, rate = np.array(news.importance), np.array(news.rate)
            share = precision * news.count / len(importance)
            each = gains(importance, rate, level, precision)
            slope = share * float(importance[each > 0.0].sum())
            gain = share * float((each / rate).sum())
        weight = min(1.0, LATE_MAX * self.interval(source, level) / sums.unread)
        sums.span = FADE * sums.span + weight * sums.unread
        sums.slope, sums.gain = FADE * sums.slope + weight * slope, FADE * sums.gain + weight * gain
        sums.unread = 0.0
        return self.interval(source, level)

    def interval(self, source: int, level: float) -> float:
        """Return the reading interval of the source; infinite if readings gain nothing."""
        sums = self._sums.get(source)
        if sums is None or not sums.slope or not sums.span or not level > 0.0:
            return math.inf
        slope, gain = sums.slope / sums.span, sums.gain / sums.span
        paid = 2.0 * level * slope < gain * gain
        return math.sqrt(2.0 * level / slope) * (1.0 if paid else UNPAID)

    def open(self, store: KeyValue) -> Iterator[int]:
        """Load the stored sums; yield the fingerprints of the sources.

        Raises:
            DamageError: a record is damaged.
        """
        for key, value in scan_prefix(store, keys.READINGS):
            payload = unseal(key, value)
            if len(key) != 10 or len(payload) != _RECORD.size:
                raise DamageError(f"store: readings record {key!r} has {len(payload)} bytes")
            numbers = _RECORD.unpack(payload)
            if not all(0.0 <= number < math.inf for number in numbers):
                raise DamageError(f"store: readings record {key!r} has invalid numbers: {numbers}")
            source = int.from_bytes(key[2:], "big")
            self._keep(source, _Sums(*numbers))
            yield source

    def stage(self, source: int, batch: Batch) -> None:
        """Put the sums of a source into a batch; do nothing if there are none."""
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
    """Return (min_age, max_age), within the bounds, for a page that should be read every `interval` or more often."""
    if interval == math.inf:
        return least, most
    octaves = min(max(math.log2(max(interval, 1.0) / DAY), -8.0), 16.0)
    step = DAY * 2.0 ** (round(octaves * STEPS_AN_OCTAVE) / STEPS_AN_OCTAVE)
    return least, min(max(step, least), most)


def gains(importance: Column, rate: Column, level: float, precision: float) -> Column:
    """Return the value per time that signals of this precision add to each page, (n,); see the module docstring."""
    price = level * rate / importance
    told = _best(price, 1.0 / precision, 0.0)
    return np.asarray(importance * np.maximum(told - _best(price, 0.0, 1.0), 0.0))


def _best(price: Column, signals: float, silent: float) -> Column:
    """Return for each page the maximum of g(T)/mu over T, but at least 0; shape (n,).

    Rates are in units of the change rate D; `price` is L D/mu.
    """
    fresh = -np.expm1(-(signals + silent) * _TIMES) / (signals + silent)
    length = -np.expm1(-signals * _TIMES) / signals if signals else _TIMES
    return np.maximum(((fresh - price[:, None]) / length).max(axis=1), 0.0)
