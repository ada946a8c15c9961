"""Test change signals through every interface, with one and three processes, which may be dead or stopped."""

import asyncio
import hashlib
import hmac
import http.client
import json
import os
import shutil
import signal
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import pytest

from crawler.admin import control_client
from crawler.api import Crawl
from crawler.change_signals import Signalled
from crawler.clock import SystemClock
from crawler.config import convert
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import NoSeedError, UsageError
from crawler.process.committing.portions import PORTION_LINKS
from crawler.process.opening.stages import at_rest
from crawler.records import Extracted, Fetch, FetchTask, Outcome, TaskKind
from crawler.serve.notification_handlers import NotificationHandlers
from crawler.storage.keys import NOTICE
from crawler.storage.kv import scan_prefix
from tests.end_to_end.test_live import Running, free_port, serving
from tests.end_to_end.web import Answer, ReceivedRequest, Web, page, redirect, run
from tests.faults.harness import TreeWeb
from tests.waiting import WAIT_MAX

HOME, AWAY = "http://localhost/", "http://elsewhere.example/"
LINK = HOME + "the-link"
HUB, KEY = "http://hub.localhost/", "0123456789abcdef"
FEED = (
    f'<feed xmlns="http://www.w3.org/2005/Atom"><title>f</title><entry><link href="{LINK}"/></entry></feed>'
)
SETTINGS: dict[str, Any] = {
    "network": {"allow_networks": ["127.0.0.0/8"]},
    "serve": {"address": "127.0.0.1:0"},
    "store": {"durability": "process"},
    "sitemaps": {"robots": False},
}


def ask(port: int, target: str, body: bytes | None = None, **fields: str) -> tuple[int, dict[str, str], Any]:
    """Send a request to the page server; return the status, header fields and JSON of the answer."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        headers = {name.replace("_", "-"): value for name, value in fields.items()}
        link.request("GET" if body is None else "POST", target, body, headers)
        answer = link.getresponse()
        return answer.status, dict(answer.getheaders()), json.loads(answer.read() or b"null")
    finally:
        link.close()


def ask_unix(path: Path, body: bytes) -> dict[str, Any]:
    """Send a POST request for /signal to the socket `path`. Assert that the answer is 200, and return its JSON."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            link.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        head = "POST /signal HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        link.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        whole = b"".join(iter(lambda: link.recv(1 << 16), b""))
    assert whole.startswith(b"HTTP/1.1 200 "), whole[:200]
    said: dict[str, Any] = json.loads(whole.partition(b"\r\n\r\n")[2])
    return said


def receivers_of(crawl: Crawl) -> NotificationHandlers:
    assert crawl.live.server is not None
    return crawl.live.server._receive.__self__  # type: ignore[union-attr]


def port_of(crawl: Crawl) -> int:
    assert crawl.live.server is not None
    return crawl.live.server.listener.address[1]


async def by_signal(crawl: Crawl) -> Any:
    body = json.dumps({"urls": [LINK], "source": "cms"}).encode()
    return await asyncio.to_thread(ask, port_of(crawl), "/signal", body)


async def by_indexnow(crawl: Crawl) -> Any:
    receivers_of(crawl).keys._known[(f"{HOME}{KEY}.txt", KEY)] = (True, crawl.stages.clock.now())
    return await asyncio.to_thread(ask, port_of(crawl), f"/indexnow?url={quote(LINK)}&key={KEY}")


async def by_websub(crawl: Crawl) -> Any:
    subscriptions = receivers_of(crawl).subscriptions
    subscriptions.want([(HOME + "feed", HUB)])
    form = dict(subscriptions.due("http://us.localhost", crawl.stages.clock.now()))[HUB]
    path = form["hub.callback"].removeprefix("http://us.localhost")
    fields = f"hub.mode=subscribe&hub.topic={HOME}feed&hub.challenge=c"
    subscriptions.verify(
        path.rpartition("/")[2], dict(pair.split("=") for pair in fields.split("&")), crawl.stages.clock.now()
    )
    signature = hmac.new(form["hub.secret"].encode(), FEED.encode(), hashlib.sha256).hexdigest()
    send = partial(ask, port_of(crawl), path, FEED.encode(), X_Hub_Signature=f"sha256={signature}")
    return await asyncio.to_thread(send)


