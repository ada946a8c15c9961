"""Open real stages in a folder, on a virtual clock, with canned answers instead of a network."""

import shutil
from collections.abc import Generator, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from crawler.clock import VirtualClock
from crawler.config import Config, convert
from crawler.crawl.topology import Topology
from crawler.process.opening.stages import Stages
from crawler.records import Extracted, Fetch, FetchTask, Link, Outcome, PageRecord, TaskKind
from crawler.splitter.partition import Partition
from crawler.storage.commit import Change, Making, steps

SEED = bytes(range(16))
HTML = ((b"Content-Type", b"text/html; charset=utf-8"),)


def fetch(url: str, body: bytes = b"<p>page</p>", **values: Any) -> Fetch:
    """Return a successful answer, with some fields replaced by `values`."""
    values = {
        "outcome": Outcome.FETCHED,
        "status": 200,
        "reason": "OK",
        "headers": HTML,
        "content_type": "text/html",
        "body": body,
        "content": body,
        "address": "127.0.0.1",
        "began": 1_000_000.0,
        "took": 0.25,
        "wire_bytes": len(body) + 100,
    } | values
    return Fetch(url=url, **values)


def redirect(url: str, location: str, **values: Any) -> Fetch:
    return fetch(url, b"", outcome=Outcome.REDIRECT, status=301, location=location, **values)


def made(making: Change | Generator[None, None, Any]) -> tuple[Any, int]:
    """Run the generator to its end; return its result, such as a change, and the number of its pauses."""
    pauses, making = 0, steps(making)
    while True:
        try:
            next(making)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


def hosts(count: int, first: int = 1) -> list[str]:
    """Return the URLs of `count` hosts."""
    return [f"http://h{n}.org/" for n in range(first, first + count)]


def new_links(stages: Stages, urls: Iterable[str]) -> Change:
    """Return a change with new links, which wait in the DUE once it is committed."""
    change = Change()
    change.links = [Link(stages.fingerprinter.fingerprint(url), url) for url in urls]
    stages.due.admit(np.array([link.fingerprint for link in change.links], np.uint64))
    change.count("urls.accepted", len(change.links))
    change.count("urls.to_due", len(change.links))
    return change


