"""Replay rendered pages with pywb, from the WARC files alone, and open them in a browser.

    python scripts/bench/replay.py FOLDER

FOLDER is the bin folder of an environment with the package pywb. A site that shows nothing without its
scripts is crawled, and then its server is stopped. Then pywb serves the archive. A browser that uses pywb as
its proxy opens each page, so the script and the data of the page come from the archive. The exit code is 1 if
a page is incomplete.
"""

import json
import subprocess
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from programs import running
from render_cost import crawl_command, shop
from warcio.archiveiterator import ArchiveIterator

from crawler.bench import harness
from crawler.render.browser import find_program
from tests.end_to_end.web import Web

PAGES = 6
_START_MAX = 60.0  # pywb must answer within this many seconds


def crawl(folder: Path) -> list[str]:
    """Crawl the site with a browser; return the URLs of its pages."""
    with Web(shop(PAGES)) as web:
        subprocess.run(crawl_command(folder, web.url()), check=True, capture_output=True)
        return [web.url(), *(web.url(f"/item/{n}") for n in range(1, PAGES))]


def read(files: list[str]) -> int:
    """Read all records with warcio, which verifies their digests. Return the number of records."""
    count = 0
    for file in files:
        with open(file, "rb") as stream:
            for record in ArchiveIterator(stream, check_digests="raise"):
                record.content_stream().read()
                count += 1
    return count


def shown(program: str, port: int, url: str) -> str:
    """Render an archived page in the browser and return the DOM. All requests of the browser go to pywb."""
    command = [program, "--no-sandbox", "--disable-gpu", f"--proxy-server=127.0.0.1:{port}"]
    command += ["--proxy-bypass-list=<-loopback>", "--virtual-time-budget=20000", "--dump-dom", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout


def wait_for(port: int) -> None:
    """Wait until pywb answers."""
    until = time.monotonic() + _START_MAX
    while time.monotonic() < until:
        with suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
            return
        time.sleep(0.2)
    raise SystemExit("pywb does not answer")


def main() -> int:
    """Crawl the site, replay its pages, and print what each page shows."""
    parser = harness.parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.option("--port", 18089)
    args = parser.parse_args()
    if not (args.folder / "wayback").exists():
        raise SystemExit(
            f"{args.folder}: pywb not found; install the package pywb in an environment of its own"
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        urls = crawl(folder / "crawl")
        files = sorted(map(str, (folder / "crawl").glob("*/warc/*.warc.gz")))
        print(f"{read(files)} records read by warcio, all digests correct")
        manager = str(args.folder / "wb-manager")
        subprocess.run([manager, "init", "pages"], cwd=folder, check=True, capture_output=True)
        subprocess.run([manager, "add", "pages", *files], cwd=folder, check=True, capture_output=True)
        wayback = [str(args.folder / "wayback"), "-p", str(args.port), "--proxy", "pages"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with running(wayback, cwd=folder, **quiet):
            wait_for(args.port)
            whole = 0
            for n, url in enumerate(urls):
                dom = shown(find_program(""), args.port, url)
                complete = f"words about item {n} " in dom and f"<title>Item {n}</title>" in dom
                whole += complete
                print(json.dumps({"url": url, "bytes": len(dom), "whole": complete}))
    print(f"{whole} of {len(urls)} pages are complete in the replay")
    return int(whole < len(urls))


if __name__ == "__main__":
    raise SystemExit(main())
