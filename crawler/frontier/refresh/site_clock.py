"""The clock of the sites, on which the schedule runs: that of the crawl times `refresh.speed`."""


class SiteClock:
    """Turns our instants and lengths of time into those of the sites, and back."""

    def __init__(self, speed: float) -> None:
        self.speed = speed

    def at(self, instant: float) -> float:
        """Return one of our instants, or a length of time, on the clock of the sites."""
        return instant * self.speed

    def ours(self, instant: float) -> float:
        """Return an instant or a length of the sites on our clock."""
        return instant / self.speed
