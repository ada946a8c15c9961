"""Test the judge: it reports each broken rule, and no other rule."""

import gzip
from pathlib import Path

import pytest
from msgspec.structs import replace

from crawler.lab.cluster.cluster import Cluster, memory_folder
from crawler.lab.cluster.cluster_settings import START, ClusterSettings, LifeEnd
from crawler.lab.cluster.fault_plan import Fault
from crawler.lab.cluster.fetching import WebAsk
from crawler.lab.cluster.judge import RunVerdict, judge
from crawler.lab.cluster.synthetic_web import WebSpec

SMALL = ClusterSettings(web=WebSpec(hosts=2, pages=2, traps=0.0, down=0.0, sitemaps=0.0), faults=(), count=0)


def asked(web, number: int, at: float, **values: object) -> WebAsk:  # type: ignore[no-untyped-def]
    host, path = web.url(number).removeprefix("http://").split("/")
    row = WebAsk(START + at, START + at + 0.1, host, f"/{path}", 200, number, 0, "p0", "p0", 1)
    return replace(row, **values)


def verdict_on(tmp_path: Path, change=lambda cluster: None, settings: ClusterSettings = SMALL) -> RunVerdict:  # type: ignore[no-untyped-def]
    """Run a cluster without faults, alter the records of the run with `change`, and return the verdict."""
    cluster = Cluster(settings, tmp_path / "cluster")
    cluster.log.rows = [asked(cluster.web, 0, 1.0), asked(cluster.web, 1, 3.0)]
    folder = cluster.population.machines[0].folder / "p0" / "warc"
    folder.mkdir(parents=True)
    (folder / "a.warc.gz").write_bytes(gzip.compress(cluster.web.body(0, 0) + cluster.web.body(1, 0)))
    cluster.observed.ended, cluster.observed.elapsed = True, 10.0
    cluster.observed.lives = [LifeEnd(1, "p0", 10.0, "done")]
    change(cluster)
    return judge(cluster)


def test_an_unaltered_run_is_flawless(tmp_path: Path) -> None:
    assert verdict_on(tmp_path).flawless


def _rows(*asks: tuple[int, float], **of_last: object):  # type: ignore[no-untyped-def]
    """Replace the log by requests for pages at given times. The last request gets other values of some fields."""

    def change(cluster: Cluster) -> None:
        rows = [asked(cluster.web, page, at) for page, at in asks]
        cluster.log.rows = [*rows[:-1], replace(rows[-1], **of_last)]

    return change


def _warc(content: bytes):  # type: ignore[no-untyped-def]
    def change(cluster: Cluster) -> None:
        (cluster.population.machines[0].folder / "p0/warc/b.warc.gz").write_bytes(content)

    return change


def _set(**values: object):  # type: ignore[no-untyped-def]
    def change(cluster: Cluster) -> None:
        for name, value in values.items():
            setattr(cluster.observed, name, value)

    return change


def _double(cluster: Cluster) -> None:
    path = cluster.population.machines[0].folder / "p0/warc/a.warc.gz"
    path.with_name("b.warc.gz").write_bytes(path.read_bytes())


