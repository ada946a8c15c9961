"""Compare the page server with nginx: requests per CPU second and latency, with the same bodies in the same run.

    scripts/bench/serve.py [--pages 400] [--bytes 25000] [--seconds 4] [--rounds 2] [--connections 16 300]
    scripts/bench/serve.py --rate 2000          that many requests per second instead of as many as possible
    scripts/bench/serve.py --crawl              the pages of a crawl that runs at full rate meanwhile

The script needs nginx and wrk (Debian: nginx-light, wrk). The script writes pages, which nginx serves, and
crawls them. Then wrk requests them from both servers in turn, on kept-alive connections, without a content
coding. CPU is the time of the serving process, read from /proc, so the CPU time of wrk and of other programs
does not count. The first round warms up both servers.

At full speed, wrk sends a request as soon as the last one is answered, so the mean latency of any server is
connections / (requests per second). With `--rate`, the printed latency is that of a server that is not
overloaded.

With `--crawl`, three spans of `--seconds` are measured: the crawl alone, the crawl under load, and the crawl
alone again. The script prints the CPU time of the crawler per fetched page, without the CPU time for
answering requests. The time for answering is estimated from the cost of a request when the crawl is not
running.
"""

import argparse
import itertools
import os
import random
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from programs import CRAWLER, FULL_RATE, needed, nginx, running, scratch

from crawler.bench import harness, meters
from crawler.bench.meters import cpu_with_children

LUA = """
local base, n = os.getenv("BASE"), 0
local pages, hosts, pause = tonumber(os.getenv("PAGES")), tonumber(os.getenv("HOSTS")), tonumber(os.getenv("PAUSE"))
request = function()
  n = n + 1
  return wrk.format("GET", base:gsub("HOST", "127.0.1." .. (n % hosts + 1)) .. "p" .. (n * 7 % pages) .. ".html")
end
if pause > 0 then delay = function() return math.random() * 2 * pause end end
"""
HOSTS = 40  # number of hosts of the crawl that runs while pages are requested
# wrk requests pages of this many hosts, and this many pages of each host: those that the crawl fetched first
ASKED_HOSTS, ASKED_PAGES = 8, 40


class Load(NamedTuple):
    """The results of wrk, and the CPU time of the server."""

    requests: int
    seconds: float
    cpu: float
    median: str
    worst: str  # 99th percentile
    errors: str

    @property
    def a_cpu_second(self) -> float:
        return self.requests / max(self.cpu, 1 / meters.TICKS)

    def __str__(self) -> str:
        return f"{self.a_cpu_second:,.0f}/CPU s, P50 {self.median}, P99 {self.worst}{self.errors}"