async def by_control(crawl: Crawl) -> Any:
    return await asyncio.to_thread(control_client.ask, crawl.stages.directory, "signal", urls=[LINK])


async def by_python(crawl: Crawl) -> Any:
    return crawl.signal([LINK])


async def by_refresh(crawl: Crawl) -> Any:
    return await asyncio.to_thread(ask, port_of(crawl), f"/page?url={quote(LINK)}&refresh=1")


async def by_key_file(crawl: Crawl) -> Any:
    """Fetch the URL `LINK` as if it were a key file."""
    crawl.live._in_background(_ignore(crawl.live.urgent.key_file(LINK, "key")))
    await asyncio.sleep(0)


async def _ignore(work: Awaitable[object]) -> None:
    await work


ENTRANCES = [by_signal, by_indexnow, by_websub, by_control, by_python, by_refresh, by_key_file]


def page_of(crawl: Crawl) -> Any:
    """Return a function that builds the `Change` for a fetched page.

    The second portion of the links of this page contains `LINK`.
    """
    fingerprint = crawl.stages.fingerprinter.fingerprint
    content = b"<p>home</p>"
    fetch = Fetch(
        HOME, Outcome.FETCHED, status=200, reason="OK", content_type="text/html", body=content, content=content,
        headers=((b"Content-Type", b"text/html"),), began=crawl.stages.clock.now(), address="127.0.0.1",
    )  # fmt: skip
    crawl.stages.commits.commit_now(partial(crawl.stages.decisions.admission.seeds, [HOME]))
    fetch_task: FetchTask | None = None
    while fetch_task is None or fetch_task.kind is not TaskKind.PAGE:
        now = crawl.stages.clock.now()
        fetch_task = crawl.stages.frontier.claim_next(now)
        if fetch_task is not None and fetch_task.kind is TaskKind.RESOLVE:
            crawl.stages.frontier.resolved(fetch_task, ["127.0.0.1"], now + 1e6, now)
        elif fetch_task is not None and fetch_task.kind is TaskKind.ROBOTS:
            missing = Fetch(fetch_task.url, Outcome.GONE, status=404, began=now)
            crawl.stages.commits.commit(
                partial(crawl.stages.decisions.results.robots, fetch_task, missing, now)
            )
    links = [f"{HOME}{n}" for n in range(PORTION_LINKS)] + [LINK]
    assert fetch_task.fingerprint == fingerprint(HOME)
    return partial(
        crawl.stages.decisions.results.page,
        fetch_task,
        fetch,
        Extracted(HOME, hrefs=links),
        crawl.stages.clock.now(),
    )


@pytest.mark.parametrize("entrance", ENTRANCES)
async def test_a_signalled_url_survives_a_kill(
    tmp_path: Path, entrance: Callable[[Crawl], Awaitable[Any]]
) -> None:
    """A signal for a URL arrives while the links of a page are admitted in portions. The URL is one of these links.

    Then the page is committed. After a kill, the links of the stored page are not read again. Once, the
    signal made the crawl believe that the link to the URL had been seen, so the URL was lost."""
    tree = SETTINGS | {"politeness": {"delay": 0, "delay_factor": 0}}
    async with Crawl(tree, directory=tmp_path / "crawl", seeds=[HOME]) as crawl:
        stages = crawl.stages
        crawl.process.commits.running = True  # the test does the work of the commit loop
        stages.point.add(page_of(crawl))
        stages.point.step()
        assert stages.point.made == 0, "the page pauses"
        signalling = asyncio.create_task(entrance(crawl))  # type: ignore[arg-type]
        async with asyncio.timeout(WAIT_MAX):
            while len(stages.point) < 2:
                await asyncio.sleep(0.01)
        while not stages.point.made:
            stages.point.step()
        stages.point._group_entries_max = 1
        group = stages.point.take()
        assert [bool(change.captures) for change in group] == [True], "only the page's own group is committed"
        stages.point.write(group)
        shutil.copytree(tmp_path / "crawl", tmp_path / "killed", ignore=shutil.ignore_patterns("*.sock"))
        stages.point._group_entries_max = 1024
        stages.point.committed(group)
        crawl.process.commits.running = False
        crawl.process.commits.commit_rest()
        await signalling
    directory = CrawlDirectory(tmp_path / "killed")
    with at_rest(Crawl(SETTINGS).config, directory, "p0", clock=SystemClock()) as reopened:
        fingerprint = reopened.fingerprinter.fingerprint
        assert reopened.pages.record(fingerprint(HOME)) is not None
        reopened.commits.commit_now(
            partial(reopened.decisions.signal_intake.decide, [], "signal", Signalled())
        )
        assert fingerprint(LINK) in reopened.due.known_set, "the URL is lost"
        assert reopened.views.problems() == []


