"""Imports packages of the extra `lab` when a command needs them."""

import importlib
from typing import Any

from crawler.errors import UsageError
from crawler.wording import to_install


def require(name: str) -> Any:
    """Import and return the module `name`; raise UsageError if the extra is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise UsageError(f"this command needs {package}: {to_install('lab')}") from None
