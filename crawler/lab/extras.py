"""Packages of the extra `lab`, imported only when a command needs them."""

import importlib
from typing import Any

from crawler.errors import UsageError


def require(name: str) -> Any:
    """The module `name`; UsageError if the extra is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise UsageError(f"this needs {package}: pip install 'crawler[lab]'") from None
