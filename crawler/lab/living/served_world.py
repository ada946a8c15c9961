"""A drawn world as a web: its answers to HTTP requests, and the log of these answers.

Each host of the world is a host of the web, with pages like `/d3/p17.html`. The world runs `speed` times as fast as
the clock of the server. `answer` is a plain function of the request and `now`; `lab/changing/server.py` transports
the answers.

During a spell in which its host fails, a page answers 500. A page that alternates answers with one of two texts, at
random. Worlds whose pages are born, move or go away, and other kinds of spells, are not served.
"""

import random
from bisect import bisect_right

from crawler.lab.changing.web import HostSpec, WebAnswer
from crawler.lab.living.answer_log import Answered
from crawler.lab.living.course import SpellKind
from crawler.lab.living.worlds import DrawnWorld

HTML = {"Content-Type": "text/html; charset=utf-8"}


def can_serve(world: DrawnWorld) -> bool:
    """Return whether the pages of a world always exist, and its hosts either answer or fail."""
    course = world.course
    kinds = {spell.kind for spell in course.spells}
    return not (len(course.born) or len(course.died) or course.contents) and kinds <= {SpellKind.FAILING}


class ServedWorld:
    """The web of a drawn world. The world begins at `start` on the clock of the server."""

    def __init__(self, world: DrawnWorld, *, start: float, speed: float) -> None:
        if not can_serve(world):
            raise ValueError(f"{world!r} cannot be served")
        self.world, self.start, self.speed = world, start, speed
        self.hosts = tuple(map(HostSpec, world.sites))
        self.origins = [f"http://{site}" for site in world.sites]  # the server sets them
        self.log: list[Answered] = []
        self._rng = random.Random(world.seed)
        self._site = world.site.tolist()
        self._paths = [f"/d{folder}/p{page}.html" for page, folder in enumerate(world.directory.tolist())]
        self._page_at = {(self._site[page], path): page for page, path in enumerate(self._paths)}

    def url(self, page: int) -> str:
        return self.origins[self._site[page]] + self._paths[page]

    def time_of(self, now: float) -> float:
        """Return the time of the world at `now`."""
        return (now - self.start) * self.speed

    def instant(self, at: float) -> float:
        """Return the instant of the server at the time `at` of the world."""
        return self.start + at / self.speed

    def signals(self, begin: float, end: float) -> list[int]:
        """Return the pages of the signals that arrive after `begin` and until `end`, which are instants of the server."""
        told, of = self.world.told_at, self.world.told_of
        after, by = (int(told.searchsorted(self.time_of(at), side="right")) for at in (begin, end))
        return of[after:by].tolist()

    def answer(self, host: int, path: str, headers: dict[str, str], now: float) -> WebAnswer:
        """Return the host's answer to a GET, and log it if it is that of a page; header names are in lower case."""
        if path == "/robots.txt":
            return WebAnswer(200, {"Content-Type": "text/plain"}, b"User-agent: *\nAllow: /\n")
        page = self._page_at.get((host, path), -1)
        if page < 0:
            return WebAnswer(404, {"Content-Type": "text/plain"}, b"not here\n")
        at = self.time_of(now)
        fails = self.world.course.spell(host, at) is not None
        self.log.append(Answered(at, page, not fails))
        return WebAnswer(500, HTML, b"<!doctype html><p>failed") if fails else self._page(page, headers, at)

    def _page(self, page: int, headers: dict[str, str], at: float) -> WebAnswer:
        alternating = self.world.course.alternating
        form = self._rng.randrange(2) if len(alternating) and alternating[page] else 0
        version = f"{page}-{bisect_right(self.world.changes[page], at)}-{form}"
        sent = {**HTML, "ETag": f'"{version}"'}
        if headers.get("if-none-match") == sent["ETag"]:
            return WebAnswer(304, sent)
        return WebAnswer(200, sent, f"<!doctype html><title>{page}</title><p>Version {version}".encode())

    def __repr__(self) -> str:
        return f"ServedWorld({self.world!r}, {len(self.log)} answers)"
