"""Compare the page server with nginx, case by case, by the ratio of requests per CPU second with the same bodies.

    scripts/bench/serve_cases.py [--pages 20000] [--few 400] [--seconds 3] [--rounds 3] [--cases uncached-16 cached]
    scripts/bench/serve_cases.py --folder /tmp/bench       keeps pages and crawl there for the next run

| case | requests |
|---|---|
| `first` | `--pages` pages that the page server has not sent before, each at most once, for a second |
| `first-gzip` | the same for clients that accept gzip, which get the stored bytes (nginx: gzip_static) |
| `prepared` | the same as `first`, `--wait` seconds after the start of the page server, which prepares pages meanwhile |
| `segment` | `--pages` pages in turn, far more than the memory holds, without the cache on disk: inflated each time |
| `uncached-1`, `-16`, `-300` | the same with the cache on disk, which then holds all pages, on 1, 16, 300 connections |
| `gzip-1`, `-16`, `-300` | the same for clients that accept gzip (nginx: gzip_static, files of level 1) |
| `cached` | `--few` pages in turn, which the cache holds, on 16 connections, like all cases without a number |
| `unchanged`, `unchanged-cached` | If-None-Match with the right tag, of `--pages` and of `--few` pages: 304 |
| `range` | 1,000 bytes from the middle of `--pages` pages: 206 |
| `decoded` | pages stored with gzip, for clients that accept none (nginx: the same bodies as plain files) |
| `encoded` | the same pages for clients that accept gzip (nginx: gzip_static) |

The script needs nginx and wrk (Debian: nginx-light, wrk). CPU is the time of the serving process, read from
/proc. A new page server is started for each case; in the cases `first`, `first-gzip` and `prepared`, a new
one is started for each round. Before the measurement, every page of the case is requested once. In the cases
`first`, `first-gzip` and `prepared`, the pages of the case `decoded` are requested instead, so that the
measured pages are new to the page server. Then the rounds begin. In each round both servers receive the same
load, one after the other. Each server begins with the page at which its last round ended. The median of the
rounds is printed, with the memory of the page server.

The 99th percentile is that of wrk, which adds samples for requests that it could not send in time. So short
rounds with 300 connections overstate the 99th percentile: wrk reported up to 1.9 s in rounds in which every
connection waited less than 0.4 s.
"""

import argparse
import gzip
import hashlib
import statistics
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from programs import CRAWLER, FULL_RATE, needed, nginx, running, scratch
from serve import Load, load, write_pages

from crawler.bench import harness, meters
from crawler.cli.loopback import free_port, free_ports

LUA = """
local base, n, fields = os.getenv("BASE"), tonumber(os.getenv("FIRST")), {}
local pages, tags = tonumber(os.getenv("PAGES")), nil
for name, value in os.getenv("FIELDS"):gmatch("([^:\\n]+): ([^\\n]+)") do fields[name] = value end
if os.getenv("TAGS") ~= "" then
  tags = {}
  for line in io.lines(os.getenv("TAGS")) do tags[#tags + 1] = line end
end
local last = n + tonumber(os.getenv("COUNT"))
request = function()
  n = n + 1
  if n >= last then wrk.thread:stop() end
  local page = n * 7 % pages
  if tags then fields["If-None-Match"] = tags[page + 1] end
  return wrk.format("GET", base .. "p" .. page .. ".html", fields)
end
"""
CODED_PAGES = 2000
GZIP = "Accept-Encoding: gzip"


class Case(NamedTuple):
    connections: int = 16
    few: bool = False  # if True, only pages that the cache holds are requested
    fields: str = ""
    tags: bool = False
    coded: bool = False
    zipped: bool = False
    new: bool = False  # if True, no page is requested twice
    prepared: bool = False  # if True, the page server has time to prepare the pages
    settings: tuple[str, ...] = ()


CASES = {
    "first": Case(new=True, settings=("--set", "serve.fill_share=0")),
    "first-gzip": Case(new=True, fields=GZIP, zipped=True, settings=("--set", "serve.fill_share=0")),
    "prepared": Case(new=True, prepared=True),
    "segment": Case(settings=("--set", "serve.disk_cache_bytes=0")),
    "uncached-1": Case(1),
    "uncached-16": Case(),
    "uncached-300": Case(300),
    "gzip-1": Case(1, fields=GZIP, zipped=True),
    "gzip-16": Case(fields=GZIP, zipped=True),
    "gzip-300": Case(300, fields=GZIP, zipped=True),
    "cached": Case(few=True),
    "unchanged": Case(tags=True),
    "unchanged-cached": Case(tags=True, few=True),
    "range": Case(fields="Range: bytes=12000-12999"),
    "decoded": Case(coded=True),
    "encoded": Case(coded=True, fields=GZIP),
}


def prepare(folder: Path, options: argparse.Namespace) -> None:
    """Write the pages, and files with the entity tags that nginx and the page server give them."""
    for name, count in (("www", options.pages), ("coded", CODED_PAGES)):
        if not (folder / name).exists():
            write_pages(folder / name, count, options.bytes, options.text)
    for name, level in (("www", 1), ("coded", 6)):
        for page in (folder / name).glob("*.html"):
            zipped = page.with_suffix(".html.gz")
            if not zipped.exists():
                zipped.write_bytes(gzip.compress(page.read_bytes(), level, mtime=0))
    theirs, ours = [], []
    for number in range(options.pages):
        page = folder / "www" / f"p{number}.html"
        theirs.append(f'"{int(page.stat().st_mtime):x}-{page.stat().st_size:x}"\n')
        ours.append(f'"{hashlib.sha1(page.read_bytes()).hexdigest()}"\n')
    (folder / "theirs").write_text("".join(theirs))
    (folder / "ours").write_text("".join(ours))


