"""The configuration: TOML files, decoded into one frozen struct per stage.

schema       every key with its type, default and range
key_words    the keys, and the words that they accept as values
units        times, sizes, and ranges of numbers
checks       converts a nested mapping to a Config; a ConfigError names the invalid key
overrides    `[[override]]`: different values for a part of the web
layers       merges defaults, file, environment and flags; writes TOML
forms        values with a syntax of their own, such as host:port
credentials  secret settings, which are stored separately
"""

from crawler.config.checks import convert
from crawler.config.layers import Layers, environment_settings, read_file, set_key, to_toml
from crawler.config.overrides import Overrides
from crawler.config.schema import (
    AdminConfig,
    CacheConfig,
    Config,
    ConsentConfig,
    CrawlConfig,
    DueConfig,
    ExtractConfig,
    FetchConfig,
    FilterConfig,
    FrontierConfig,
    HooksConfig,
    IdentityConfig,
    LogsConfig,
    NetworkConfig,
    OrderConfig,
    Override,
    PagesConfig,
    PolitenessConfig,
    RefreshConfig,
    RenderConfig,
    RobotsConfig,
    ServeConfig,
    SitemapsConfig,
    SplitterConfig,
    StoreConfig,
    TrapsConfig,
    UrlsConfig,
)
from crawler.config.units import ByteCount, Seconds
