"""How important pages are: requests a day, served ones and a prior where nobody asks (mu of the model).

    importance = prior + requests a day        the requests fade with `serve.request_half_life`
    prior        `refresh.prior_requests`      for all pages alike (`refresh.prior = "uniform"`)
                 over depth + 1                pages near the seeds matter more ("depth")
                                  the value of a file           for URLs of `refresh.importance_file`

All processes have the same scale, since they compare levels. A page that tells of others (a sitemap,
a feed) is as important as any; how often it is read goes with what its signals save (`sources.py`).
"""

from collections.abc import Callable, Iterable, Mapping

from crawler.config import RefreshConfig
from crawler.errors import ConfigError
from crawler.frontier.refresh.settings import DAY
from crawler.records import PageRecord

VALUES_MAX = 1_000_000  # lines of a file of values, about 100 bytes each in memory
VALUE_MAX = 1e12


class Importance:
    """Answers by page. `values` are priors by fingerprint; `asked` is set by whoever counts requests."""

    def __init__(self, config: RefreshConfig, values: Mapping[int, float] | None = None) -> None:
        self._prior = config.prior_requests
        self._by_depth = config.prior == "depth"
        self._values = values or {}
        self.asked: Callable[[int, float], float] | None = None  # (fingerprint, now) -> requests a second

    @property
    def prior(self) -> float:
        """The importance of a page of which nothing is known."""
        return self._prior

    def of(self, fingerprint: int, record: PageRecord, now: float) -> float:
        """The importance of a page, above 0."""
        prior = self._values.get(fingerprint)
        if prior is None:
            prior = self._prior / (record.depth + 1.0) if self._by_depth else self._prior
        return prior if self.asked is None else prior + DAY * self.asked(fingerprint, now)


def read_values(lines: Iterable[str], fingerprint: Callable[[str], int | None]) -> dict[int, float]:
    """Values by fingerprint, from lines `URL VALUE`; blank lines and comments (#) are left out.

    Raises:
        ConfigError: a line is none, or there are too many.
    """
    values: dict[int, float] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        url, _, value = text.rpartition(" ")
        key = fingerprint(url.strip()) if url else None
        if key is None or not _is_value(value):
            raise ConfigError(
                f"refresh.importance_file, line {number}: not `URL VALUE`, a value of 0 or more"
            )
        if len(values) >= VALUES_MAX:
            raise ConfigError(f"refresh.importance_file: more than {VALUES_MAX:,} lines")
        values[key] = float(value)
    return values


def _is_value(text: str) -> bool:
    try:
        return 0.0 <= float(text) <= VALUE_MAX
    except ValueError:
        return False
