"""The optional packages of the lab, imported when they are needed and not before."""

import importlib
from typing import Any

from crawler.errors import UsageError


def extra(module: str) -> Any:
    """Import `module`, one of the extra [lab] or a module of ours that needs it.

    Raises:
        UsageError: the extra is not installed; the message says how to get it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("crawler"):
            raise
        raise UsageError(f"this needs {error.name}: install crawler with its extra, `crawler[lab]`") from error
