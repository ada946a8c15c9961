"""Test `crawl --order` with built-in orders and an order from an installed package, by reading the server's log."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.end_to_end.web import FAST, ReceivedRequest, Web, crawl, page, run

NAMES = [f"/{word}" for word in ("one", "two", "three", "four", "five", "six", "seven")]
SITE = {"/": page(*NAMES, "/wz"), "/wz": page("/wz/2")} | {name: page(f"{name}/2") for name in NAMES}
SITE |= {f"{name}/2": page(text=name) for name in (*NAMES, "/wz")}
PACKAGE = """
class ByLetter:
    '''Prefer anchors whose last letter is late in the alphabet; links of the page `wz` come first.'''
    reads_anchors = True
    def __init__(self, config):
        self.floor = config.depth_decay / 100
    def score(self, link, context):
        assert context.kind in ("page", "seed") and context.links >= 1
        if "wz" in context.url:
            return 1
        return max(self.floor, (ord(link.anchor[-1:] or "a") - 96) / 30)

class Hanging:
    def __init__(self, config): pass
    def score(self, link, context):
        while context.kind != "seed":
            pass
        return 1
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with an order.

    The package has a module, and the entry-point metadata that an installer would write.
    """
    place = tmp_path / "site-packages"
    info = place / "letters-2.dist-info"
    info.mkdir(parents=True)
    (place / "letters_order.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: letters\nVersion: 2\n")
    (info / "entry_points.txt").write_text(
        "[crawler.orders]\nletters = letters_order:ByLetter\nhanging = letters_order:Hanging\n"
    )
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.delitem(sys.modules, "letters_order", raising=False)


def test_an_order_of_an_installed_package_is_used(package: None, tmp_path: Path) -> None:
    with Web(SITE) as web:
        crawl(tmp_path / "c", "--order", "letters", web.url())
        asked = [path for path in web.paths() if path != "/robots.txt"]
    firsts = [path for path in asked if path.count("/") == 1 and path != "/"]
    assert firsts == sorted(firsts, key=lambda path: path[-1], reverse=True) and len(firsts) == 8
    seconds = [path for path in asked if path.endswith("/2")]
    assert seconds[0] == "/wz/2", "the link of page wz has the best score"
    assert sorted(asked) == sorted(set(asked)) == sorted(SITE)


def test_three_processes_use_the_order_of_an_installed_package(
    package: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process scores links to hosts of all processes.

    Each process fetches the URLs of its own hosts in the order of their scores.
    """
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site-packages"))
    # there are many hosts, because the owner of a host depends on a random key
    hosts = [f"h{number}.localhost" for number in range(24)]
    with Web({}) as web:
        links = [web.url(name, host) for host in hosts for name in NAMES]
        web.routes = {"localhost/": page(*links)} | dict.fromkeys(NAMES, page(text="end"))
        crawl(
            tmp_path / "c",
            "--processes",
            3,
            "--scope",
            "any",
            "--admin",
            "off",
            "--order",
            "letters",
            web.url(),
        )
        asked = {host: web.paths(host) for host in hosts}
    best_first = sorted(NAMES, key=lambda name: name[-1], reverse=True)
    assert asked == dict.fromkeys(hosts, best_first)
    assert len({owner.name for owner in (tmp_path / "c").glob("p?") if any(owner.glob("warc/*"))}) == 3


def test_an_order_that_never_returns_holds_up_neither_the_crawl_nor_a_signal(
    package: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pages are fetched, without scores. SIGTERM ends the run although the order still computes."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site-packages"))

    def last(_: ReceivedRequest) -> str:
        program.terminate()
        return page(text="last")

    with Web(SITE | {"/wz/2": page("/last"), "/last": last}) as web:
        command = ("--dir", tmp_path / "c", *FAST, "--order", "hanging", "--set", "order.wait_max=0.05")
        words = [sys.executable, "-m", "crawler", "crawl", *map(str, command), web.url()]
        program = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        _, err = program.communicate(timeout=120)
        assert program.returncode == 0, err
        assert sorted(web.paths()) == sorted([*SITE, "/last"])
    assert err.count("order hanging took") == 1 and "thread order did not end" not in err
    report = msgspec.json.decode((tmp_path / "c" / "report.json").read_bytes())
    assert report["stopped_by"] == "signal" and report["urls"]["unscored"] >= 8


def test_an_unknown_order_is_reported_before_the_crawl_starts(tmp_path: Path) -> None:
    ran = run("crawl", "--dir", tmp_path / "c", "--order", "nobodys", "http://127.0.0.1:1/")
    assert ran.code == 2 and "order.name: 'nobodys'" in ran.err and "opic" in ran.err


@pytest.mark.parametrize("order", ["depth", "opic"])
def test_a_crawl_can_continue_with_another_order(order: str, tmp_path: Path) -> None:
    """All pages are fetched exactly once, although the order changes."""
    with Web(SITE) as web:
        crawl(tmp_path / "c", "--max-pages", 4, web.url())
        crawl(tmp_path / "c", "--order", order, "--max-pages", 8)
        crawl(tmp_path / "c")
        asked = [path for path in web.paths() if path != "/robots.txt"]
    assert sorted(asked) == sorted(SITE)
    why = run("why", web.url("/one"), "--dir", tmp_path / "c")
    assert why.code == 0


def test_a_crawl_with_an_order_can_be_checked_and_resharded(tmp_path: Path) -> None:
    """`check` accepts the index of the queue. A reshard rebuilds the index in the new processes."""
    with Web(SITE) as web:
        crawl(tmp_path / "c", "--order", "opic", "--max-pages", 5, web.url())
        assert run("check", "--dir", tmp_path / "c").code == 0
        ran = run("reshard", "--dir", tmp_path / "c", "--to", 2)
        assert ran.code == 0, ran
        assert run("check", "--dir", tmp_path / "c").code == 0
        ran = run("crawl", "--dir", tmp_path / "c", *FAST, "--order", "opic")
        assert ran.code == 0, ran
        asked = [path for path in web.paths() if path != "/robots.txt"]
        assert run("check", "--dir", tmp_path / "c").code == 0
    assert sorted(asked) == sorted(SITE)
