"""Crawl pages that need a browser, with a real Chromium, and compare the results with the web server's log.

The tests use the browser that a crawl would find, and are skipped if there is none.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

import crawler
from crawler.render import browser, rendering
from crawler.render.browser import find_program
from crawler.render.protocol import BrowserError, Session
from tests.end_to_end import web as webs
from tests.end_to_end.routed_network import SENT
from tests.end_to_end.test_live import Running, ask, serving
from tests.end_to_end.web import FAST, SETTINGS, Answer, ReceivedRequest, Route, Web, lines, run
from tests.faults.harness import ROOT
from tests.waiting import WAIT_MAX

try:
    PROGRAM = find_program("")
except BrowserError:
    PROGRAM = ""

pytestmark = pytest.mark.skipif(not PROGRAM, reason="no browser")

ROBOTS = (200, {"Content-Type": "text/plain"}, "User-agent: *\nDisallow: /private\n")
SCRIPT = {"Content-Type": "text/javascript"}
JSON = {"Content-Type": "application/json", "Access-Control-Allow-Origin": "*"}
SHELL = '<!doctype html><title>Shop</title><script src="/app.js" defer></script><div id="root"></div>'
APP = """
const n = +(location.pathname.split('/')[2] || 0);
fetch(`/api/${n}.json`).then(answer => answer.json()).then(item => {
  document.title = 'Item ' + n;
  document.getElementById('root').innerHTML = `<h1>Item ${n}</h1><p>${item.text}</p>` +
    item.links.map(link => `<a href="${link}">${link}</a>`).join(' ');
});
"""
LAST = 6
WORDS = "<p>" + "plain words of a page " * 30


def item(request: ReceivedRequest) -> Answer:
    """Answer a request for an item's data: its text, and links that form a binary tree."""
    n = int(request.path[5:-5])
    links = [f"/item/{child}" for child in (2 * n + 1, 2 * n + 2) if child <= LAST]
    return 200, JSON, json.dumps({"text": "many words about it " * 20, "links": links})


def shop(app: str = APP, more: dict[str, Route] | None = None) -> dict[str, Route]:
    """Return the routes of a site of `LAST` + 1 pages, which shows nothing without its script."""
    routes: dict[str, Route] = {"/robots.txt": ROBOTS, "/": SHELL, "/app.js": (200, SCRIPT, app)}
    routes |= {f"/item/{n}": SHELL for n in range(1, LAST + 1)}
    routes |= {f"/api/{n}.json": item for n in range(LAST + 1)}
    return routes | (more or {})


def crawl(web: Web, directory: Path, *flags: object, seed: str = "/") -> None:
    webs.crawl(directory, web.url(seed), "--render", "always", *flags)


def shown(web: Web, directory: Path, path: str, *flags: str) -> str:
    """Return the stored copy of a page."""
    return run("get", web.url(path), "--dir", directory, *flags).text


def rendered(directory: Path) -> dict[str, float]:
    """Return the seconds for which each rendered page was open."""
    return {line["url"].split("/", 3)[3]: line["rendered"] for line in lines(directory) if "rendered" in line}


def browsers() -> set[int]:
    """Return the running browser processes that crawls of this test have started."""
    found, ours = set(), os.environ["TMPDIR"].encode()
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and ours + b"/crawler-browser-" in (folder / "cmdline").read_bytes():
                found.add(int(folder.name))
        except OSError:
            continue
    return found


