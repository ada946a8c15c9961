"""Check with a real Prometheus that each alert of `config/prometheus/alerts.yaml` fires after a real fault.

    scripts/bench/alerts.py [--only missing paused]

Each fault has its own crawl. Every second, Prometheus scrapes /metrics of each crawl. The rules are those of
`alerts.yaml`, but each alert waits for one second (`for: 1s`) instead of minutes. A line is printed when the
alert of a fault fires. For a crawl without a fault, no alert may fire. At the end, all crawls are stopped,
and `CrawlerAbsent` must fire. For `CrawlerCollisions`, a crawl is continued with 26 million known URLs of one
host. The script writes these URLs directly to the files of the crawl (200 MB). The script needs Debian's
package prometheus. The script must run as root, because it mounts a small file system and fills it to
simulate a full disk.
"""

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from filled import CHUNK
from msgspec.structs import replace
from programs import CRAWLER, ROOT, needed, running, scratch

from crawler.bench import harness
from crawler.cli.loopback import free_port, free_ports
from crawler.due.eliminator import Appended, Flushed
from crawler.due.run_list import Manifest
from crawler.due.runs import DiskRuns
from crawler.storage.engines import open_store
from crawler.storage.keys import DUE_FLUSHED, DUE_LINKS, DUE_RUNS
from crawler.storage.kv import seal, unseal
from tests.end_to_end.web import Web, endless

RULES = ROOT / "config" / "prometheus" / "alerts.yaml"
# seconds within which an alert must fire; alerts that look at the last minute need this long
LIMIT = 180.0
POLITE = ["--delay", "0.1", "--scope", "any", "--robots", "ignore", "--allow-network", "127.0.0.0/8"]
POLITE += ["--set", "network.allow_ports=[1]", "--set", "identity.contact=me@example.org"]


T = TypeVar("T")


class Crawl(NamedTuple):
    """A running crawl and its ports."""

    process: subprocess.Popen[bytes]
    folder: Path
    admin: int
    serve: int
    site: str

    def children(self) -> list[int]:
        """Return the crawling processes of a supervisor."""
        locks = [file.read_text().split() for file in sorted(self.folder.glob("*/node.lock"))]
        return [int(words[1]) for words in locks if len(words) > 1]

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=5).read())
        return False


class Fault(NamedTuple):
    """An alert, the flags of a crawl, and the fault that must make the alert fire.

    `prepare` changes the directory of an earlier run, which has fetched a page. Once the crawl answers, `act` is
    repeated until the alert fires.
    """

    alert: str
    flags: tuple[str, ...] = ()
    act: Callable[[Crawl], None] = lambda crawl: None
    seeds: tuple[str, ...] = ()
    command: str = "crawl"
    prepare: Callable[[Path], None] | None = None


def _fill_one_host(crawl: Path) -> None:
    """Make 26 million URLs of one host known to a crawl.

    The alert is about new URLs that have the fingerprint of a known URL. Only URLs of the same host can have
    equal fingerprints, so all known URLs are of a single host.
    """
    with contextlib.closing(open_store(crawl / "p0" / "store")) as store:

        def read(key: bytes, kind: type[T]) -> T:
            return msgspec.msgpack.decode(unseal(key, store.get(key) or b""), type=kind)

        manifest, flushed, appended = (
            read(DUE_RUNS, Manifest),
            read(DUE_FLUSHED, Flushed),
            read(DUE_LINKS, Appended),
        )
        known = (7 << 48) + np.arange(26_000_000, dtype=np.uint64)
        chunks = (known[start : start + CHUNK] for start in range(0, len(known), CHUNK))
        run = DiskRuns(crawl / "p0" / "due", []).write(chunks, len(known), step="flush")
        batch = store.batch()
        for key, value in (
            (DUE_RUNS, Manifest(manifest.method, manifest.check_value, [run.entry])),
            (DUE_FLUSHED, replace(flushed, new=len(known))),
            (DUE_LINKS, replace(appended, links=appended.links + len(known) - flushed.new)),
        ):
            batch.put(key, seal(msgspec.msgpack.encode(value)))
        store.write(batch)


