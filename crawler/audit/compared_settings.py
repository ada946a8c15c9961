"""The settings that decide which pages a crawl finds and what it receives.

A comparison of two crawls names those of these settings that differ. The values are JSON texts, because they
are also saved in the JSON report. The values of credentials are hidden.
"""

from collections.abc import Iterator

import msgspec

from crawler.config import Config
from crawler.config.credentials import redacted

# Sections of which every setting counts, and single settings of other sections.
_SECTIONS = ("urls", "extract", "filter", "traps", "sitemaps", "robots", "render", "hooks")
_KEYS = {
    "crawl": (
        "scope",
        "surts",
        "depth",
        "pages_per_host",
        "pages_per_domain",
        "hosts_per_domain",
        "requisites",
        "check_external",
    ),
    "identity": ("token", "contact", "accept", "accept_language", "headers", "signature"),
    "frontier": ("tries",),
    "fetch": (
        "total_timeout",
        "body_bytes_max",
        "wire_bytes_max",
        "files",
        "file_bytes_max",
        "redirects_max",
        "cookies",
        "cookies_file",
        "tls",
        "proxy",
    ),
    "network": ("allow_networks", "allow_ports"),
    "pages": ("store",),
}
_LISTS = ("seeds", "override")


def compared_settings(config: Config) -> dict[str, str]:
    """Return the value of each setting that a comparison looks at."""
    tree = msgspec.to_builtins(redacted(config), enc_hook=lambda kind: kind + 0)
    return {key: msgspec.json.encode(value).decode() for key, value in _values(tree)}


def _values(tree: dict[str, dict[str, object]]) -> Iterator[tuple[str, object]]:
    for name in _LISTS:
        yield name, tree[name]
    for section, values in tree.items():
        for key in values if section in _SECTIONS else _KEYS.get(section, ()):
            yield f"{section}.{key}", values[key]
