"""The importance of pages (mu of the model): the requests per day that the page server gets for a page, plus a prior.

    importance = prior + requests per day      the requests decay with `serve.request_half_life`
    prior        `refresh.prior_requests`      the same for all pages (`refresh.prior = "uniform"`)
                 divided by depth + 1          pages near the seeds matter more ("depth")
                 the value from a file         for URLs listed in `refresh.importance_file`

All processes use the same scale, because they compare levels. A page that lists other pages (a sitemap or a
feed) has no additional importance. How often a sitemap or a feed is read depends on the number of fetches
that its change signals make unnecessary (`sources.py`).
"""

from collections.abc import Callable, Iterable, Mapping

from crawler.config import RefreshConfig
from crawler.errors import bad_setting
from crawler.frontier.refresh.settings import DAY
from crawler.input_files import lines_of
from crawler.records import PageRecord
from crawler.urls.canonical import canonical

KEY = "refresh.importance_file"
VALUES_MAX = 1_000_000  # maximum number of lines of an importance file, about 100 bytes each in memory
VALUE_MAX = 1e12


class Importance:
    """Computes importances. `values` are priors by fingerprint. `asked` is set by the component that counts requests."""

    def __init__(self, config: RefreshConfig, values: Mapping[int, float] | None = None) -> None:
        self._prior = config.prior_requests
        self._by_depth = config.prior == "depth"
        self._values = values or {}
        self.asked: Callable[[int, float], float] | None = None  # (fingerprint, now) -> requests per second

    @property
    def prior(self) -> float:
        """The importance of a page at depth 0 that has no requests from users and is not in the importance file."""
        return self._prior

    def of(self, fingerprint: int, record: PageRecord, now: float) -> float:
        """Return the importance of a page, greater than 0."""
        prior = self._values.get(fingerprint)
        if prior is None:
            prior = self._prior / (record.depth + 1.0) if self._by_depth else self._prior
        return prior if self.asked is None else prior + DAY * self.asked(fingerprint, now)


def read_values(path: str, fingerprint: Callable[[str], int]) -> dict[int, float]:
    """Return the values in the file `refresh.importance_file` by fingerprint; {} if `path` is "".

    `fingerprint` maps a URL in request form to its fingerprint.

    Raises:
        ConfigError: the file cannot be read, a line is malformed, or there are too many lines.
    """
    if not path:
        return {}
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            return _read(lines_of(lines), fingerprint)
    except OSError as error:
        raise bad_setting(KEY, f"{path}: {error.strerror}") from error


def _read(lines: Iterable[str], fingerprint: Callable[[str], int]) -> dict[int, float]:
    """Return the values in lines `URL VALUE`; blank lines and comments (#) are skipped."""
    values: dict[int, float] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        url, _, value = text.rpartition(" ")
        form = canonical(url.strip())
        if form is None or not _is_value(value):
            raise bad_setting(KEY, f"line {number}: must be `URL VALUE` with a value of 0 or more")
        if len(values) >= VALUES_MAX:
            raise bad_setting(KEY, f"more than {VALUES_MAX:,} lines")
        values[fingerprint(form)] = float(value)
    return values


def _is_value(text: str) -> bool:
    try:
        return 0.0 <= float(text) <= VALUE_MAX
    except ValueError:
        return False
