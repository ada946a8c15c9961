"""Test that every interface of a crawl gives the same answers, both while the crawl runs and while it does not.

All interfaces withhold the same pages. A webmaster can demand in three ways that a page is not shown: by a
request to the operator (`withdraw`), by `noarchive`, or by a robots.txt that forbids the page
(`serve.on_disallow = "withhold"`).
"""

import asyncio
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import crawler as api
from crawler import config
from crawler.cli import access
from crawler.cli.loopback import free_port
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import ConfigError, CrawlerError, NoSeedError
from tests.end_to_end.test_live import Running, ask
from tests.end_to_end.test_withdraw import do, serving
from tests.end_to_end.web import FAST, SETTINGS, ReceivedRequest, Web, page, run

HOSTS = [f"127.20.0.{n}" for n in range(1, 7)]  # each process owns at least one of these hosts
ENDLESS = "127.20.0.99"  # an endless host that keeps the crawl running
PATHS = ("/open", "/noarchive", "/later", "/private", "/taken")
FLAGS = (*FAST, "--processes", "3", "--set", "serve.on_disallow=withhold", "--set", "robots.copy_max_age=1")
ROBOTS = (200, {"Content-Type": "text/plain"}, "User-agent: *\nAllow: /\n")
NOARCHIVE = {"X-Robots-Tag": "noarchive"}
SLOW = ("--set", "crawl.rate=30")  # pages per second, so that the endless host leaves the CPU to the test


def endless(asked: ReceivedRequest) -> Any:
    if asked.host != ENDLESS or not asked.path[1:].isdigit():
        return 404, {}, ""
    return page(f"/{int(asked.path[1:]) + 1}", text=asked.path)


@pytest.fixture
def web() -> Iterator[Web]:
    """Serve six hosts. After the first crawl, `/later` says noarchive, and robots.txt forbids `/private`."""
    routes: dict[str, Any] = {path: page(text=f"text of {path}") for path in PATHS}
    routes |= {"/": page(*PATHS), "/robots.txt": ROBOTS, f"{ENDLESS}/": page("/1")}
    routes["/noarchive"] = (200, NOARCHIVE, page(text="text"))
    with Web(routes, address="0.0.0.0", other=endless) as web:
        yield web


def urls(web: Web, path: str) -> list[str]:
    return [web.url(path, host) for host in HOSTS]


def change(web: Web) -> None:
    web.routes["/later"] = (200, NOARCHIVE, web.routes["/later"])
    web.routes["/robots.txt"] = (*ROBOTS[:2], "User-agent: *\nDisallow: /private\n")


def shown(directory: Path, known: set[str], port: int, admin: int) -> dict[str, set[str]]:
    """Return, for each interface, which of the `known` URLs it shows. `admin` is 0 if the crawl is not running."""
    records = [json.loads(line) for line in exported(directory, "jsonl").splitlines()]
    archived = [json.loads(line.split(" ", 2)[2]) for line in exported(directory, "cdxj").splitlines()[1:]]
    stored = api.Crawl(directory=directory).stored
    views: dict[str, set[str]] = {
        "export jsonl": {each["url"] for each in records if each["warc_file"]},
        "export text": {json.loads(line)["url"] for line in exported(directory, "text").splitlines()},
        "export cdxj": {each["url"] for each in archived},
        "Python, newest": {each.url for each in stored()},
        "Python, all copies": {each.url for each in stored(newest=False)},
    }
    views["get"] = {url for url in known if run("get", url, "--dir", directory).code == 0}
    for name, path in (("page", "/page?url="), ("list of copies", "/timemap/link/"), ("gate", "/timegate/")):
        views[name] = {url for url in known if ask(port, path + url)[0] in (200, 302)}
    why = {url: why_of(directory, url) for url in known}
    if admin:
        views["admin why"] = {
            url for url in known if not json.loads(ask(admin, f"/why?url={url}")[2])["withheld"]
        }
    views["why"] = {url for url, facts in why.items() if not facts["withheld"]}
    views["verdict"] = {url for url, facts in why.items() if not is_withheld(facts["verdict"])}
    return {name: found & known for name, found in views.items()}