PAGES, NAMES = 90, ("p0", "p1", "p2")
ENDLESS = (
    "--set", "refresh.min_age=100000000", "--set", "refresh.explore=0", "--delay", "0", "--scope", "any",
    "--set", "splitter.heartbeat=0.2", "--set", "splitter.backoff_max=0.3",
)  # fmt: skip


def heard(running: Running, url: str, source: str, names: Sequence[str] = NAMES) -> int:
    """Return the number of signals from a source that the owner of a page has counted since the page's last crawl."""
    counted = 0
    for name in names:
        if (said := control_client.ask(running.folder / name, "why", url=url)) is control_client.NOBODY:
            return -1
        if said.get("owner") == said.get("process"):
            counted = said.get("refresh", {}).get("signals_by_source", {}).get(source, 0)
    return counted


def all_heard(running: Running, urls: list[str], source: str, count: int) -> bool:
    return all(heard(running, url, source) == count for url in urls)


def test_signals_to_any_of_three_processes_reach_the_owner(tmp_path: Path) -> None:
    """Once, 67 of 90 signals sent over HTTP were answered with 200 and then lost.

    The pages of these signals belonged to processes other than the receiver.
    """
    with TreeWeb(tmp_path, PAGES, "--fanout", "3", hosts=30) as web:
        urls = [web.url(page) for page in range(PAGES)]
        flags = (*ENDLESS, "--processes", "3")
        Running(tmp_path, [web.seed], *flags).process.communicate(timeout=60)
        with Running(tmp_path, [], *flags, command="refresh") as running:
            running.until(lambda: running.status().get("refreshing", {}).get("pages") == PAGES)
            one_by_one: Counter[str] = Counter()
            # the kernel may give each of these new connections to any of the three processes
            for url in urls:
                body = json.dumps({"urls": [url], "source": "cms"}).encode()
                status, _, said = ask(running.serve, "/signal", body)
                assert status == 200 and len(said["urls"]) == 1 and said["urls"][0]["url"] == url
                one_by_one[said["urls"][0]["fate"]] += 1
            assert set(one_by_one) <= {"noted", "sent"} and one_by_one.total() == PAGES
            running.until(lambda: all_heard(running, urls, "signal", 1))
            body = json.dumps({"urls": urls}).encode()
            for name in NAMES:
                said = ask_unix(running.folder / name / "serve.sock", body)
                assert said["noted"] + said["sent"] == PAGES and said["noted"] > 0 < said["sent"], said
                assert {each.get("why", name) for each in said["urls"]} == set(NAMES)
            running.until(lambda: all_heard(running, urls, "signal", 4))
            told = running.command("signal", *urls, "--source", "feed")
            assert "sent to their processes" in told.stdout and "noted" in told.stdout, told
            running.until(lambda: all_heard(running, urls, "feed", 1))
            pids = [each["pid"] for each in running.status()["processes"]]
            ask_unix(running.folder / "p1" / "serve.sock", body)
            for pid in [running.process.pid, *pids]:  # signals that were acknowledged must already be on disk
                os.kill(pid, signal.SIGKILL)
        again = Running(tmp_path, [], *flags, command="refresh")
        try:
            again.until(lambda: again.status().get("refreshing", {}).get("pages") == PAGES)
            again.until(lambda: all_heard(again, urls, "signal", 5))
            status = again.status()
            assert status["splitter"]["signals_told"] == status["splitter"]["signals_heard"] > 0
        finally:
            again.end()
    report = json.loads((again.folder / "report.json").read_bytes())
    assert report["conservation"] == "holds", report["conservation"]
    at_rest_said = again.command("signal", *urls, "--source", "indexnow")
    assert at_rest_said.returncode == 0 and "sent to their processes" in at_rest_said.stdout
    resharded = again.command("reshard", "--to", "2")  # delivers the links that wait in the outboxes
    assert resharded.returncode == 0, resharded
    directory, counted = CrawlDirectory(again.folder), 0
    for name in ("p0", "p1"):
        with at_rest(convert(directory.settings.load()), directory, name, clock=SystemClock()) as stages:
            assert stages.refresh is not None and stages.views.problems() == []
            own = [url for url in urls if stages.fingerprinter.fingerprint(url) in stages.refresh]
            for url in own:
                now = SystemClock().now()
                known = stages.refresh.views.explain(stages.fingerprinter.fingerprint(url), now, now)
                assert known["signals_by_source"] == {"signal": 5, "feed": 1, "indexnow": 1}, url
            counted += len(own)
    assert counted == PAGES


