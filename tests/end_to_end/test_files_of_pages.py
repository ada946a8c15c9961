"""Test that a file that one process stored for its page is found by every interface, whichever process owns its URL.

The files are licences (RSL) on another host than the pages that they license. The page's process stores them.
"""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler.export.archives import opened
from tests.end_to_end.test_live import Running, ask
from tests.end_to_end.test_withdraw import serving
from tests.end_to_end.web import FAST, ReceivedRequest, Web, page, run
from tests.serve.support import Response

HOSTS = [f"127.21.0.{n}" for n in range(1, 10)]
ENDLESS, FILES = "127.21.0.99", "127.21.0.50"
RSL = (
    '<rsl xmlns="https://rslstandard.org/rsl"><content url="/"><license><!-- %s --></license></content></rsl>'
)
RSL_TYPE = {"Content-Type": "application/rsl+xml"}
FLAGS = (*FAST, "--processes", "3", "--scope", "host", "--set", "crawl.rate=30")
NAMES = ("p0", "p1", "p2")
EACH = [f"/of/{host}.xml" for host in HOSTS]  # the licence of one host
PATHS = [*EACH[::3], "/shared.xml", "/page.xml", "/noarchive.xml", "/taken.xml"]
WITHHELD = ("/noarchive.xml", "/taken.xml")


def licences(host: str) -> str:
    """Return the head of a page that names the licences of the page."""
    paths = (f"/of/{host}.xml", "/shared.xml", "/page.xml", "/noarchive.xml", "/taken.xml")
    return "".join(
        f'<link rel=license type="application/rsl+xml" href="http://{FILES}:%d{path}">' for path in paths
    )


def answer(asked: ReceivedRequest) -> Any:
    """Answer with another page of the endless host, or with a licence that is different each time."""
    if asked.host == ENDLESS and asked.path[1:].isdigit():
        return page(f"/{int(asked.path[1:]) + 1}")
    if asked.host != FILES or not asked.path.endswith(".xml"):
        return 404, {}, ""
    answer.number += 1
    tags = {"X-Robots-Tag": "noarchive"} if "noarchive" in asked.path else {}
    return 200, RSL_TYPE | tags, RSL % f"{asked.path} {answer.number}"


answer.number = 0


@pytest.fixture
def web() -> Iterator[Web]:
    """Serve nine hosts that are licensed by the files of a tenth host."""
    with Web({f"{ENDLESS}/": page("/1")}, address="0.0.0.0", other=answer) as web:
        for host in HOSTS:
            web.routes[f"{host}/"] = page(head=licences(host) % ((web.port,) * 5))
        yield web


def ask_process(directory: Path, name: str, target: str, *lines: str) -> Response:
    """Send a request to the page server of one process."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        folder = os.open(directory / name, os.O_RDONLY)
        try:
            link.connect(f"/proc/self/fd/{folder}/serve.sock")
        finally:
            os.close(folder)
        head = [f"GET {target} HTTP/1.1", "Host: localhost", *lines, "Connection: close", "", ""]
        link.sendall("\r\n".join(head).encode())
        return Response(b"".join(iter(lambda: link.recv(1 << 16), b"")))


def shown(status: int, body: bytes) -> bytes | None:
    return body if status == 200 else None


def views(
    directory: Path, url: str, port: int, admin: int, names: tuple[str, ...]
) -> dict[str, bytes | None]:
    """Return what each interface shows of a URL."""
    got = run("get", url, "--dir", directory)
    found = {"get": got.out if got.code == 0 else None}
    for target in (f"/page?url={url}", f"/page?url={url}&at=2099", f"/page?url={url}&max-stale=1000000", url):
        found[target] = shown(*ask(port, target)[::2])
        for name in names:
            reply = ask_process(directory, name, target)
            found[f"{name} {target}"] = shown(reply.status, reply.body)
    return found


def is_listed(directory: Path, url: str, port: int, admin: int) -> dict[str, bool]:
    """Return which interfaces that do not show the file say that there is one."""
    why = json.loads(run("why", url, "--json", "--dir", directory).out)
    found = {
        "why": bool(why.get("captures") and not why["withheld"]),
        "verdict": " kept and served" in why["verdict"] or why["verdict"].startswith("Stored"),
    }
    if admin:
        there = json.loads(ask(admin, f"/why?url={url}")[2])
        found |= {"admin why": bool(there.get("captures") and not there["withheld"])}
    gate = ask(port, f"/timegate/{url}")
    copies = ask(port, f"/timemap/link/{url}")
    return found | {"gate": gate[0] == 302, "list of copies": copies[0] == 200 and b"memento" in copies[2]}


def check(web: Web, directory: Path, port: int, admin: int, names: tuple[str, ...]) -> dict[str, bytes]:
    """Assert that all interfaces agree about all files. Return the content of each file that is shown."""
    contents = {}
    for path in PATHS:
        url = web.url(path, FILES)
        found = views(directory, url, port, admin, names)
        if path == "/page.xml":  # the copy nearest to a time in the future may be a later one, of a file
            found = {name: content for name, content in found.items() if "&at=" not in name}
        assert len(set(found.values())) == 1, (path, found)
        listed = is_listed(directory, url, port, admin)
        assert set(listed.values()) == {path not in WITHHELD}, (path, listed)
        if (content := found["get"]) is not None:
            contents[path] = content
    assert set(contents) == set(PATHS) - set(WITHHELD)
    return contents


def test_all_interfaces_find_a_file_that_another_process_stored(tmp_path: Path, web: Web) -> None:
    """The newest copy of several processes is shown, unless the owner of the URL has one itself.

    A file that must not be shown is not shown by any interface, and unknown URLs are still answered with 404.
    """
    seeds = [web.url("/", host) for host in (*HOSTS, ENDLESS)]
    with Running(tmp_path, [*seeds, web.url("/page.xml", FILES)], *FLAGS) as running:
        directory = running.folder
        running.until(lambda: all(path in web.paths(FILES) for path in EACH))
        running.until(lambda: running.status()["pages"]["fetched"] > 30)
        running.until(lambda: web.paths(FILES).count("/shared.xml") >= len(HOSTS))
        assert run("withdraw", web.url("/taken.xml", FILES), "--dir", directory).code == 0
        contents = check(web, directory, running.serve, running.admin, NAMES)
        for name in NAMES:
            for target in ("/page?url=", "/timemap/link/"):
                assert ask_process(directory, name, target + web.url("/none.xml", FILES)).status == 404
            url = web.url(EACH[0], FILES)
            reply = ask_process(directory, name, f"/page?url={url}&refresh=1")
            assert reply.status == 200 and reply.fields["x-refresh"].partition(";")[0] in (
                "queued",
                "out_of_scope",
            )
            assert ask_process(directory, name, f"/held?url={url}").status == 404
            assert ask_process(directory, name, f"/held?url={url}", "X-Crawler-Hop: 1").status == 404
    with opened(directory) as stored:
        holders = {
            path: {
                archive.folder.parent.name
                for archive in stored.archives
                for _, capture in archive.all_captures()
                if capture.url == web.url(path, FILES)
            }
            for path in PATHS
        }
    assert len(holders["/shared.xml"]) == 3, "each process stores it, and only one of them owns its URL"
    with serving(directory) as port:
        at_rest = check(web, directory, port, 0, ())
    # the request to refresh EACH[0] may have been served meanwhile
    assert at_rest.keys() == contents.keys() and at_rest[EACH[3]] == contents[EACH[3]]
