"""Changes found over changes expected, and P[fresh] corrected by that ratio.

Every crawl judges the P[fresh] that was said before it. If changes come c times as fast as the model expects,
of all pages alike, P^c is right. So the crawl is one page watched for the time H = -ln P a crawl, and c its
rate, learned as those of pages are (`change_rates.py`):

    x = c H;   if changed: seen += x / (1 - exp(-x));   told += H;     c = (W + seen) / (W + told)

Both sums fade over `MEMORY` crawls. The order of pages does not depend on c, so schedules do not need it: it
corrects the probabilities that people see.

Source: van Houwelingen, *Validation, calibration, revision and combination of prognostic survival models*
(Statistics in Medicine 2000): revision of the cumulative hazard by one factor.
"""

import math

WEIGHT = 10.0  # expected changes' worth of belief in the model
MEMORY = 2000.0  # crawls
HAZARD_MAX = 4.0  # of one crawl: beyond, P is .02, and a change tells nothing
RATIO_LOW, RATIO_HIGH = 0.25, 4.0


class HazardRatio:
    """The ratio c; `seen` and `told` as they were stored."""

    def __init__(self, seen: float = 0.0, told: float = 0.0) -> None:
        self.seen, self.told = seen, told

    @property
    def ratio(self) -> float:
        return min(max((WEIGHT + self.seen) / (WEIGHT + self.told), RATIO_LOW), RATIO_HIGH)

    def observe(self, fresh: float, changed: bool) -> None:
        """A crawl of a page whose copy was fresh with probability `fresh`, as the model has it."""
        hazard = min(-math.log(max(fresh, 1e-300)), HAZARD_MAX)
        keep = math.exp(-1.0 / MEMORY)
        x = self.ratio * hazard
        gain = x / -math.expm1(-x) if x > 1e-12 else 1.0
        self.seen = self.seen * keep + (gain if changed else 0.0)
        self.told = self.told * keep + hazard

    def corrected(self, fresh: float) -> float:
        """P[fresh] as it is, of a page of which the model says `fresh`."""
        return float(fresh**self.ratio) if fresh > 0.0 else 0.0

    def __repr__(self) -> str:
        return f"HazardRatio({self.ratio:.3f}, {self.told:.1f} changes expected)"
