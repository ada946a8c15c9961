"""Adds seeds with the field `render` to an existing crawl.

The field determines whether a browser renders the pages under a seed. Like the column `render` of a seeds
file, the field is converted to `[[override]]` tables. First the `[[override]]` tables are sent to all
processes, in the same way as a setting (`safe_settings.PARTS`). Then the seeds are sent to one process, which
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
    """Split a `seed` request; return the settings for all processes, and the request without its field `render`.

    `scope` is the scope of the crawl.

    Raises:
        UsageError: `render` has no valid value, or the crawl's scope has no parts.
    """
    rest = {name: value for name, value in request.items() if name != RENDER}
    when = request.get(RENDER)
    if when is None or request.get("command") != "seed":
        return {}, dict(request)
    if when not in get_args(RenderWhen):
        raise UsageError(f"seed: render {str(when)[:100]!r} is not one of {', '.join(get_args(RenderWhen))}")
    return {PARTS: _parts(request.get("urls", ()), when, scope)}, rest


def _parts(urls: Iterable[Any], when: str, scope: str) -> str:
    """Return a setting, as a JSON object, that gives `render` the value `when` for the pages under each URL."""
    lines = (SeedLine(url, render=when, where=url) for url in urls if isinstance(url, str))
    tables, _ = tables_of(lines, scope)
    return msgspec.json.encode({table["match"]: when for table in tables}).decode()