def write_pages(folder: Path, count: int, size: int, text: str = "words") -> None:
    """Write linked pages. Their content depends on `text`.

    With "words", all words are equally frequent. With "html", the words are in markup, and their frequencies
    follow Zipf's law.

    Deflate reduces `words` to 52 % of their size. Most pages can be compressed better than this. Deflate
    reduces `html` to 30 %, like the pages of manuals.
    """
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(3000)]
    weights = list(itertools.accumulate(1.0 / rank for rank in range(1, len(words) + 1)))
    folder.mkdir()
    for n in range(count):
        links = "".join(f'<a href="/p{k}.html">{k}</a> ' for k in (2 * n + 1, 2 * n + 2) if k < count)
        if text == "words":
            body = "<p>" + " ".join(rng.choices(words, k=size // 3))
        else:
            chosen = rng.choices(words, cum_weights=weights, k=size // 6)
            body = "\n".join(_marked_up(rng, chosen[at : at + 7]) for at in range(0, len(chosen), 7))
        (folder / f"p{n}.html").write_text(f"<!doctype html><title>{n}</title>{links}{body}"[:size])


def _marked_up(rng: random.Random, words: list[str]) -> str:
    """Return a piece of marked-up text as templates produce it."""
    first, rest = words[0], " ".join(words[1:])
    return rng.choice((
        f'<p class="text">{first} {rest}</p>',
        f'<li class="item"><a href="/{first}" title="{first}">{first}</a> {rest}</li>',
        f'<h2 id="{first}" class="heading">{first}</h2>\n<p class="text">{rest}</p>',
        f'<tr><td class="name">{first}</td><td class="value">{rest}</td></tr>',
    ))  # fmt: skip


def load(
    pid: int,
    url: str,
    base: str,
    script: Path,
    options: argparse.Namespace,
    connections: int,
    *,
    pages: int = 0,
    hosts: int = 1,
    more: Mapping[str, str] = {},
) -> Load:
    """Let wrk send requests to the server process `pid`. `more` is passed to the script of wrk."""
    pause = 1000.0 * connections / options.rate if options.rate else 0.0
    said_by = {"BASE": base, "PAGES": str(pages or options.pages), "HOSTS": str(hosts), "PAUSE": str(pause)}
    wrk = ["wrk", "--latency", "-t1", f"-c{connections}", f"-d{options.seconds}", "-s", str(script), url]
    before, began = cpu_with_children(pid), time.monotonic()
    said = subprocess.run(
        wrk, capture_output=True, text=True, check=True, env={**os.environ, **said_by, **more}
    ).stdout
    took, spent = time.monotonic() - began, cpu_with_children(pid) - before
    requests = int(re.search(r"(\d+) requests in", said)[1])  # type: ignore[index]
    percentiles = dict(re.findall(r"^ +(50|99)% +(\S+) *$", said, re.MULTILINE))
    errors = "".join(
        f", {line.strip()}" for line in said.splitlines() if "Non-2xx" in line or "Socket" in line
    )
    return Load(requests, took, spent, percentiles["50"], percentiles["99"], errors)


def at_rest(folder: Path, worker: int, script: Path, options: argparse.Namespace) -> float:
    """Compare the servers on a finished crawl. Return the page server's CPU seconds per request in the last round."""
    site, cache = f"http://127.0.0.1:{options.port}", f"http://127.0.0.1:{options.port + 1}"
    crawl = [*CRAWLER, "crawl", f"{site}/p0.html", "--dir", str(folder / "crawl"), *FULL_RATE]
    subprocess.run(crawl, check=True)
    serve = [*CRAWLER, "serve", f"127.0.0.1:{options.port + 1}", "--dir", str(folder / "crawl")]
    price = 0.0
    with running(serve, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None and server.stdout.readline()
        for connections in options.connections:
            for number in range(options.rounds + 1):
                theirs = load(worker, site, "/", script, options, connections)
                ours = load(server.pid, cache, f"/page?url={site}/", script, options, connections)
                label = f"{connections} connections, " + (f"round {number}" if number else "warm-up")
                ratio = ours.a_cpu_second / theirs.a_cpu_second
                print(f"{label}: nginx {theirs}; crawler {ours}; ratio {ratio:.3f}", flush=True)
                price = ours.cpu / ours.requests
    return price


def beside_a_crawl(folder: Path, price: float, script: Path, options: argparse.Namespace) -> None:
    """Request pages of a crawl that runs at full rate.

    `price` is the CPU seconds that a request takes when the crawl is not running.
    """
    cache = f"http://127.0.0.1:{options.port + 1}"
    seeds = folder / "seeds"
    seeds.write_text("".join(f"http://127.0.1.{n + 1}:{options.port + 2}/p0.html\n" for n in range(HOSTS)))
    crawl = [*CRAWLER, "crawl", "--seeds", str(seeds), "--dir", str(folder / "live"), *FULL_RATE]
    crawl += ["--serve", f"127.0.0.1:{options.port + 1}"]
    with running(crawl) as crawler:
        for host in range(ASKED_HOSTS):
            wait_for(f"{cache}/page?url=http://127.0.1.{host + 1}:{options.port + 2}/p{ASKED_PAGES - 1}.html")
        fetched = folder / "live" / "pages.jsonl"
        base = f"/page?url=http://HOST:{options.port + 2}/"
        for connections in options.connections:
            spans = []
            for loaded in (False, True, False):
                before, began = (
                    (fetched.read_bytes().count(b"\n"), cpu_with_children(crawler.pid)),
                    time.monotonic(),
                )
                seen = None
                if loaded:
                    ask = partial(load, pages=ASKED_PAGES, hosts=ASKED_HOSTS)
                    seen = ask(crawler.pid, cache, base, script, options, connections)
                else:
                    time.sleep(options.seconds)
                took = time.monotonic() - began
                pages = fetched.read_bytes().count(b"\n") - before[0]
                spent = cpu_with_children(crawler.pid) - before[1]
                served = seen.requests * price if seen else 0.0
                spans.append((pages / took, 1e6 * (spent - served) / max(1, pages), served / took, seen))
            if crawler.poll() is not None:
                raise SystemExit("the crawl ended too soon; use more --pages")
            (alone, page, _, _), (beside, loaded_page, share, seen), (after, page_after, _, _) = spans
            assert seen is not None, "the second span is the one with the load"
            print(
                f"{connections} connections during a crawl: {seen.requests / seen.seconds:,.0f} requests/s, "
                f"P50 {seen.median}, P99 {seen.worst}{seen.errors}; pages/s {alone:.0f}, {beside:.0f} with the load "
                f"(which took {share:.2f} of a core), {after:.0f}; us of CPU per page {page:,.0f}, {loaded_page:,.0f}, "
                f"{page_after:,.0f}",
                flush=True,
            )


def wait_for(url: str) -> None:
    """Wait until the page has been fetched."""
    for _ in range(600):
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit(f"{url} was not fetched within a minute")


def main() -> None:
    parser = harness.parser(__doc__)
    for name, value in (
        ("pages", 400),
        ("bytes", 25_000),
        ("seconds", 4),
        ("port", 18200),
        ("rounds", 2),
        ("rate", 0),
    ):
        parser.option(f"--{name}", value)
    parser.add_argument("--connections", type=int, nargs="+", default=[16])
    parser.option("--crawl", False)
    options = parser.parse_args()
    needed("wrk")
    with scratch("serve") as folder:
        write_pages(folder / "www", options.pages, options.bytes)
        script = folder / "many.lua"
        script.write_text(LUA)
        www, named = f"root {folder}/www;", 'sub_filter <title> "<title>$host ";'
        plain = f"server {{ listen 127.0.0.1:{options.port}; {www} }}"
        with nginx(folder, plain, f"server {{ listen {options.port + 2}; {www} {named} }}") as worker:
            price = at_rest(folder, worker, script, options)
            if options.crawl:
                beside_a_crawl(folder, price, script, options)


if __name__ == "__main__":
    main()
