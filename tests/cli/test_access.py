"""Test commands that are sent while some processes of a crawl run and others do not."""

import socket
import threading
from contextlib import closing
from pathlib import Path

import pytest

from crawler.admin import control_client
from crawler.admin.control_client import SOCKET
from crawler.cli import access
from crawler.errors import BusyError
from crawler.storage.files import Lock
from crawler.unix_sockets import short_path
from tests.end_to_end.web import Web, crawl, page


def _answer_once(folder: Path, lock: Lock) -> threading.Thread:
    """Answer one request as the last process of a crawl that ends: release the crawl's lock after the answer."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_path(folder, SOCKET) as path:
        listener.bind(path)
    listener.listen()

    def answer() -> None:
        with closing(listener), listener.accept()[0] as link:
            link.recv(65536)
            link.sendall(b'{"ok": true, "result": {"host": "answered"}}\n')
        (folder / SOCKET).unlink()
        lock.release()

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def test_a_command_to_a_crawl_that_ends_reaches_the_processes_that_ended_first(tmp_path: Path) -> None:
    """The second process answers and ends at once; the first has ended before, so the command works on its files."""
    with Web({"/": page()}) as web:
        crawl(tmp_path / "crawl", web.url(), "--processes", "2")
    thread = _answer_once(
        tmp_path / "crawl" / "p1", Lock(tmp_path / "crawl" / "supervisor.lock", "supervisor")
    )
    answers = access.ask(tmp_path / "crawl", {"command": "block", "host": "localhost"})
    thread.join()
    assert answers == [{"host": "localhost"}, {"host": "answered"}]


def test_a_suspended_process_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that only read use the files of the process. Other commands end with exit code 75."""
    monkeypatch.setattr(control_client, "TIMEOUT", 0.05)
    directory = tmp_path / "crawl"
    with Web({"/": page()}) as web:
        crawl(directory, web.url(), "--processes", "2")
    suspended = Lock(directory / "p1" / "node.lock", "p1")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
        short_path(directory / "p1", SOCKET) as path,
    ):
        listener.bind(path)
        listener.listen()
        answers = access.ask(directory, {"command": "status", "hosts": 0})
        assert [answer["name"] for answer in answers] == ["p0", "p1"]
        assert access.is_running(directory)
        with pytest.raises(BusyError, match="p1: the running process does not answer; it may be suspended"):
            access.ask(directory, {"command": "block", "host": "localhost"})
    suspended.release()
