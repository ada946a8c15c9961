"""Scores as classes of eight bits: what a queue sorts by, and what travels with a link.

A score is an importance from 0 to 1. Its class is

    class = round(-8 log2 score)        0 is best; 255, a score of 2^-31.9, is the worst

so each class is 9 % below the one before. Importance of web pages spans many powers of
ten (a linear scale of 256 steps would have one class for all below 1/256), and what
matters of two scores is their ratio. The queues' key had a byte of priority already,
so eight bits cost nothing there, and fewer would save nothing.

A link that nobody has scored has the class NEUTRAL, that of a priority not given. Its
flags carry the class, as a difference from NEUTRAL above the bits of `LinkFlag`: a link
without a score is the same bytes as ever.
"""

from math import log2

NEUTRAL = 128  # also the score that in-link cash begins with: 2^-16
WORST = 255
PER_OCTAVE = 8
PLAIN = 0xFFFF  # the bits of a link's flags that are `LinkFlag`s
_SHIFT = 16
_SCORES = [2.0 ** (-place / PER_OCTAVE) for place in range(WORST + 1)]
LEAST = _SCORES[WORST]


def class_of(score: float) -> int:
    """The class of a score; what is above 1 counts as 1, what is no number above 0 as the worst."""
    if score >= 1.0:
        return 0
    return min(WORST, round(-PER_OCTAVE * log2(score))) if score > LEAST else WORST


def score_of(place: int) -> float:
    """The score in the middle of a class."""
    return _SCORES[place]


def with_class(flags: int, place: int) -> int:
    """A link's flags with its class."""
    return flags & PLAIN | (place ^ NEUTRAL) << _SHIFT


def class_in(flags: int) -> int:
    """The class that a link's flags carry; NEUTRAL if none."""
    return flags >> _SHIFT & WORST ^ NEUTRAL