def _kill_one(crawl: Crawl) -> None:
    """Kill the last process. If this is repeated, the process seems to die after each start."""
    with contextlib.suppress(ProcessLookupError, IndexError):
        os.kill(crawl.children()[-1], signal.SIGKILL)


def _fill_disk(crawl: Crawl) -> None:
    """Fill the disk, except for 280 MiB.

    This is less than 5 % of the disk, but more than the limit at which the crawl ends.
    """
    free = shutil.disk_usage(crawl.folder).free
    if free > 300 << 20:
        with (crawl.folder.parent / "ballast").open("ab") as file:
            os.posix_fallocate(file.fileno(), file.tell(), free - (280 << 20))


def _damage_and_read(crawl: Crawl) -> None:
    """Overwrite the stored pages, and request some of them."""
    for segment in crawl.folder.glob("*/warc/*"):
        data = bytearray(segment.read_bytes())
        data[len(data) // 4 :] = bytes(len(data) - len(data) // 4)
        with segment.open("r+b") as file:
            file.write(data)
    for number in range(1, 40):
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{crawl.serve}/page?url={crawl.site}/{number}").read()


def _stop_and_go(crawl: Crawl) -> None:
    """Stop the process for three seconds (SIGSTOP), then let it continue."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(crawl.process.pid, signal.SIGSTOP)
        time.sleep(3.0)
        os.kill(crawl.process.pid, signal.SIGCONT)


held: list[socket.socket] = []


def _take_descriptors(crawl: Crawl) -> None:
    """Limit the process to 400 open files, and connect to its page server until 95 % of them are in use."""
    hard = resource.prlimit(crawl.process.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(crawl.process.pid, resource.RLIMIT_NOFILE, (400, hard))
    for _ in range(380 - len(os.listdir(f"/proc/{crawl.process.pid}/fd"))):
        held.append(socket.create_connection(("127.0.0.1", crawl.serve)))


# hosts that refuse connections
CLOSED = tuple(f"http://127.77.{n // 200}.{n % 200 + 1}:1/" for n in range(400))
FAULTS = {
    "none": Fault(""),
    "missing": Fault("CrawlerProcessMissing", ("--processes", "3"), _kill_one),
    "paused": Fault("CrawlerPausedItself", act=_fill_disk),
    "stalled": Fault("CrawlerStalled", seeds=CLOSED[:3]),
    "requests": Fault("CrawlerRequestsFail", seeds=CLOSED),
    "hosts": Fault("CrawlerHostsFail", seeds=CLOSED[:40]),
    "peers": Fault("CrawlerPeerUnreachable", seeds=CLOSED[:40], command="node"),
    "deaths": Fault("CrawlerProcessDies", ("--processes", "3"), _kill_one),
    "errors": Fault("CrawlerErrorLogged", act=_damage_and_read),
    "lag": Fault("CrawlerLoopBlocked", act=_stop_and_go),
    "descriptors": Fault("CrawlerDescriptorsShort", act=_take_descriptors),
    "collisions": Fault("CrawlerCollisions", prepare=_fill_one_host),
}


def start(name: str, fault: Fault, folder: Path, site: str, stack: contextlib.ExitStack) -> Crawl:
    admin, serve, peer, nobody = free_ports(4)
    folder.mkdir()
    if name == "paused":
        image = folder.with_suffix(".image")
        subprocess.run(["truncate", "-s", "8G", image], check=True)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, folder], check=True)
        stack.callback(lambda: subprocess.run(["umount", "-l", folder], check=False))
    (folder / "seeds").write_text("".join(f"{seed}\n" for seed in fault.seeds or (f"{site}/0",)))
    where = ["--seeds", str(folder / "seeds"), "--dir", str(folder / "crawl")]
    command = [*CRAWLER, fault.command, *where, *POLITE]
    command += ["--admin", f"127.0.0.1:{admin}", "--serve", f"127.0.0.1:{serve}", *fault.flags]
    if fault.command == "node":
        peers = f'splitter.peers=["p0=127.0.0.1:{peer}", "p1=127.0.0.1:{nobody}"]'
        command += ["--name", "p0", "--set", peers]
    log = (folder.parent / f"{name}.log").open("wb")
    if fault.prepare is not None:
        first = [*command, "--max-pages", "1", "--progress", "none"]
        subprocess.run(first, stdout=log, stderr=log, check=False)
        fault.prepare(folder / "crawl")
    process = stack.enter_context(running(command, stdout=log, stderr=log))
    return Crawl(process, folder / "crawl", admin, serve, site)


def repeat(fault: Fault, crawl: Crawl, ended: threading.Event) -> None:
    """Repeat a fault every 0.2 seconds once the crawl has answered a request."""
    while not ended.wait(0.2) and not crawl.answers():
        pass
    while not ended.wait(0.2):
        fault.act(crawl)


def asked(port: int, path: str) -> dict:  # type: ignore[type-arg]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
        return json.load(answer)["data"]  # type: ignore[no-any-return]


def firing(port: int) -> set[tuple[str, str]]:
    """Return pairs (alert, address) for the alerts that are firing."""
    alerts = asked(port, "/api/v1/alerts")["alerts"]
    labels = [alert["labels"] for alert in alerts if alert["state"] == "firing"]
    return {(each["alertname"], each.get("instance", "")) for each in labels}


def prometheus(folder: Path, targets: list[str], stack: contextlib.ExitStack) -> int:
    """Start Prometheus; return its port."""
    port = free_port()
    rules = re.sub(r"for: \d+m", "for: 1s", RULES.read_text())
    (folder / "alerts.yaml").write_text(rules)
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [{"job_name": "crawler", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    command += [f"--web.listen-address=127.0.0.1:{port}"]
    nothing = subprocess.DEVNULL
    stack.enter_context(running(command, stdout=nothing, stderr=nothing))
    return port


def walk(folder: Path, names: list[str]) -> bool:
    """Run all faults. Return True if each fault fired its alert, and no alert fired for the crawl without a fault."""
    subprocess.run(["promtool", "check", "rules", RULES], check=True)
    with Web({}, other=endless) as web, contextlib.ExitStack() as stack:
        site = web.url("", "127.0.0.1")
        with contextlib.ExitStack() as crawling:
            crawls = {name: start(name, FAULTS[name], folder / name, site, crawling) for name in names}
            addresses = {name: f"127.0.0.1:{crawl.admin}" for name, crawl in crawls.items()}
            port = prometheus(folder, list(addresses.values()), stack)
            began, waiting, false = time.monotonic(), {*names} - {"none"}, set()
            ended = {name: threading.Event() for name in names}
            for name, crawl in crawls.items():
                threading.Thread(target=repeat, args=(FAULTS[name], crawl, ended[name]), daemon=True).start()
            while waiting and time.monotonic() - began < LIMIT:
                time.sleep(1.0)
                with contextlib.suppress(OSError):
                    fired = firing(port)
                    false |= {alert for alert, address in fired if address == addresses.get("none")}
                    for name in sorted(waiting):
                        if (FAULTS[name].alert, addresses[name]) in fired:
                            waiting.remove(name)
                            ended[name].set()
                            print(
                                f"{name:12} {FAULTS[name].alert} fired after {time.monotonic() - began:.0f} s",
                                flush=True,
                            )
            for event in ended.values():
                event.set()
            print(f"{'none':12} {', '.join(sorted(false)) or 'no alert'} in {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        while not (absent := ("CrawlerAbsent", "") in firing(port)) and time.monotonic() - began < LIMIT:
            time.sleep(1.0)
        print(f"{'all stopped':12} CrawlerAbsent {'fired' if absent else 'did not fire'}")
    for name in sorted(waiting):
        print(f"{name:12} {FAULTS[name].alert} did not fire")
    return absent and not waiting and not false


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS))
    options = parser.parse_args()
    needed("prometheus")
    with scratch("alerts") as folder:
        raise SystemExit(not walk(folder, options.only))


if __name__ == "__main__":
    main()
