"""The configuration: TOML into frozen structs, one a stage.

schema      every key, its type, default and range
key_words   the keys, and the words that may be their values
units       lengths of time, sizes, ranges of numbers
checks      a nested mapping -> Config, or a ConfigError that names the key
overrides   `[[override]]`: other values for a part of the web
layers      defaults, file, environment, flags; and TOML again
"""

from crawler.config.checks import convert
from crawler.config.layers import RUN_KEYS, Layers, environment_overrides, read_file, set_key, to_toml
from crawler.config.overrides import Overrides
from crawler.config.schema import (
    AdminConfig,
    CacheConfig,
    Config,
    CrawlConfig,
    DueConfig,
    ExtractConfig,
    FetchConfig,
    FilterConfig,
    FrontierConfig,
    HooksConfig,
    IdentityConfig,
    NetworkConfig,
    OrderConfig,
    Override,
    PagesConfig,
    PolitenessConfig,
    RefreshConfig,
    RobotsConfig,
    ServeConfig,
    SitemapsConfig,
    SplitterConfig,
    StoreConfig,
    TrapsConfig,
    UrlsConfig,
)
from crawler.config.units import ByteCount, Seconds

__all__ = [
    "AdminConfig",
    "ByteCount",
    "CacheConfig",
    "Config",
    "CrawlConfig",
    "DueConfig",
    "ExtractConfig",
    "FetchConfig",
    "FilterConfig",
    "FrontierConfig",
    "HooksConfig",
    "IdentityConfig",
    "Layers",
    "NetworkConfig",
    "OrderConfig",
    "Override",
    "Overrides",
    "PagesConfig",
    "PolitenessConfig",
    "RUN_KEYS",
    "RefreshConfig",
    "RobotsConfig",
    "Seconds",
    "ServeConfig",
    "SitemapsConfig",
    "SplitterConfig",
    "StoreConfig",
    "TrapsConfig",
    "UrlsConfig",
    "convert",
    "environment_overrides",
    "read_file",
    "set_key",
    "to_toml",
]
