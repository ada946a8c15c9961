"""`crawler check`: everything of one process read and compared, and what opening it mended."""

from pathlib import Path

from crawler.errors import DamageError
from crawler.stages import BALLAST, Stages
from crawler.storage.kv import unseal

# Keys whose values are sealed and can be read without knowing their stage.
_SEALED = (b"u/", b"c/", b"g/", b"t/", b"p/", b"h/", b"d/", b"r/")
PROBLEMS_MAX = 1000  # lines of one report


def check(stages: Stages) -> list[str]:
    """What is wrong, a line each; [] if all is well. Reads every value, run and WARC record."""
    problems = list(stages.problems())
    problems += _damaged_values(stages)
    problems += stages.due.check()
    problems += [f"{problem.where}: {problem.message}" for problem in stages.pages.check()]
    return problems[:PROBLEMS_MAX]


def _damaged_values(stages: Stages) -> list[str]:
    problems = []
    for prefix in _SEALED:
        for key, value in stages.store.scan(prefix, prefix[:-1] + b"0"):  # "0" follows "/"
            try:
                unseal(key, value)
            except DamageError as error:
                problems.append(str(error))
    return problems


def repaired(stages: Stages) -> list[str]:
    """What opening these stages mended, a line each."""
    lines = [stages.store.mended] if stages.store.mended else []
    if stages.restored:
        lines.append(f"{stages.restored} pages whose copies are gone are to be fetched again")
    return lines


def repair_before_opening(folder: Path) -> list[str]:
    """Free the ballast, so that a full disk has room to open the store."""
    ballast = folder / BALLAST
    if not ballast.exists():
        return []
    size = ballast.stat().st_size
    ballast.unlink()
    return [f"freed {size >> 20} MiB of ballast"]
