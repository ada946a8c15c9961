"""Test `crawler node`: processes with separate directories, as on separate machines, act as one crawl."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from crawler.cli.loopback import free_port, free_ports
from crawler.config import convert
from crawler.crawl.directory import CrawlDirectory
from crawler.process.results.sent_seeds import sent_seed_urls
from crawler.splitter.partition import Partition
from crawler.storage.engines import open_store
from crawler.urls.fingerprint import fingerprinter_of
from tests.end_to_end.cut_network import Proxy
from tests.end_to_end.test_many_processes import QUICK, command, report_of, stored_by
from tests.end_to_end.web import Answer, ReceivedRequest, Web, redirect
from tests.faults.harness import ROOT, Ended, TreeWeb, crawl, end, settings
from tests.waiting import WAIT_MAX

PAGES = 150
CONFIRMED = "that it had confirmed"  # the message that a process receives if it has lost links


class Nodes:
    """The nodes of a crawl: their common flags, and their directories in `folder`."""

    def __init__(self, folder: Path, names: str) -> None:
        self.folder = folder
        ports = free_ports(len(names))
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
        self.secret = folder / "secret"
        self.secret.write_text("0123456789abcdef0123456789abcdef")
        self.secret.chmod(0o600)
        # node -> peer -> the address that the node uses for this peer, if it is not the peer's own
        self.seen: dict[str, dict[str, str]] = {}

    def start(
        self, name: str, *arguments: str, secret: Path | None = None, folder: str = "", clock: str = ""
    ) -> "subprocess.Popen[str]":
        """Start the node `name`. By default, the folder of the node has the name of the node.

        `clock` names a planted clock (`planted.py`).
        """
        module = ("tests.faults.planted", clock) if clock else ("crawler",)
        addresses = self.addresses | self.seen.get(name, {})
        peers = [part for peer, address in addresses.items() for part in ("--peer", f"{peer}={address}")]
        common = (*peers, "--secret-file", str(secret or self.secret), *settings(*QUICK))
        line = ["node", "--dir", str(self.folder / (folder or name)), "--name", name, *common, *arguments]
        return subprocess.Popen(
            [sys.executable, "-m", *module, *line],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def test_nodes_share_a_crawl_and_wait_for_a_late_node(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, "abc")
    with TreeWeb(tmp_path, PAGES, "--fanout", "3") as web:
        first = [nodes.start("a", web.seed), nodes.start("b")]
        while not (tmp_path / "a" / "a" / "store").exists() or not (tmp_path / "b" / "b" / "store").exists():
            assert all(node.poll() is None for node in first)
        while "links wait for c" not in (seen := command(tmp_path / "a", "status").out):
            assert all(node.poll() is None for node in first)
        assert "c is not connected (cannot connect to 127.0.0.1:" in seen
        last = nodes.start("c")
        ended = [end(node) for node in [*first, last]]
        assert [each.code for each in ended] == [0, 0, 0], ended
        assert len(web.fetched()) == web.fetched().total() == PAGES
    shares = [stored_by(tmp_path / name / name) for name in "abc"]
    assert all(shares) and sum(map(len, shares)) == PAGES
    reports = [report_of(tmp_path / name) for name in "abc"]
    assert all(report["conservation"] == "holds" and report["stopped_by"] == "done" for report in reports)
    assert sum(report["splitter"]["sent"] for report in reports) == sum(
        report["splitter"]["applied"] for report in reports
    )


def _left_of_two(
    nodes: Nodes, original: "subprocess.Popen[str]", *arguments: str
) -> tuple["subprocess.Popen[str]", Ended]:
    """Copy the folder of node `a` while `a` writes there, and run a node on the copy.

    If the copy is inconsistent, make another one. Return the node that continues, and the exit code and
    output of the other node.
    """
    elsewhere = f"127.0.0.1:{free_port()}"
    while True:
        shutil.rmtree(nodes.folder / "copy", ignore_errors=True)
        # `cp` fails if the node deletes a file during the copy; such a copy is inconsistent, too
        subprocess.run(["cp", "-a", str(nodes.folder / "a"), str(nodes.folder / "copy")], check=False)
        copy = nodes.start("a", *arguments, "--listen", elsewhere, folder="copy")
        while copy.poll() is None:
            if original.poll() is not None:
                return copy, end(original)
            time.sleep(0.05)
        ended = end(copy)
        assert ended.code == 3, ended
        if CONFIRMED in ended.err:
            return original, ended


def test_a_running_node_or_its_copy_is_stopped(tmp_path: Path) -> None:
    """Two nodes with the same name once ran together. Pages were then fetched twice, and gaps were only 0.1 ms.

    The folder of a running process is copied with `cp -a`, and the copy is started under the same name at
    another port. If the peer has sent the original links that are not in the copy, the peer refuses the copy,
    and the original continues. Otherwise the original stops, because the copy started later. The copy
    continues after `recover`.
    """
    nodes = Nodes(tmp_path, "ab")
    slow, pages = ("--rate", "5"), 500  # on a busy machine, starting the copy can take more than ten seconds
    with TreeWeb(tmp_path, pages, "--fanout", "3") as web:
        original, other = nodes.start("a", web.seed, *slow), nodes.start("b", *slow)
        while web.fetched().total() <= 20:
            assert original.poll() is None and other.poll() is None
            time.sleep(0.01)
        left, refused = _left_of_two(nodes, original, *slow)
        last = refused.err.splitlines()[-1]
        assert refused.code == 3 and ("newer start" in last or CONFIRMED in last), refused
        assert "Traceback" not in refused.err
        assert left.poll() is None and other.poll() is None
        for each in (left, other):
            each.send_signal(signal.SIGTERM)
        assert [end(each, timeout=WAIT_MAX).code for each in (left, other)] == [0, 0]
        here = ("--listen", nodes.addresses["a"])
        assert command(tmp_path / "b", "recover", "a").code == 0
        fast = ("--rate", "0")
        both = nodes.start("a", *here, *fast, folder="copy"), nodes.start("b", *fast)
        assert [end(each).code for each in both] == [0, 0]
        stored = stored_by(tmp_path / "copy" / "a") | stored_by(tmp_path / "b" / "b")
        assert len(stored) == len(web.fetched()) == pages


def run(nodes: Nodes, name: str, *arguments: str, secret: Path | None = None) -> Ended:
    return end(nodes.start(name, *arguments, secret=secret), timeout=WAIT_MAX)


def test_a_node_with_another_secret_is_refused_with_a_reason(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, "ab")
    other = tmp_path / "other"
    other.write_text("another secret of some length")
    other.chmod(0o600)
    good = nodes.start("a", "--max-time", "6")
    ended = run(nodes, "b", "--max-time", "3", secret=other)
    assert ended.code == 0
    log = (tmp_path / "b" / "crawler.log").read_text() + (tmp_path / "a" / "crawler.log").read_text()
    assert "secret" in log
    assert end(good).code == 0
    again = run(nodes, "b", "--max-time", "1")
    assert again.code == 3 and "different secret" in again.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--listen", "0.0.0.0:0", "--secret-file", ""), "secret_file"),
        (("--name", "z"), "not among the peers"),
        (("--set", "crawl.processes=2"), "crawl.processes"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    ended = run(Nodes(tmp_path, "ab"), "a", *arguments)
    assert ended.code == 2 and words in ended.err and ended.err.count("\n") == 1, ended


def test_a_crawl_of_one_process_continues_as_two_nodes(tmp_path: Path) -> None:
    """After a reshard, the folder of a process, the seed and the table are moved to a second machine.

    No page is fetched again.
    """
    nodes = Nodes(tmp_path, "ab")
    begun = tmp_path / "a"
    table = tmp_path / "table.json"
    table.write_text('{"epoch": 2, "ranges": [["a", 0, 32768], ["b", 32768, 65536]]}')
    with TreeWeb(tmp_path, PAGES, "--fanout", "3") as web:
        assert crawl(begun, web.seed, *settings("--max-pages", "100")).code == 0
        peers = 'splitter.peers=["a=127.0.0.1:1", "b=127.0.0.1:2"]'  # the real addresses are given later, by flags
        resharded = command(begun, "reshard", "--to", str(table), "--set", peers)
        assert resharded.code == 0, resharded
        moved = tmp_path / "b"
        moved.mkdir()
        (begun / "b").rename(moved / "b")
        for name in ("seed", "buckets.json"):
            shutil.copy(begun / name, moved / name)
        named = f"splitter.crawl={report_of(begun)['crawl_id']}"
        flags = ("--set", "crawl.processes=1", "--set", named)
        refused = run(nodes, "a", "--set", "crawl.processes=1")
        assert refused.code == 3 and "different secret" in refused.err, "the crawl must be named"
        ended = [end(node) for node in [nodes.start("a", *flags), nodes.start("b", *flags)]]
        assert [each.code for each in ended] == [0, 0], ended
        assert len(web.fetched()) == web.fetched().total() == PAGES
    assert all(report_of(tmp_path / name)["stopped_by"] == "done" for name in "ab")


def moved_sites() -> Web:
    """Return a web in which sites 1 to 8 have moved to sites 11 to 18.

    The root of each new site links to a page on each of the new sites.
    """

    def answer(asked: ReceivedRequest) -> Answer:
        number = int(asked.host.rpartition(".")[2])
        if number <= 8:
            return redirect(f"http://127.3.0.{number + 10}:{web.port}/", 301)
        links = "".join(f'<a href="http://127.3.0.{n}:{web.port}/from{number}">x</a>' for n in range(11, 19))
        return f"{links} {number}" if asked.path == "/" else asked.path

    web = Web({}, address="0.0.0.0", other=answer)
    return web


def test_a_seed_is_stored_on_a_second_disk_unless_the_command_says_that_it_is_not(tmp_path: Path) -> None:
    """`crawler seed` once returned before the copy had left the disk of the process that was asked.

    Node c is never started, so the crawl cannot end.
    """
    nodes = Nodes(tmp_path, "abc")
    with TreeWeb(tmp_path, 3) as web:
        running = [nodes.start(name, web.seed) for name in "ab"]
        status = ""
        while "cannot connect to 127.0.0.1:" not in status or "b is not connected" in status:
            assert all(node.poll() is None for node in running)
            status = command(tmp_path / "a", "status").out
        fingerprinter = fingerprinter_of(convert({}).urls, CrawlDirectory(tmp_path / "a").seed())
        partition, owned = Partition.equal_ranges(["a", "b", "c"]), {}
        for number in range(2, 60):
            host = f"127.3.0.{number}"
            owned[partition.owner(fingerprinter.host_key(host))] = (
                f"http://{host}:{urlsplit(web.seed).port}/new"
            )
        kept = [owned["a"], owned["b"]]
        refused = command(tmp_path / "a", "seed", *kept).err  # it names the settings that must be given again
        relaxed = " ".join(re.findall(r"--set [^ )]+", refused)).split()
        ended = command(tmp_path / "a", "seed", *kept, *relaxed)
        assert (ended.code, ended.out) == (0, "2 queued\n"), ended
        said = command(tmp_path / "a", "seed", owned["c"], *relaxed)
        assert said.code == 0 and said.out.splitlines()[1].startswith(
            "stored only here until c has received"
        ), said
        for node in running:
            node.kill()
            end(node)
    with closing(open_store(tmp_path / "b" / "b" / "store")) as store:
        urls = {url for piece in sent_seed_urls(store) for url in piece}
        assert kept[0] in urls and kept[1] not in urls
    assert "known: True" in command(tmp_path / "b", "why", kept[1]).out


def test_the_scope_grows_in_all_processes_when_a_seed_redirects(tmp_path: Path) -> None:
    """With the scope `host`, every process follows links to the hosts to which seeds redirect."""
    directory = tmp_path / "crawl"
    with moved_sites() as web:
        seeds = [f"http://127.3.0.{n}:{web.port}/" for n in range(1, 9)]
        flags = settings("--processes", "3", *QUICK, "--scope", "host")
        ended = crawl(directory, *seeds, *flags)
        assert ended.code == 0, ended
    report = report_of(directory)
    assert report["splitter"]["scope_told"] == report["splitter"]["scope_heard"] > 0
    assert report["conservation"] == "holds"
    own = {f"127.3.0.{n}/from{n}" for n in range(11, 19)}
    asked = [each.host + each.path for each in web.asked]
    assert own <= set(asked)
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize("fault", ["stopping:1", "closing:1"])
def test_a_node_that_was_killed_at_the_end_ends_although_its_peers_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Node `c` is killed after it has learned of the end, and is started again after its peers have ended.

    Then node `c` ends cleanly, either by itself or after one peer is started again, as the warning of `c`
    asks. The peer is started in any case, and ends too, even if `c` has already left. If links of `c` wait for the other
    peer, because the kill came before their receipt was stored, a second warning names that peer, which is then started.
    """
    nodes = Nodes(tmp_path, "abc")
    patient = ("--patience", "2", "--set", "splitter.silence_max=2")
    with TreeWeb(tmp_path, PAGES, "--fanout", "3") as web:
        running = [nodes.start("a", web.seed, *patient), nodes.start("b", *patient)]
        with monkeypatch.context() as patched:
            patched.setenv("CRAWLER_FAULT", fault)
            running.append(nodes.start("c", *patient))
        try:
            ended = [end(node, timeout=WAIT_MAX) for node in running]
            assert [each.code for each in ended] == [0, 0, -signal.SIGKILL], ended
            c = nodes.start("c", *patient)
            running.append(c)
            log, give_up = tmp_path / "c" / "crawler.log", time.monotonic() + WAIT_MAX
            while c.poll() is None and not (log.exists() and "start one of them again" in log.read_text()):
                assert time.monotonic() < give_up
                time.sleep(0.1)
            running.append(nodes.start("a", web.seed, *patient))
            while c.poll() is None and len(running) < 6:
                assert time.monotonic() < give_up
                if "cannot end without b (" in log.read_text():
                    running.append(nodes.start("b", *patient))
                time.sleep(0.1)
            again = [end(node, timeout=WAIT_MAX) for node in running[3:]]
            assert {each.code for each in again} == {0}, again
        finally:
            for node in running:
                node.kill()
        assert web.fetched().total() == PAGES