def test_signals_of_every_fate_reach_their_owners_while_one_of_three_processes_dies(tmp_path: Path) -> None:
    """Each URL is signalled to every process, so the receiver is sometimes the owner, and sometimes another process.

    One process is killed twice: before the first signals for its own URLs arrive, and as soon as it has
    confirmed signals for the other processes.
    """
    hosts = 18
    robots = ("--robots", "User-agent: *|Disallow: /forbidden")
    flags = (*ENDLESS, "--scope", "host", "--set", 'filter.exclude_extensions=[".zip"]', "--processes", "3")
    with TreeWeb(tmp_path, 5 * hosts, "--fanout", "0", *robots, hosts=hosts) as web:
        kept, retired, *new = ([web.url(page + n * hosts) for page in range(hosts)] for n in range(5))
        Running(tmp_path, kept, *flags).process.communicate(timeout=60)
        roots = [url.rpartition("/")[0] for url in kept]
        running = Running(tmp_path, [], *flags, command="refresh")

        def tell(name: str, new: list[str]) -> None:
            sent = {
                "noted": kept,
                "queued": new,
                "not_refreshed": [f"{root}/forbidden{n}" for n, root in enumerate(roots)],
                "retired": retired,
                "out_of_scope": [AWAY, *(f"{root}/a.zip" for root in roots)],
                "refused": ["ftp://127.0.0.1/"],
            }
            body = json.dumps({"urls": sum(sent.values(), [])}).encode()
            said = running.until(lambda: ask_unix(running.folder / name / "serve.sock", body))
            for fate, urls in sent.items():
                expected.update({fate: len(urls)})
                assert 0 < said[fate] <= len(urls), said
            expected.update(sent=said["sent"])
            assert (
                sum(said[fate] for fate in (*sent, "sent")) == sum(map(len, sent.values())) > said["sent"] > 0
            )

        expected: Counter[str] = Counter()
        try:
            running.until(lambda: running.status().get("refreshing", {}).get("pages") == hosts)
            running.command("pause")
            running.command("seed", *retired)
            running.until(lambda: running.status()["frontier"]["todo"] == hosts)
            paths = "|".join(url.rpartition("/")[2] for url in retired)
            assert f"{hosts} waiting" in running.command("retire", f"/({paths})$").stdout
            running.command("resume")
            pids = {each["name"]: each["pid"] for each in running.status()["processes"]}
            os.kill(pids["p1"], signal.SIGKILL)
            tell("p0", new[0])
            tell("p1", new[1])
            again = {each["name"]: each["pid"] for each in running.status()["processes"]}["p1"]
            assert again != pids["p1"]
            os.kill(again, signal.SIGKILL)
            tell("p2", new[2])
            running.until(lambda: all_heard(running, kept, "signal", 3))
            running.until(lambda: Counter(running.status()["signals"]) == expected)
            found = {url.rpartition("/")[2] for url in sum(new, [])}
            running.until(lambda: found <= {path[1:] for path in web.fetched()})
        finally:
            running.end()
        assert max(web.fetched().values()) <= 3, "only a kill may repeat a fetch that was not committed"
        assert not {f"/{url.rpartition('/')[2]}" for url in retired} & set(web.fetched())
    report = json.loads((running.folder / "report.json").read_bytes())
    assert report["conservation"] == "holds", report["conservation"]


