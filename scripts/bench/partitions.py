"""Three nodes in network namespaces, a fault between them and a kill -9 of one during each: nothing may be lost.

    python scripts/bench/partitions.py [--pages 12000] [--faults 15] [--bug ack-before-commit]

Needs root (veth, bridges, `ip netns`). Each node has two cables: one to the web,
a tree where every URL has one in-link, and one to the other nodes, named through
/etc/netns. The faults hit the second:

    cut      the node's interface is down
    pulled   its end at the switch is down: it sends into nothing
    one-way  it hears one peer, but cannot answer it
    loss     the cable comes and goes, a third of the time gone
    reset    all its connections to peers are torn down, again and again

During each, a random node is killed and started again. At the end the server's
log and the WARC files are compared with the truth; exit code 1 if they differ.
With `--bug` (see tests/faults/planted_exchange.py) they should.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))
os.environ["TREE_NET"] = "10.89"

from tests.faults.harness import CONCURRENCY, TreeWeb, judge, settings  # noqa: E402

NAMES = ("a", "b", "c")
WEB, SWITCH = "crawlweb", "crawlswitch"  # bridges
PORT = 7077
FAULT_SECONDS = 3.0
HEAL_SECONDS = 1.5


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def space(name: str) -> str:
    return f"crawl-{name}"


def inside(name: str, *words: str) -> list[str]:
    """The command line of `words` in a node's namespace."""
    return ["ip", "netns", "exec", space(name), *words]


class Network:
    """Namespaces, bridges and cables; use as a context manager."""

    def __enter__(self) -> "Network":
        self.__exit__()
        for bridge, address in ((WEB, "10.89.255.254/16"), (SWITCH, "10.90.0.254/24")):
            ip("link", "add", "name", bridge, "type", "bridge")
            ip("addr", "add", address, "dev", bridge)
            ip("link", "set", bridge, "up")
        for number in range(1, 41):  # hosts of the web
            ip("addr", "add", f"10.89.0.{number}/16", "dev", WEB)
        hosts = "".join(f"10.90.0.{n} {name}.crawl\n" for n, name in enumerate(NAMES, 1))
        for number, name in enumerate(NAMES, 1):
            folder = Path("/etc/netns") / space(name)
            folder.mkdir(parents=True)
            (folder / "hosts").write_text("127.0.0.1 localhost\n" + hosts)
            ip("netns", "add", space(name))
            self._plug(name, WEB, f"w{name}", f"10.89.254.{number}/16")
            self._plug(name, SWITCH, f"s{name}", f"10.90.0.{number}/24")
            ip("netns", "exec", space(name), "ip", "link", "set", "lo", "up")
        return self

    @staticmethod
    def _plug(name: str, bridge: str, cable: str, address: str) -> None:
        """Lay a cable from a node to a bridge; its ends are <cable> and <cable>0."""
        ip("link", "add", cable, "type", "veth", "peer", "name", f"{cable}0", "netns", space(name))
        ip("link", "set", cable, "master", bridge, "up")
        for words in (("addr", "add", address, "dev", f"{cable}0"), ("link", "set", f"{cable}0", "up")):
            ip("netns", "exec", space(name), "ip", *words)

    def __exit__(self, *_: object) -> None:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", space(name)], capture_output=True)
            shutil.rmtree(Path("/etc/netns") / space(name), ignore_errors=True)
            for cable in (f"w{name}", f"s{name}"):
                subprocess.run(["ip", "link", "del", cable], capture_output=True)
        for bridge in (WEB, SWITCH):
            subprocess.run(["ip", "link", "del", bridge], capture_output=True)


# -- faults: each begins, lasts while `wait` is called, and is healed -------------------------------

Wait = Callable[[float], None]


def cut(name: str, _peer: str, wait: Wait) -> None:
    ip("netns", "exec", space(name), "ip", "link", "set", f"s{name}0", "down")
    wait(FAULT_SECONDS)
    ip("netns", "exec", space(name), "ip", "link", "set", f"s{name}0", "up")


def pulled(name: str, _peer: str, wait: Wait) -> None:
    ip("link", "set", f"s{name}", "down")
    wait(FAULT_SECONDS)
    ip("link", "set", f"s{name}", "up")


def one_way(name: str, peer: str, wait: Wait) -> None:
    route = f"10.90.0.{NAMES.index(peer) + 1}/32"
    ip("netns", "exec", space(name), "ip", "route", "add", "blackhole", route)
    wait(FAULT_SECONDS)
    ip("netns", "exec", space(name), "ip", "route", "del", "blackhole", route)


