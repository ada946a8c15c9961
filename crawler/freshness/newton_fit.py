# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Fits coefficients by Newton's method, one step per observation, and gradually forgets old observations.

The coefficients c have a normal prior with the mean m and the precisions p, and P is their precision matrix.
With an observation, a part f of what was learned is replaced by the prior. Then the observation is added:

    P <- (1 - f) P + f diag(p) + h x x^T
    c <- c + P^-1 (g x - f p (c - m))

Here x are the features of the observation. The gradient of its log likelihood is g x, and the curvature is
h x x^T. Finally, each coefficient is limited to its bounds. P - diag(p) is never negative, so P is positive
definite, and the system is solved by Cholesky's decomposition.
"""

from collections.abc import Sequence

import cython
import numpy as np
from cython.cimports.libc.math import sqrt


@cython.cclass
class NewtonFit:
    """Coefficients and their precision matrix.

    Args:
        prior: the mean of each coefficient before the first observation.
        precision: the precision of each of these means, above 0.
        low, high: the bounds of each coefficient.
    """

    def __init__(
        self, prior: Sequence[float], precision: Sequence[float], low: Sequence[float], high: Sequence[float]
    ) -> None:
        self.size = len(prior)
        self._prior, self._prior_precision = np.array(prior, float), np.array(precision, float)
        self._low, self._high = np.array(low, float), np.array(high, float)
        self._coefficients, self._matrix = np.array(prior, float), np.diag(np.array(precision, float))
        self._factor = np.zeros((self.size, self.size))
        self._features, self._step = np.zeros(self.size), np.zeros(self.size)

    @property
    def coefficients(self) -> list[float]:
        """The coefficients."""
        return np.asarray(self._coefficients).tolist()

    @property
    def matrix(self) -> list[float]:
        """The precision matrix, one row after the other."""
        return np.asarray(self._matrix).ravel().tolist()

    def restore(self, coefficients: Sequence[float], matrix: Sequence[float]) -> None:
        """Restore stored coefficients and their precision matrix.

        If the number of stored coefficients is smaller, the other coefficients keep their priors; if it is larger,
        the last stored ones are ignored.
        """
        used = min(len(coefficients), self.size)
        rows = np.array(matrix, float).reshape(len(coefficients), len(coefficients))
        np.asarray(self._coefficients)[:used] = coefficients[:used]
        np.asarray(self._matrix)[:used, :used] = rows[:used, :used]
        for i in range(used):
            self._coefficients[i] = min(max(self._coefficients[i], self._low[i]), self._high[i])

    def observe(
        self, features: Sequence[float], score: cython.double, curvature: cython.double, faded: cython.double
    ) -> None:
        """Make one Newton step.

        Args:
            features: x, one number for each coefficient.
            score: g, the derivative of the observation's log likelihood by c x.
            curvature: h, minus the expected second derivative; at least 0.
            faded: f, the part of what was learned that is forgotten, from 0 to 1.
        """
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        for i in range(self.size):
            self._features[i] = features[i]
        for i in range(self.size):
            for j in range(self.size):
                self._matrix[i, j] *= 1.0 - faded
                self._matrix[i, j] += curvature * self._features[i] * self._features[j]
            prior: cython.double = faded * self._prior_precision[i]
            self._matrix[i, i] += prior
            self._step[i] = score * self._features[i] - prior * (self._coefficients[i] - self._prior[i])
        self._solve()
        for i in range(self.size):
            self._coefficients[i] = min(
                max(self._coefficients[i] + self._step[i], self._low[i]), self._high[i]
            )

    def _solve(self) -> cython.void:
        """Replace the vector b in `_step` by the solution y of P y = b, with P = L L^T."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        k: cython.Py_ssize_t
        for i in range(self.size):
            for j in range(i + 1):
                rest: cython.double = self._matrix[i, j]
                for k in range(j):
                    rest -= self._factor[i, k] * self._factor[j, k]
                self._factor[i, j] = sqrt(rest) if i == j else rest / self._factor[j, j]
        for i in range(self.size):
            for k in range(i):
                self._step[i] -= self._factor[i, k] * self._step[k]
            self._step[i] /= self._factor[i, i]
        for i in range(self.size - 1, -1, -1):
            for k in range(i + 1, self.size):
                self._step[i] -= self._factor[k, i] * self._step[k]
            self._step[i] /= self._factor[i, i]
