"""The crawler's schedule as a policy that a pause of the crawl closes, and that is rebuilt from its store afterwards.

    record_outcome ──► records of the page, its site and its directory ──► LevelDB
    resume         ──► LevelDB is closed and opened; a new `Schedule` is loaded from it

Records are written after each event, as a crawl writes them (`frontier/refresh/state.py`). What is not stored, such as
the waits of hosts, is lost at a pause. So the difference between the policies `ncis` and `reopened` on a web with a
pause is what a restart costs.
"""

import tempfile
from pathlib import Path

from crawler.frontier.refresh import RefreshOutcome, Schedule, Settings, state
from crawler.lab.league.shipped import Shipped
from crawler.lab.living.worlds import DrawnWorld
from crawler.storage.engines import open_store


class Reopened(Shipped):
    """Runs a `Schedule` with a LevelDB store in a temporary folder."""

    def __init__(self, world: DrawnWorld, settings: Settings) -> None:
        super().__init__(world, world.spec.rate, settings)
        self._settings = settings
        self._folder = tempfile.TemporaryDirectory(prefix="crawler-reopened-")
        self._path = Path(self._folder.name) / "store"
        self._store = open_store(self._path, "leveldb")
        self._start()

    def _start(self) -> None:
        rate = self.schedule.pace.rate
        self.schedule = Schedule(self._settings, track=True)
        self.schedule.pace.rate = rate

    def resume(self, now: float) -> None:
        """Close the store, and load a new schedule from it."""
        self._store.close()
        self._store = open_store(self._path, "leveldb")
        self._start()
        state.load(self.schedule, self._store, now)
        known = [page for page, number in enumerate(self._number) if number >= 0]
        self._page.clear()
        for page in known:
            number = self.schedule.find(page + 1)
            self._number[page], self._page[number] = number, page

    def close(self) -> None:
        self._store.close()
        self._folder.cleanup()

    def add(self, page: int, now: float) -> None:
        super().add(page, now)
        self._keep(page)

    def record_outcome(self, page: int, now: float, changed: bool) -> None:
        super().record_outcome(page, now, changed)
        self._keep(page)

    def record_return(self, page: int, now: float) -> None:
        super().record_return(page, now)
        self._keep(page)

    def record_absence(self, page: int, now: float, result: RefreshOutcome) -> None:
        super().record_absence(page, now, result)
        self._keep(page)

    def _keep(self, page: int) -> None:
        """Store a page, and the pages that signals have touched since the last call."""
        batch = self._store.batch(sync=False)
        state.stage(self.schedule, self._number[page], batch)
        state.stage_signalled(self.schedule, self.schedule.signals.pop_touched(), batch)
        self._store.write(batch)