def is_withheld(verdict: str) -> bool:
    return "kept but not served" in verdict or "kept, but not served" in verdict


def exported(directory: Path, form: str) -> str:
    done = run("export", "--dir", directory, "--format", form)
    assert done.code == 0, done
    return done.text


def why_of(directory: Path, url: str) -> dict[str, Any]:
    return json.loads(run("why", url, "--json", "--dir", directory).out)


def test_all_entrances_withhold_the_same_pages(tmp_path: Path, web: Web) -> None:
    directory = tmp_path / "crawl"
    seeds, known = urls(web, "/"), {url for path in PATHS for url in urls(web, path)}
    assert run("crawl", *seeds, "--dir", directory, *FLAGS, "--scope", "host").code == 0
    change(web)
    time.sleep(1)  # now, each copy of robots.txt is older than `copy_max_age`
    with Running(
        tmp_path, [*seeds, web.url("/", ENDLESS)], *FLAGS, *SLOW, "--timestamping", "--scope", "host"
    ) as running:
        running.until(lambda: all(web.paths(host).count("/later") == 2 for host in HOSTS))
        changed = (*urls(web, "/later"), *urls(web, "/private"))
        running.until(lambda: all(why_of(directory, url)["withheld"] for url in changed))
        taken = urls(web, "/taken")
        running.until(lambda: all(why_of(directory, url)["record"]["fetches"] == 2 for url in taken))
        results = [json.loads(running.command("withdraw", url, "--json").stdout)[0] for url in taken[:3]]
        results += [do(running, url=url)[1]["answers"][0] for url in taken[3:]]
        assert [{**each, "at": "", "url": ""} for each in results] == [
            {"done": "withdrawn", "at": "", "url": "", "pages": 1, "copies": 2, "bytes": each["bytes"]}
            for each in results
        ]
        views = shown(directory, known, running.serve, running.admin)
        assert views == dict.fromkeys(views, set(urls(web, "/open")))
    with serving(directory) as port:
        views = shown(directory, known, port, 0)
        assert views == dict.fromkeys(views, set(urls(web, "/open")))


# For each row: its name, the words of the command, and the same request to the admin port.
ROWS: tuple[tuple[str, list[str], dict[str, Any]], ...] = (
    *(
        (f"set {key}={value}", ["set", f"{key}={value}"], {"command": "set", "settings": {key: value}})
        for key, value in (
            ("crawl.rate", "31"),
            ("log.level", "info"),
            ("log.level", "loud"),
            ("politeness.delay", "x"),
            ("politeness.delay", "-1"),
            ("crawl.concurrency", "9999"),
            ("refresh.share", "0.5"),
            ("pages.prefix", "x"),
        )
    ),
    *(
        (f"{name} {host}", [name, host], {"command": name, "host": host})
        for name in ("block", "unblock")
        for host in ("127.20.0.2", "http://127.20.0.2:81/a", "nowhere.example", "*.example", "bad host!")
    ),
    *(
        (f"retire {pattern}", ["retire", pattern], {"command": "retire", "pattern": pattern})
        for pattern in ("/nothing/", "(", "a{99999999999999}")
    ),
    *(
        (f"seed {url}", ["seed", url], {"command": "seed", "urls": [url]})
        for url in ("ftp://x/", "htp:/x", "http://127.20.0.1:1/", "example.org", "http://u:p@127.20.0.1/")
    ),
    *(
        (f"withdraw {order}", ["withdraw", *words], {"command": "withdraw", **order})
        for words, order in (
            (["nonsense"], {"url": "nonsense"}),
            (["--host", "bad host!"], {"host": "bad host!"}),
            (["--host", "*.example"], {"host": "*.example"}),
            (["--before", "yesterday"], {"before": "yesterday"}),
            (["http://127.20.0.1/x", "--undo"], {"url": "http://127.20.0.1/x", "undo": True}),
        )
    ),
    ("pause", ["pause"], {"command": "pause"}),
    ("resume", ["resume"], {"command": "resume"}),
)