@pytest.mark.parametrize(
    ("cut", "after"), [("both ways", 0.0), ("from c", 0.0), ("towards c", 0.25), ("from c", 0.25)]
)
def test_nodes_end_after_a_cut_of_the_network_at_the_end(tmp_path: Path, cut: str, after: float) -> None:
    """When all pages are fetched, the network of node `c` fails for longer than `crawl.patience`.

    If the network fails right after the last page, no node can know whether the others have links left. So all
    nodes wait, and end when the network is back.

    If the network fails a moment later, some nodes may already know that the crawl has ended, and leave. A
    node that does not know this concludes it from their last messages.
    """
    nodes = Nodes(tmp_path, "abc")
    proxies = {
        (here, peer): Proxy(int(nodes.addresses[peer].rpartition(":")[2]))
        for here, peer in ("ac", "bc", "ca", "cb")
    }
    for (here, peer), proxy in proxies.items():
        nodes.seen.setdefault(here, {})[peer] = f"127.0.0.1:{proxy.port}"
    patient = ("--patience", "2", "--set", "splitter.silence_max=2")
    with TreeWeb(tmp_path, PAGES, "--fanout", "3") as web:
        running = [
            nodes.start("a", web.seed, *patient),
            nodes.start("b", *patient),
            nodes.start("c", *patient),
        ]
        try:
            while web.fetched().total() < PAGES:
                assert all(node.poll() is None for node in running)
                time.sleep(0.005)
            time.sleep(after)
            for (_, peer), proxy in proxies.items():
                to_c, from_c = (proxy.open, proxy.back) if peer == "c" else (proxy.back, proxy.open)
                for flow in {"both ways": (to_c, from_c), "towards c": (to_c,), "from c": (from_c,)}[cut]:
                    flow.clear()
            logs, give_up = [tmp_path / name / "crawler.log" for name in "abc"], time.monotonic() + WAIT_MAX
            # a node logs this after `silence_max` without contact
            while not any("start one of them again" in log.read_text() for log in logs if log.exists()):
                if all(node.poll() is not None for node in running):
                    break
                assert time.monotonic() < give_up
                time.sleep(0.1)
            for proxy in proxies.values():
                proxy.open.set()
                proxy.back.set()
            while any(node.poll() is None for node in running):
                assert time.monotonic() < give_up
                for (_, peer), proxy in proxies.items():
                    if running["abc".index(peer)].poll() is not None:
                        proxy.close()  # the address of a node that has left refuses connections
                time.sleep(0.1)
            ended = [end(node, timeout=WAIT_MAX) for node in running]
            assert [each.code for each in ended] == [0, 0, 0], ended
        finally:
            for node in running:
                node.kill()
            for proxy in proxies.values():
                proxy.close()
        assert web.fetched().total() == len(web.fetched()) == PAGES
    assert {report_of(tmp_path / name)["stopped_by"] for name in "abc"} == {"done"}
