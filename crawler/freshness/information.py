# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Computes the value of information: what a crawl is worth because it teaches the change rate of its page.

The crawl value V is the gain from a fresh copy. It does not count that the crawl also improves the estimate
of the page's change rate d, on which all later crawls of the page depend. Suppose that a page is always
crawled when its value reaches the level, and that each crawl costs the level. Then the *net gain* of the page
is, per unit of time and of importance,

    g(d) = exp(-x),   x - ln(1 + x) = -ln(1 - d level/mu)       0 if d level/mu is 1 or more

In this formula, x is d times the interval between two crawls. A page whose ceiling mu/d is below the level is
not worth its crawls, so its net gain is 0. The rate d has a Gamma distribution with the shape K and the rate B
(`change_rates.py`). A crawl after the time tau finds no change with the probability p = (1 + tau/B)^-K. The
mean of the rate then becomes r0 = K/(B + tau). If the crawl finds a change, the mean becomes r1, and
p r0 + (1 - p) r1 is the present mean r. So the crawl is expected to raise the net gain by

    I = p g(r0) + (1 - p) g(r1) - g(r)

The function g is convex, so I is never negative. I is small if tau is so short or so long that the result of
the crawl is nearly certain, if much is known of the page already, and if the page is worth its crawls at no
probable rate. What the crawl teaches is useful for a limited time, because rates change: the horizon H. Its
value is then mu H I.

A page may also be restless, with the probability P (`restless.py`). It is then found changed, and its net gain is 0.
If the page is found unchanged, it is not restless, and if it is found changed, P rises to P'. A page that is restless
with the probability P has the net gain (1 - P) g(r / (1 - P)), as if its importance were multiplied by 1 - P. So

    I = (1 - P) (p g(r0) + (1 - p) g(r1 / (1 - P')) - g(r / (1 - P)))

Prior work: the knowledge gradient (Frazier, Powell and Dayanik, SIAM J. Control Optim. 2008) values a
measurement in the same way, by the expected increase of the best result.
"""

import cython
from cython.cimports.libc.math import exp, expm1, log1p, sqrt

_STEPS = cython.declare(cython.int, 2)  # steps of Newton's method; two give seven digits


def net_gain(y: cython.double) -> cython.double:
    """Return g, the net gain of a page per unit of time and importance, where y is d level/mu."""
    if y <= 0.0:
        return 1.0
    if y >= 1.0:
        return 0.0
    wanted: cython.double = -log1p(-y)
    x: cython.double = sqrt(2.0 * wanted) + wanted * (2.0 / 3.0)
    _step: cython.int
    for _step in range(_STEPS):
        x += (wanted + log1p(x) - x) * (1.0 + x) / x
    return exp(-x)


def information(
    shape: cython.double,
    span: cython.double,
    elapsed: cython.double,
    price: cython.double,
    restless: cython.double = 0.0,
) -> cython.double:
    """Return I, the expected increase of the net gain by a crawl after the time `elapsed`.

    `shape` and `span` are K and B, `price` is level/mu, and `restless` is P.
    """
    rate: cython.double = shape / span
    lower: cython.double = shape / (span + elapsed)
    hazard: cython.double = shape * log1p(elapsed / span)
    quiet: cython.double = exp(-hazard)
    busy: cython.double = -expm1(-hazard)
    if not busy > 0.0:
        return 0.0
    higher: cython.double = max((rate - quiet * lower) / busy, rate)
    steady: cython.double = 1.0 - restless
    # the probability that the page is not restless if it is found changed
    still: cython.double = steady * busy / (restless + steady * busy)
    found: cython.double = quiet * net_gain(lower * price) + busy * net_gain(higher * price / still)
    return max(steady * (found - net_gain(rate * price / steady)), 0.0)