BROKEN = {
    "lost": _rows((0, 1.0)),
    "unstored": lambda cluster: (cluster.population.machines[0].folder / "p0/warc/a.warc.gz").unlink(),
    "stored twice": _double,
    "torn": _warc(b"\x1f\x8b\x08\x00 torn"),
    "fetched too often": _rows((0, 1.0), (0, 3.0), (1, 6.0)),
    "impolite": _rows((0, 1.0), (1, 3.0), (1, 3.5), path="/robots.txt", page=-1),
    "two owners": _rows((0, 1.0), (1, 3.0), (1, 8.0), path="/robots.txt", page=-1, name="p1", machine="p1"),
    "forbidden": _rows((0, 1.0), (1, 3.0), (1, 8.0), path="/private/1", page=-1),
    "stalled": _rows((0, 1.0), (1, 3000.0)),
    "no end": _set(ended=False),
    "miscounted": _set(problems=["p0: 1 + 1 = 3"]),
    "bug": _set(unexpected=["KeyError"]),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_found(tmp_path: Path, rule: str) -> None:
    assert set(verdict_on(tmp_path, BROKEN[rule]).found) == {rule}


@pytest.mark.parametrize(
    ("goes_on", "parted", "rules"), [(60, 0, set()), (200, 0, {"two owners"}), (200, 90, set())]
)
def test_the_older_of_two_processes_of_one_name_must_stop_in_time(
    tmp_path: Path, goes_on: float, parted: float, rules: set[str]
) -> None:
    """If the network is partitioned, the older process has more time to stop.

    The gaps of each machine are judged separately. If a process has a copy, the loss of links breaks no rule.
    """

    def change(cluster: Cluster) -> None:
        cluster.observed.cloned_at, cluster.observed.elapsed = START + 10.0, 300.0
        cluster.observed.begun = {1: 0.0, 2: 10.0}
        cluster.observed.done = [Fault(20.0, "partition", (0, 1), parted)] * bool(parted)
        cluster.log.rows = [
            asked(cluster.web, 0, 10.0 + goes_on),
            asked(cluster.web, 0, 10.1 + goes_on, machine="p0-copy", life=2),
        ]

    assert set(verdict_on(tmp_path, change).found) == rules


def test_pages_listed_only_in_a_sitemap_are_lost_if_it_was_read_or_never_requested(tmp_path: Path) -> None:
    settings = replace(SMALL, web=WebSpec(hosts=1, pages=14, traps=0.0, down=0.0, sitemaps=1.0))

    def verdict(name: str, *, with_map: bool, left_out: int = -1) -> RunVerdict:
        def change(cluster: Cluster) -> None:
            web = cluster.web
            assert [page for page in range(14) if web.is_orphan(page)] == [13]
            rows = [asked(web, page, 60.0 * page) for page in range(14) if page != left_out]
            missing = [asked(web, 7, 1000.0, path="/missing/7", status=404, page=-1)]
            maps = [asked(web, 0, 900.0, path="/sitemap.xml", page=-1)] if with_map else []
            cluster.log.rows = [*rows, *maps, *missing]
            folder = cluster.population.machines[0].folder / "p0" / "warc"
            bodies = b"".join(web.body(page, 0) for page in range(2, 14) if page != left_out)
            (folder / "b.warc.gz").write_bytes(gzip.compress(bodies))

        return verdict_on(tmp_path / name, change, settings)

    assert verdict("whole", with_map=True).flawless
    assert verdict("orphan", with_map=True, left_out=13).examples["lost"].startswith("page 13")
    found = verdict("map", with_map=False, left_out=13)
    assert found.found == {"lost": 1} and found.examples["lost"].endswith("/sitemap.xml")


@pytest.mark.parametrize("found_by", ["the survivor", "the one that stopped"])
def test_with_copies_only_links_found_by_survivors_count_as_lost(tmp_path: Path, found_by: str) -> None:
    """A machine stops because its copy runs. Then it may lose links that it found. The survivor may lose no link."""
    settings = replace(SMALL, seed=1, web=replace(SMALL.web, hosts=4, pages=4))

    def change(cluster: Cluster) -> None:
        foreign = [n for n in range(1, 4) if cluster.population.owner(cluster.web.url(n)) != "p0"]
        assert any(cluster.web.parent[page] == 0 for page in foreign)
        cluster.observed.cloned_at = START + 0.5
        survivor = "p0" if found_by == "the survivor" else "p0-copy"
        cluster.observed.survivors = {"p0": survivor, "p1": "p1", "p2": "p2"}
        cluster.population.add_machine("p0-copy", "p0", tmp_path / "copy")
        cluster.log.rows = [asked(cluster.web, 0, 1.0)]

    found = set(verdict_on(tmp_path, change, settings).found)
    assert found == ({"lost"} if found_by == "the survivor" else set())


@pytest.mark.parametrize("put_back", ["before the request", "after", "the owner"])
def test_no_link_may_be_lost_with_a_restored_disk(tmp_path: Path, put_back: str) -> None:
    """The process with the restored disk fetches its pages again.

    Its peers recover the links that it had confirmed.
    """
    settings = replace(SMALL, web=replace(SMALL.web, hosts=4, pages=4))

    def change(cluster: Cluster) -> None:
        cluster.log.rows = [asked(cluster.web, 0, 1.0)]
        cluster.observed.survivors = {name: name for name in ("p0", "p1", "p2")}
        at = START + (0.5 if put_back == "before the request" else 2.0)
        names = ("p1", "p2") if put_back == "the owner" else ("p0",)
        cluster.observed.restored = dict.fromkeys(names, at)

    assert set(verdict_on(tmp_path, change, settings).found) == {"lost"}


def test_a_crawl_with_copies_must_end(tmp_path: Path) -> None:
    assert set(verdict_on(tmp_path, _set(ended=False, cloned_at=START)).found) == {"no end"}


def test_fetches_voided_by_a_kill_may_be_repeated(tmp_path: Path) -> None:
    def change(cluster: Cluster) -> None:
        cluster.log.rows.insert(1, asked(cluster.web, 0, 5.0, life=2))
        cluster.log.rows.sort(key=lambda row: row.at)
        cluster.observed.lives.insert(0, LifeEnd(1, "p0", 4.0, "kill at committed", killed=True))

    assert verdict_on(tmp_path, change).flawless


def test_exceeding_the_rate_is_unfair(tmp_path: Path) -> None:
    settings = replace(SMALL, rate=0.2, processes=1)

    def change(cluster: Cluster) -> None:
        many = [asked(cluster.web, 1, 3.0 + 2 * n, path="/robots.txt", page=-1) for n in range(9)]
        cluster.log.rows = [asked(cluster.web, 0, 1.0), asked(cluster.web, 1, 1.1), *many]

    assert "unfair rate" in verdict_on(tmp_path, change, settings).found


def test_a_page_that_is_no_longer_fetched_is_stale(tmp_path: Path) -> None:
    settings = replace(SMALL, refresh=True, length=1e5, tree={"refresh": {"max_age": 1000.0}})

    def change(cluster: Cluster) -> None:
        cluster.observed.elapsed = 1e5
        _rows((0, 1.0), (1, 3.0), (1, 99e3))(cluster)

    assert set(verdict_on(tmp_path, change, settings).found) == {"stale"}


def test_folders_of_a_cluster_are_removed_with_it() -> None:
    with memory_folder() as folder:
        assert Path(folder).is_dir()
    assert not Path(folder).exists()
