"""The clock that the refresh schedule uses for all sites: `refresh.speed` times as fast as the crawl's clock."""


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
