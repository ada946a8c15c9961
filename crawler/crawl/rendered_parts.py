"""Adds seeds to an existing crawl with `render`, which says whether a browser shows the part of the web under them.

As with the column `render` of a seeds file, the setting becomes `[[override]]` tables. They
are sent to all processes like a setting (`safe_settings.PARTS`), then the seeds to one process, which
forwards them to their owners.
"""

from collections.abc import Iterable, Mapping
from typing import Any, get_args

import msgspec

from crawler.config.schema import RenderWhen
from crawler.crawl.safe_settings import PARTS
from crawler.crawl.seed_lines import SeedLine, tables_of
from crawler.errors import UsageError

RENDER = "render"


def separated(request: Mapping[str, Any], scope: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Return (the settings to send to all processes, the request without `render`) of a `seed` request.

    `scope` is that of the crawl.

    Raises:
        UsageError: `render` is not one of its values, or the crawl's scope has no parts.
    """
    rest = {name: value for name, value in request.items() if name != RENDER}
    when = request.get(RENDER)
    if when is None or request.get("command") != "seed":
        return {}, dict(request)
    if when not in get_args(RenderWhen):
        raise UsageError(f"seed: render {str(when)[:100]!r} is not one of {', '.join(get_args(RenderWhen))}")
    return {PARTS: _parts(request.get("urls", ()), when, scope)}, rest


def _parts(urls: Iterable[Any], when: str, scope: str) -> str:
    """Return the setting that renders the part of the web under each URL: a JSON object."""
    lines = (SeedLine(url, render=when, where=url) for url in urls if isinstance(url, str))
    tables, _ = tables_of(lines, scope)
    return msgspec.json.encode({table["match"]: when for table in tables}).decode()