def loss(name: str, _peer: str, wait: Wait) -> None:
    for _ in range(10):
        ip("link", "set", f"s{name}", "down")
        wait(FAULT_SECONDS / 30)
        ip("link", "set", f"s{name}", "up")
        wait(FAULT_SECONDS / 15)


def reset(name: str, _peer: str, wait: Wait) -> None:
    for _ in range(6):
        subprocess.run(inside(name, "ss", "-K", "dst", "10.90.0.0/24"), capture_output=True)
        wait(FAULT_SECONDS / 6)


FAULTS = {"cut": cut, "pulled": pulled, "one-way": one_way, "loss": loss, "reset": reset}


class Nodes:
    """The three processes, each started again when it is killed."""

    def __init__(self, folder: Path, seed: str, bug: str, rate: str) -> None:
        self.folder = folder
        self._module = ["tests.faults.planted_exchange", bug] if bug else ["crawler"]
        secret = folder / "secret"
        secret.write_text(os.urandom(16).hex())
        secret.chmod(0o600)
        peers = [part for name in NAMES for part in ("--peer", f"{name}={name}.crawl:{PORT}")]
        limits = ("silence_max=2", "backoff_max=0.5", "heartbeat=0.3", "handshake_timeout=2")
        more = [part for limit in limits for part in ("--set", f"splitter.{limit}")]
        web = ("--allow-network", "10.89.0.0/16", "--rate", rate, "--set", "politeness.backoff_first=0.5")
        self._flags = [seed, *peers, "--secret-file", str(secret), *settings(*web, *more)]
        self.running = {name: self._start(name) for name in NAMES}
        self.kills: list[float] = []

    def _start(self, name: str) -> "subprocess.Popen[bytes]":
        listen = f"10.90.0.{NAMES.index(name) + 1}:{PORT}"
        words = ["node", "--dir", str(self.folder / name), "--name", name, "--listen", listen, *self._flags]
        line = inside(name, sys.executable, "-m", *self._module, *words)
        output = (self.folder / f"{name}.out").open("ab")
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(line, cwd=ROOT, env=environ, stdout=output, stderr=output)

    def kill(self, name: str) -> None:
        """kill -9 and start again; `ip netns exec` has become the process itself."""
        node = self.running[name]
        if node.poll() is None:
            node.send_signal(signal.SIGKILL)
            node.wait()
            self.kills.append(time.time())
            self.running[name] = self._start(name)

    def ended(self) -> bool:
        return all(node.poll() is not None for node in self.running.values())

    def wait(self) -> list[int]:
        return [node.wait(timeout=300) for node in self.running.values()]

    def stop(self) -> None:
        for node in self.running.values():
            if node.poll() is None:
                node.kill()
                node.wait()


def rehearse(nodes: Nodes, faults: int, rng: random.Random) -> list[str]:
    """Let the faults happen, one after the other; their names."""
    happened = []
    for number in range(faults):
        if nodes.ended():
            break
        kind = list(FAULTS)[number % len(FAULTS)]
        name, peer = rng.sample(NAMES, 2)
        victim, pending = rng.choice(NAMES), [True]

        def wait(seconds: float, victim: str = victim, pending: list[bool] = pending) -> None:
            time.sleep(seconds / 2)
            if pending and rng.random() < 0.5:
                pending.clear()
                nodes.kill(victim)
            time.sleep(seconds / 2)

        FAULTS[kind](name, peer, wait)
        if pending:
            nodes.kill(victim)
        happened.append(f"{kind} at {name}, {victim} killed")
        print(f"  {happened[-1]}", flush=True)
        time.sleep(HEAL_SECONDS)
    return happened


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pages", type=int, default=12_000)
    parser.add_argument("--faults", type=int, default=15)
    parser.add_argument("--rate", default="150", help="pages per second, so that the crawl outlasts the faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bug", default="")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="partitions-"))
    with Network(), TreeWeb(folder, args.pages, "--fanout", "4", hosts=40) as web:
        nodes = Nodes(folder, web.seed, args.bug, args.rate)
        try:
            happened = rehearse(nodes, args.faults, random.Random(args.seed))
            codes = nodes.wait()
        finally:
            nodes.stop()
        (folder / "crawl").mkdir()
        for name in NAMES:  # the judge looks for process folders in one directory
            (folder / name / name).rename(folder / "crawl" / name)
        found = judge(web, folder / "crawl", nodes.kills)
    print(f"{len(happened)} faults, {len(nodes.kills)} kills, exit codes {codes}: {found}")
    shutil.rmtree(folder)
    return 0 if found.flawless and found.worst <= CONCURRENCY and not any(codes) else 1


if __name__ == "__main__":
    sys.exit(main())
