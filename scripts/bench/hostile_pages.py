"""Render hostile pages in the browser, and kill the browser and the crawler at random instants.

    python scripts/bench/hostile_pages.py [--kills 10] [--seed 1]

Each hostile page is on its own host. One crawl visits all hostile pages, with `render.cpu_max` 5 s and
`render.wall_max` 20 s. For each page, the script then checks whether the page was stored as rendered or as
received, which limit ended its rendering, whether its link was followed, and whether a server at a forbidden
address received a request. The second part crawls a site, and kills the browser or the crawler (SIGKILL)
again and again. Then the script finishes the crawl and looks for lost or incomplete pages, damage, and
orphaned or zombie processes.
"""

import json
import os
import random
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from programs import CRAWLER
from render_cost import crawl_command, shop

from crawler.bench import harness
from tests.end_to_end.web import FAST, Route, Web

_SPIN = "new Worker(URL.createObjectURL(new Blob(['for (;;) {}'])))"
_FORK = "const u = URL.createObjectURL(new Blob(['self.onmessage = () => 0'])); for (;;) new Worker(u)"
# name -> script; AT stands for the server at a forbidden address
HOSTILE = {
    "endless loop": "for (;;) {}",
    "endless loop in a timer": "setTimeout(() => { for (;;) {} }, 50)",
    "endless microtasks": "const again = () => Promise.resolve().then(again); again()",
    "workers that loop": f"for (let i = 0; i < 4; i++) {_SPIN}; fetch('/late')",
    "workers without end": _FORK,
    "memory bomb": "const held = []; for (;;) held.push(new Array(1e6).fill(Math.random()))",
    "memory bomb of bytes": "const held = []; for (;;) held.push(new Uint8Array(1 << 26).fill(1))",
    "DOM without end": "for (;;) document.body.append('x'.repeat(1000), document.createElement('p'))",
    "10,000 requests": "for (let i = 0; i < 10000; i++) fetch('/many' + i)",
    "10,000 images": "for (let i = 0; i < 10000; i++) { new Image().src = '/many' + i }",
    "requests without end": "const ask = () => fetch('/more' + Math.random()).then(ask); ask()",
    "alerts without end": "for (;;) { alert(1); confirm(2); prompt(3) }",
    "print and leave": "onbeforeunload = () => 'stay'; print(); location = '/next'",
    "script redirects": "setInterval(() => { location.href = '/next' + Math.random() }, 1)",
    "reloads without end": "setInterval(() => location.reload(), 1)",
    "history without end": "setInterval(() => { for (let i = 0; i < 50; i++) history.pushState(0, '', '/h' + i) }, 1)",
    "window.open storm": "for (let i = 0; i < 500; i++) window.open('http://AT/popup' + i)",
    "frames in frames": "for (let i = 0; i < 300; i++) { const f = document.createElement('iframe'); f.src = '/self'; "
    "document.body.append(f) }",
    "downloads": "for (let i = 0; i < 50; i++) { const a = document.createElement('a'); a.href = '/f' + i; "
    "a.download = 'x'; a.click() }",
    "file: and chrome:": "for (const u of ['file:///etc/passwd', 'chrome://version', 'chrome://crash', 'view-source:/']) "
    "{ fetch(u).catch(() => 0); window.open(u); try { location = u } catch (e) {} }",
    "loopback, metadata, peers": "for (const u of ['http://AT/', 'http://169.254.169.254/latest/', 'http://[::1]:8081/', "
    "'http://127.0.0.2:8081/api/stop']) { fetch(u).catch(() => 0); fetch(u, {method: 'POST', body: 'x'}).catch(() => 0); "
    "new Image().src = u; navigator.sendBeacon(u, 'x'); try { new WebSocket(u.replace('http', 'ws')) } catch (e) {} }",
}


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command of the crawler."""
    return subprocess.run([*CRAWLER, *map(str, arguments)], capture_output=True, text=True, check=False)


def browsers(folder: str) -> list[int]:
    """Return the processes of browsers whose profiles are below a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if (
                entry.name.isdigit()
                and f"{folder}/crawler-browser-".encode() in (entry / "cmdline").read_bytes()
            ):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def zombies() -> int:
    """Return the number of zombies among the browsers of this machine."""
    count = 0
    for entry in Path("/proc").iterdir():
        try:
            stat = (entry / "stat").read_text() if entry.name.isdigit() else ""
        except OSError:
            continue
        count += ") Z " in stat and "headless" in stat
    return count


