"""Imports the loops that numba compiles, once an experiment of the lab needs them."""

import importlib
from typing import Any

from crawler.lab.extras import require


def compiled(module: str) -> Any:
    """Import and return a module of `crawler.lab.caches`; raise UsageError if numba is not installed."""
    require("numba")
    return importlib.import_module(f"crawler.lab.caches.{module}")
