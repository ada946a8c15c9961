"""Relaxed settings, which are less strict than the defaults, apply only to the seeds for which they were given.

A crawl directory keeps its settings, so that the same command continues the crawl. If a different seed is
given later, the kept settings, such as a delay of 0 or `robots ignore`, would affect a site for which the
user did not intend them. So `crawl.toml` records the hosts of the seeds for which the settings were given.
For a seed on any other host, each relaxed setting must be given again.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from crawler.config import Config, convert, set_key
from crawler.errors import UsageError
from crawler.urls.canonical import canonical, hostname
from crawler.urls.suffixes import registrable_domain

# maximum number of recorded hosts; if there are more, the relaxed settings apply to any host
PLACES_MAX = 1000
ANYWHERE = "*"
_SHOWN = 3

# These settings are relaxed if they are below their defaults.
_LESS = (
    "politeness.delay",
    "politeness.delay_factor",
    "politeness.delay_max",
    "politeness.crawl_delay_max",
    "politeness.retry_after_max",
    "politeness.address_delay_share",
    "politeness.backoff_first",
    "politeness.backoff_max",
    "politeness.slowdown_max",
    "politeness.slowdown_gap",
    "robots.bytes_max",
    "robots.redirects_max",
    "robots.rules_max",
    "robots.wildcards_max",
    "robots.unreachable_max",
)
# These settings are relaxed if they are above their defaults.
_MORE = ("politeness.shared_address_in_flight", "politeness.refusals_max")
# These settings are relaxed if they have the value that is given here. None stands for any value but the
# default.
_VALUES: dict[str, Any] = {
    "politeness.shared_address_rate": 0.0,
    "politeness.domain_rate": 0.0,
    "robots.policy": "ignore",
    "crawl.scope": "any",
    "fetch.tls": "record",
    "network.allow_networks": None,
    "network.allow_ports": None,
}
_DEFAULT = Config()


def relaxed(config: Config) -> dict[str, str]:
    """Return the relaxed settings by key. Their values are in the form that `--set` accepts."""
    found = [key for key in _LESS if _value(config, key) < _value(_DEFAULT, key)]
    found += [key for key in _MORE if _value(config, key) > _value(_DEFAULT, key)]
    for key, loose in _VALUES.items():
        value = _value(config, key)
        if value == loose if loose is not None else value:
            found.append(key)
    return {key: _text(_value(config, key)) for key in found}


def slot_of(url: str, scope: str) -> str:
    """Return the place of a seed, given in request form.

    The place is the host or, with the scope `domain`, `*.domain`.
    """
    host = hostname(url).removeprefix("www.")
    return f"*.{registrable_domain(host)}" if scope == "domain" else host


class SeedPlaces:
    """The places of a crawl's seeds: a place is the host of a seed or, with the scope `domain`, its registrable domain.

    `inherited` has the relaxed settings of earlier runs that were not given again for this run. `names` are the
    places. `grown` is True if a place was added.
    """

    def __init__(self, scope: str, inherited: dict[str, str] | None = None) -> None:
        self._scope = scope
        self._inherited = inherited or {}
        self.names: dict[str, None] = {}
        self.grown = False

    def restrict(self, names: Iterable[str]) -> None:
        """Allow the relaxed settings only at places that an earlier run recorded, and at places that `add` adds."""
        self.names = dict.fromkeys(names) | self.names

    def add(self, url: str) -> None:
        """Add the place of a seed.

        Raises:
            UsageError: the place is new, and relaxed settings were not given for it.
        """
        if self.covers(url):
            return
        if self._inherited:
            raise UsageError(self._refusal(url))
        self.grown = True
        self.names[slot_of(url, self._scope)] = None
        if len(self.names) > PLACES_MAX:
            self.names = {ANYWHERE: None}

    def covers(self, url: str) -> bool:
        """Return whether the place of a seed is known."""
        host = hostname(url).removeprefix("www.")
        if ANYWHERE in self.names or host in self.names:
            return True
        labels = host.split(".")
        return any("*." + ".".join(labels[at:]) in self.names for at in range(len(labels)))

    def check(self, raw_urls: Iterable[str]) -> None:
        """Call `add` for each valid URL, before the crawl starts."""
        for raw_url in raw_urls:
            if (url := canonical(raw_url)) is not None:
                self.add(url)

    def _refusal(self, url: str) -> str:
        names = list(self.names)
        shown = ", ".join(names[:_SHOWN]) + (
            f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        )
        again = " ".join(f"{key}={value}" for key, value in self._inherited.items())
        return (
            f"{url}: this crawl's relaxed settings were given for {shown or 'other seeds'} only; "
            f"give them again for this seed too ({again}), or give other values, or use another directory"
        )


def inherited(config: Config, given: Collection[str]) -> dict[str, str]:
    """Return the relaxed settings of `config` whose keys are not among those `given` this time."""
    return {key: value for key, value in relaxed(config).items() if key not in given}


def confirm(config: Config, settings: Mapping[str, str]) -> None:
    """Raise UsageError if a setting differs from its value in force, because adding a seed must not change a setting."""
    tree = {section: dict(values) for section, values in _tree(config).items() if isinstance(values, dict)}
    for key, value in settings.items():
        set_key(tree, key, value)
        if _value(convert(tree), key) != _value(config, key):
            raise UsageError(f"{key} is {_text(_value(config, key))} in this crawl; `crawler set` changes it")


def _tree(config: Config) -> dict[str, Any]:
    tree: dict[str, Any] = _plain(config)
    return tree


def _plain(value: object) -> Any:
    """Return a value of the configuration as built-in types; times and sizes become plain numbers."""
    return msgspec.to_builtins(value, enc_hook=lambda number: number + 0)


def _value(config: Config, key: str) -> Any:
    section, _, name = key.partition(".")
    return getattr(getattr(config, section), name)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value + 0:g}" if isinstance(value, float) else str(_plain(value))
