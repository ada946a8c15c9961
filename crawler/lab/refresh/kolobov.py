"""Convert the public data set of page importance and change histories (Kolobov et al. 2019) to a pages file.

    crawler lab import folder --out pages.csv --sample 100000
    crawler lab figures ncis-8 --pages pages.csv

The data set (https://github.com/microsoft/Optimal-Freshness-Crawl-Scheduling,
some 18 million URLs) is a folder of tab-separated files:

    urlid_imp.txt                    URL_ID, importance
    urlid_offset_history.txt         URL_ID, offset, [[days since last crawl, changed 0/1], ...]
    urlid_chrate_compl_obs_hist.txt  URL_ID, change rate per day, for the pages whose sitemaps were trusted

The command keeps a uniform sample of the URLs. The change rate is the maximum-likelihood estimate from the
history, with the prior of the public code. Trusted pages are marked `labelled`; their change rates are those
in the data set. Rates are per day.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from crawler.cli.parsing import OptionParser, result_file
from crawler.errors import UsageError, reason_of
from crawler.input_files import lines_of
from crawler.lab.refresh import pages_file
from crawler.lab.refresh.estimate import rate_of
from crawler.typed_number import within

IMPORTANCE, HISTORY, TRUSTED = (
    "urlid_imp.txt",
    "urlid_offset_history.txt",
    "urlid_chrate_compl_obs_hist.txt",
)


def add_arguments(parser: OptionParser) -> None:
    parser.add_argument("folder", type=Path, help="folder with the three unpacked files")
    parser.option("--out", "pages.csv", "pages file to write (./pages.csv)", metavar="FILE", type=result_file)
    parser.option("--sample", 100_000, "URLs to keep")
    parser.option("--seed", 1, "seed of the sample")


def run(args: argparse.Namespace) -> int:
    within("--sample", args.sample, 1)
    within("--seed", args.seed, 0)
    rng = np.random.default_rng(args.seed)
    importance = _sample(args.folder / IMPORTANCE, args.sample, rng)
    rates = {key: _rate(history) for key, history in _wanted(args.folder / HISTORY, importance, 2)}
    trusted = {key: _given_rate(rate) for key, rate in _wanted(args.folder / TRUSTED, importance, 1)}
    rates.update(trusted)
    rows = ((key, importance[key], rates[key], int(key in trusted)) for key in sorted(rates))
    columns = ["page", "importance", "change_rate", "labelled"]
    pages_file.write_rows(args.out, columns, rows, f"command: {args.command_line}", f"seed: {args.seed}")
    print(f"{len(rates)} pages, {len(trusted)} of them labelled, in {args.out}")
    return 0


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, fields) of a tab-separated file."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(lines_of(file), start=1):
                yield number, line.rstrip("\n").split("\t")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {reason_of(error)}") from error


def _sample(path: Path, size: int, rng: np.random.Generator) -> dict[str, float]:
    """Draw `size` lines of the importance file uniformly, by reservoir sampling.

    Return a dict URL_ID -> importance.
    """
    kept: list[tuple[str, float]] = []
    for number, fields in _lines(path):
        place = number - 1 if number <= size else int(rng.integers(number))
        if place >= size:
            continue
        try:
            pair = (fields[0], _positive(fields[1]))
        except (IndexError, ValueError):
            raise UsageError(f"{path}, line {number}: expected URL_ID and importance") from None
        if number <= size:
            kept.append(pair)
        else:
            kept[place] = pair
    return dict(kept)


def _wanted(path: Path, keys: dict[str, float], column: int) -> Iterator[tuple[str, str]]:
    """For each line whose URL_ID is among `keys`, yield the URL_ID and the field number `column`."""
    for number, fields in _lines(path):
        if fields[0] in keys:
            if len(fields) <= column:
                raise UsageError(f"{path}, line {number}: expected {column + 1} columns")
            yield fields[0], fields[column]


def _positive(text: str) -> float:
    """Parse a number of 0 or more. Raise ValueError for anything else."""
    value = float(text)
    if not 0.0 <= value < pages_file.SIZE_MAX:
        raise ValueError(text)
    return value


def _given_rate(text: str) -> float:
    try:
        return _positive(text)
    except ValueError:
        raise UsageError(f"{TRUSTED}: invalid change rate {text[:40]!r}") from None


def _rate(history: str) -> float:
    """Return the change rate of a history [[days, changed], ...]."""
    try:
        pairs = np.array(msgspec.json.decode(history, type=list[tuple[float, int]])).reshape(-1, 2)
    except (msgspec.DecodeError, ValueError) as error:
        raise UsageError(f"{HISTORY}: {error}") from None
    if not np.isfinite(pairs).all() or (pairs < 0.0).any():
        raise UsageError(f"{HISTORY}: an interval is negative or infinite")
    return rate_of(pairs[:, 0], pairs[:, 1] > 0)
