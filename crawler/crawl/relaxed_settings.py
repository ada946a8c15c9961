"""Settings looser than the defaults hold only for the seeds that they were given for.

A crawl directory keeps its settings, so the same command goes on where it stopped.
Another seed would take a delay of 0 or `robots ignore` to a site that nobody meant.
So `crawl.toml` records the places of the seeds, and a seed elsewhere needs each
looser setting to be given again.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from crawler.config import Config, convert, set_key
from crawler.errors import UsageError
from crawler.urls.canonical import canonical, hostname
from crawler.urls.fingerprint import registrable_domain

PLACES_MAX = 1000  # recorded; settings that were given for more hosts than that were given for any
ANYWHERE = "*"
_SHOWN = 3

# Looser than the default is: less of these,
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
)
# more of these,
_MORE = ("politeness.shared_address_in_flight", "politeness.refusals_max")
# and this value, or any if it is None.
_VALUES: dict[str, Any] = {
    "politeness.shared_address_rate": 0.0,
    "robots.policy": "ignore",
    "crawl.scope": "any",
    "fetch.tls": "record",
    "network.allow_networks": None,
    "network.allow_ports": None,
}
_DEFAULT = Config()


def relaxed(config: Config) -> dict[str, str]:
    """The settings that are looser than their defaults, by key, each as `--set` takes its value."""
    found = [key for key in _LESS if _value(config, key) < _value(_DEFAULT, key)]
    found += [key for key in _MORE if _value(config, key) > _value(_DEFAULT, key)]
    for key, loose in _VALUES.items():
        value = _value(config, key)
        if value == loose if loose is not None else value:
            found.append(key)
    return {key: _text(_value(config, key)) for key in found}


def slot_of(url: str, scope: str) -> str:
    """What of the web a seed (a request form) stands for: its host, or `*.domain` in scope domain."""
    host = hostname(url).removeprefix("www.")
    return f"*.{registrable_domain(host)}" if scope == "domain" else host


class SeedPlaces:
    """Where the seeds of a crawl lie; `inherited` are the looser settings that nobody gave this time.

    `names` are the places, `grown` tells that one was added.
    """

    def __init__(self, scope: str, inherited: dict[str, str] | None = None) -> None:
        self._scope = scope
        self._inherited = inherited or {}
        self.names: dict[str, None] = {}
        self.grown = False

    def restrict(self, names: Iterable[str]) -> None:
        """Add what is recorded."""
        self.names = dict.fromkeys(names) | self.names

    def add(self, url: str) -> None:
        """Note a seed.

        Raises:
            UsageError: it lies elsewhere, and looser settings were not given for it.
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
        """Whether a seed lies where others did."""
        host = hostname(url).removeprefix("www.")
        if ANYWHERE in self.names or host in self.names:
            return True
        labels = host.split(".")
        return any("*." + ".".join(labels[at:]) in self.names for at in range(len(labels)))

    def check(self, raw_urls: Iterable[str]) -> None:
        """`add` those that are URLs; before anything is begun."""
        for raw_url in raw_urls:
            if (url := canonical(raw_url)) is not None:
                self.add(url)

    def _refusal(self, url: str) -> str:
        names = list(self.names)
        shown = ", ".join(names[:_SHOWN]) + (
            f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        )
        again = " ".join(f"--set {key}={value}" for key, value in self._inherited.items())
        return (
            f"{url}: this crawl's looser settings were given for {shown or 'other seeds'} only; "
            f"give them again for this seed too ({again}), or other values, or another --dir"
        )


def inherited(config: Config, given: Collection[str]) -> dict[str, str]:
    """The looser settings of `config` whose keys are not among those `given` this time."""
    return {key: value for key, value in relaxed(config).items() if key not in given}


def confirm(config: Config, settings: Mapping[str, str]) -> None:
    """Raises UsageError if one of the settings is not in force: a seed changes none."""
    tree = {section: dict(values) for section, values in _tree(config).items() if isinstance(values, dict)}
    for key, value in settings.items():
        set_key(tree, key, value)
        if _value(convert(tree), key) != _value(config, key):
            raise UsageError(f"{key} is {_text(_value(config, key))} in this crawl; `crawler set` changes it")


def _tree(config: Config) -> dict[str, Any]:
    tree: dict[str, Any] = msgspec.to_builtins(config, enc_hook=lambda value: value + 0)
    return tree


def _value(config: Config, key: str) -> Any:
    section, _, name = key.partition(".")
    return getattr(getattr(config, section), name)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value + 0:g}" if isinstance(value, float) else str(msgspec.to_builtins(value))
