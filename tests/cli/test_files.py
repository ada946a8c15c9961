"""Test files and folders given by users: seeds, pages and traces, with and without a byte order mark."""

import os
import threading
from pathlib import Path

import pytest

from crawler.errors import UsageError
from crawler.lab.refresh import pages_file
from tests.end_to_end.web import FAST, Web, crawl, page, run
from tests.faults.harness import end, start


def test_a_seeds_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    with Web({"/a": page(), "/b": page(text="b")}) as web:
        seeds = tmp_path / "seeds"
        seeds.write_text(f"\ufeff{web.url('/a')}\r\n# two\r\n{web.url('/b')}\r\n", encoding="utf-8")
        ran = run("crawl", "--seeds", seeds, "--dir", tmp_path / "crawl", *FAST)
        assert ran.code == 0 and sorted(web.paths()) == ["/a", "/b"]


def test_a_seeds_file_may_be_a_pipe(tmp_path: Path) -> None:
    """The seeds are read twice, and a pipe can be read only once: `--seeds <(zcat seeds.gz)`."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with Web({"/a": page(), "/b": page(text="b")}) as web:
        lines = f"{web.url('/a')}\n{web.url('/b')} page\n"
        writer = threading.Thread(target=pipe.write_text, args=(lines,))
        writer.start()
        ended = end(start(tmp_path / "crawl", "--seeds", str(pipe), *map(str, FAST)), timeout=60)
        writer.join()
        assert ended.code == 0 and sorted(web.paths()) == ["/a", "/b"], ended


def test_a_pages_file_with_a_byte_order_mark_or_a_column_twice(tmp_path: Path) -> None:
    path = tmp_path / "pages.csv"
    path.write_text("\ufeffimportance,change_rate\n1,0.5\n", encoding="utf-8")
    assert len(pages_file.read(path).names) == 1
    path.write_text("importance,change_rate,importance\n1,0.5,2\n", encoding="utf-8")
    with pytest.raises(UsageError, match="duplicate column importance"):
        pages_file.read(path)


def test_a_crawl_directory_may_be_given_for_its_trace(tmp_path: Path) -> None:
    with Web({"/": page("/a", "/b"), "/a": page("/", "/b"), "/b": page("/a")}) as web:
        crawl(tmp_path / "traced", web.url(), "--trace")
        crawl(tmp_path / "plain", web.url())
    assert run("lab", "cache", tmp_path / "traced", "--bits", "2-4").code == 0
    ran = run("lab", "cache", tmp_path / "plain")
    assert ran.code == 2 and "crawl with --trace" in ran.err


def site(*paths: str) -> dict[str, str]:
    return {path: page(*paths, text=path) for path in paths}


def test_a_seeds_file_with_columns(tmp_path: Path) -> None:
    """Each seed has its own scope, depth and limit.

    The scopes, depths and limits are saved, so a continued crawl observes them, too.
    """
    hosts = {name: f"{name}.localhost" for name in "abcd"}
    chain = {f"/{n}": page(f"/{n + 1}", text=str(n)) for n in range(6)}
    routes = {f"{hosts['a']}{path}": text for path, text in site("/docs/", "/docs/x", "/blog/").items()}
    routes |= {f"{hosts['b']}{path}": text for path, text in chain.items()}
    routes |= {f"{hosts['c']}{path}": text for path, text in site(*(f"/{n}" for n in range(9))).items()}
    routes |= {f"{hosts['d']}{path}": text for path, text in site("/one", "/one/two").items()}
    with Web(routes) as web:
        rows = [
            "url scope depth limit",
            web.url("/docs/", hosts["a"]) + " prefix",
            web.url("/0", hosts["b"]) + " host 2",
            web.url("/0", hosts["c"]) + " - - 3",
            web.url("/one", hosts["d"]) + " page",
        ]
        (tmp_path / "seeds").write_text("\n".join(rows))
        report = crawl(tmp_path / "c", "--seeds", tmp_path / "seeds")
        asked = {name: sorted(set(web.paths(hosts[name]))) for name in hosts}
        assert asked == {
            "a": ["/docs/", "/docs/x"], "b": ["/0", "/1", "/2"], "c": ["/0", "/1", "/2"], "d": ["/one"],
        }  # fmt: skip
        assert report["frontier"]["parked"] == 7 and report["conservation"] == "holds"
        count = len(web.paths())
        assert crawl(tmp_path / "c")["stopped_by"] == "done" and len(web.paths()) == count
        (tmp_path / "seeds").write_text(web.url("/0", hosts["b"]) + " hots")
        ran = run("crawl", "--seeds", tmp_path / "seeds", "--dir", tmp_path / "d")
        assert ran.code == 2 and "seeds, line 1: scope 'hots' is not one of page" in ran.err
        assert not (tmp_path / "d").exists()


def test_surt_prefixes_are_in_scope(tmp_path: Path) -> None:
    """A flag, or a line with `+`, adds a part of another site to the scope, but not the rest of that site."""
    there = "there.localhost"
    with Web({"/": ""}) as web:
        links = [web.url(path, there) for path in ("/docs/a", "/docs/b", "/other")]
        web.routes |= {
            "localhost/": page(*links),
            f"{there}/docs/a": page("/", "b", text="a"),
            f"{there}/docs/b": "b",
        }
        surt = f"http://(localhost,there,:{web.port})/docs/"
        crawl(tmp_path / "c", web.url(), "--surt", surt)
        assert web.paths(there) == ["/docs/a", "/docs/b"]
        web.asked.clear()
        (tmp_path / "seeds").write_text(f"{web.url()}\n+{surt}\n")
        crawl(tmp_path / "d", "--seeds", tmp_path / "seeds")
        assert web.paths(there) == ["/docs/a", "/docs/b"]
        assert run("crawl", web.url(), "--dir", tmp_path / "e", "--surt", "there").code == 2


@pytest.mark.parametrize(
    ("columns", "row", "said"),
    [
        ("recall,precision,false_rate", ".5,.5,1", "precision and false_rate both say"),
        ("precision,recall", ".5,", "precision needs recall"),
    ],
)
def test_contradicting_columns_are_an_error(tmp_path: Path, columns: str, row: str, said: str) -> None:
    """Once, one of two contradicting columns was ignored silently."""
    (tmp_path / "p.csv").write_text(f"page,importance,change_rate,{columns}\na,1,1,{row}\n")
    ran = run("lab", "refresh", "rates", "--pages", tmp_path / "p.csv", "--rate", "1")
    assert ran.code == 2 and f"line 2: {said}" in ran.err