HOSTS = [f"h{n}.localhost" for n in range(12)]


class HubbedWeb(Web):
    """A web of several hosts and a hub. Each host has a page, a feed and a key file. The hub records its requests."""

    def __init__(self) -> None:
        self.forms: list[dict[str, str]] = []
        super().__init__({"/": page(), "/feed": page(), f"/{KEY}.txt": KEY, "/hub": self._subscribed})

    def _subscribed(self, asked: ReceivedRequest) -> Answer:
        self.forms.append(dict(parse_qsl(asked.body.decode())))
        return 202, {}, ""


def test_indexnow_and_websub_reach_the_right_process(tmp_path: Path) -> None:
    """Once, a key file was never fetched if its host belonged to another process.

    Also, each process subscribed to every topic. A delivery with the token of another process was answered
    with 410, and a hub deletes its subscriber after such an answer.
    """
    with HubbedWeb() as web:
        urls = [web.url("/", host) for host in HOSTS]
        flags = (*ENDLESS, "--processes", "3", "--scope", "host")
        Running(tmp_path, urls, *flags).process.communicate(timeout=60)
        topics = [f"{web.url('/feed', host)} {web.url('/hub', 'hub.localhost')}" for host in HOSTS]
        port = free_port()
        serving = (
            "--set",
            f"serve.public_url=http://127.0.0.1:{port}",
            "--set",
            f"serve.websub={json.dumps(topics)}",
        )
        with Running(tmp_path, [], *flags, *serving, command="refresh", serve=port) as running:
            running.until(lambda: running.status().get("refreshing", {}).get("pages") == len(HOSTS))
            for count, status in ((1, 202), (2, 200)):
                for url in urls:
                    assert ask(port, f"/indexnow?url={quote(url)}&key={KEY}")[0] == status
                running.until(lambda count=count: all_heard(running, urls, "indexnow", count))
            running.until(lambda: len(web.forms) >= len(topics))
            assert sorted(form["hub.topic"] for form in web.forms) == sorted(
                each.split()[0] for each in topics
            )
            for form in web.forms:
                callback = form["hub.callback"].removeprefix(f"http://127.0.0.1:{port}")
                mode = {"hub.mode": "subscribe", "hub.topic": form["hub.topic"], "hub.challenge": "7"}
                assert ask(port, f"{callback}?{urlencode(mode)}")[::2] == (200, 7)
            for count in (1, 2, 3):
                for form in web.forms:
                    link = form["hub.topic"].removesuffix("feed")
                    feed = FEED.replace(LINK, link).encode()
                    digest = hmac.new(form["hub.secret"].encode(), feed, hashlib.sha256).hexdigest()
                    callback = form["hub.callback"].removeprefix(f"http://127.0.0.1:{port}")
                    status, _, said = ask(port, callback, feed, X_Hub_Signature=f"sha256={digest}")
                    assert (status, said["noted"] + said["sent"]) == (202, 1), said
                running.until(lambda count=count: all_heard(running, urls, "websub", count))


@pytest.mark.parametrize("processes", [1, 3])
def test_a_notice_that_waits_for_its_key_survives_a_kill(tmp_path: Path, processes: int) -> None:
    """A notice is answered with 202 before its key file is read.

    Once, the URLs of the notice were lost if a crash happened in between.
    """
    judged = threading.Event()

    def key_file(_: ReceivedRequest) -> Answer:
        return KEY if judged.wait(120) else (500, {}, "")

    with HubbedWeb() as web:
        web.routes[f"/{KEY}.txt"] = key_file
        urls = [web.url("/", host) for host in HOSTS]
        flags = (*ENDLESS, "--processes", str(processes), "--scope", "host")
        Running(tmp_path, urls, *flags).process.communicate(timeout=60)
        with Running(tmp_path, [], *flags, command="refresh") as running:
            running.until(lambda: running.status().get("refreshing", {}).get("pages") == len(HOSTS))
            for url in urls:
                assert ask(running.serve, f"/indexnow?url={quote(url)}&key={KEY}")[0] == 202
            pids = [each["pid"] for each in running.status()["processes"]]
            for pid in {running.process.pid, *pids}:
                os.kill(pid, signal.SIGKILL)
        judged.set()
        names = NAMES[:processes]
        again = Running(tmp_path, [], *flags, command="refresh")
        try:
            again.until(lambda: all(heard(again, url, "indexnow", names) == 1 for url in urls))
        finally:
            again.end()
    directory = CrawlDirectory(again.folder)
    for name in names:
        with at_rest(convert(directory.settings.load()), directory, name, clock=SystemClock()) as stages:
            assert not list(scan_prefix(stages.store, NOTICE)) and stages.views.problems() == []


