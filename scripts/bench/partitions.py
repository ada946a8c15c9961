"""Run three nodes in network namespaces, and check that network faults and kills lose no page.

    python scripts/bench/partitions.py [--pages 16000] [--faults 15] [--case ROW ...] [-v]

The script needs root, iproute2 and nftables. One namespace contains two bridges and the web. The web is a
tree in which every URL has one in-link. Each node has its own namespace with two cables, one to the web and
one to the other nodes. The names of the nodes are in /etc/netns. One after the other, these faults affect the
second cable:

    cut      the node's interface is down
    pulled   the switch's end is down: the node's packets are lost without an error
    one-way  a peer's packets do not reach the node, but its own reach the peer
    loss     30 % of the packets it receives are dropped
    reset    its connections to peers are reset repeatedly

During each fault, a random node is killed at a random instant and restarted. At the end, the server's log and
the WARC files are compared with the pages that exist. Rows:

    as shipped           nothing may be lost or stored twice; a kill may make the fetches in flight repeat
    ack-before-commit    a planted bug (tests.faults.planted.py), which must lose pages
    outbox-in-memory

All traffic stays in the namespaces (198.18.0.0/15, for benchmarks: RFC 2544),
which are deleted at the end, even after ^C or SIGTERM.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ["TREE_NET"] = "198.18"

from programs import ENVIRON, ROOT, scratch

from crawler.bench import harness
from tests.faults.harness import CONCURRENCY, Judgement, TreeWeb, judge, settings

NAMES = ("a", "b", "c")
WEB = "crawl-web"
HOSTS = 40
PORT = 7077
FAULT_SECONDS, HEAL_SECONDS = 2.5, 1.0
END_SECONDS_MAX = 120  # the crawl must end within this many seconds after the last fault
PLANTED = ("ack-before-commit", "outbox-in-memory")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def space(name: str) -> str:
    return f"crawl-{name}"


def inside(namespace: str, *words: str) -> list[str]:
    """Return a command line that runs the command `words` in a namespace."""
    return ["ip", "netns", "exec", namespace, *words]


def run_inside(namespace: str, *words: str, check: bool = True) -> None:
    subprocess.run(inside(namespace, *words), check=check, capture_output=True)


def node_address(name: str) -> str:
    return f"198.19.0.{NAMES.index(name) + 1}"


class Network:
    """The namespaces, bridges and cables that connect the nodes. Use it as a context manager."""

    def __enter__(self) -> "Network":
        self._remove()
        ip("netns", "add", WEB)
        for bridge in ("web", "switch"):
            ip("-n", WEB, "link", "add", "name", bridge, "type", "bridge")
            ip("-n", WEB, "link", "set", bridge, "up")
        for number in range(HOSTS):
            ip("-n", WEB, "addr", "add", f"198.18.0.{number + 1}/16", "dev", "web")
        peers = "".join(f"{node_address(name)} {name}.crawl\n" for name in NAMES)
        for number, name in enumerate(NAMES, 1):
            folder = Path("/etc/netns") / space(name)
            folder.mkdir(parents=True)
            (folder / "hosts").write_text("127.0.0.1 localhost\n" + peers)
            ip("netns", "add", space(name))
            ip("-n", space(name), "link", "set", "lo", "up")
            self._plug(name, "web", f"198.18.254.{number}/16")
            self._plug(name, "switch", f"{node_address(name)}/24")
        return self

    @staticmethod
    def _plug(name: str, bridge: str, address: str) -> None:
        """Connect a node to a bridge by a cable.

        The cable connects the interface `bridge` of the node and the interface <bridge>-<name> of the bridge.
        """
        cable = ("link", "add", f"{bridge}-{name}", "type", "veth", "peer", "name", bridge)
        ip("-n", WEB, *cable, "netns", space(name))
        ip("-n", WEB, "link", "set", f"{bridge}-{name}", "master", bridge, "up")
        ip("-n", space(name), "addr", "add", address, "dev", bridge)
        ip("-n", space(name), "link", "set", bridge, "up")

    def __exit__(self, *_: object) -> None:
        self._remove()

    @staticmethod
    def _remove() -> None:
        """Delete the namespaces with their interfaces."""
        for namespace in (*map(space, NAMES), WEB):
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)
            shutil.rmtree(Path("/etc/netns") / namespace, ignore_errors=True)


# -- faults: each begins, lasts while `wait` is called, and is undone -------------------------------

Wait = Callable[[float], None]


def cut(name: str, _peer: str, wait: Wait) -> None:
    ip("-n", space(name), "link", "set", "switch", "down")
    wait(FAULT_SECONDS)
    ip("-n", space(name), "link", "set", "switch", "up")


def pulled(name: str, _peer: str, wait: Wait) -> None:
    ip("-n", WEB, "link", "set", f"switch-{name}", "down")
    wait(FAULT_SECONDS)
    ip("-n", WEB, "link", "set", f"switch-{name}", "up")


def filtered(name: str, rule: str, wait: Wait, seconds: float = FAULT_SECONDS) -> None:
    """Apply an nftables rule to the packets that the node receives from its peers."""
    table = f"table inet fault {{ chain input {{ type filter hook input priority 0; {rule}; }}; }}"
    run_inside(space(name), "nft", table)
    wait(seconds)
    run_inside(space(name), "nft", "delete", "table", "inet", "fault")


def one_way(name: str, peer: str, wait: Wait) -> None:
    filtered(name, f"ip saddr {node_address(peer)} drop", wait)


def loss(name: str, _peer: str, wait: Wait) -> None:
    filtered(name, "ip saddr 198.19.0.0/24 numgen random mod 100 < 30 drop", wait)


def reset(name: str, _peer: str, wait: Wait) -> None:
    for _ in range(5):
        filtered(name, "ip saddr 198.19.0.0/24 ip protocol tcp reject with tcp reset", wait, 0.25)
        wait(FAULT_SECONDS / 5 - 0.25)


FAULTS = {"cut": cut, "one-way": one_way, "loss": loss, "reset": reset, "pulled": pulled}


class Nodes:
    """The three processes. Each process is restarted after a kill."""

    def __init__(self, folder: Path, seed: str, bug: str, rate: str) -> None:
        self.folder = folder
        self.kills: list[float] = []
        self._module = ["tests.faults.planted", bug] if bug else ["crawler"]
        secret = folder / "secret"
        secret.write_text(os.urandom(16).hex())
        secret.chmod(0o600)
        peers = [part for name in NAMES for part in ("--peer", f"{name}={name}.crawl:{PORT}")]
        limits = ("silence_max=2", "backoff_max=0.5", "heartbeat=0.3", "handshake_timeout=2")
        more = [part for limit in limits for part in ("--set", f"splitter.{limit}")]
        web = ("--allow-network", "198.18.0.0/16", "--rate", rate, "--set", "politeness.backoff_first=0.5")
        self._flags = [seed, *peers, "--secret-file", str(secret), *settings(*web, *more)]
        self._running = {name: self._start(name) for name in NAMES}

    def _start(self, name: str) -> "subprocess.Popen[bytes]":
        words = ["node", "--dir", str(self.folder / name), "--name", name, "--listen", f"0.0.0.0:{PORT}"]
        line = inside(space(name), sys.executable, "-m", *self._module, *words, *self._flags)
        with (self.folder / f"{name}.out").open("ab") as output:
            return subprocess.Popen(line, cwd=ROOT, env=ENVIRON, stdout=output, stderr=output)

    def kill(self, name: str) -> bool:
        """Kill and restart a node.

        The command `ip netns exec` does not start the node as a child but becomes the node, so the command's
        pid is the node's.
        """
        node = self._running[name]
        if node.poll() is not None:
            return False
        node.send_signal(signal.SIGKILL)
        node.wait()
        self.kills.append(time.time())
        self._running[name] = self._start(name)
        return True

    def wait(self) -> list[int]:
        """Wait for the crawl to end; return the exit codes."""
        until = time.monotonic() + END_SECONDS_MAX
        return [node.wait(max(0.0, until - time.monotonic())) for node in self._running.values()]

    def stop(self) -> None:
        for node in self._running.values():
            if node.poll() is None:
                node.kill()
                node.wait()


class Killing:
    """Lets time pass, and kills a node once, `after` seconds after the start."""

    def __init__(self, nodes: Nodes, victim: str, after: float) -> None:
        self._nodes, self._victim, self._left = nodes, victim, after
        self.done: bool | None = None

    def wait(self, seconds: float) -> None:
        if self.done is None and self._left <= seconds:
            time.sleep(self._left)
            self.done = self._nodes.kill(self._victim)
            seconds -= self._left
        self._left -= seconds
        time.sleep(seconds)


def rehearse(nodes: Nodes, faults: int, rng: random.Random, *, verbose: bool) -> int:
    """Cause one fault after the other while the crawl runs; return the number of faults."""
    time.sleep(HEAL_SECONDS)
    for number in range(faults):
        kind = list(FAULTS)[number % len(FAULTS)]
        name, peer = rng.sample(NAMES, 2)
        victim, after = rng.choice(NAMES), rng.uniform(0.1, FAULT_SECONDS + 0.3)
        killing = Killing(nodes, victim, after)
        FAULTS[kind](name, peer, killing.wait)
        killing.wait(HEAL_SECONDS)
        if verbose:
            print(f"  {kind} at {name} (peer {peer}), {victim} killed after {after:.1f} s", flush=True)
        if not killing.done:
            return number
    return faults


def partitioned(folder: Path, args: argparse.Namespace, bug: str) -> tuple[Judgement, int, int]:
    """Run one crawl with all faults. Return the judgement, the number of faults, and the number of kills."""
    web = TreeWeb(folder, args.pages, "--fanout", "4", hosts=HOSTS, inside=inside(WEB))
    with Network(), web:
        nodes = Nodes(folder, web.seed, bug, args.rate)
        try:
            faults = rehearse(nodes, args.faults, random.Random(args.seed), verbose=args.verbose)
            codes = nodes.wait()
        finally:
            nodes.stop()
    assert not any(codes), (codes, [(folder / f"{name}.out").read_text()[-2000:] for name in NAMES])
    (folder / "crawl").mkdir()
    for name in NAMES:  # `judge` expects the folders of all processes in one directory
        (folder / name / name).rename(folder / "crawl" / name)
    return judge(web, folder / "crawl", nodes.kills), faults, len(nodes.kills)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.option("--pages", 16_000)
    parser.option("--faults", 15)
    parser.option("--rate", "200", "pages per second, so that the crawl outlasts the faults")
    parser.option("--seed", 2, "seed of the faults and kills")
    parser.add_argument("--case", action="append", help="run only this row; repeatable")
    parser.option("--folder", Path, "folder for the crawls (the temporary directory)", metavar="DIR")
    parser.add_argument("-v", "--verbose", action="store_true", help="each fault")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print(f"{args.pages:,} pages on {HOSTS} hosts, 3 nodes, {CONCURRENCY} fetches in flight each")
    table = harness.Table(
        f"{'':20}", "faults", "kills", "  lost", "unstored", "twice", "torn", "refetched", "worst", "   s"
    )
    right = True
    for row in args.case or ("as shipped", *PLANTED):
        begun = time.monotonic()
        with scratch("partitions", args.folder) as folder:
            found, faults, kills = partitioned(folder, args, row if row in PLANTED else "")
        counts = (found.lost, found.unstored, found.stored_twice, found.torn, found.refetched, found.worst)
        table.row(row, faults, kills, *counts, time.monotonic() - begun)
        right &= found.flawless is (row not in PLANTED) and faults == args.faults
    raise SystemExit(0 if right else "failed: the crawler did not keep its promises")


if __name__ == "__main__":
    main()