def ports_of(folder: Path) -> list[int]:
    """Return the ports of the three sites.

    The ports are stored with the crawl, because the URLs of the crawl contain them.
    """
    kept = folder / "ports"
    if not kept.exists():
        kept.write_text(" ".join(map(str, free_ports(3))))
    return [int(port) for port in kept.read_text().split()]


class Rounds:
    """The rounds of one case. `ports` are the ports of the three sites of nginx, and `nginx` is its process."""

    def __init__(
        self, folder: Path, ports: list[int], nginx: int, name: str, options: argparse.Namespace
    ) -> None:
        self._folder, self._nginx, self._name, self._options = folder, nginx, name, options
        self._case = CASES[name]
        self._plain, self._coded, self._zipped = (f"http://127.0.0.1:{port}" for port in ports)
        self._asked = {"theirs": 0, "ours": 0}
        self._ratios: list[float] = []
        self._last = ""
        self._script = folder / "cases.lua"
        self._script.write_text(LUA)
        options.rate = 0
        if self._case.new:  # the rounds are shorter, because no page may be requested twice
            self._options = argparse.Namespace(**{**vars(options), "seconds": 1})

    def measure(self) -> None:
        """Measure the case and print the result."""
        for rounds in [1] * self._options.rounds if self._case.new else [self._options.rounds]:
            self._measure(rounds)
        each = " ".join(f"{ratio:.3f}" for ratio in self._ratios)
        print(f"{self._name:17} {statistics.median(self._ratios):.3f} x ({each}); {self._last}", flush=True)

    def _measure(self, rounds: int) -> None:
        """Start a page server, and measure a number of rounds with it."""
        case = self._case
        address = f"127.0.0.1:{free_port()}"
        serve = [*CRAWLER, "serve", address, "--dir", str(self._folder / "crawl"), *case.settings]
        with running(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
            assert server.stdout is not None and server.stdout.readline()
            site = self._coded if case.coded else self._plain
            pages = self._options.few if case.few else CODED_PAGES if case.coded else self._options.pages

            def loaded(whose: str, site: str = site, pages: int = pages) -> Load:
                pid, url, base = self._nginx, self._zipped if case.zipped else site, "/"
                if whose == "ours":
                    pid, url, base = server.pid, f"http://{address}", f"/page?url={site}/"
                tags = str(self._folder / whose) if case.tags else ""
                given = {"FIELDS": case.fields, "TAGS": tags, "FIRST": str(self._asked[whose])}
                given["COUNT"] = str(pages if case.new else 1 << 60)
                made = load(
                    pid, url, base, self._script, self._options, case.connections, pages=pages, more=given
                )
                self._asked[whose] += made.requests
                return made

            for whose in self._asked:
                if case.new:
                    loaded(whose, self._coded, CODED_PAGES)
                while not case.new and self._asked[whose] < pages:
                    loaded(whose)
            if case.prepared:
                time.sleep(self._options.wait)
            for number in range(rounds):
                theirs, ours = loaded("theirs"), loaded("ours")
                self._ratios.append(ours.a_cpu_second / theirs.a_cpu_second)
                if self._options.verbose:
                    print(
                        f"  {self._name} {number}: nginx {theirs}; crawler {ours}; ratio {self._ratios[-1]:.3f}"
                    )
            self._last = (
                f"{ours.a_cpu_second:,.0f}/CPU s of nginx's {theirs.a_cpu_second:,.0f}; "
                f"P99 {ours.worst} of nginx's {theirs.worst}; {meters.memory(server.pid)}{ours.errors}"
            )


def run(folder: Path, options: argparse.Namespace) -> None:
    prepare(folder, options)
    ports = ports_of(folder)
    roots = (
        f"root {folder}/www;",
        f"root {folder}/coded; gzip_static on;",
        f"root {folder}/www; gzip_static on;",
    )
    sites = [f"server {{ listen 127.0.0.1:{port}; {own} }}" for port, own in zip(ports, roots, strict=True)]
    with nginx(folder, *sites) as worker:
        if not (folder / "crawl").exists():
            seeds = [f"http://127.0.0.1:{port}/p0.html" for port in ports[:2]]
            subprocess.run(
                [*CRAWLER, "crawl", *seeds, "--dir", str(folder / "crawl"), *FULL_RATE], check=True
            )
        for name in options.cases:
            Rounds(folder, ports, worker, name, options).measure()


def main() -> None:
    parser = harness.parser(__doc__)
    parser.option("--pages", 20_000)
    parser.option("--few", 400)
    parser.option("--bytes", 25_000)
    parser.option("--text", "words", "how well pages compress", choices=("words", "html"))
    parser.option("--seconds", 3)
    parser.option("--rounds", 3)
    parser.option("--wait", 60, "seconds to prepare the pages")
    parser.option("--folder", Path, "keep pages and crawl here", metavar="DIR")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.option("--verbose", False, "print each round")
    options = parser.parse_args()
    needed("wrk")
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        return run(options.folder, options)
    with scratch("serve-cases") as folder:
        run(folder, options)


if __name__ == "__main__":
    main()