@pytest.mark.parametrize("when", ["before", "after", "stopping"])
@pytest.mark.parametrize("entrance", ["python", "http", "control"])
def test_a_signal_before_or_after_a_run_is_stored(tmp_path: Path, when: str, entrance: str) -> None:
    """`Crawl.signal` once returned "noted" after the end of `run`, although the signal was lost at the exit."""
    tree = SETTINGS | {"crawl": {"scope": "any"}, "politeness": {"delay": 0, "delay_factor": 0}}

    async def play() -> None:
        async with Crawl(tree, directory=tmp_path / "crawl") as crawl:
            entrances = {"python": by_python, "http": by_signal, "control": by_control}
            if when == "before":
                await entrances[entrance](crawl)
                return
            running = asyncio.create_task(crawl.run())
            if when == "stopping":
                await asyncio.sleep(0)
                crawl.stop("stopped")
                await entrances[entrance](crawl)
            with suppress(NoSeedError):  # the start page does not exist
                await running
            if when == "after":
                await entrances[entrance](crawl)

    asyncio.run(play())
    with at_rest(Crawl(tree).config, CrawlDirectory(tmp_path / "crawl"), "p0", clock=SystemClock()) as stages:
        assert stages.point.counters["signals.queued"] == 1
        stages.commits.commit_now(partial(stages.decisions.signal_intake.decide, [], "signal", Signalled()))
        assert (
            stages.fingerprinter.fingerprint(LINK) in stages.due.known_set and stages.views.problems() == []
        )


def test_all_interfaces_give_the_same_verdict_on_a_url(tmp_path: Path) -> None:
    """Once, `refresh=1` answered "queued" for blocked hosts and forbidden URLs, and `seed` accepted `ftp:` URLs."""
    tree = SETTINGS | {
        "politeness": {"delay": 0, "delay_factor": 0},
        "refresh": {"endless": True, "share": 0.5, "min_age": 1e8},
        "traps": {"path_segments_max": 5},
    }
    routes: dict[str, Any] = {"/": page("/b"), "/b": page(), "/robots.txt": "User-agent: *\nDisallow: /no\n"}

    async def play(web: Web) -> None:
        async with Crawl(tree, directory=tmp_path / "crawl", seeds=[web.url()]) as crawl:
            running = asyncio.create_task(crawl.run())
            async with asyncio.timeout(WAIT_MAX):
                while crawl.status().counters.get("pages.fetched", 0) < 2:
                    await asyncio.sleep(0.05)

            async def told(url: str) -> tuple[int, str, str, str]:
                """Return the status, state and reason in the answer to `refresh=1`, and the verdict of `why`."""
                verdict = (await crawl.command({"command": "why", "url": url}))["verdict"]
                target = f"/page?url={quote(url, safe='')}"
                status, _, missing = await asyncio.to_thread(ask, port_of(crawl), target)
                assert (status, missing["why"]) == (404, verdict)
                states[url] = missing["state"]
                status, _, said = await asyncio.to_thread(ask, port_of(crawl), f"{target}&refresh=1")
                return status, said["state"], said["why"], verdict

            status, state, why, verdict = await told(web.url("/no/1"))
            assert (status, state) == (403, "disallowed") and "`Disallow: /no`" in why and why in verdict
            status, state, why, verdict = await told(AWAY)
            assert (status, state) == (403, "out_of_scope") and why in verdict
            status, state, why, verdict = await told(web.url("/1/2/3/4/5/6"))
            assert (status, state) == (403, "out_of_scope") and why in verdict
            status, state, _, _ = await told(web.url("/c"))
            assert (status, state) == (202, "queued")
            async with asyncio.timeout(WAIT_MAX):
                while "/c" not in web.paths():
                    await asyncio.sleep(0.05)
            del states[web.url("/c")]
            crawl.stages.frontier.pauses.pause()
            await crawl.command({"command": "seed", "urls": [web.url("/e")]})
            async with asyncio.timeout(WAIT_MAX):
                while (await crawl.command({"command": "why", "url": web.url("/e")})).get("queue") != "to do":
                    await asyncio.sleep(0.05)
            assert (await told(web.url("/e")))[:2] == (202, "queued")
            assert (await crawl.command({"command": "retire", "pattern": "/e$"}))["retired"] == 1
            status, state, why, verdict = await told(web.url("/e"))
            assert (status, state) == (410, "retired") and why in verdict
            assert states[web.url("/e")] == "retired", "it was once shown as a page to do"
            signalled = await crawl.command({"command": "signal", "urls": [web.url("/e")]})
            assert signalled["urls"] == [{"url": web.url("/e"), "fate": "retired"}]
            crawl.stages.frontier.pauses.resume()
            await crawl.command({"command": "block", "host": "localhost"})
            status, state, why, verdict = await told(web.url("/d"))
            assert (status, state) == (409, "blocked") and why in verdict
            for words in (
                {"command": "seed", "urls": ["ftp://localhost/"]},
                {"command": "why", "url": "ftp://localhost/"},
            ):
                with pytest.raises(UsageError, match="ftp is not supported"):
                    await crawl.command(words)
            signalled = await crawl.command(
                {"command": "signal", "urls": [web.url("/b"), AWAY, "ftp://localhost/"]}
            )
            assert [each["fate"] for each in signalled["urls"]] == ["refused", "noted", "out_of_scope"]
            crawl.stop()
            await running

    states: dict[str, str] = {}
    with Web(routes) as web:
        asyncio.run(play(web))
        assert set(states.values()) == {"unknown", "filtered", "retired"}
    for processes in (1, 3):
        if processes > 1:
            assert run("reshard", "--to", processes, "--dir", tmp_path / "crawl").code == 0
        with serving(tmp_path / "crawl") as port:
            for url, state in states.items():
                status, _, said = ask(port, f"/page?url={quote(url, safe='')}")
                why = json.loads(run("why", url, "--json", "--dir", tmp_path / "crawl").text)
                assert (status, said["state"], said["why"]) == (404, state, why["verdict"])


