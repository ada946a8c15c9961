"""Crawls a drawn world with a complete process of the crawler (schedule, front, commits), on a virtual clock.

The web changes `speed` times as fast as the clock of `lab/cluster`. The crawl receives `speed` as the setting
`refresh.speed`, as in `lab/changing/gain.py`. So a day of the world takes only seconds on the clock of the
crawl. The crawl sends `RATE` requests per second. Pages are found through one index page per host. Freshness
is computed from the web's log (`answer_log.py`).
"""

from bisect import bisect_right
from pathlib import Path
from typing import Any

from crawler.lab.cluster.cluster import Cluster, memory_folder
from crawler.lab.cluster.cluster_settings import START, ClusterSettings
from crawler.lab.cluster.synthetic_web import SyntheticWeb, WebHost, WebReply, WebSpec, token
from crawler.lab.living import answer_log
from crawler.lab.living.answer_log import Answered
from crawler.lab.living.playing import WorldRun
from crawler.lab.living.worlds import DrawnWorld

RATE = 30.0  # requests per second of the virtual clock
LATENCY = 0.005  # seconds until an answer arrives
INDEX_IMPORTANCE = 1e-3
# Maps a name to the refresh settings that differ from the defaults.
CRAWLS: dict[str, dict[str, Any]] = {
    "crawl": {},
    "crawl-pooled": {"neighbourhood": False},
    "crawl-uniform": {"policy": "uniform"},
}


class DrawnWeb(SyntheticWeb):
    """A drawn world as a web.

    Pages have paths like `/d3/p17.html`. The path `/` lists the pages of a host; on the first host, it also
    lists all hosts.
    """

    def __init__(self, world: DrawnWorld, speed: float) -> None:
        self.world, self.speed, self.start = world, speed, START
        self.spec = WebSpec(hosts=len(world.sites), pages=len(world.site))
        pages: list[list[int]] = [[] for _ in world.sites]
        self._paths: list[str] = []
        self._page_at: dict[tuple[str, str], int] = {}
        for page, (site, folder) in enumerate(
            zip(world.site.tolist(), world.directory.tolist(), strict=True)
        ):
            path = f"/d{folder}/p{page}.html"
            pages[site].append(page)
            self._paths.append(path)
            self._page_at[f"{world.sites[site]}.test", path] = page
        self.hosts = [
            WebHost(f"{name}.test", own, LATENCY, (0.0, 0.0), False, False)
            for name, own in zip(world.sites, pages, strict=True)
        ]
        self.number = {host.name: k for k, host in enumerate(self.hosts)}

    def url(self, page: int) -> str:
        """Return the URL of the index page of a host; here, `page` is the number of the host.

        The index page of host 0 is the seed of the crawl.
        """
        return f"http://{self.hosts[page].name}/"

    def page_url(self, page: int) -> str:
        return f"http://{self.hosts[int(self.world.site[page])].name}{self._paths[page]}"

    def version(self, page: int, now: float) -> int:
        return bisect_right(self.world.changes[page], (now - self.start) * self.speed)

    def answer(self, name: str, path: str, now: float, *, asked: int = 0, etag: str = "") -> WebReply:
        if path == "/robots.txt":
            return WebReply(LATENCY, 200, b"User-agent: *\nDisallow:\n", "text/plain")
        host = self.hosts[self.number[name]]
        if path == "/":
            links = [self.page_url(page) for page in host.pages]
            if host is self.hosts[0]:
                links += [f"http://{other.name}/" for other in self.hosts[1:]]
            body = "".join(f'<a href="{link}">x</a> ' for link in links)
            return WebReply(LATENCY, 200, f"<!doctype html><title>{name}</title>{body}".encode())
        page = self._page_at.get((name, path), -1)
        if page < 0:
            return WebReply(LATENCY, 404, b"<title>404</title>")
        version = self.version(page, now)
        tag = f'"{page}-{version}"'
        if etag == tag:
            return WebReply(LATENCY, 304, page=page, version=version, etag=tag)
        body = f"<!doctype html><title>{page}</title><p>{token(page, version)}"
        return WebReply(LATENCY, 200, body.encode(), page=page, version=version, etag=tag)

    def __repr__(self) -> str:
        return f"DrawnWeb({self.world!r})"


def crawled(name: str, world: DrawnWorld) -> WorldRun:
    """Let one process with the settings `name` crawl the world; return the result."""
    speed = RATE / world.spec.rate
    web = DrawnWeb(world, round(speed))
    length = world.horizon / web.speed
    with memory_folder() as folder:
        weights = Path(folder) / "importance"
        weights.write_text(_weights(web))
        settings = ClusterSettings(
            seed=world.seed,
            processes=1,
            faults=(),
            rate=RATE,
            length=length,
            tree={
                "politeness": {"delay": LATENCY, "delay_factor": 0.0, "address_delay_share": 0.0},
                "sitemaps": {"robots": False},
                "due": {"max_wait": 0.2},
                "pages": {"segment_bytes": 10_000_000},
                "refresh": {
                    "endless": True,
                    "share": 0.05,  # a small share for refresh, so that all pages are found first
                    "min_age": 0.0,
                    "speed": web.speed,
                    "importance_file": str(weights),
                    **CRAWLS[name],
                },
            },
        )
        cluster = Cluster(settings, Path(folder) / "crawl", web)
        observed = cluster.run()
        if observed.unexpected:
            raise RuntimeError(f"{name} on {world!r}: {observed.unexpected}")
    rows = (row for row in cluster.log.rows if row.page >= 0)
    return answer_log.result(world, (Answered((row.at - START) * web.speed, row.page) for row in rows))


def _weights(web: DrawnWeb) -> str:
    """Return the text of an importance file, in which index pages have nearly no weight."""
    weights = web.world.importance / web.world.importance.mean()
    lines = [f"{web.page_url(page)} {weight!r}" for page, weight in enumerate(weights.tolist())]
    lines += [f"http://{host.name}/ {INDEX_IMPORTANCE}" for host in web.hosts]
    return "\n".join(lines) + "\n"