@pytest.fixture
def no_orphan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Give the test's browsers a folder that identifies them; after the test, assert that nothing of them is left.

    The user `nobody` may enter the folder. The fixture requests `tmp_path`, so that pytest creates the base
    folder of all tests first. Otherwise pytest would create it inside the folder of this test.
    """
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o755)
    monkeypatch.setenv("TMPDIR", folder)
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield
    until = time.monotonic() + WAIT_MAX
    while browsers() and time.monotonic() < until:
        time.sleep(0.05)
    assert not browsers()
    left = os.listdir(folder)
    shutil.rmtree(folder)
    assert not left


@pytest.mark.usefixtures("no_orphan")
def test_a_site_that_needs_its_script_is_crawled_completely(tmp_path: Path) -> None:
    with Web(shop()) as web:
        crawl(web, tmp_path)
        pages = [path for path in web.paths() if path.startswith("/item/")]
        assert sorted(pages) == [f"/item/{n}" for n in range(1, LAST + 1)], "each once"
        assert web.paths().count("/app.js") == 1, "a script is fetched once for all pages"
        assert "<h1>Item 3</h1>" in shown(web, tmp_path, "/item/3")
        assert shown(web, tmp_path, "/item/3", "--static") == SHELL
        assert "what a browser showed" in run("why", web.url("/item/3"), "--dir", tmp_path).text
        why = json.loads(run("why", web.url("/item/3"), "--json", "--dir", tmp_path).text)["record"]["shown"]
        assert (why["why"], why["requests"], why["added"]) == ("always", 2, True) and why["cpu"] > 0
    status = run("status", "--dir", tmp_path).text
    assert "7 pages, 7 of them gained links or text (all are shown 7)" in status and " CPU s and " in status
    assert "no problems found" in run("check", "--dir", tmp_path).text
    titles = {line["url"].rpartition("/")[2]: line["title"] for line in lines(tmp_path)}
    assert titles["3"] == "Item 3"
    out = tmp_path / "out.jsonl"
    assert run("export", "--dir", tmp_path, "--format", "jsonl", "--output", out).code == 0
    texts = [line for line in out.read_text().splitlines() if "many words about it" in line]
    assert len(texts) == LAST + 1
    for form in ("jsonl", "text"):
        ran = run("export", "--dir", tmp_path, "--format", form, "--static")
        assert ran.code == 0 and web.url("/item/6") in ran.text and "many words" not in ran.text
    assert "/item/6" not in run("export", "--dir", tmp_path, "--format", "links", "--static").text
    ran = run("export", "--dir", tmp_path, "--format", "warc", "--static", "-o", tmp_path / "x.warc.gz")
    assert ran.code == 2 and "contains both" in ran.err
    # the requests of a page are archived with it
    found: dict[str, set[str]] = {}
    for file in tmp_path.glob("*/warc/*.warc.gz"):
        with file.open("rb") as stream:
            for record in ArchiveIterator(stream, check_digests="raise"):
                uri = record.rec_headers.get_header("WARC-Target-URI") or ""
                found.setdefault(record.rec_type, set()).add(uri.replace(web.url(""), ""))
                if record.rec_type == "resource":
                    assert record.rec_headers.get_header("WARC-Refers-To")
                    assert b"<h1>Item" in record.content_stream().read()
    assert {"/app.js", "/api/3.json", "/item/3"} <= (found["response"] | found["revisit"]) & found["request"]
    assert found["resource"] == {f"urn:dom:/item/{n}" for n in range(1, LAST + 1)} | {"urn:dom:/"}


def test_without_rendering_the_same_site_has_one_page(tmp_path: Path) -> None:
    with Web(shop()) as web:
        webs.crawl(tmp_path, web.url())
        assert web.paths() == ["/"]


def test_a_crawl_that_does_not_render_imports_nothing_of_it(tmp_path: Path) -> None:
    with Web(shop()) as web:
        command = [
            sys.executable,
            "-X",
            "importtime",
            "-m",
            "crawler",
            "crawl",
            "--dir",
            str(tmp_path),
            *FAST,
        ]
        never = subprocess.run([*command, web.url()], capture_output=True, text=True, check=True)
    assert "crawler.process.fetching.fetch_tasks" in never.stderr
    assert "crawler.render" not in never.stderr
    assert "page_rendering" not in never.stderr


def test_requests_of_a_page_obey_robots_txt_on_every_host(tmp_path: Path) -> None:
    app = """
    const here = location.port;
    fetch('/private/data.json');
    fetch(`http://cdn.localhost:${here}/open.json`);
    fetch(`http://cdn.localhost:${here}/private/data.json`);
    fetch(`http://closed.localhost:${here}/open.json`);
    """
    routes = shop(app, {
        "/open.json": (200, JSON, "{}"), "/private/data.json": (200, JSON, "{}"),
        "closed.localhost/robots.txt": (200, {"Content-Type": "text/plain"}, "User-agent: *\nDisallow: /\n"),
    })  # fmt: skip
    with Web(routes) as web:
        crawl(web, tmp_path)
        asked = [(each.host, each.path) for each in web.asked]
    assert ("cdn.localhost", "/open.json") in asked
    assert ("closed.localhost", "/robots.txt") in asked
    assert ("closed.localhost", "/open.json") not in asked
    assert not [path for _, path in asked if path.startswith("/private")]
    (line,) = lines(tmp_path)
    assert line["missing"] == 3


def test_requests_of_workers_frames_and_other_origins_are_answered(tmp_path: Path) -> None:
    """Workers, frames and other origins get answers to their requests.

    The page shows these answers, so the test can read them. If a request to another origin needs permission,
    only the server of this origin can give it.
    """
    app = """
    const here = location.port, said = {};
    const show = (name, text) => { said[name] = text; document.body.innerText = JSON.stringify(said); };
    const worker = new Worker('/worker.js');
    worker.onmessage = e => show('worker', e.data);
    const frame = document.createElement('iframe');
    window.onmessage = e => show('frame', e.data);
    frame.src = `http://other.localhost:${here}/frame`;
    document.documentElement.append(frame);
    for (const host of ['open', 'shut'])
      fetch(`http://${host}.localhost:${here}/data`, {headers: {'X-A': '1'}})
        .then(r => r.text()).then(t => show(host, t), () => show(host, 'refused'));
    """
    allows = {"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "X-A"}
    frame = "<script>fetch('/of-frame').then(r => r.text()).then(t => parent.postMessage(t, '*'))</script>"
    routes: dict[str, Route] = {
        "/worker.js": (
            200,
            SCRIPT,
            "importScripts('/imported.js'); fetch('/of-worker').then(r => r.text()).then(tell)",
        ),
        "/imported.js": (200, SCRIPT, "const tell = text => postMessage(text)"),
        "/of-worker": "for the worker",
        "other.localhost/frame": frame,
        "other.localhost/of-frame": "for the frame",
        "open.localhost/data": (200, allows, "for the open"),
        "shut.localhost/data": (200, {"Access-Control-Allow-Origin": "*"}, "never shown"),
    }
    with Web(shop(app, routes)) as web:
        crawl(web, tmp_path)
        dom = shown(web, tmp_path, "/")
        asked = [(each.host, each.path, each.method) for each in web.asked]
    for text in (
        '"worker":"for the worker"',
        '"frame":"for the frame"',
        '"open":"for the open"',
        '"shut":"refused"',
    ):
        assert text in dom, dom
    copy = run("get", web.url("/data", "open.localhost"), "--dir", tmp_path)
    assert copy.text == "for the open", "the answer to the preflight request does not hide it"
    assert "no problems found" in run("check", "--dir", tmp_path).text
    assert ("open.localhost", "/data", "OPTIONS") in asked and ("shut.localhost", "/data", "GET") not in asked


def test_a_page_that_its_script_leaves_is_a_redirect(tmp_path: Path) -> None:
    with Web(shop("location.href = '/next'", {"/next": "<p>the next page</p>"})) as web:
        crawl(web, tmp_path)
        assert "the next page" in shown(web, tmp_path, "/next")


def test_requests_of_a_page_cannot_avoid_the_address_guard(tmp_path: Path) -> None:
    """A script cannot reach a forbidden server by a request, another scheme, a WebSocket or a beacon."""
    app = """
    const tried = ['http://127.0.0.2:%(inner)d/', 'http://[::1]:%(inner)d/', 'http://169.254.169.254/latest',
                   'file:///etc/passwd', 'chrome://version'];
    for (const url of tried) { fetch(url).catch(() => 0); new Image().src = url; }
    try { new WebSocket('ws://127.0.0.2:%(inner)d/'); } catch (e) {}
    try { new EventSource('http://127.0.0.2:%(inner)d/events'); } catch (e) {}
    navigator.sendBeacon('http://127.0.0.2:%(inner)d/beacon', 'x');
    fetch('http://127.0.0.2:%(inner)d/post', {method: 'POST', body: 'x'}).catch(() => 0);
    try { new RTCPeerConnection({iceServers: [{urls: 'stun:127.0.0.2'}]}).createDataChannel('x'); } catch (e) {}
    const hint = document.createElement('link');
    hint.rel = 'preconnect'; hint.href = 'http://127.0.0.2:%(inner)d'; document.head.append(hint);
    new Worker(URL.createObjectURL(new Blob(["fetch('http://127.0.0.2:%(inner)d/worker').catch(() => 0)"])));
    window.open('http://127.0.0.2:%(inner)d/popup');
    document.body.innerHTML = '<iframe src="http://127.0.0.2:%(inner)d/frame"></iframe>' +
      '<form id=f method=post action="http://127.0.0.2:%(inner)d/form"></form><p id=end>done</p>';
    document.getElementById('f').submit();
    """
    only_own = [flag.replace("127.0.0.0/8", "127.0.0.1/32") for flag in FAST]
    with Web({}, address="127.0.0.2") as inner, Web(shop(app % {"inner": inner.port})) as web:
        seed = web.url().replace("localhost", "127.0.0.1")
        flags = (*only_own, "--set", "render.images=true", "--render", "always")
        ran = run("crawl", "--dir", tmp_path, *flags, seed)
        assert ran.code == 0, ran
        assert inner.asked == []
        dom = run("get", seed, "--dir", tmp_path).text
    assert '<p id="end">done</p>' in dom


WAYS_OUT = Path(__file__).with_name("ways_out.html").read_text()
SENDS = """
import ctypes, fcntl, socket, struct
assert ctypes.CDLL(None).unshare(0x40000000) == 0
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
    fcntl.ioctl(udp, 0x8914, struct.pack("16sH14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
    udp.sendto(b"x", ("127.0.0.1", 9))
print(open("/proc/self/net/dev").read())
"""


def packets(table: str) -> int:
    """Return the number of packets that all interfaces in a /proc/PID/net/dev have received and sent."""
    rows = [line.partition(":")[2].split() for line in table.splitlines() if ":" in line]
    return sum(int(row[1]) + int(row[9]) for row in rows)


def traces(pid: int) -> dict[str, object]:
    """Return the kernel's counters in the network namespace of a process, without zeros.

    WebRTC opens UDP sockets for a moment, so UDP sockets count only if something was sent through them. Any
    other socket counts even if it is only open.
    """
    net = Path(f"/proc/{pid}/net")
    found: dict[str, object] = {"packets": packets((net / "dev").read_text())}
    for name in ("tcp", "tcp6", "raw", "raw6", "packet"):
        found[name] = len((net / name).read_text().splitlines()) - 1
    for name, count in map(str.split, (net / "snmp6").read_text().splitlines()):
        if name in ("Ip6InReceives", "Ip6OutRequests", "Udp6OutDatagrams", "Icmp6OutMsgs"):
            found[name] = int(count)
    heads, values = (
        (net / "snmp").read_text().splitlines()[0::2],
        (net / "snmp").read_text().splitlines()[1::2],
    )
    for head, row in zip(heads, values, strict=True):
        kind, *counts = row.split()
        found |= {kind + name: int(n) for name, n in zip(head.split()[1:], counts, strict=True)}
    settings = {
        "Ip:Forwarding",
        "Ip:DefaultTTL",
        "Tcp:RtoAlgorithm",
        "Tcp:RtoMin",
        "Tcp:RtoMax",
        "Tcp:MaxConn",
    }
    # WebRTC looks up the route to its server; since there is no route, it sends no packet
    refused = {"Ip:OutNoRoutes"}
    return {name: n for name, n in found.items() if n and name not in settings | refused}


def try_ways_out(directory: Path, end: Callable[[], None], route: str = "") -> None:
    """Crawl a page that tries every way to send data to a server, to a name and to the address `route`.

    `end` is called while the browser still runs. No request reaches the server.
    """

    def at_end(_: ReceivedRequest) -> Answer:
        end()
        return "the end"

    more: dict[str, Route] = {"/end": at_end, "/worker.js": (200, SCRIPT, "fetch('/from-service-worker')")}
    with Web({}, address="127.0.0.2") as inner, Web(more | {"/robots.txt": ROBOTS}) as web:
        page = WAYS_OUT.replace("'name.example'", f"'name.example', '{route}'") if route else WAYS_OUT
        web.routes["/"] = page.replace("SERVER", f"127.0.0.2:{inner.port}")
        only_own = [flag.replace("127.0.0.0/8", "127.0.0.1/32") for flag in FAST]
        flags = ("--render", "always", "--set", "render.images=true", "--set", "render.quiet=4")
        ran = run("crawl", "--dir", directory, *only_own, *flags, web.url())
        assert ran.code == 0, ran
        assert "the end" in shown(web, directory, "/")
        assert "/from-service-worker" not in web.paths()
    assert inner.asked == []


@pytest.mark.usefixtures("no_orphan")
def test_the_browser_has_a_network_of_its_own_and_sends_no_packet(tmp_path: Path) -> None:
    """A page tries every way to send data. Then the counters of the browser's network namespace show no traffic.

    The namespace has no interface that is up, so no packet can leave it. The test shows that the browser is in such
    a namespace. What the browser's flags prevent outside of it, the next test shows.
    """
    if os.geteuid() != 0:
        pytest.skip("only root may look into the network namespace of the browser")
    sent = subprocess.run([sys.executable, "-c", SENDS], capture_output=True, text=True, check=False)
    if sent.returncode:
        pytest.skip("this system does not allow network namespaces")
    assert packets(sent.stdout) > 0, "the counters would show a packet"
    seen: list[dict[str, object]] = []

    def look() -> None:
        for pid in browsers():
            assert os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
            seen.append(traces(pid))

    try_ways_out(tmp_path, look)
    assert seen == [{}]


ROUTE = "198.51.100.7:3478"
# Flags that are removed -> packets that the browser then sends; PORT is the port of the server on loopback.
WITHOUT_FLAGS = {
    (): (),
    ("--force-webrtc-ip-handling-policy",): (f"udp {ROUTE}", "udp 127.0.0.2:PORT"),
    ("--host-resolver-rules",): ("tcp 127.0.0.1:9",),
    ("--host-resolver-rules", "--proxy-bypass-list"): ("tcp 127.0.0.2:PORT",),
    ("--disable-features",): ("igmp 224.0.0.22:0",),
    ("--host-resolver-rules", "--proxy-server"): (f"tcp {ROUTE}", "tcp 127.0.0.2:PORT"),
}


@pytest.mark.parametrize("removed", WITHOUT_FLAGS, ids=lambda removed: " ".join(removed) or "none removed")
def test_the_flags_alone_keep_the_browser_off_the_network(
    removed: tuple[str, ...], tmp_path: Path, no_orphan: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a network from which packets can leave, the browser sends none. Without some of its flags, it sends packets.

    The other flags against traffic (`--no-pings`, `--dns-prefetch-disable`, `--disable-quic`, and those against
    background services) have no effect on this page, because the crawler holds such requests or the flags above
    refuse the connections.
    """
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("only root with iproute2 can make such a network")
    monkeypatch.setattr(browser, "_LAUNCH", Path(__file__).with_name("routed_network.py"))
    whole, sent = browser.arguments, Path(os.environ["TMPDIR"]) / SENT
    found: set[str] = set()

    def note() -> None:
        found.update(
            re.sub(r"127\.0\.0\.2:\d+", "127.0.0.2:PORT", line) for line in sent.read_text().splitlines()
        )

    def arguments(*given: Any) -> list[str]:
        return [word for word in whole(*given) if not word.startswith(removed)] if removed else whole(*given)

    monkeypatch.setattr(browser, "arguments", arguments)
    try_ways_out(tmp_path, note, ROUTE)
    sent.unlink()
    assert set(WITHOUT_FLAGS[removed]) <= found, found
    assert removed or not found


SHOW = "document.body.append('shown'); "
BOMB = "const held = []; for (;;) held.push(new Array(1e6).fill(Math.random()))"


HOSTILE = (
    SHOW + "for (;;) {}",
    SHOW + "setTimeout(() => { for (;;) {} }, 50)",
    SHOW + "for (let i = 0; i < 4; i++) { alert(i); confirm(i); window.open('/x' + i) }",
    SHOW + "for (let i = 0; i < 30; i++) new Worker('/worker.js')",
    SHOW + "location.href = '/next'",
    SHOW + "setInterval(() => { location.reload() }, 1)",
    SHOW + "const a = document.createElement('a'); a.href = '/f.bin'; a.download = 'x'; a.click()",
    SHOW + "for (let i = 0; i < 60; i++) fetch('/many' + i)",
    SHOW + "for (let i = 0; i < 60; i++) { new Image().src = '/many' + i }",
)


@pytest.mark.usefixtures("no_orphan")
def test_hostile_pages_reach_a_limit_and_the_crawl_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pages are shown by one browser. An endless loop is stopped after a second of waiting for the page's content."""
    monkeypatch.setattr(rendering, "_READ_MAX", 1.0)
    scripts = {f"h{n}.localhost": script for n, script in enumerate(HOSTILE)}
    routes: dict[str, Route] = {"/robots.txt": ROBOTS, "/after": WORDS}
    for host, script in scripts.items():
        text = f'<!doctype html><title>h</title><body><script>{script}</script><a href="/after">after</a>'
        routes[f"{host}/"] = text
    with Web(routes, other=(200, SCRIPT, "0")) as web:
        seeds = {web.url("/", host) for host in scripts}
        limits = ("render.cpu_max=1", "render.wall_max=60", "render.requests_max=40")
        webs.crawl(
            tmp_path, *seeds, "--render", "always", *(word for each in limits for word in ("--set", each))
        )
        for host in scripts:
            assert "/after" in web.paths(host), "the link of the answer is followed in any case"
        cut_by = {line["url"]: line.get("cut_by") for line in lines(tmp_path) if "rendered" in line}
        assert seeds <= cut_by.keys()
        for host, script in scripts.items():
            if "for (;;)" in script:
                assert cut_by[web.url("/", host)] in ("cpu", "time")
            elif "/many" in script:
                assert cut_by[web.url("/", host)] == "requests"
        for host in scripts:
            stored = run("get", web.url("/", host), "--dir", tmp_path).text.replace(scripts[host], "")
            assert "shown" in stored, "the content shown before the limit is kept"
    assert "no problems found" in run("check", "--dir", tmp_path).text


def test_the_cpu_time_of_workers_counts_for_the_page(tmp_path: Path) -> None:
    """While the main thread waits for a script that never arrives, two workers run endless loops."""
    over = threading.Event()

    def late(_: ReceivedRequest) -> Answer:
        over.wait(60)
        return 404, {}, ""

    spin = "for (let i = 0; i < 2; i++) new Worker(URL.createObjectURL(new Blob(['for (;;) {}'])))"
    page = (
        f'<!doctype html><title>h</title><p>shown</p><script>{spin}</script><script src="/late.js"></script>'
    )
    with Web({"/robots.txt": ROBOTS, "/": page, "/late.js": late}) as web:
        crawl(web, tmp_path, "--set", "render.cpu_max=1", "--set", "render.wall_max=50")
        over.set()
        (line,) = lines(tmp_path)
        assert line["cut_by"] == "cpu"
        assert "<p>shown</p>" in shown(web, tmp_path, "/")


@pytest.mark.usefixtures("no_orphan")
def test_a_page_that_crashes_keeps_its_answer_and_the_answers_to_its_requests(tmp_path: Path) -> None:
    page = f'<!doctype html><script src="/lib.js"></script><script>{BOMB}</script><a href=/after>after</a>'
    routes: dict[str, Route] = {"/robots.txt": ROBOTS, "/": page, "/lib.js": (200, SCRIPT, "var lib = 1")}
    with Web(routes | {"/after": WORDS}) as web:
        crawl(web, tmp_path, "--set", "render.heap_bytes_max=16 MiB")
        line, after = lines(tmp_path)
        assert line["cut_by"] == "crash" and "rendered" not in line
        assert after["url"] == web.url("/after") and "rendered" in after
        assert shown(web, tmp_path, "/") == page
        assert shown(web, tmp_path, "/lib.js") == "var lib = 1"


def test_a_script_is_found_in_the_archive_after_a_restart(tmp_path: Path) -> None:
    with Web(shop()) as web:
        crawl(web, tmp_path, seed=f"/item/{LAST}")
        crawl(web, tmp_path)
        assert web.paths().count("/app.js") == 1
        assert rendered(tmp_path).keys() >= {"", "item/1", f"item/{LAST}"}


def test_auto_renders_only_pages_that_need_it(tmp_path: Path) -> None:
    """The pages of the application are rendered. Pages that are complete without scripts are not rendered."""
    plain = {f"/doc/{n}": WORDS + f'<script>1</script><a href="/doc/{n + 1}">next</a>' for n in range(30)}
    with Web(shop(more={**plain})) as web:
        webs.crawl(tmp_path, web.url(), web.url("/doc/0"), "--render", "auto", "--set", "render.chance=0")
        assert {f"/item/{n}" for n in range(1, LAST + 1)} | plain.keys() <= set(web.paths())
    assert set(rendered(tmp_path)) == {""} | {f"item/{n}" for n in range(1, LAST + 1)}


def test_an_override_renders_a_part_of_the_web(tmp_path: Path) -> None:
    config = tmp_path / "crawl.toml"
    config.write_text('[[override]]\nmatch = "shop.localhost"\nrender = "always"\n')
    with Web(shop()) as web:
        seeds = [web.url(host="shop.localhost"), web.url(host="other.localhost")]
        webs.crawl(tmp_path / "crawl", *seeds, "--config", config)
        assert len(web.paths("shop.localhost")) > LAST and web.paths("other.localhost") == ["/"]


@pytest.mark.usefixtures("no_orphan")
def test_a_browser_that_is_killed_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(request: ReceivedRequest) -> Answer:
        if not killed:
            for pid in browsers():
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
        return item(request)

    with Web(shop(more={"/api/0.json": kill, "/item/9": WORDS})) as web:
        crawl(web, tmp_path, web.url("/item/1"))
        assert killed
        assert {f"/item/{n}" for n in (1, 3, 4)} <= set(web.paths()), (
            "the next page is shown in another browser"
        )
    assert "no problems found" in run("check", "--dir", tmp_path).text


@pytest.mark.usefixtures("no_orphan")
@pytest.mark.parametrize("when", ["before a page", "at a new page", "during a page"])
def test_a_browser_that_hangs_is_replaced_and_its_pages_keep_their_content(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes of the first browser are stopped. Its open pages, and later pages, are shown by other browsers."""
    for module, name in (
        (browser, "_START_MAX"),
        (browser, "_ANSWER_MAX"),
        (rendering, "_LISTEN_MAX"),
        (rendering, "_READ_MAX"),
        (rendering, "_STOPPED_MAX"),
    ):
        monkeypatch.setattr(module, name, 4.0)
    stopped: list[int] = []

    def stop() -> None:
        if not stopped:
            stopped.extend(browsers())
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)

    def before_page(_: ReceivedRequest) -> Answer:
        stop()
        return 200, {}, SHELL

    def during_page(request: ReceivedRequest) -> Answer:
        stop()
        return item(request)

    open_page = browser.Browser.open_page

    async def at_new_page(self: browser.Browser) -> tuple[Session, str, str]:
        page = await open_page(self)
        stop()
        return page

    more: dict[str, Route] = {}
    if when == "before a page":
        more["/item/1"] = before_page
    elif when == "during a page":
        more["/api/1.json"] = during_page
    else:
        monkeypatch.setattr(browser.Browser, "open_page", at_new_page)
    with Web(shop(more=more)) as web:
        crawl(web, tmp_path, "--set", "render.wall_max=4")
        assert stopped
        for n in range(LAST + 1):
            assert f"<h1>Item {n}</h1>" in shown(web, tmp_path, f"/item/{n}" if n else "/")
    assert "no problems found" in run("check", "--dir", tmp_path).text


@pytest.mark.usefixtures("no_orphan")
def test_a_crawler_that_is_the_first_process_of_a_container_renders(tmp_path: Path) -> None:
    """The crawler has the process id 1.

    Outside of a container, a browser whose parent has the process id 1 has lost its crawler.
    """
    container = ("unshare", "--pid", "--fork", "--mount-proc")
    if subprocess.run([*container, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not allow process namespaces")
    with Web(shop()) as web:
        words = ("crawl", "--dir", tmp_path, *FAST, "--render", "always", web.url())
        command = [*container, sys.executable, "-m", "crawler", *map(str, words)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
        assert ran.returncode == 0, ran
        assert {f"/item/{n}" for n in range(1, LAST + 1)} <= set(web.paths())


@pytest.mark.usefixtures("no_orphan")
def test_a_crawler_that_is_killed_leaves_no_browser_and_loses_nothing(tmp_path: Path) -> None:
    """The profile folder that a killed crawler leaves is removed by the next crawl."""
    profiles, left = os.environ["TMPDIR"], False
    with Web(shop()) as web:
        command = [sys.executable, "-m", "crawler", "crawl", "--dir", str(tmp_path), *FAST, web.url()]
        command += ["--render", "always"]
        for kills in range(3):
            seen, before = len(web.asked), set(os.listdir(profiles))
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None:
                if len(web.asked) >= seen + 4 + kills and set(os.listdir(profiles)) - before:
                    break
                time.sleep(0.01)
            process.kill()
            process.wait()
            left = left or bool(os.listdir(profiles))
        assert left
        crawl(web, tmp_path)
        assert {f"/item/{n}" for n in range(1, LAST + 1)} <= set(web.paths())
        for n in range(LAST + 1):
            assert f"<h1>Item {n}</h1>" in shown(web, tmp_path, f"/item/{n}" if n else "/")
    assert "no problems found" in run("check", "--dir", tmp_path).text


WISHES = """
import sys
import crawler

def parse(page):
    if page.url == sys.argv[1]:
        for n in range(1, 7):
            yield crawler.Request(f"/item/{n}", render=True)

crawler.run(sys.argv[1], parse, directory=sys.argv[2], config=%r)
"""


@pytest.mark.usefixtures("no_orphan")
def test_a_request_to_render_a_page_survives_kills(tmp_path: Path) -> None:
    """Of all pages, only those whose requests have the option `render` are rendered.

    The crawl is killed three times, each time after one to four requests.
    """
    script = tmp_path / "crawl.py"
    script.write_text(WISHES % (SETTINGS | {"render": {"when": "never"}},))
    with Web(shop(more={"/": WORDS + SHELL})) as web:
        command = [sys.executable, str(script), web.url(), str(tmp_path / "c")]
        for requests in (2, 1, 4):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            seen = len(web.asked)
            while len(web.asked) < seen + requests and process.poll() is None:
                time.sleep(0.005)
            process.kill()
            process.wait()
        assert subprocess.run(command, check=False).returncode == 0
        for n in range(1, LAST + 1):
            assert f"<h1>Item {n}</h1>" in shown(web, tmp_path / "c", f"/item/{n}"), n
        assert shown(web, tmp_path / "c", "/") == WORDS + SHELL
        record = json.loads(run("why", web.url("/item/6"), "--json", "--dir", tmp_path / "c").text)["record"]
        assert "RENDER" in record["flags"] and record["shown"]["why"] == "request"
    assert "no problems found" in run("check", "--dir", tmp_path / "c").text


@pytest.mark.usefixtures("no_orphan")
def test_a_crawl_that_is_stopped_while_its_browser_starts_leaves_nothing(tmp_path: Path) -> None:
    """The browser never answers. The crawl is stopped by a signal, and the page is fetched again in the next run."""
    program = Path(os.environ["TMPDIR"]) / "browser"  # the user `nobody` may run it
    program.write_text("#!/bin/sh\nwhile true; do sleep 1; done\n")
    program.chmod(0o755)
    with Web(shop(more={"/": WORDS + SHELL})) as web:
        command = [sys.executable, "-m", "crawler", "crawl", "--dir", str(tmp_path / "c"), *FAST, web.url()]
        command += ["--render", "always", "--set", f"render.browser={program}"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + WAIT_MAX
        while not browsers() and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_MAX) == 0
        program.unlink()
        assert not os.listdir(program.parent)
        assert not list(lines(tmp_path / "c"))
        crawl(web, tmp_path / "c", "--set", "render.browser=")
        assert "<h1>Item 0</h1>" in shown(web, tmp_path / "c", "/")


def test_without_a_browser_the_crawl_warns_once_and_continues(tmp_path: Path) -> None:
    with Web({"/robots.txt": ROBOTS, "/": WORDS + '<a href="/two">2</a>', "/two": WORDS}) as web:
        none = ("--render", "always", "--set", "render.browser=/nowhere")
        ran = run("crawl", "--dir", tmp_path, *FAST, *none, web.url())
        assert ran.code == 0
        assert web.paths() == ["/", "/two"]
    assert ran.err.count("render.browser: /nowhere: no such program") == 1


def test_a_browser_that_is_missing_for_a_while_is_used_later(
    tmp_path: Path, no_orphan: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update replaces the browser during a crawl. Once, no page was rendered until the next start of the crawl."""
    program = Path(os.environ["TMPDIR"]) / "browser"
    monkeypatch.setattr(rendering, "_PAUSE", 0.0)

    def install(_: ReceivedRequest) -> Answer:
        program.symlink_to(PROGRAM)
        return SHELL

    links = "".join(f'<a href="{path}">x</a>' for path in ("/lost", "/item/1"))
    with Web(shop(more={"/": links, "/lost": SHELL, "/item/1": install, "/item/3": SHELL})) as web:
        flags = ("--set", f"render.browser={program}", "--concurrency", "1")
        ran = run("crawl", "--dir", tmp_path, *FAST, "--render", "always", *flags, web.url())
        program.unlink()
        assert shown(web, tmp_path, "/lost") == SHELL
        assert "<h1>Item 1</h1>" in shown(web, tmp_path, "/item/1")
        assert "<h1>Item 3</h1>" in shown(web, tmp_path, "/item/3")
    assert ran.err.count("no such program") == 1 and ran.err.count("pages are rendered again") == 1


def test_a_refresh_compares_what_the_browser_shows(tmp_path: Path) -> None:
    """Only the data of a page changes, not its HTML.

    So requests must be unconditional, because equal HTML does not prove that the page is unchanged.
    """
    words = ["first words"]
    tag = {"ETag": '"shell"', "Content-Type": "text/html"}
    routes: dict[str, Route] = {
        "/robots.txt": ROBOTS,
        "/": lambda request: (304, tag, "") if request.headers.get("If-None-Match") else (200, tag, SHELL),
        "/app.js": (200, SCRIPT, "fetch('/data.txt').then(a => a.text()).then(t => { root.textContent = t })"),
        "/data.txt": lambda _: (200, {"Content-Type": "text/plain"}, words[-1] * 30),
    }  # fmt: skip
    with Web(routes) as web:
        crawl(web, tmp_path)
        crawl(web, tmp_path, "--timestamping")
        words.append("other words")
        crawl(web, tmp_path, "--timestamping")
        assert not [asked for asked in web.asked if asked.headers.get("If-None-Match")]
        record = json.loads(run("why", web.url(), "--json", "--dir", tmp_path).text)["record"]
        assert (record["fetches"], record["changes"]) == (3, 1)
        assert "other words" in shown(web, tmp_path, "/")


@pytest.mark.parametrize("first", ["first words", "other words"])
def test_a_page_is_rendered_at_each_refresh_even_if_its_text_needs_no_script(
    tmp_path: Path, first: str
) -> None:
    """A script replaces the text of the page by data, which may be the text that the page has without the script.

    Once, such a page counted as unchanged at every second refresh, was not rendered, and lost its rendered copy.
    """
    page = '<!doctype html><title>x</title><p id="p">first words</p><script src="/app.js"></script>'
    words = [first]
    routes: dict[str, Route] = {
        "/robots.txt": ROBOTS,
        "/": page,
        "/app.js": (200, SCRIPT, "fetch('/data.txt').then(a => a.text()).then(t => { p.textContent = t })"),
        "/data.txt": lambda _: (200, {"Content-Type": "text/plain"}, words[-1]),
    }
    with Web(routes) as web:
        for each in (first, first, "first words", "new words"):
            words.append(each)
            crawl(web, tmp_path, "--timestamping", "--set", "pages.change=text")
            assert each in shown(web, tmp_path, "/")
        assert web.paths().count("/data.txt") == 4
        record = json.loads(run("why", web.url(), "--json", "--dir", tmp_path).text)["record"]
        assert (record["fetches"], record["changes"]) == (4, 1 + (first != "first words"))


def test_the_python_api_returns_the_rendered_page(tmp_path: Path) -> None:
    pages: dict[str, tuple[bool, str]] = {}

    def parse(page: crawler.Page) -> None:
        pages[page.url] = page.rendered, page.css("h1").text

    with Web(shop()) as web:
        config = SETTINGS | {"render": {"when": "always"}}
        crawler.run(web.url(), parse, directory=tmp_path, config=config)
        assert pages[web.url("/item/2")] == (True, "Item 2")
    assert len(pages) == LAST + 1


def _two(
    request_of: Callable[[str], crawler.Request | str], web: Web, directory: Path, when: str
) -> dict[str, str]:
    """Crawl a site of two pages. A callback requests the second page. Return the heading of each page."""
    pages: dict[str, str] = {}

    def parse(page: crawler.Page) -> Iterator[crawler.Request | str]:
        pages[page.url.rpartition("/")[2]] = page.css("h1").text
        if page.url == web.url():
            yield request_of(web.url("/item/5"))

    config = SETTINGS | {"render": {"when": when}, "politeness": {"delay": 0.5, "delay_factor": 0}}
    crawler.run(web.url(), parse, directory=directory, config=config)
    return pages


@pytest.mark.parametrize("linked", [False, True])
def test_a_request_decides_if_its_page_is_rendered(tmp_path: Path, linked: bool) -> None:
    """The option of the request decides if the page is rendered.

    The same is true if a link to the requested page is queued before the request.
    """
    start = (WORDS + '<a href="/item/5">five</a>') if linked else WORDS
    with Web(shop(more={"/": start})) as web:
        shown = _two(lambda url: crawler.Request(url, render=True), web, tmp_path / "a", "never")
        assert shown == {"": "", "5": "Item 5"}
        hidden = _two(lambda url: crawler.Request(url, render=False), web, tmp_path / "b", "always")
        assert hidden == {"": "", "5": ""}
        assert set(rendered(tmp_path / "b")) == {""}


def test_the_answer_to_a_form_is_rendered(tmp_path: Path) -> None:
    pages: list[tuple[bool, str]] = []

    def form(request: ReceivedRequest) -> Answer:
        return 200, {"Content-Type": "text/html"}, f"<p>{request.method}</p><script src=/end.js></script>"

    def parse(page: crawler.Page) -> None:
        pages.append((page.rendered, page.css("p").text))

    routes: dict[str, Route] = {
        "/robots.txt": ROBOTS, "/form": form,
        "/end.js": (200, SCRIPT, "document.querySelector('p').append(' and shown')"),
    }  # fmt: skip
    with Web(routes) as web:
        seed = crawler.Request(web.url("/form"), body={"q": "tea"}, render=True)
        crawler.run(seed, parse, directory=tmp_path, config=SETTINGS)
        assert [asked.method for asked in web.asked if asked.path == "/end.js"] == ["GET"]
    assert pages == [(True, "POST and shown")]


def test_the_render_option_of_a_request_survives_redirect_retry_and_restart(tmp_path: Path) -> None:
    """The option is stored with the URL, because the run that fetches the page has no request object."""
    tries: list[str] = []

    def moves(_: ReceivedRequest) -> Answer:
        tries.append("")
        return (500, {}, "") if len(tries) == 1 else (301, {"Location": "/item/5"}, "")

    with Web(shop(more={"/": WORDS, "/moved": moves})) as web:
        config = SETTINGS | {"crawl": {"max_pages": 1, "patience": 5}, "frontier": {"retry_delays": [0.05]}}
        seeds = [web.url("/"), crawler.Request(web.url("/moved"), render=True)]
        crawler.run(seeds, directory=tmp_path, config=config)
        assert "/item/5" not in web.paths()
        assert run("crawl", "--dir", tmp_path, *FAST, "--set", "crawl.max_pages=0").code == 0
        assert len(tries) == 2
        assert set(rendered(tmp_path)) == {"item/5"}
        assert "<h1>Item 5</h1>" in shown(web, tmp_path, "/item/5")


def test_a_seeds_file_selects_the_sites_that_are_rendered(tmp_path: Path) -> None:
    with Web(shop()) as web:
        seeds = tmp_path / "seeds.txt"
        hosts = {name: web.url(host=f"{name}.localhost") for name in ("shop", "plain")}
        seeds.write_text(f"url render\n{hosts['shop']} always\n{hosts['plain']} -\n")
        for command in (("--seeds", seeds), ()):  # the second run reads the settings saved in the directory
            assert run("crawl", "--dir", tmp_path / "c", *FAST, *command, "--max-pages", "4").code in (
                0,
                14,
                15,
            )
        assert len(web.paths("shop.localhost")) > 2 and web.paths("plain.localhost") == ["/"]


RELAXED = tuple(
    part
    for name in (
        "politeness.delay=0", "politeness.delay_factor=0", "politeness.backoff_first=0.05",
        "network.allow_networks=127.0.0.0/8",
    )
    for part in ("--set", name)
)  # fmt: skip


@pytest.mark.parametrize("processes", [1, 3])
def test_seeds_that_are_added_to_a_running_crawl_select_what_is_rendered(
    tmp_path: Path, processes: int
) -> None:
    """In every interface, the option means the same as the column of a seeds file, in this run and in later runs.

    The page server shows the pictures of the rendered pages, during the crawl and afterwards.
    """
    going = threading.Event()

    def slow(_: ReceivedRequest) -> Answer:
        going.wait(60)
        return "the end"

    with Web(shop(more={"first.localhost/": WORDS, "slow.localhost/": slow})) as web:
        first = [web.url(host=f"{name}.localhost") for name in ("first", "slow")]
        flags = (*FAST[2:], "--processes", str(processes), "--set", "render.screenshot=true")
        running = Running(tmp_path, first, *flags, "--set", "fetch.header_timeout=60")
        directory = running.folder
        try:
            running.until(lambda: web.paths("slow.localhost"))
            shops = [web.url(host=f"s{n}.localhost") for n in range(processes + 1)]
            seed = ("seed", "--dir", directory, *RELAXED)
            assert f"{processes} queued" in run(*seed, "--render", "always", *shops[:-1]).text
            assert "1 queued" in run(*seed, shops[-1]).text
            by_http = {"command": "seed", "urls": [web.url("/item/2", "first.localhost")], "render": "always"}
            secret = {"Content_Type": "application/json", "X_Admin_Token": running.token()}
            assert ask(running.admin, "/do", "POST", by_http, **secret)[0] == 200
            assert ask(running.admin, "/do", "POST", by_http | {"render": "no"}, **secret)[0] == 400
            hosts = [*(f"s{n}.localhost" for n in range(processes)), "first.localhost"]
            running.until(lambda: all("/item/6" in web.paths(host) for host in hosts))
            for url in shops[:-1]:
                running.until(lambda url=url: ask(running.serve, f"/view?url={url}")[0] == 200)
                _, fields, picture = ask(running.serve, f"/view?url={url}")
                assert picture.startswith(b"\x89PNG\r\n") and fields["Content-Type"] == "image/png"
                assert fields["X-Content-Type-Options"] == "nosniff"
                assert fields["Content-Security-Policy"].startswith("sandbox;")
                assert f"/view?url={url}>" in str(ask(running.serve, f"/page?url={url}")[1])
                why = json.loads(ask(running.admin, f"/why?url={url}")[2])
                assert why["record"]["shown"]["pictured"] and why["page_server"].endswith(str(running.serve))
            assert ask(running.serve, f"/view?url={first[0]}")[0] == 404
            going.set()
            assert running.process.wait(60) == 0
        finally:
            running.end()
        assert web.paths(f"s{processes}.localhost") == ["/"]
        late = web.url(host="late.localhost")
        assert "1 queued" in run(*seed, "--render", "always", late).text
        assert run("crawl", "--dir", directory, *FAST, "--processes", processes).code == 0
        assert len(web.paths("late.localhost")) > LAST
        ran = run(*seed, "--render", "sometimes", late)
        assert ran.code == 2 and "'sometimes' is not one of" in ran.err
        with serving(directory) as port:
            assert ask(port, f"/view?url={late}")[2].startswith(b"\x89PNG\r\n")
            assert ask(port, f"/view?url={shops[-1]}")[0] == 404


async def test_seeds_that_a_program_adds_select_what_is_rendered(tmp_path: Path) -> None:
    with Web(shop(more={"a.localhost/": WORDS})) as web:
        async with crawler.Crawl(SETTINGS, directory=tmp_path, seeds=web.url(host="a.localhost")) as crawl:
            running = asyncio.create_task(crawl.run())
            seeds = [web.url("/item/1", host="a.localhost")]
            given = dict(part.split("=") for part in RELAXED[1::2])
            await crawl.command({"command": "seed", "urls": seeds, "settings": given, "render": "always"})
            await running
        assert {"/item/1", "/item/3", "/item/4"} <= set(web.paths("a.localhost"))
    assert 'match = "a.localhost"' in (tmp_path / "crawl.toml").read_text()


def test_a_page_that_can_no_longer_be_rendered_keeps_its_copy(tmp_path: Path) -> None:
    """When the page cannot be rendered, this must not count as a change, replace the copy or remove its links.

    Each failure counts as a try.
    """
    with Web(shop()) as web:
        crawl(web, tmp_path)
        before = json.loads(run("why", web.url(), "--json", "--dir", tmp_path).text)["record"]
        ran = run("crawl", "--dir", tmp_path, *FAST, "--timestamping", "--render", "always",
                  "--set", "render.browser=/nowhere", "--set", "frontier.tries=1", web.url())  # fmt: skip
        assert ran.err.count("no such program") == 1
        after = json.loads(run("why", web.url(), "--json", "--dir", tmp_path).text)["record"]
        assert (after["state"], after["outcome"]) == ("stored", "not_rendered")
        assert after["attempts"] == before["attempts"] + 1
        for field in ("changes", "fetches", "rendered", "content_digest", "changed_at", "links"):
            assert after[field] == before[field], field
        assert "<h1>Item 0</h1>" in shown(web, tmp_path, "/")
        assert "no problems found" in run("check", "--dir", tmp_path).text
        crawl(web, tmp_path, "--timestamping", "--set", "render.browser=")
        again = json.loads(run("why", web.url(), "--json", "--dir", tmp_path).text)["record"]
        assert (again["outcome"], again["changes"]) == ("fetched", before["changes"])


def test_what_a_page_forbids_applies_even_if_no_browser_can_show_it(tmp_path: Path) -> None:
    """The header or a meta element of the server's answer forbids something new, and the browser is missing.

    What the answer no longer forbids applies again after the next rendering, because a script may forbid it, too.
    """
    fields = [{"Content-Type": "text/html", "Content-Usage": "train-ai=y"}]
    metas = [""]
    routes = shop(more={"/": lambda _: (200, fields[-1], metas[-1] + SHELL)})
    missing = ("--timestamping", "--set", "render.browser=/nowhere", "--set", "frontier.tries=1")

    def stated() -> tuple[bool, bool, bool]:
        """Return three facts: a copy is shown, it may be used for training, and `check` finds no problem."""
        ran = run("export", "--dir", tmp_path, "--format", "jsonl", "--allow", "train-ai")
        sound = "no problems found" in run("check", "--dir", tmp_path).text
        return bool(shown(web, tmp_path, "/")), "<h1>" in ran.text or "Item 0" in ran.text, sound

    with Web(routes) as web:
        crawl(web, tmp_path, "--max-pages", "1", "--set", "consent.retroactive=true")
        assert stated() == (True, True, True)
        fields.append({"Content-Type": "text/html", "Content-Usage": "train-ai=n"})
        crawl(web, tmp_path, *missing)
        assert stated() == (True, False, True)
        metas.append('<meta name="robots" content="noarchive">')
        crawl(web, tmp_path, *missing)
        assert stated() == (False, False, True)
        metas.append("")
        crawl(web, tmp_path, *missing)
        assert stated() == (False, False, True)
        fields.append(fields[0])
        crawl(web, tmp_path, "--timestamping", "--set", "render.browser=")
        assert stated() == (True, True, True)


def test_patterns_learned_by_auto_survive_a_restart(tmp_path: Path) -> None:
    """If three pages of a pattern gained nothing from rendering, no more of them are rendered, even after a restart."""
    idle = {f"/p/{n}": f'<script>1</script><a href="/p/{n + 1}">next</a>' for n in range(12)}
    with Web({"/robots.txt": ROBOTS, **idle}) as web:
        flags = ("--render", "auto", "--set", "render.chance=0", "--max-pages", "2")
        for part in range(6):
            run("crawl", "--dir", tmp_path, *FAST, *flags, web.url("/p/0"))
            if part == 3:
                assert run("reshard", "--dir", tmp_path, "--to", "2").code == 0
        assert len(web.paths()) == 12
    assert len(rendered(tmp_path)) == 3
    assert "no problems found" in run("check", "--dir", tmp_path).text


def test_links_and_text_in_shadow_roots_are_found(tmp_path: Path) -> None:
    """The shadow roots (open, closed, nested) are attached by scripts or declared in the HTML."""
    app = """
    const define = (name, mode, html) => customElements.define(name, class extends HTMLElement {
      constructor() { super(); this.attachShadow({mode}).innerHTML = html; }
    });
    define('x-outer', 'open', '<a href="/open">an open root</a><x-inner></x-inner>');
    define('x-inner', 'open', '<a href="/nested">a nested root</a>');
    define('x-closed', 'closed', '<a href="/closed">a closed root</a>');
    """
    page = (
        '<script src="/app.js"></script><x-outer></x-outer><x-closed></x-closed><template><a href="/no">no</a></template>'
        '<div><template shadowrootmode="open"><a href="/declared">declared</a></template></div>'
    )
    found = {"/open", "/nested", "/closed", "/declared"}
    with Web({"/robots.txt": ROBOTS, "/": page, "/app.js": (200, SCRIPT, app)}, other=WORDS) as web:
        webs.crawl(tmp_path / "static", web.url())
        assert set(web.paths()) == {"/", "/declared"}
        crawl(web, tmp_path / "shown")
        assert found < set(web.paths()) and "/no" not in web.paths()
        for command in (("links",), ("text",)):
            ran = run("export", "--dir", tmp_path / "shown", "--format", *command)
            assert ran.code == 0
            assert ("/nested" if command == ("links",) else "a nested root") in ran.text


def test_get_prints_the_picture_of_a_page(tmp_path: Path) -> None:
    """A stored picture is a PNG of the page.

    If there is no picture, or if the output is a terminal, one line explains this.
    """
    with Web(shop(more={"/": "<body style='background:#f00'><script>1</script>"})) as web:
        crawl(web, tmp_path / "with", "--set", "render.screenshot=true")
        crawl(web, tmp_path / "without")
        out = tmp_path / "page.png"
        ran = run("get", web.url(), "--dir", tmp_path / "with", "--screenshot", "-o", out)
        assert (ran.code, ran.out) == (0, b"")
        assert out.read_bytes().startswith(b"\x89PNG\r\n") and out.stat().st_size > 1000
        assert run("get", web.url(), "--dir", tmp_path / "with", "--screenshot").out == out.read_bytes()
        assert run("get", web.url(), "--dir", tmp_path / "with").text.startswith(
            "<html><head></head><body style"
        )
        ran = run("get", web.url(), "--dir", tmp_path / "without", "--screenshot", "-o", out)
        assert ran.code == 4 and "no picture" in ran.err and ran.err.count("\n") == 1
        ran = run("get", web.url(), "--dir", tmp_path / "with", "--screenshot", "--static")
        assert ran.code == 2 and ran.err.count("\n") == 1
        assert "no problems found" in run("check", "--dir", tmp_path / "with").text


def test_a_page_that_kills_its_browser_costs_its_neighbours_nothing(tmp_path: Path, no_orphan: None) -> None:
    """When the hostile page requests `/kill`, the browser is killed while it has another page open."""
    kills, killed = [], threading.Event()

    def kill(_: ReceivedRequest) -> Answer:
        kills.append(len(browsers()))
        for pid in browsers():
            os.kill(pid, signal.SIGKILL)
        killed.set()
        return 200, JSON, "{}"

    def late(_: ReceivedRequest) -> Answer:
        killed.wait(30)
        return 200, JSON, "{}"

    show = "fetch('/%s.json').then(() => { document.body.append('sh' + 'own') })"
    routes: dict[str, Route] = {"/robots.txt": ROBOTS, "/kill.json": kill, "/late.json": late}
    for name in ("kill", "late"):
        routes[f"{name}.localhost/"] = f"<!doctype html><body><script>{show % name}</script>"
    with Web(routes) as web:
        hostile, good = (web.url(host=f"{name}.localhost") for name in ("kill", "late"))
        webs.crawl(tmp_path, good, hostile, "--render", "always", "--set", "render.pages=2")
        assert len(kills) == 2, "the hostile page gets one more try, alone"
        assert "shown" in run("get", good, "--dir", tmp_path).text
        cut = {line["url"]: line.get("cut_by", "") for line in lines(tmp_path)}
        assert cut == {hostile: "crash", good: ""}


def test_the_first_good_rendering_of_a_page_is_no_change(tmp_path: Path) -> None:
    """A page could not be rendered, so only its shell is stored.

    A later rendering does not prove that the page has changed.
    """
    scripts = [BOMB, "root.textContent = 'now it works'"]
    with Web({
        "/robots.txt": ROBOTS, "/": lambda _: (200, {"Content-Type": "text/html", "ETag": '"1"'}, SHELL),
        "/app.js": lambda _: (200, SCRIPT | {"Cache-Control": "no-store"}, scripts[0]),
    }) as web:  # fmt: skip
        crawl(web, tmp_path)
        assert shown(web, tmp_path, "/") == SHELL
        del scripts[0]
        crawl(web, tmp_path, "--timestamping")
        assert "now it works" in shown(web, tmp_path, "/")
        record = json.loads(run("why", web.url(), "--json", "--dir", tmp_path).text)["record"]
        assert (record["rendered"], record["fetches"], record["changes"]) == (True, 2, 0)
        status = json.loads(run("status", "--json", "--dir", tmp_path).text)["refresh"]
        assert not status.get("content_changed") and not status.get("content_same")


def test_auto_does_not_try_a_page_again_soon_that_no_browser_could_show(tmp_path: Path) -> None:
    """The failure is stored, so it also counts in later runs. The page is tried again after a waiting time."""
    app = (200, SCRIPT | {"Cache-Control": "no-store"}, BOMB)
    with Web({"/robots.txt": ROBOTS, "/": SHELL, "/app.js": app}) as web:
        flags = ("--timestamping", "--render", "auto", "--set", "render.chance=0")
        for _ in range(3):
            webs.crawl(tmp_path, web.url(), *flags)
        assert web.paths().count("/app.js") == 1
        assert [line.get("held_back", False) for line in lines(tmp_path)] == [False, True, True]
        status, why = (run(*command, "--dir", tmp_path).text for command in (("status",), ("why", web.url())))
        assert "1 page that no browser could show; 2 put off after failed attempts" in status
        assert "no browser could show it, once; --render auto tries again from 20" in why
        webs.crawl(tmp_path, web.url(), *flags, "--render", "always")
        assert web.paths().count("/app.js") == 2


def test_links_and_text_in_frames_of_the_page_are_found(tmp_path: Path) -> None:
    """A frame counts as part of the page if it has the same origin as the page, or no origin of its own."""
    page = """<!doctype html><title>top</title><p>around</p>
    <iframe srcdoc="<base href='/deep/'><a href='in-srcdoc'>in a srcdoc</a>
                    <iframe srcdoc='<a href=/nested>nested</a>'></iframe>"></iframe>
    <iframe id=blank></iframe><iframe src="/dir/frame"></iframe><iframe src="http://other.localhost:PORT/"></iframe>
    <script>
      blank.contentDocument.body.innerHTML = '<a href="written">written by a script</a>';
      document.currentScript.remove();
    </script>"""
    frame = "<meta name=robots content=nofollow><script>document.write('<a href=rel>framed</a>')</script>"
    with Web({"/robots.txt": ROBOTS, "/dir/frame": frame}, other=WORDS) as web:
        web.routes["localhost/"] = page.replace("PORT", str(web.port))
        web.routes["other.localhost/"] = f"<a href='{web.url('/never')}'>of another site</a>"
        webs.crawl(tmp_path, web.url(), "--render", "always", "--depth", "1")
        dom, text = shown(web, tmp_path, "/"), run("export", "--dir", tmp_path, "--format", "text").text
    assert {"/deep/in-srcdoc", "/nested", "/written", "/dir/rel"} < set(web.paths("localhost"))
    assert "/never" not in web.paths("localhost") and "of another site" not in dom
    assert dom.count("data-frame=") == 4
    for words in ("in a srcdoc", "nested", "written by a script", "framed"):
        assert words in text


@pytest.mark.parametrize("post", [False, True])
def test_a_page_may_post_only_if_it_is_allowed_and_never_in_the_name_of_the_crawl(
    tmp_path: Path, post: bool
) -> None:
    """The answer to the POST is archived separately from the answer to the GET of the same URL."""
    app = """
    const put = text => document.body.append(text);
    fetch('/graphql').then(answer => answer.text()).then(put);
    fetch('/graphql', {method: 'POST', body: '{"query": "{tea}"}', headers: {'Content-Type': 'application/json'}})
      .then(answer => answer.text()).then(put);
    """

    def answer(request: ReceivedRequest) -> Answer:
        return 200, {"Content-Type": "text/plain"}, f"{request.method} got {request.body.decode()};"

    cookie = {"Content-Type": "text/html", "Set-Cookie": "session=secret"}
    with Web(shop(app, {"/": (200, cookie, SHELL), "/graphql": answer})) as web:
        login = ("--http-user", "me", "--http-password", "secret", "--set", "fetch.cookies=true")
        crawl(web, tmp_path, *login, "--set", f"render.post={post}".lower())
        dom = shown(web, tmp_path, "/")
        assert "GET got ;" in dom and ('POST got {"query": "{tea}"};' in dom) is post
        asked = {each.method: each.headers for each in web.asked if each.path == "/graphql"}
        assert asked.keys() == ({"GET", "POST"} if post else {"GET"})
        assert asked["GET"]["Authorization"] and "session" in asked["GET"]["Cookie"]
        if post:
            assert not {"Authorization", "Cookie"} & set(asked["POST"])
            assert asked["POST"]["Content-Type"] == "application/json"
        (line,) = lines(tmp_path)
        assert line.get("missing", 0) == (not post)
        assert shown(web, tmp_path, "/graphql") == "GET got ;"
    assert "no problems found" in run("check", "--dir", tmp_path).text


@pytest.mark.parametrize("cookies", ["auto", "false", "true"])
@pytest.mark.parametrize("way", ["at once", "after a redirect"])
def test_the_cookies_of_a_page_are_sent_with_its_later_requests(
    tmp_path: Path, cookies: str, way: str
) -> None:
    """If the page was not redirected, these cookies were once lost unless the crawl kept all cookies."""
    app = "fetch('/data').then(answer => answer.text()).then(text => document.body.append(text))"
    html = {"Content-Type": "text/html", "Set-Cookie": "visit=1"}
    pages: dict[str, Route] = {"/": (200, html, SHELL), "/data": "data"}

    def redirected_once(request: ReceivedRequest) -> Answer:
        if "Cookie" in request.headers:
            return 200, html, SHELL
        return 302, {"Location": "/", "Set-Cookie": "first=1"}, ""

    if way == "after a redirect":
        pages["/"] = redirected_once
    with Web(shop(app, pages)) as web:
        crawl(web, tmp_path, "--set", f"fetch.cookies={cookies}")
        (sent,) = [each.headers.get("Cookie", "") for each in web.asked if each.path == "/data"]
    assert "visit=1" in sent and ("first=1" in sent) is (way == "after a redirect")


def test_a_page_gets_no_permission(tmp_path: Path) -> None:
    names = [
        "geolocation",
        "notifications",
        "camera",
        "microphone",
        "clipboard-read",
        "persistent-storage",
        "midi",
    ]
    app = f"""
    Promise.all({names}.map(name => navigator.permissions.query({{name}}).then(found => found.state, () => 'none')))
      .then(states => {{ root.textContent = states.join(' ') }});
    navigator.geolocation.getCurrentPosition(() => document.body.append('here'), () => document.body.append('nowhere'));
    """
    with Web(shop(app)) as web:
        crawl(web, tmp_path)
        dom = shown(web, tmp_path, "/")
    assert "granted" not in dom and "nowhere" in dom
