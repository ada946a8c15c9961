"""The lab's loops compiled by numba, imported only when an experiment needs them."""

import importlib
from typing import Any

from crawler.lab.extras import require


def compiled(module: str) -> Any:
    """The module of `crawler.lab.caches` with that name; UsageError if numba is not installed."""
    require("numba")
    return importlib.import_module(f"crawler.lab.caches.{module}")