class Fetching:
    """Open stages on a virtual clock; their fetch tasks get canned answers."""

    def __init__(self, stages: Stages) -> None:
        self.clock: VirtualClock = stages.clock  # type: ignore[assignment]
        self._use(stages)
        self.clock.advance(5.0)  # the delay after an unclean stop is over at this time
        self._names: dict[str, str] = {}

    def _use(self, stages: Stages) -> None:
        self.stages, self.frontier = stages, stages.frontier
        self.results, self.admission = stages.decisions.results, stages.decisions.admission
        self.earlier = stages.decisions.earlier
        self.frontier.limit_requests(1 << 40)

    def record(self, url: str) -> PageRecord:
        """Return the record of a page, which must have one."""
        record = self.stages.pages.record(self.fingerprint(url))
        assert record is not None
        return record

    def fingerprint(self, url: str) -> int:
        return self.stages.fingerprinter.fingerprint(url)

    def seeds(self, *urls: str) -> Change:
        """Add seeds to the crawl, and flush the DUE."""
        change = made(self.admission.seeds(list(urls)))[0]
        self.stages.commits.commit_now(change)
        return change

    def add(self, url: str, **values: Any) -> None:
        """Queue a URL in the frontier, as the DUE would."""
        change = Change()
        self.frontier.enqueue([Link(self.fingerprint(url), url, **values)], change, self.clock.now())
        change.after.append(lambda: self.frontier.committed(change, self.clock.now()))
        self.stages.commits.commit(change)

    def fetch_task(self, task: TaskKind = TaskKind.PAGE) -> FetchTask:
        """Return the next fetch task of a kind. Answer the look-ups and robots.txt requests that come before it."""
        for _ in range(50):
            now = self.clock.now()
            fetch_task = self.frontier.claim_next(now)
            if fetch_task is None:
                wakeup = self.frontier.next_wakeup(now)
                assert wakeup is not None, self.frontier
                self.clock.advance(max(0.0, wakeup - now))
            elif fetch_task.kind is task:
                return fetch_task
            elif fetch_task.kind is TaskKind.RESOLVE:
                self._names.setdefault(fetch_task.hostname, f"127.0.0.{len(self._names) + 1}")
                self.frontier.resolved(fetch_task, [self._names[fetch_task.hostname]], now + 1e6, now)
            else:
                assert fetch_task.kind is TaskKind.ROBOTS, fetch_task
                missing = fetch(fetch_task.url, b"", outcome=Outcome.GONE, status=404)
                self.commit(self.results.robots(fetch_task, missing, now))
        raise AssertionError("the frontier gave out no fetch task of this kind")

    def robots(self, body: bytes, **values: Any) -> Change:
        """Answer the next request for a robots.txt with `body`, and commit the change."""
        fetch_task = self.fetch_task(TaskKind.ROBOTS)
        answer = fetch(fetch_task.url, body, **values)
        return self.commit(self.results.robots(fetch_task, answer, self.clock.now()))

    def page(self, fetch_task: FetchTask, answer: Fetch, extracted: Extracted | None = None) -> Change:
        """Process the result of a page and commit the change."""
        return self.commit(self.results.page(fetch_task, answer, extracted, self.clock.now()))

    def visit(self, answer: Fetch, extracted: Extracted | None = None) -> Change:
        """Fetch the URL of an answer as a seed; return the change that is made from the answer."""
        self.seeds(answer.url)
        return self.page(self.fetch_task(), answer, extracted)

    def store(self, *urls: str, extracted: Extracted | None = None, **values: Any) -> None:
        """Fetch seeds, and store pages with the fields `values`; the body of each page is its URL."""
        self.seeds(*urls)
        for _ in urls:
            fetch_task = self.fetch_task()
            answer = fetch(fetch_task.url, fetch_task.url.encode(), began=self.clock.now(), **values)
            self.page(fetch_task, answer, extracted)

    def commit(self, making: Change | Making) -> Change:
        change = made(making)[0]
        counts = dict(change.counts)
        self.stages.commits.commit(change)
        assert change.counts == counts
        return change

    def follow(self, url: str, answer: Fetch, extracted: Extracted | None = None, **values: Any) -> Change:
        """Fetch a URL whose link has the attributes `values`; return the change that is made from the answer."""
        self.add(url, **values)
        return self.page(self.fetch_task(), answer, extracted)


class Joint(Fetching):
    """The stages of the process `me` of a crawl, in `folder/<me>`; `names` are the names of all processes of the crawl.

    `tree` contains the sections of the configuration.
    """

    def __init__(
        self, folder: Path, *, names: tuple[str, ...] = ("p0",), me: str = "p0", **tree: Any
    ) -> None:
        config = convert({"cache": {"bits": 8}, "store": {"durability": "process"}} | tree)
        topology = Topology(me, Partition.equal_ranges(list(names)))
        super().__init__(Stages(config, folder / me, SEED, clock=VirtualClock(), name=me, topology=topology))
        self.users = ExitStack()  # the users of the stages, which are closed before the stages

    def opened_again(self, folder: Path | None = None, config: Config | None = None) -> Stages:
        """Open the same process, in `folder` and with `config` if they are given."""
        old = self.stages
        where = {"clock": self.clock, "name": old.name, "topology": old.topology}
        return Stages(config or old.config, folder or old.directory, SEED, **where)

    def reopen(self, config: Config | None = None) -> None:
        """Close the stages and open them again, as at the next start of the process."""
        self.stages.close()
        self._use(self.opened_again(config=config))

    def killed(self, folder: Path) -> Stages:
        """Return the stages as the next start of the process would find them if it were killed now."""
        shutil.copytree(self.stages.directory, folder, ignore=shutil.ignore_patterns("*.sock", "LOCK"))
        return self.opened_again(folder)

    def close(self) -> None:
        self.users.close()
        self.frontier._check()
        self.stages.close()


def links_of(change: Change) -> list[tuple[str, int, int, int]]:
    """Return (URL, depth, redirects, flags) for each link that the change passes to the DUE."""
    return [(link.url, link.depth, link.redirects, link.flags) for link in change.links]


def counted(change: Change) -> dict[str, int]:
    """Return the counts of the change, except the counts of stored and kept objects."""
    return {name: n for name, n in change.counts.items() if not name.startswith(("stored.", "kept."))}
