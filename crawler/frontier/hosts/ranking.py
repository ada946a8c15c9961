"""Decides which hosts count as failing.

A host fails if its latest requests failed, whether for a page, its robots.txt or its address; if it was given up or
refused too often; or if the scheme and port tried last could not be connected to (`Authorities.troubled`).
"""

from collections.abc import Mapping

import numpy as np

from crawler.frontier.hosts.table import HostFlag, HostTable

_FAILED = HostFlag.REFUSED | HostFlag.GIVEN_UP

Troubles = Mapping[int, tuple[int, float, str]]  # as `Authorities.troubled`


def failing(hosts: HostTable, troubled: Troubles) -> np.ndarray:
    """Return which hosts fail, shape (n,) of bool."""
    mask = (hosts.array("failures") > 0) | ((hosts.array("flags") & _FAILED) != 0)
    mask[list(troubled)] = True
    return mask
