# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Learns how honest each source of change signals is, from all sites together.

A new site knows nothing of its sources. So the prior of a source's precision and recall on a site comes from
the other sites where the source sends signals:

    honesty[s] = (sum S_true + 1.4) / (sum S_all rho + 2)
    r0[s]      = 1 - (sum S_silent + .5) / (sum S_exposed + 1)

The sums are over all sites where rho is above .3. `signal_quality.py` defines S_true, S_all, S_silent and
S_exposed. rho is the largest share of a source's signals that can be true, so S_all rho is the largest number
of true signals. The honesty is the number of true signals divided by this maximum. The sources of one site
affect other sites only through these two priors.

What each site contributes to the sums is kept, so that an update takes O(1).
"""

import cython
import numpy as np

from crawler.change_signals import SOURCES
from crawler.freshness.columns import Column, rows_of

# The prior has two pseudo signals, of which 1.4 (70 %) are true.
_HONEST = cython.declare(cython.double, 1.4)
_CLAIMED = cython.declare(cython.double, 2.0)
_PRECISION_PRIOR_MAX = cython.declare(cython.double, 0.98)


class SourceHonesty:
    """The honesty of each source. Sites are numbered as they are added."""

    def __init__(self) -> None:
        self.size = 0
        self._columns = [Column("f8", SOURCES) for _ in range(4)]
        self._grow()
        self.announced_by = rows_of(np.zeros(SOURCES))
        self.claimed_by = rows_of(np.zeros(SOURCES))
        self.unannounced_by = rows_of(np.zeros(SOURCES))
        self.exposed_by = rows_of(np.zeros(SOURCES))

    def add_site(self) -> cython.void:
        """Add a site without signals."""
        if self.size == self.announced.shape[0]:
            self._grow()
        self.size += 1

    def _grow(self) -> cython.void:
        # release the memory maps before they grow
        self.announced = self.claimed = self.unannounced = self.exposed = np.zeros((0, SOURCES))
        columns = [column.grow(self.size + 1) for column in self._columns]
        self.announced, self.claimed, self.unannounced, self.exposed = columns

    def share(self, source: cython.Py_ssize_t) -> cython.double:
        """Return the share of true signals among this source's plausible signals on all sites.

        The share begins at .7.
        """
        return min(
            (self.announced_by[source] + _HONEST) / (self.claimed_by[source] + _CLAIMED), _PRECISION_PRIOR_MAX
        )

    def recall(self, source: cython.Py_ssize_t) -> cython.double:
        """Return r0, the share of the changes that this source signals on the sites where it sends signals."""
        silence: cython.double = (self.unannounced_by[source] + 0.5) / (self.exposed_by[source] + 1.0)
        return 1.0 - silence

    def renew(
        self,
        site: cython.Py_ssize_t,
        source: cython.Py_ssize_t,
        announced: cython.double,
        claimed: cython.double,
        unannounced: cython.double,
        exposed: cython.double,
    ) -> cython.void:
        """Replace a site's part in the sums: S_true, S_all rho, S_silent and S_exposed."""
        self.announced_by[source] += announced - self.announced[site, source]
        self.claimed_by[source] += claimed - self.claimed[site, source]
        self.unannounced_by[source] += unannounced - self.unannounced[site, source]
        self.exposed_by[source] += exposed - self.exposed[site, source]
        self.exposed[site, source] = exposed
        self.announced[site, source] = announced
        self.claimed[site, source] = claimed
        self.unannounced[site, source] = unannounced

    def _check(self) -> None:
        parts = [np.asarray(self.announced), np.asarray(self.claimed)]
        parts += [np.asarray(self.unannounced), np.asarray(self.exposed)]
        sums = [np.asarray(self.announced_by), np.asarray(self.claimed_by)]
        sums += [np.asarray(self.unannounced_by), np.asarray(self.exposed_by)]
        assert np.allclose(np.stack(parts)[:, : self.size].sum(axis=1), np.stack(sums), atol=1e-6)
