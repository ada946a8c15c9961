#!/usr/bin/env python3
"""Mirror a site on loopback with wget and with `crawler crawl --mirror`, and compare the files and the times.

    scripts/bench/wget.py [--pages 60] [--latency 0.05] [--rounds 3]

The site has pages of 8 kB that link to each other. All pages use one picture and one style sheet. Every
answer takes `--latency` seconds. Both programs make their links relative and wait for nothing between requests.
The exit code is 1 if the files differ, or if the crawler took more than twice the time of wget.
"""

import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from programs import CRAWLER, FULL_RATE, needed

from crawler.bench import harness
from tests.end_to_end.web import Answer, ReceivedRequest, Web

AIM = 2.0  # limit on the crawler's wall time, as a multiple of wget's
LINKS = 12  # on each page
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(2000)


class Took(NamedTuple):
    """The seconds that a program took."""

    wall: float
    cpu: float


def page(number: int, pages: int) -> bytes:
    """Return a page that links to later pages, so that all pages can be reached from the first one."""
    near = range(LINKS * number + 1, LINKS * number + LINKS + 1)
    links = "".join(f'<a href="/{each % pages}.html">page {each % pages}</a> ' for each in near)
    text = random.Random(number).randbytes(3500).hex()
    head = f'<title>Page {number}</title><link rel="stylesheet" href="/style.css">'
    return f'<!doctype html>{head}<img src="/picture.png" alt="">{links}<p>{text}</p>'.encode()


def site(pages: int) -> dict[str, tuple[str, bytes]]:
    """Return media type and content of each path."""
    found = {f"/{number}.html": ("text/html", page(number, pages)) for number in range(pages)}
    found |= {"/style.css": ("text/css", b"p { color: black }"), "/picture.png": ("image/png", PICTURE)}
    return found


def serve(files: dict[str, tuple[str, bytes]], latency: float) -> Web:
    """Return a server of the files. Every answer takes `latency` seconds."""

    def answer(asked: ReceivedRequest) -> Answer:
        time.sleep(latency)
        kind, content = files.get(asked.path, ("text/plain", b""))
        return 200 if asked.path in files else 404, {"Content-Type": kind}, content

    return Web({}, other=answer)


def run(command: list[str]) -> Took:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode not in (0, 8):  # 8: wget met an error status; here, it is the status of robots.txt
        sys.exit(f"{command[0]}: exit code {ran.returncode}: {ran.stderr[-500:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(wall, cpu)


def mirrored(folder: Path, names: set[str]) -> set[str]:
    """Return which of the site's files a program has written, wherever it put them."""
    return {path.name for path in folder.rglob("*") if path.is_file()} & names


def main() -> int:
    parser = harness.parser(__doc__)
    parser.option("--pages", 60)
    parser.option("--latency", 0.05)
    parser.option("--rounds", 3)
    args = parser.parse_args()
    needed("wget")
    files = site(args.pages)
    names = {path[1:] for path in files}
    took: dict[str, list[Took]] = {"wget": [], "crawler": []}
    same = True
    with serve(files, args.latency) as web:
        url = web.url("/0.html", "127.0.0.1")
        for _ in range(args.rounds):
            for name, times in took.items():
                with tempfile.TemporaryDirectory() as folder:
                    wget = ["wget", "-q", "-r", "-l", "inf", "-p", "-k", "-P", folder, url]
                    crawler = [*CRAWLER, "crawl", url, "--mirror", "--dir", f"{folder}/crawl", *FULL_RATE]
                    crawler += ["--progress", "none"]
                    times.append(run(wget if name == "wget" else crawler))
                    got = mirrored(Path(folder), names)
                    if got != names:
                        same = False
                        print(f"{name}: {len(names - got)} of {len(names)} files are missing")
    medians = {name: statistics.median(each.wall for each in times) for name, times in took.items()}
    table = harness.Table("program", "     wall s, median", "CPU s, median")
    for name, times in took.items():
        walls = [each.wall for each in times]
        cpu = statistics.median(each.cpu for each in times)
        table.row(name, harness.spread(walls), cpu)
    ratio = medians["crawler"] / medians["wget"]
    print(f"\nthe crawler took {ratio:.2f} x the time of wget (aim: at most {AIM:g} x)")
    return 0 if same and ratio <= AIM else 1


if __name__ == "__main__":
    sys.exit(main())