def signals(web: Web) -> list[list[str]]:
    """Return lists of URLs with which signals are sent: no URLs, URLs out of scope, too long URLs, and mixtures."""
    outside = "http://127.21.0.1/"
    return [
        ["nonsense"],
        ["ftp://127.20.0.1/", "/page"],
        ["http://[::1/"],
        [outside, outside, "HTTP://127.21.0.1:80/#part"],
        [outside, "nonsense", "http://127.20.0.1/" + "a/" * 5000],
        ["http://127.20.0.1:25/", "http://127.20.0.1/" + "a/" * 90],
        ["127.20.0.1", "http://user:word@127.21.0.1/"],
    ]


async def signalled_by_python(directory: Path, signalled: list[str]) -> str:
    async with api.Crawl(directory=directory) as crawl:
        try:
            return str(crawl.signal(signalled)["said"])
        except CrawlerError as error:
            return str(error)


LOOKED_UP = ("/open", "/later", "/nofollow", "/never", "/redirect", "/gone", "/denied", "/queued")


def explained(found: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that do not depend on when, and by which entrance, the question was asked."""
    return {name: found.get(name) for name in ("verdict", "filter", "record", "unfollowed_on", "found_on")}


def without_log_of(error: str) -> str:
    return error.removeprefix("crawler: ").strip()


@pytest.mark.parametrize("processes", [1, 3])
def test_all_entrances_give_the_same_answer(tmp_path: Path, web: Web, processes: int) -> None:
    """The command line and the admin port accept or reject the same requests, with the same reason.

    `why`, `get` and the page server agree about a URL, even if its scheme is missing. The verdict is the same
    with one and with three processes, live and at rest.
    """
    host = HOSTS[0]
    links = '<a rel=nofollow href="/nofollow">n</a><a href="/redirect">r</a><a href="/gone">g</a><a href="/denied">d</a>'
    web.routes |= {"/": page(*PATHS, f"http://{HOSTS[1]}:{web.port}/across", head=links), "/across": "across"}
    web.routes |= {"/redirect": (302, {"Location": "/open"}, ""), f"{ENDLESS}/": page("/1")}
    web.routes["/robots.txt"] = (*ROBOTS[:2], "User-agent: *\nDisallow: /denied\n")
    seeds = [*urls(web, "/"), web.url("/", ENDLESS)]
    flags = (*FAST, "--processes", str(processes), "--scope", "host", *SLOW)
    running = Running(tmp_path, seeds, *flags)
    verdicts: dict[str, list[dict[str, Any]]] = {}
    answers: dict[str, str] = {}
    try:
        running.until(
            lambda: all("/gone" in web.paths(each) and "/taken" in web.paths(each) for each in HOSTS)
        )
        for rule, words, request in ROWS:
            done, (status, said) = run(*words, "--dir", running.folder), do(running, **request)
            assert (status, bool(done.err)) in ((200, False), (400, True)), (rule, done, said)
            if status == 400:
                assert without_log_of(done.err) == said["why"], rule
            else:
                assert done.text.strip() == said["said"], rule
            if refused := [each for answer in said.get("answers", ()) for each in answer.get("refused", ())]:
                assert done.code == 2 and all(each["why"] in done.text for each in refused), rule
            assert ("a login in a URL is read only" in done.text) == ("u:p@" in rule), rule
        for signalled in signals(web):
            done = run("signal", *signalled, "--dir", running.folder)
            status, _, body = ask(running.serve, "/signal", "POST", {"urls": signalled})
            answers[str(signalled)] = without_log_of(done.err) or done.text.strip()
            assert (status, bool(done.err)) in ((200, False), (400, True)), (signalled, done, body)
            assert answers[str(signalled)] == json.loads(body)["why" if status == 400 else "said"], signalled
        assert running.status()["paused"] == []
        assert (
            do(running, command="seed", urls=[web.url("/x", host)], settings={"crawl.scope": "any"})[0] == 400
        )
        running.until(lambda: "/redirect" in web.paths(host))
        for path in LOOKED_UP[:-1]:
            url = web.url(path, host)
            for spelling in (url, *([url.removeprefix("http://")] if path == "/open" else [])):
                answer = json.loads(ask(running.admin, f"/why?url={spelling}")[2])
                views = [explained(why_of(running.folder, spelling)), explained(answer)]
                assert views[0] == views[1] == verdicts.setdefault(path, views)[0], (path, views)
                shown = run("get", spelling, "--headers", "--dir", running.folder)
                status, _, body = ask(running.serve, f"/page?url={spelling}")
                got = int(shown.text.split()[1]) if shown.code == 0 else json.loads(body)["why"] in shown.err
                assert got in (status, True), (path, status, shown)
        across = why_of(running.folder, web.url("/across", HOSTS[1]))["found_on"]
        assert (
            across
            == json.loads(ask(running.admin, f"/why?url={web.url('/across', HOSTS[1])}")[2])["found_on"]
        )
        assert across.endswith(f":{web.port}/")
    finally:
        running.end()
    for path in LOOKED_UP[:-1]:
        assert explained(why_of(running.folder, web.url(path, host))) == verdicts[path][0], path
    for signalled in signals(web):
        done = run("signal", *signalled, "--dir", running.folder)
        assert (without_log_of(done.err) or done.text.strip()) == answers[str(signalled)], signalled
        if processes == 1:
            assert asyncio.run(signalled_by_python(running.folder, signalled)) == answers[str(signalled)]
    assert "nofollow" in verdicts["/nofollow"][0]["verdict"]
    for each in HOSTS:  # the process that receives the seeds keeps some of them for their owners
        assert run("seed", web.url("/queued", each), "--dir", running.folder).code == 0
        assert why_of(running.folder, web.url("/queued", each))["verdict"].startswith("To do: ")
    assert run("set", "log.level=debug", "--dir", running.folder).code == 2


def test_a_changed_setting_is_kept_and_those_of_the_run_are_not(tmp_path: Path, web: Web) -> None:
    """All three entrances save a setting that is changed while the crawl runs.

    The entrances do not save the settings that `--spider` and `follow=False` change for one run.
    """
    changed = {"politeness.delay": "0.75"}

    async def change() -> None:
        async with api.Crawl(
            SETTINGS, directory=tmp_path / "python", seeds=web.url("/open", HOSTS[0]), follow=False
        ) as crawl:
            assert not crawl.config.sitemaps.robots
            await crawl.command({"command": "set", "settings": changed})

    asyncio.run(change())
    kept = {"python": CrawlDirectory(tmp_path / "python")}
    with Running(
        tmp_path, [web.url("/", ENDLESS)], *FAST, *SLOW, "--spider", "--max-pages", "1000000"
    ) as running:
        kept["cli"] = kept["http"] = CrawlDirectory(running.folder)
        running.until(lambda: len(web.paths(ENDLESS)) > 2)
        for entrance, directory in kept.items():
            if entrance == "cli":
                assert run("set", "politeness.delay=0.75", "--dir", running.folder).code == 0
            elif entrance == "http":
                assert do(running, command="set", settings=changed)[0] == 200
            saved, default = config.convert(directory.settings.load()), config.Config()
            assert saved.politeness.delay == 0.75, entrance
            assert saved.crawl.max_pages == 0
            assert (saved.robots, saved.sitemaps) == (default.robots, default.sitemaps)
            directory.settings.save(structs.replace(saved, politeness=default.politeness))


def one_run(entrance: str, directory: Path, url: str, limits: bool) -> None:
    """Crawl by an entrance. With `limits`, use the settings for one run that this entrance has."""
    if entrance == "python":
        config = {**SETTINGS, "crawl": {**SETTINGS["crawl"], **({"max_pages": 1} if limits else {})}}
        for_run: dict[str, Any] = {"parse": lambda page: ()} if limits else {}
        api.run(url, directory=directory, config=config, **for_run)
        return
    words = ["crawl", url, *FAST, "--processes", "3" if entrance == "processes" else "1"]
    if entrance == "node":
        words = ["node", url, *FAST, "--name", "a", "--peer", f"a=127.0.0.1:{free_port()}"]
    elif limits:
        words += ["--spider", "--timestamping"]
    done = run(*words, *(("--max-pages", "1") if limits else ()), "--dir", directory)
    assert done.code == 0, done


@pytest.mark.parametrize("entrance", ["command", "processes", "python", "node"])
def test_settings_of_one_run_are_not_saved(tmp_path: Path, web: Web, entrance: str) -> None:
    """The next run has only the settings of the crawl, fetches the other pages and stores them.

    `--spider` once left `pages.store = "none"`, callbacks in Python left `fetch.cookies = true`, and a node whose
    address changed listened on the former one.
    """
    directory, settings = tmp_path / "crawl", CrawlDirectory(tmp_path / "crawl").settings
    one_run(entrance, directory, web.url("/", HOSTS[0]), limits=True)
    fetched = set(web.paths(HOSTS[0]))
    given = config.to_toml(api.configure(SETTINGS)).splitlines()
    saved = [line for line in settings.file.read_text().splitlines() if line[:1] != "#" and line not in given]
    own = {"engine", "retry_delays", *(("processes", "name", "peers") if entrance != "python" else ())}
    assert {line.partition(" ")[0] for line in saved} <= own, saved
    one_run(entrance, directory, web.url("/", HOSTS[0]), limits=False)
    assert set(web.paths(HOSTS[0])) == {"/", *PATHS}
    records = [json.loads(line) for line in exported(directory, "jsonl").splitlines()]
    stored = {each["url"] for each in records if each["warc_file"]}
    assert stored >= {web.url(path, HOSTS[0]) for path in {*PATHS} - fetched - {"/noarchive"}}


@pytest.mark.parametrize(
    ("given", "host"),
    [
        ({}, HOSTS[0]),
        ({"politeness.delay": "0.5"}, HOSTS[0]),
        ({"robots.policy": "ignore"}, HOSTS[1]),
        ({"urls.partition": "host"}, HOSTS[0]),
        ({"crawl.processes": "2"}, HOSTS[0]),
        ({"politeness.delay": "x"}, HOSTS[0]),
    ],
    ids=lambda value: "-".join(value) or "nothing" if isinstance(value, dict) else value,
)
def test_a_continued_crawl_keeps_the_settings_that_are_not_given_again(
    tmp_path: Path, web: Web, given: dict[str, str], host: str
) -> None:
    """Python once replaced all saved settings by the defaults. Both entrances refuse the same settings and seeds."""
    flags = (*FAST, "--set", "fetch.body_bytes_max=123456", "--set", "robots.policy=ignore")
    assert run("crawl", web.url("/open", HOSTS[0]), "--dir", tmp_path / "cli", *flags).code == 0
    shutil.copytree(tmp_path / "cli", tmp_path / "python")
    before = (tmp_path / "cli" / "crawl.toml").read_text()
    words = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    done = run("crawl", web.url("/later", host), "--dir", tmp_path / "cli", "--progress", "none", *words)
    settings: dict[str, dict[str, str]] = {}
    for key, value in given.items():
        config.set_key(settings, key, value)
    try:
        api.run(web.url("/later", host), directory=tmp_path / "python", config=settings or None)
        refused = ""
    except CrawlerError as error:
        refused = str(error)
    assert bool(done.code) == bool(refused), (done, refused)
    reason = refused.replace("python", "cli").removeprefix("configuration: ")
    # the text in parentheses is not compared, because the command names its flags there
    assert reason.partition(" (")[0] in done.err, (done, refused)
    kept = (tmp_path / "python" / "crawl.toml").read_text()
    assert kept == (tmp_path / "cli" / "crawl.toml").read_text()
    assert refused and kept == before or "body_bytes_max = 123456" in kept
    changed = {line for line in kept.splitlines() if line not in before.splitlines()}
    assert changed == ({"delay = 0.5"} if given == {"politeness.delay": "0.5"} else set())


def test_a_seed_with_a_login_is_used_or_refused_but_never_fetched_without_it(
    tmp_path: Path, web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    """`crawler crawl URL` uses the login; a seeds file and Python once dropped it silently."""
    url = web.url("/open", f"me:secret@{HOSTS[0]}")
    (tmp_path / "seeds").write_text(url)
    assert run("crawl", url, "--dir", tmp_path / "cli", *FAST).code == 0
    assert web.asked[-1].headers["Authorization"].startswith("Basic ") and len(web.paths()) == 1
    assert run("crawl", "--seeds", tmp_path / "seeds", "--dir", tmp_path / "file", *FAST).code == 4
    with pytest.raises(NoSeedError):
        api.run(url, directory=tmp_path / "python", config=SETTINGS)
    (tmp_path / "settings.toml").write_text(f'seeds = ["{url}"]')
    set_up = run("crawl", "--config", tmp_path / "settings.toml", "--dir", tmp_path / "file", *FAST)
    assert (set_up.code, "a login in a URL is read only" in set_up.err) == (2, True)
    with pytest.raises(ConfigError, match="a login in a URL is read only"):
        api.run(directory=tmp_path / "python", config={**SETTINGS, "seeds": [url]})
    assert len(web.paths()) == 1 and "secret" not in caplog.text
    assert "secret" not in (tmp_path / "file" / "crawler.log").read_text()


def test_a_process_that_restarts_misses_no_command(tmp_path: Path, web: Web) -> None:
    """Once, a restarted process fetched although the crawl was paused, and did not learn of a block over HTTP.

    Another bug occurred while the first process was being restarted: `crawler set` behaved as if the crawl were
    stopped, and a seed over HTTP and a signal were refused.
    """
    running = Running(tmp_path, [*urls(web, "/"), web.url("/", ENDLESS)], *FLAGS, *SLOW, "--scope", "host")
    folder = running.folder

    def kill(name: str) -> None:
        processes = running.until(lambda: len(found := running.status()["processes"]) == 3 and found)
        os.kill(next(each["pid"] for each in processes if each["name"] == name), signal.SIGKILL)

    try:
        running.until(lambda: all("/taken" in web.paths(host) for host in HOSTS))
        assert run("pause", "--dir", folder).code == 0
        kill("p1")
        status, said = do(running, command="block", host="nowhere.example")
        assert status == 200 and len(said["answers"]) == 3
        paused = [access.ask(folder, {"command": "status", "hosts": 0})[n]["paused"] for n in range(3)]
        assert paused == [["user"]] * 3 and running.status()["paused"] == ["user"]
        kill("p0")
        assert run("set", "crawl.rate=31", "--dir", folder).text == "crawl.rate = 31\n"
        kill("p2")
        assert run("resume", "--dir", folder).code == 0
        running.until(lambda: running.status()["paused"] == [])
        kill("p0")
        assert do(running, command="seed", urls=[web.url("/s", HOSTS[0])])[1]["answers"][0]["queued"] == 1
        assert run("signal", web.url("/open", HOSTS[1]), "--dir", folder).code == 0
    finally:
        running.end()
