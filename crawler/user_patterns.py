"""Compiles the regular expressions that users write, in settings, flags, commands and the Python API."""

import re
from typing import AnyStr

from crawler.errors import ConfigError


def compiled(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Compile a regular expression.

    An empty one would match everything. It is usually a mistake, such as a shell variable that is not set.

    Raises:
        ConfigError: the pattern is empty or not a regular expression.
    """
    if not pattern:
        raise ConfigError("the pattern is empty; '.' matches everything")
    try:
        return re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        from crawler.config.units import shown  # imported here because it is rarely needed

        text = pattern if isinstance(pattern, str) else pattern.decode("utf-8")
        raise ConfigError(f"{shown(text)} is not a regular expression: {error}") from None