def left_over(folder: str) -> int:
    """After the crawl, wait up to 10 s until all browsers have ended.

    Return the number of browsers that still run.
    """
    until = time.monotonic() + 10
    while browsers(folder) and time.monotonic() < until:
        time.sleep(0.1)
    return len(browsers(folder))


def _end(checked: bool, folder: str) -> str:
    damage = "none" if checked else "found"
    return f"damage: {damage}, browsers left: {left_over(folder)}, zombies: {zombies()}"


def hostile(folder: str) -> None:
    """Crawl the hostile pages and print the table."""
    names = list(HOSTILE)
    with Web({}, address="127.0.0.2") as inner:
        routes: dict[str, Route] = {"/robots.txt": "", "/after": "after " * 99}
        for n, script in enumerate(HOSTILE.values()):
            script = script.replace("AT", f"127.0.0.2:{inner.port}")
            body = f"<p id=kept></p><script>document.getElementById('kept').append('sh' + 'own'); {script}</script>"
            routes[f"h{n}.localhost/"] = (
                f'<!doctype html><title>{n}</title><body>{body}<a href="/after">after</a>'
            )
        with Web(routes, other=(200, {"Content-Type": "text/javascript"}, "0")) as web:
            directory = f"{folder}/hostile"
            only_own = [flag.replace("127.0.0.0/8", "127.0.0.1/32") for flag in FAST]
            limits = (
                "--set",
                "render.cpu_max=5",
                "--set",
                "render.wall_max=20",
                "--set",
                "render.images=true",
            )
            seeds = [web.url(host=f"h{n}.localhost") for n in range(len(names))]
            ran = run("crawl", "--dir", directory, *only_own, "--render", "always", *limits, *seeds)
            lines = {}
            for text in (Path(directory) / "pages.jsonl").read_text().splitlines():
                line = json.loads(text)
                lines[line["url"]] = line
            table = harness.Table(f"{'page':28}", "   kept", "   cut by", "    s", "link followed")
            for n, name in enumerate(names):
                line = lines.get(seeds[n], {})
                dom = run("get", seeds[n], "--dir", directory).stdout
                kept = "shown" if ">shown<" in dom else "answer" if dom else "nothing"
                followed = "yes" if f"{seeds[n]}after" in lines else "no"
                table.row(name, kept, line.get("cut_by", "-"), line.get("rendered", 0.0), followed)
            checked = "no problems found" in run("check", "--dir", directory).stdout
            print(f"exit code {ran.returncode}, requests at the other address: {len(inner.asked)}")
            print(_end(checked, folder), flush=True)


def kills(folder: str, count: int, rng: random.Random) -> None:
    """Kill the browser or the crawler `count` times, finish the crawl, and print what was lost or left over."""
    pages, directory = 16, f"{folder}/killed"
    done = {"browser": 0, "crawler": 0}
    with Web(shop(pages)) as web:
        command = crawl_command(directory, web.url())
        process = None
        for _ in range(count):
            if process is None or process.poll() is not None:
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(rng.uniform(0.5, 5.0))
            found = browsers(folder)
            if rng.random() < 0.5 and found:
                os.kill(rng.choice(found), signal.SIGKILL)
                done["browser"] += 1
            else:
                process.kill()
                process.wait()
                done["crawler"] += 1
        if process is not None:
            process.kill()
            process.wait()
        last = run(*command[3:])
        lost = [n for n in range(1, pages) if f"/item/{n}" not in set(web.paths())]
        doms = [run("get", web.url(f"/item/{n}"), "--dir", directory).stdout for n in range(1, pages)]
        whole = sum(f"words about item {n} " in dom for n, dom in enumerate(doms, 1))
    fetched = (Path(directory) / "pages.jsonl").read_text()
    crashed = sum('"cut_by":"crash"' in text.replace(" ", "") for text in fetched.splitlines())
    checked = "no problems found" in run("check", "--dir", directory).stdout
    print(
        f"kill -9 of the browser {done['browser']} x, of the crawler {done['crawler'] + 1} x; exit code {last.returncode}"
    )
    print(
        f"pages lost: {len(lost)} of {pages}; whole: {whole} of {pages - 1}; kept as answered, marked: {crashed}"
    )
    print(_end(checked, folder))


def main() -> None:
    """Print both tables."""
    parser = harness.parser(__doc__)
    parser.option("--kills", 10)
    parser.option("--seed", 1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # the browser does not run as root but must be able to read the folder
        os.environ["TMPDIR"] = folder
        hostile(folder)
        kills(folder, args.kills, random.Random(args.seed))


if __name__ == "__main__":
    main()
