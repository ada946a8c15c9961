"""Programs that benchmarks run: the crawler of this checkout, servers, and the folders for their files.

After the import of this module, the packages of this checkout can be imported, including `tests`.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from crawler.bench import meters  # noqa: E402

CRAWLER = [sys.executable, "-m", "crawler"]
# the flags of a crawl that sends requests to loopback addresses as fast as it can
FULL_RATE = [
    "--delay",
    "0",
    "--delay-factor",
    "0",
    "--allow-network",
    "127.0.0.0/8",
    "--admin",
    "off",
    "--quiet",
]
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}  # the environment of a program that runs in another folder

_NGINX = """
worker_processes 1; daemon off; pid {folder}/pid; error_log /dev/null;
events {{ worker_connections 2048; }}
http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000; types {{ text/html html; }}
 client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
 uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
 {servers} }}
"""


class Set(NamedTuple):
    """The seeds of a set of the crawl bench, and the pattern of the URLs that belong to it."""

    seeds: Path
    pattern: str


def bench_set(name: str) -> Set:
    """Return a set of the crawl bench in the folder $BENCH_DATA."""
    seeds = Path(os.environ["BENCH_DATA"]) / "sets" / name / "seeds.txt"
    port = re.search(r":(\d+)/", seeds.read_text())
    assert port is not None, seeds
    return Set(seeds, rf"^http://127\.0\.[0-9]+\.[0-9]+:{port[1]}/[^?#]*(/|\.html?)$")


def needed(name: str, package: str = "") -> str:
    """Return the path of an installed program. If it is missing, name its Debian package and exit."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if path is None:
        raise SystemExit(f"{name} is needed: apt install {package or name}")
    return path


@contextmanager
def running(command: list[str], **more: object) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program while the context is open. `more` is passed to Popen."""
    process = subprocess.Popen(command, **more)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def nginx(folder: Path, *servers: str) -> Iterator[int]:
    """Run nginx with these `server` blocks, and with its own files in `folder`. Yield the id of its worker process."""
    folder.chmod(0o755)  # the worker does not run as root
    (folder / "conf").write_text(_NGINX.format(folder=folder, servers="\n ".join(servers)))
    with running([needed("nginx", "nginx-light"), "-c", str(folder / "conf"), "-p", str(folder)]) as master:
        while not (workers := meters.children(master.pid)):
            if master.poll() is not None:
                raise SystemExit("nginx did not start")
            time.sleep(0.05)
        yield workers[0]


@contextmanager
def scratch(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a folder in `parent`, by default in the temporary directory, and delete it afterwards."""
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{prefix}-", dir=parent) as folder:
        yield Path(folder)