def test_a_page_that_only_a_signal_names_counts_as_a_new_page(tmp_path: Path) -> None:
    """The signal arrives between two runs. The status states the page, and the delay from the signal to its copy."""
    directory = tmp_path / "crawl"
    flags = ("--dir", directory, "-q", "--delay", "0", "--admin", "off", "--allow-network", "127.0.0.0/8")
    with Web({"/": page(text="front"), "/news": page(text="news")}) as web:
        assert run("crawl", web.url("/"), *flags).code == 0
        run("refresh", *flags, "--max-time", "1")
        assert run("signal", web.url("/news"), "--dir", directory).code == 0
        run("refresh", *flags, "--max-time", "3")
        assert web.paths().count("/news") == 1
        status = run("status", "--dir", directory).text
    assert "1 new page found by refetching known pages and by signals" in status
    assert "100% named by signals" in status and "(1 page with a date)" in status


def test_a_signal_about_a_url_that_redirects_reaches_its_target(tmp_path: Path) -> None:
    """The URL that redirects is not requested again."""
    directory = tmp_path / "crawl"
    flags = ("--dir", directory, "-q", "--delay", "0", "--admin", "off", "--allow-network", "127.0.0.0/8")
    calm = ("--set", "refresh.min_age=3600")
    with Web(
        {"/": page("/old", "/calm"), "/old": redirect("/page"), "/page": page(), "/calm": page()}
    ) as web:
        assert run("crawl", web.url("/"), *flags).code == 0
        run("refresh", *flags, *calm, "--max-time", "1")
        said = run("signal", web.url("/old"), "--dir", directory).text
        assert "1 noted" in said or "noted: 1" in said, said
        why = json.loads(run("why", web.url("/page"), "--dir", directory, "--json").text)
        assert why["refresh"]["signals_by_source"] == {"signal": 1}
        run("refresh", *flags, "--set", "refresh.min_age=1", "--max-time", "2")
        assert web.paths().count("/page") > 1 == web.paths().count("/old")
