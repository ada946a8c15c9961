"""The clock of the sites, on which the schedule runs: the crawl's clock times `refresh.speed`."""


class SiteClock:
    """Converts instants and durations between the crawl's clock and the clock of the sites."""

    def __init__(self, speed: float) -> None:
        self.speed = speed

    def at(self, instant: float) -> float:
        """Convert an instant or duration of the crawl's clock to the clock of the sites."""
        return instant * self.speed

    def ours(self, instant: float) -> float:
        """Convert an instant or duration of the clock of the sites to the crawl's clock."""
        return instant / self.speed
