"""Test the model of the changing web: statistics of changes, signals of hosts, and freshness from the log."""

from email.utils import formatdate
from xml.etree import ElementTree

import numpy as np
import pytest

from crawler.lab.changing.web import ChangingWeb, HostSpec, WebRequest, w3c_date
from crawler.lab.league.world import DAY

START = 1_700_000_000.0
ATOM = "{http://www.w3.org/2005/Atom}"
SITEMAP = "{http://www.sitemaps.org/schemas/sitemap/0.9}"


def _web(horizon: float = 1000.0 * DAY, seed: int = 1, **more: object) -> ChangingWeb:
    spec = {"name": "host", "pages": 20, "directories": 4, "rate": 1.0 / (20 * DAY)} | more
    return ChangingWeb([HostSpec(**spec)], horizon=horizon, start=START, seed=seed)  # type: ignore[arg-type]


def _get(web: ChangingWeb, path: str, now: float, **headers: str):  # type: ignore[no-untyped-def]
    return web.answer(0, path, {name.replace("_", "-"): value for name, value in headers.items()}, now)


# -- change


@pytest.mark.parametrize("process", ["poisson", "bursty", "together"])
def test_pages_change_at_the_configured_rate(process: str) -> None:
    """The mean change rate of 400 pages over 1000 days is within 5 % of the host's rate."""
    web = _web(process=process, pages=400, directories=40, spread=0.5)
    found = sum(map(len, web.changes)) / 400 / (1000 * DAY)
    assert found == pytest.approx(1.0 / (20 * DAY), rel=0.05)
    assert all(START <= at < START + 1000 * DAY for times in web.changes for at in times)
    assert all(times == sorted(times) for times in web.changes)


def test_each_page_has_its_own_rate() -> None:
    web = _web(pages=200, spread=1.0)
    counts = np.array([len(times) for times in web.changes])
    expected = np.array(web.rates) * 1000 * DAY
    assert np.corrcoef(counts, expected)[0, 1] > 0.95
    assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected) + 1)


@pytest.mark.parametrize(("process", "low", "high"), [("poisson", 0.9, 1.1), ("bursty", 1.6, 4.0)])
def test_gaps_between_bursty_changes_vary_more(process: str, low: float, high: float) -> None:
    """The coefficient of variation of gaps is 1 for Poisson changes, and greater for bursts."""
    web = _web(process=process, spread=0.0, pages=200, rate=1.0 / (5 * DAY))
    gaps = np.concatenate([np.diff(times) for times in web.changes])
    assert low < gaps.std() / gaps.mean() < high


def test_pages_of_a_directory_change_together() -> None:
    """Pages of one directory change at the same instant far more often than pages of different directories."""
    web = _web(process="together", pages=100, directories=10)
    sets = [set(times) for times in web.changes]
    same = sum(len(sets[0] & sets[k]) for k in range(1, 10))
    other = sum(len(sets[0] & sets[k]) for k in range(10, 100))
    assert same > 50 and other == 0


def test_a_slow_host_is_slow_in_the_second_half_of_each_period() -> None:
    host = HostSpec("h", slow=2.0, slow_period=100.0)
    assert [host.delay(elapsed) for elapsed in (0.0, 49.0, 51.0, 99.0, 101.0, 149.0, 151.0)] == [
        0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 2.0,
    ]  # fmt: skip
    assert HostSpec("h").delay(45.0) == 0.0


def test_equal_seeds_make_equal_webs() -> None:
    assert _web().changes == _web().changes != _web(seed=2).changes
    assert _web().token(3, 1) == _web().token(3, 1) != _web().token(3, 2)


