"""Classes are scores reduced to eight bits. Queues are sorted by class, and each link carries its class.

A score is an importance from 0 to 1. Its class is

    class = round(-8 log2 score)        0 is best; 255, a score of 2^-31.9, is the worst

so the scores of each class are 8 % lower than those of the class before. The importance of web pages spans
many powers of ten, so the scale is logarithmic. A linear scale of 256 steps would put everything below 1/256
into one class. The key of a queue entry has one byte for the priority anyway, so fewer than eight bits would
save nothing.

A link without a score has the class NEUTRAL, the default priority. The class of a link is stored in those
bits of its flags that no `LinkFlag` uses. The stored number is the difference between the class and NEUTRAL.
For a link without a score, this difference is 0, so the link is encoded as if there were no classes.
"""

from math import log2

NEUTRAL = 128  # the class of the score 2^-16; under `opic`, each URL begins with that score
WORST = 255
PER_OCTAVE = 8
PLAIN = 0xFFFF  # mask of the `LinkFlag` bits that queue entries keep
_SHIFT = 16
_SCORES = [2.0 ** (-place / PER_OCTAVE) for place in range(WORST + 1)]
LEAST = _SCORES[WORST]


def class_of(score: float) -> int:
    """Return the class of a score. Scores above 1 count as 1. NaN, and scores of 0 or less, have the worst class."""
    if score >= 1.0:
        return 0
    return min(WORST, round(-PER_OCTAVE * log2(score))) if score > LEAST else WORST


def score_of(place: int) -> float:
    """Return the score in the middle of a class."""
    return _SCORES[place]


def with_class(flags: int, place: int) -> int:
    """Return a link's flags with its class set."""
    return flags & ~(WORST << _SHIFT) | (place ^ NEUTRAL) << _SHIFT


def class_in(flags: int) -> int:
    """Return the class that a link's flags contain, or NEUTRAL if they contain none."""
    return flags >> _SHIFT & WORST ^ NEUTRAL
