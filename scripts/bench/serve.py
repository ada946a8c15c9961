"""The page server beside nginx: requests per CPU second and latency, the same bodies in the same run.

    scripts/bench/serve.py [--pages 400] [--bytes 25000] [--seconds 4] [--connections 16]

Needs nginx and wrk (Debian: nginx-light, wrk). Pages are written, served by
nginx, crawled, and asked for in turn from both servers, keep-alive, without a
content coding. CPU is that of the serving process, read from /proc, so the load
of the machine and of wrk does not count. The first round warms both up.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
LUA = """
local base, n = os.getenv("BASE"), 0
request = function() n = n + 1; return wrk.format("GET", base .. "p" .. (n * 7 % PAGES) .. ".html") end
"""
NGINX = """
worker_processes 1; daemon off; pid {folder}/pid; error_log /dev/null;
events {{ worker_connections 2048; }}
http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000; types {{ text/html html; }}
 client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
 uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
 server {{ listen 127.0.0.1:{port}; root {folder}/www; }} }}
"""


def write_pages(folder: Path, count: int, size: int) -> None:
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(3000)]
    folder.mkdir()
    for n in range(count):
        links = "".join(f'<a href="/p{k}.html">{k}</a> ' for k in (2 * n + 1, 2 * n + 2) if k < count)
        text = f"<!doctype html><title>{n}</title>{links}<p>"
        while len(text) < size:
            text += rng.choice(words) + " "
        (folder / f"p{n}.html").write_text(text[:size])


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def load(pid: int, url: str, base: str, script: Path, options: argparse.Namespace) -> tuple[float, str, str]:
    """(requests per CPU second of `pid`, median, 99th percentile)."""
    before = cpu(pid)
    wrk = [
        "wrk",
        "--latency",
        "-t1",
        f"-c{options.connections}",
        f"-d{options.seconds}",
        "-s",
        str(script),
        url,
    ]
    said = subprocess.run(
        wrk, capture_output=True, text=True, check=True, env={**os.environ, "BASE": base}
    ).stdout
    if "Non-2xx" in said:
        raise SystemExit(said)
    requests = int(re.search(r"(\d+) requests in", said)[1])  # type: ignore[index]
    percentiles = re.findall(r"^ +(50|99)% +(\S+)$", said, re.MULTILINE)
    return requests / (cpu(pid) - before), dict(percentiles)["50"], dict(percentiles)["99"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in (
        ("pages", 400),
        ("bytes", 25_000),
        ("seconds", 4),
        ("connections", 16),
        ("port", 18200),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    nginx_program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx_program is None or shutil.which("wrk") is None:
        raise SystemExit("nginx and wrk are needed: apt install nginx-light wrk")
    crawler = [sys.executable, "-m", "crawler"]
    site, cache = f"http://127.0.0.1:{options.port}", f"http://127.0.0.1:{options.port + 1}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        write_pages(folder / "www", options.pages, options.bytes)
        (folder / "conf").write_text(NGINX.format(folder=folder, port=options.port))
        script = folder / "many.lua"
        script.write_text(LUA.replace("PAGES", str(options.pages)))
        nginx = subprocess.Popen([nginx_program, "-c", str(folder / "conf")])
        server = None
        try:
            time.sleep(0.5)
            crawl = [*crawler, "crawl", f"{site}/p0.html", "--dir", str(folder / "crawl"), "--delay", "0"]
            crawl += ["--delay-factor", "0", "--allow-network", "127.0.0.0/8", "--admin", "off", "--quiet"]
            subprocess.run(crawl, check=True)
            serve = [*crawler, "serve", f"127.0.0.1:{options.port + 1}", "--dir", str(folder / "crawl")]
            server = subprocess.Popen(serve, stdout=subprocess.PIPE)
            assert server.stdout is not None and server.stdout.readline()
            worker = children(nginx.pid)[0]
            for number in range(3):
                theirs = load(worker, site, "/", script, options)
                ours = load(server.pid, cache, f"/page?url={site}/", script, options)
                label = "warm-up" if number == 0 else f"round {number}"
                print(
                    f"{label}: nginx {theirs[0]:,.0f} requests/CPU s, P50 {theirs[1]}, P99 {theirs[2]}; "
                    f"crawler {ours[0]:,.0f}, P50 {ours[1]}, P99 {ours[2]}; ratio {ours[0] / theirs[0]:.3f}",
                    flush=True,
                )
        finally:
            for process in (server, nginx):
                if process is not None:
                    process.terminate()
                    process.wait()


if __name__ == "__main__":
    main()
