"""Test that hubs get the same credit from several processes as from one, despite kills and redirects."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from crawler.process.results.credits import PASSES_MAX
from crawler.records import Extracted, Fetch, FetchTask, Link, LinkFlag
from crawler.splitter.inbox import Received
from crawler.upkeep.deliver_pending import deliver_pending
from tests.process.support import Joint, fetch, made, redirect

Open = Callable[..., Joint]
NAMES = ("p0", "p1", "p2")
TREE: dict[str, Any] = {
    "refresh": {"endless": True, "share": "auto", "min_age": 0.0},
    "crawl": {"scope": "any"},
    "store": {"durability": "process"},
}
HOSTS = 12
HUBS = [f"http://h{n}.org/" for n in range(HOSTS)]
DAY = 86_400.0
_REFRESH, _NEWS, _CREDIT = LinkFlag.REFRESH, LinkFlag.NEWS, LinkFlag.CREDIT


class Crawl:
    """Several processes that exchange links when `settle` is called. Each host has one hub and some articles."""

    def __init__(self, open_joint: Open, names: tuple[str, ...]) -> None:
        self.joints = {name: open_joint(names=names, me=name, **TREE) for name in names}
        for url in HUBS:
            self.owner(url).seeds(url)
        self.answer_new()

    def owner(self, url: str) -> Joint:
        any_joint = next(iter(self.joints.values()))
        return self.joints[any_joint.stages.topology.partition.owner(any_joint.fingerprint(url))]

    def settle(self) -> None:
        deliver_pending([joint.stages for joint in self.joints.values()])

    def show(self, shown: Mapping[str, list[str]]) -> None:
        """Refetch every hub. `shown` maps the URL of a hub to the links that its new copy has."""
        for joint in self.joints.values():
            joint.clock.advance(DAY)
            waiting = {url for url in HUBS if self.owner(url) is joint}
            while waiting:
                fetch_task = joint.fetch_task()
                assert fetch_task.flags & _REFRESH, fetch_task
                waiting.discard(fetch_task.url)
                body = repr((fetch_task.url, joint.clock.now())).encode()
                extracted = Extracted(fetch_task.url, hrefs=shown.get(fetch_task.url, []))
                joint.page(fetch_task, fetch(fetch_task.url, body), extracted)
        self.settle()

    def answer_new(self, given: Mapping[str, Fetch] | None = None) -> None:
        """Fetch each new URL of each process, until no process has any new URLs left."""
        while any(joint.stages.views.frontier_counts().todo for joint in self.joints.values()):
            for joint in self.joints.values():
                while joint.stages.views.frontier_counts().todo:
                    fetch_task = joint.fetch_task()
                    joint.page(
                        fetch_task,
                        (given or {}).get(fetch_task.url) or _page(fetch_task),
                        Extracted(fetch_task.url),
                    )
            self.settle()

    def credits(self) -> dict[str, float]:
        """Return the number of pages credited to each hub."""
        found = {}
        for url in HUBS:
            joint = self.owner(url)
            assert joint.stages.refresh is not None
            schedule = joint.stages.refresh.schedule
            page = schedule.find(joint.fingerprint(url))
            found[url] = schedule.records.hub_state(page)[0]
        return found


def _page(fetch_task: FetchTask) -> Fetch:
    return fetch(fetch_task.url, fetch_task.url.encode())


def test_three_processes_give_the_credit_that_one_gives(open_joint: Open) -> None:
    """Every hub links to articles on all hosts; some links are redirected to other hosts."""
    shown = {
        hub: [f"http://h{(n + step) % HOSTS}.org/a{n}-{step}" for step in range(n % 5)]
        for n, hub in enumerate(HUBS)
    }
    hops = {
        f"http://h{(n + 2) % HOSTS}.org/a{n}-2": f"http://h{(n + 5) % HOSTS}.org/moved" for n in (3, 4, 8, 9)
    }
    assert set(hops) < {url for links in shown.values() for url in links}
    last = {target: target.replace("moved", "here") for target in hops.values()}
    given = {url: redirect(url, target) for url, target in {**hops, **last}.items()}
    found = []
    for names in (("p0",), NAMES):
        crawl = Crawl(open_joint, names)
        crawl.show(shown)
        crawl.answer_new(given)
        found.append(crawl.credits())
        told = [joint.stages.point.counters["splitter.credits_told"] for joint in crawl.joints.values()]
        credited = [joint.stages.point.counters["hubs.credited"] for joint in crawl.joints.values()]
        assert sum(credited) == sum(map(len, shown.values()))
        assert (sum(told) > 5) == (len(names) > 1), told
        assert [joint.stages.views.problems() for joint in crawl.joints.values()] == [[]] * len(names)
    alone, shared = found
    assert alone == pytest.approx({hub: len(links) for hub, links in shown.items()}, rel=1e-3)
    assert shared == pytest.approx(alone, rel=1e-3)


def test_a_page_whose_first_copy_shows_many_urls_is_expected_to_show_more(open_joint: Open) -> None:
    """The URLs of the copy belong to all processes.

    Images, and URLs that another page has shown before, do not count.
    """
    joint = open_joint(names=NAMES, me="p0", **{**TREE, "crawl": {"scope": "any", "requisites": True}})
    home = next(url for url in HUBS if owner(joint, url) == "p0")
    known, new = ([f"http://h{n}.org/{name}" for n in range(HOSTS)] for name in ("known", "new"))
    links = {}
    for page, hrefs in ((home + "first", known), (home + "list", [*known, *new])):
        joint.seeds(page)
        fetch_task = joint.fetch_task()
        while fetch_task.url != page:
            joint.page(fetch_task, _page(fetch_task), Extracted(fetch_task.url))
            fetch_task = joint.fetch_task()
        joint.page(fetch_task, _page(fetch_task), Extracted(page, hrefs=hrefs, requisites=[home + "i.png"]))
        assert joint.stages.refresh is not None
        schedule = joint.stages.refresh.schedule
        links[page] = schedule.records.hub_state(schedule.find(joint.fingerprint(page)))[2]
    assert list(links.values()) == [len(known), len(new)]


def foreign_hub(joint: Joint) -> str:
    return next(url for url in HUBS if owner(joint, url) != "p0")


def owner(joint: Joint, url: str) -> str:
    return joint.stages.topology.partition.owner(joint.fingerprint(url))


def own_page(joint: Joint) -> str:
    return next(url for url in HUBS if owner(joint, url) == "p0") + "article"


def test_a_kill_neither_loses_nor_doubles_a_credit(open_joint: Open, tmp_path: Path) -> None:
    """The article's process is killed before it sends the credit.

    The hub's process is killed after it has committed the credit.
    """
    crawl = Crawl(open_joint, NAMES)
    hub = foreign_hub(crawl.joints["p0"])
    article = own_page(crawl.joints["p0"])
    crawl.show({hub: [article]})
    joint = crawl.joints["p0"]
    fetch_task = joint.fetch_task()
    while fetch_task.flags & _REFRESH:
        joint.page(fetch_task, _page(fetch_task))
        fetch_task = joint.fetch_task()
    assert (fetch_task.url, fetch_task.via) == (article, joint.fingerprint(hub)) and fetch_task.flags & _NEWS
    joint.page(fetch_task, _page(fetch_task), Extracted(article))
    assert joint.stages.outbox.links == 1 and crawl.credits()[hub] == 0.0
    before = joint.killed(tmp_path / "killed" / "p0")
    others = {name: each.stages for name, each in crawl.joints.items() if name != "p0"}
    deliver_pending([before, *others.values()])
    assert crawl.credits()[hub] == 1.0
    there = crawl.owner(hub)
    after = there.killed(tmp_path / "killed" / there.stages.name)
    rest = [stages for name, stages in others.items() if name != there.stages.name]
    deliver_pending([before, after, *rest])
    assert after.refresh is not None
    page = after.refresh.schedule.find(joint.fingerprint(hub))
    assert after.refresh.schedule.records.hub_state(page)[0] == 1.0
    for stages in (before, after):
        assert stages.views.problems() == []
        stages.close()


def test_a_credit_has_the_owners_bucket_and_is_one_per_page(open_joint: Open) -> None:
    """A compaction of the outbox keeps one link per fingerprint, and the receiver refuses links that it does not own."""
    joint = open_joint(names=NAMES, **TREE)
    hub = joint.fingerprint(foreign_hub(joint))
    marks = set()
    for page in range(5):
        url = f"{own_page(joint)}{page}"
        change = joint.follow(url, fetch(url, url.encode()), Extracted(url), via=hub, flags=_NEWS)
        ((name, (link,)),) = change.foreign
        assert name == joint.stages.topology.partition.owner(hub) and link.via == hub
        assert link.fingerprint >> 48 == hub >> 48 and link.flags == _CREDIT
        marks |= {link.fingerprint, joint.fingerprint(url)}
    assert len(marks) == 10


@pytest.mark.parametrize("times", [0, PASSES_MAX - 1, PASSES_MAX])
def test_a_credit_is_passed_on_a_bounded_number_of_times(open_joint: Open, times: int) -> None:
    """Two pages redirect to each other, so two processes would pass the credit back and forth."""
    joint = open_joint(names=NAMES, **TREE)
    here, there = own_page(joint), foreign_hub(joint)
    values = {"via": joint.fingerprint(there), "flags": _NEWS}
    joint.follow(here, redirect(here, there), **values)
    via = joint.fingerprint(here)
    credit = Link(via ^ 1, "", via=via, redirects=times, flags=_CREDIT)
    change, _ = made(joint.stages.decisions.received(Received("p1", bytes(8), 1, [credit], 100)))
    passed = [link.redirects for _, links in change.foreign for link in links]
    assert passed == ([times + 1] if times < PASSES_MAX else [])
    change.received = None
    joint.stages.commits.commit_now(change)


def test_a_page_that_is_fetched_again_earns_no_second_credit(open_joint: Open) -> None:
    """A page is queued again with `crawl.timestamping`, or after a WARC segment was lost.

    The hub that linked to it has already received the credit.
    """
    joint = open_joint(**TREE)
    hub, article = HUBS[0], HUBS[0] + "article"
    joint.visit(fetch(hub), Extracted(hub))
    via = joint.fingerprint(hub)
    joint.follow(article, fetch(article, b"1"), Extracted(article), via=via, flags=_NEWS)
    joint.stages.commits.commit_now(
        joint.stages.commits.queue_again(
            [Link(joint.fingerprint(article), article, via=via, flags=_NEWS | LinkFlag.AGAIN)]
        )
    )
    fetch_task = joint.fetch_task()
    while fetch_task.flags & _REFRESH:
        joint.page(fetch_task, fetch(fetch_task.url, fetch_task.url.encode()), Extracted(fetch_task.url))
        fetch_task = joint.fetch_task()
    joint.page(fetch_task, fetch(article, b"2"), Extracted(article))
    assert joint.stages.point.counters["hubs.credited"] == 1
