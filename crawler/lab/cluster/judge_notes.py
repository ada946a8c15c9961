"""The rules of the judge, and the violations found in a run."""

from collections import Counter

RULES = (
    "lost",
    "unstored",
    "unrendered",
    "stored twice",
    "torn",
    "fetched too often",
    "impolite",
    "two owners",
    "forbidden",
    "unfair rate",
    "stale",
    "stalled",
    "no end",
    "left behind",
    "miscounted",
    "bug",
    "over a limit",
    "not heeded",
    "unheard",
    "gave up",
    "misfiled",
    "misrecorded",
)
TRIES = 3  # a page may be given up after this many failed answers


class Notes:
    """The number of violations of each rule, with an example of each."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def add(self, rule: str, example: str, count: int = 1) -> None:
        assert rule in RULES, rule
        if count:
            self.found[rule] += count
            self.examples.setdefault(rule, example)
