"""crawler: a Mercator-style web crawler.

The life of a URL, stage by stage (`process/` connects the stages, and `crawler/README.md` contains the map
and the rules):

    frontier --> fetcher --> extract --> urlfilter --> splitter --(other hosts)--> peers
       ^                                                  | own hosts
       |                                             CLOCK cache --> DUE <-- from peers
       +------------------ new URLs ------------------------------------+

The README.md of each folder explains the folder.
"""

import warnings
from typing import TYPE_CHECKING

from crawler import kernel_selection

if TYPE_CHECKING:
    from crawler.api import (
        Crawl,
        CrawlerError,
        Element,
        Elements,
        Hooks,
        Page,
        Request,
        configure,
        fetch,
        run,
        run_async,
    )

__all__ = [
    "Crawl",
    "CrawlerError",
    "Element",
    "Elements",
    "Hooks",
    "Page",
    "Request",
    "configure",
    "fetch",
    "run",
    "run_async",
]

kernel_selection.choose(__path__[0])
# `re` warns about patterns that a later Python may read differently. The user chose the patterns, so hide the warning.
warnings.filterwarnings("ignore", category=FutureWarning, module=r"crawler\.")


def __dir__() -> list[str]:
    """List only the names of the API, for completion."""
    return [*__all__, "__doc__", "__version__"]


def __getattr__(name: str) -> object:
    """Import the Python API (`crawler/api`) on first use, so that `import crawler` stays fast."""
    if name == "__version__":
        from crawler.version import __version__

        return __version__
    if name not in __all__:
        raise AttributeError(f"module 'crawler' has no attribute {name!r}")
    from crawler import early_signals

    with early_signals.ending():
        from crawler import api

    return getattr(api, name)