@pytest.mark.parametrize(
    "more",
    [
        {"process": "odd"},
        {"lastmod": "odd"},
        {"validators": "odd"},
        {"pages": 0},
        {"rate": -1.0},
        {"rate": 1e9},
        {"slow": -1.0},
        {"slow_period": 0.0},
    ],
)
def test_invalid_webs_are_rejected(more: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        _web(**more)


# -- answers of hosts


def test_a_page_shows_its_version() -> None:
    web = _web()
    page = max(range(20), key=lambda k: len(web.changes[k]))
    first = web.changes[page][0]
    for now, version in ((first - 1.0, 0), (first, 1)):
        answer = _get(web, web.path(page), now)
        assert answer.status == 200 and web.token(page, version).encode() in answer.body
    assert [asked.version for asked in web.log] == [0, 1]


def test_every_page_can_be_reached_by_links() -> None:
    web = _web()
    front = _get(web, "/", START).body.decode()
    for page in range(20):
        directory = web.path(page).rpartition("/")[0] + "/"
        assert directory in front
        assert web.path(page) in _get(web, directory, START).body.decode()


@pytest.mark.parametrize(
    "path", ["/nothing", "/d0/p99.html", "/d3/p0.html", "/d0/p-1.html", "/d0/p0", "/feed.xml", "/d9/"]
)
def test_missing_paths_are_not_found(path: str) -> None:
    web = _web()
    assert _get(web, path, START).status == 404
    assert web.log[0].page == -1


def _lastmods(web: ChangingWeb, now: float) -> list[str]:
    tree = ElementTree.fromstring(_get(web, "/sitemap.xml", now).body)
    return [found.text or "" for found in tree.iter(f"{SITEMAP}lastmod")]


def test_sitemaps_honest_lying_constant_and_bare() -> None:
    now = START + 500 * DAY
    honest = _web()
    assert _lastmods(honest, now) == [w3c_date(honest.modified(page, now)) for page in range(20)]
    lying = _web(lastmod="lying")
    assert set(_lastmods(lying, now)) == {w3c_date(max(lying.modified(page, now) for page in range(20)))}
    assert set(_lastmods(_web(lastmod="constant"), now)) == {w3c_date(START)}
    assert _lastmods(_web(lastmod="none"), now) == []
    assert f"Sitemap: {honest.origins[0]}/sitemap.xml" in _get(honest, "/robots.txt", now).body.decode()


def test_noise_moves_a_lastmod_without_a_change() -> None:
    web = _web(rate=0.0, noise=1.0 / (10 * DAY))
    assert web.changes == [[]] * 20
    moved = [web.lastmod(page, START + 1000 * DAY - 1) for page in range(20)]
    assert len(set(moved)) == 20
    assert sum(map(len, web.noise)) == pytest.approx(20 * 100, rel=0.1)


def test_a_feed_lists_the_last_changes() -> None:
    web = _web(feed=True)
    now = START + 400 * DAY
    tree = ElementTree.fromstring(_get(web, "/feed.xml", now).body)
    told = {
        entry.find(f"{ATOM}link").attrib["href"]: entry.find(f"{ATOM}updated").text  # type: ignore[union-attr]
        for entry in tree.iter(f"{ATOM}entry")
    }
    last = sorted((at, page) for page, times in enumerate(web.changes) for at in times if at <= now)[-20:]
    assert told == {web.url(page): w3c_date(web.modified(page, now)) for _, page in last}


def _conditions(web: ChangingWeb, page: int, now: float) -> dict[str, str]:
    """Return the conditional headers of a client that made its copy at the instant `now`."""
    given = _get(web, web.path(page), now).headers
    names = {"ETag": "if_none_match", "Last-Modified": "if_modified_since"}
    return {names[name]: given[name] for name in names if name in given}


@pytest.mark.parametrize(
    ("validators", "before", "after"),
    [
        ("right", 304, 200),
        ("always-304", 304, 304),
        ("etag-fixed", 304, 304),
        ("etag-new", 200, 200),
        ("none", 200, 200),
    ],
)
def test_correct_and_lying_validators(validators: str, before: int, after: int) -> None:
    """A page is requested conditionally twice: before and after it changes."""
    web = _web(validators=validators)
    page = max(range(20), key=lambda k: len(web.changes[k]))
    change = web.changes[page][0]
    conditions = _conditions(web, page, change - 100.0)
    assert _get(web, web.path(page), change - 50.0, **conditions).status == before
    assert _get(web, web.path(page), change + 50.0, **conditions).status == after
    assert _get(web, web.path(page), change + 60.0).status == 200


def test_if_modified_since_alone() -> None:
    web = _web()
    page = max(range(20), key=lambda k: len(web.changes[k]))
    change = web.changes[page][0]
    path = web.path(page)
    asked = {"if_modified_since": formatdate(change, usegmt=True)}
    assert _get(web, path, change + 1.0, **asked).status == 304
    assert (
        _get(web, path, change + 1.0, if_modified_since=formatdate(change - 5.0, usegmt=True)).status == 200
    )
    assert _get(web, path, change + 1.0, if_modified_since="yesterday").status == 200
    tags = {"if_none_match": '"other"', **asked}
    assert _get(web, path, change + 1.0, **tags).status == 200  # the ETag takes precedence


def test_a_stamp_changes_the_bytes_and_not_the_text() -> None:
    web = _web(stamp=True)
    one, two = (_get(web, web.path(0), START).body.decode() for _ in range(2))
    assert one != two
    first, second = (text.split("<!--")[0] + text.split("-->")[1] for text in (one, two))
    assert first == second


# -- articles


def test_new_articles_are_listed() -> None:
    """An article does not exist before its birth.

    After the birth, the hub of the article lists it among the newest 20, and the archive lists it
    permanently.
    """
    web = _web(pages=4, directories=2, articles=60, hubs=2, rate=0.0, feed=True)
    born = sorted((at, page) for page, at in enumerate(web.born) if at > START)
    assert len(born) == 60 and born[-1][0] < START + 1000 * DAY
    for at, page in born:
        folder = web.path(page).rpartition("/")[0]
        assert _get(web, web.path(page), at - 1.0).status == 404
        assert _get(web, web.path(page), at + 1.0).status == 200
        for listing in (f"{folder}/", f"{folder}/archive.html", "/feed.xml"):
            link = web.path(page).encode() + (b"<" if listing != "/feed.xml" else b"")
            shown = [link in _get(web, listing, at + offset).body for offset in (-1.0, 1.0)]
            assert shown == [False, True], listing
    end = START + 1000 * DAY
    for hub in {web.path(page).rpartition("/")[0] for _, page in born}:
        own = [web.path(page) for _, page in born if web.path(page).startswith(f"{hub}/")]
        newest, archive = (_get(web, path, end).body.decode() for path in (f"{hub}/", f"{hub}/archive.html"))
        assert [path for path in own if f">{path}<" in newest] == own[-20:]
        assert all(f">{path}<" in archive for path in own)
    assert len(ElementTree.fromstring(_get(web, "/sitemap.xml", START).body)) == 4
    assert len(ElementTree.fromstring(_get(web, "/sitemap.xml", end).body)) == 64
    assert _get(web, "/n2/", end).status == 404


def test_delays_and_freshness_begin_with_a_birth() -> None:
    web = _web(pages=1, directories=1, articles=2, rate=0.0, horizon=100 * DAY)
    web.born[1:] = [START + 20 * DAY, START + 60 * DAY]
    for day, path in ((0, 0), (10, 1), (30, 1), (40, 1)):
        _get(web, web.path(path), START + day * DAY)
    assert web.delays(START, START + 50 * DAY) == [10 * DAY]
    assert web.delays(START, START + 100 * DAY) == [10 * DAY, float("inf")]
    there = [100, 80, 40]
    current = [100, 70, 0]
    assert web.freshness(START, START + 100 * DAY) == pytest.approx(sum(current) / sum(there))
    assert web.freshness(START, START + 100 * DAY, [0.0, 1.0, 0.0]) == pytest.approx(70 / 80)


# -- judgement


def test_freshness_from_the_log() -> None:
    """A page is fetched on day 10 and changes on day 20.

    The page is fetched again on day 30 (false 304) and on day 40 (new content).
    """
    web = _web(pages=1, directories=1, rate=0.0, horizon=100 * DAY)
    web.changes[0] = [START + 20 * DAY]
    for day, status, version in ((10, 200, 0), (30, 304, 1), (40, 200, 1)):
        web.log.append(WebRequest(START + day * DAY, 0, web.path(0), 0, version, status, status == 304))
    assert web.freshness(START, START + 100 * DAY) == pytest.approx(0.10 + 0.60)
    assert web.freshness(START + 15 * DAY, START + 25 * DAY) == pytest.approx(0.5)
    assert web.requests(START, START + 35 * DAY) == 2


def test_a_page_never_sent_is_not_current() -> None:
    assert _web().freshness(START, START + DAY) == 0.0
