"""Test how a child process reacts to messages of the supervisor, and which messages it sends."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.admin.control_client import ask
from crawler.config import convert
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import BusyError
from crawler.storage.files import Lock
from crawler.supervision.supervisor import Supervisor

ROOT = Path(__file__).parents[2]
TIMEOUT = 30.0  # seconds after which a child that does not do what is expected fails the test


class Parent:
    """The supervisor's end of the connection to a real child, p1 of three; the other processes do not run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.link, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            program = [sys.executable, "-m", "crawler.supervision", str(number)]
            self.process = subprocess.Popen(program, pass_fds=(number,), cwd=ROOT)
        self.link.settimeout(TIMEOUT)
        self._lines = self.link.makefile("rb")

    def start(self, **changes: Any) -> "Parent":
        """Send the first message, with these changes."""
        directory = CrawlDirectory(self.folder)
        directory.create()
        config = convert({"crawl": {"processes": 3}})
        directory.settings.save(config)
        start = Supervisor(config, self.folder, ()).start_of("p1")
        self.say(**msgspec.to_builtins(msgspec.structs.replace(start, **changes)))
        return self

    def say(self, **message: Any) -> None:
        self.link.sendall(json.dumps(message).encode() + b"\n")

    def hear(self, name: str) -> Any:
        """Read messages until one has the field `name`; return the value of the field."""
        while line := self._lines.readline():
            if name in (message := json.loads(line)):
                return message[name]
        raise AssertionError(f"the child ended without sending {name}")

    def ended(self) -> tuple[list[str], int]:
        """Return the fields of the messages that were not read, and the exit code."""
        names = [name for line in self._lines for name in json.loads(line)]
        return names, self.process.wait(TIMEOUT)

    def handed_over(self) -> Any:
        """Send another message, then confirm the report. Return what the report says about the end of the run."""
        report = self.hear("report")
        assert self.process.poll() is None, "the child waits until the supervisor has the report"
        self.say(ended=True)
        self.say(reported=True)
        assert self.ended() == ([], 0)
        return report["stopped_by"]

    def close(self) -> None:
        """End the supervisor's side of the connection."""
        self._lines.close()
        self.link.close()


@contextmanager
def child(folder: Path) -> Iterator[Parent]:
    """Yield the parent of a child that waits for its first message."""
    parent = Parent(folder)
    try:
        yield parent
    finally:
        parent.close()
        parent.process.kill()
        parent.process.wait()


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Parent]:
    with child(tmp_path / "crawl") as made:
        yield made


def test_a_child_learns_the_addresses_of_its_siblings(parent: Parent) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sibling:
        sibling.settimeout(TIMEOUT)
        parent.start()
        own = parent.hear("port")
        parent.say(addresses={"p0": sibling.getsockname()[1], "p1": own})
        sibling.accept()[0].close()


@pytest.mark.parametrize(
    ("message", "reason"), [({"stop": "max_pages"}, "max_pages"), ({"ended": True}, "done")]
)
def test_a_child_obeys_messages_to_stop_or_about_the_end(
    parent: Parent, message: dict[str, Any], reason: str
) -> None:
    parent.start()
    assert parent.hear("port") > 0
    parent.say(**message)
    assert parent.handed_over() == reason


@pytest.mark.parametrize("broken", [False, True])
def test_a_child_without_a_supervisor_stops_by_itself(parent: Parent, broken: bool) -> None:
    """The child stops when the stream ends, or when the stream breaks because the child's messages were not read."""
    parent.start(level=20)
    if not broken:
        parent.hear("port")
    parent.close()
    assert parent.process.wait(TIMEOUT) == 0
    assert "Traceback" not in (parent.folder / "crawler.log").read_text()


def test_a_child_whose_supervisor_has_ended_stops(parent: Parent) -> None:
    """The child watches the supervisor's process, so it notices the end of the process even if the pipe stays open."""
    supervisor = subprocess.Popen(["sleep", "1000"])
    parent.start(supervisor=supervisor.pid)
    parent.hear("port")
    supervisor.kill()
    supervisor.wait()
    assert parent.handed_over() == "supervisor gone"


@pytest.mark.parametrize("interval", [0.0, 0.05])
def test_a_child_reports_its_status_if_it_is_displayed(parent: Parent, interval: float) -> None:
    parent.start(status_interval=interval)
    if interval:
        assert [parent.hear("status")["name"] for _ in range(3)] == ["p1"] * 3
        return
    parent.hear("port")
    ask(parent.folder / "p1", "status")
    parent.say(stop="signal")
    assert next(iter(json.loads(parent._lines.readline()))) == "report"


def test_a_child_whose_supervisor_ends_before_the_first_message_exits(parent: Parent) -> None:
    parent.close()
    assert parent.process.wait(TIMEOUT) == 0


def test_a_child_hands_over_its_error_in_one_line_and_exits_with_its_code(parent: Parent) -> None:
    (parent.folder / "p1").mkdir(parents=True)
    with Lock(parent.folder / "p1" / "node.lock", "another"):
        parent.start()
        said = parent.hear("failure")
        assert "in use by process another" in said and "\n" not in said
        parent.say(reported=True)
        assert parent.ended() == ([], BusyError.exit_code)


def handles_sigterm(pid: int) -> bool:
    """Return whether a process handles SIGTERM."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.split("SigCgt:")[1].split()[0], 16) >> signal.SIGTERM - 1 & 1)


@pytest.mark.parametrize("early", [False, True])
def test_a_signal_stops_a_child_even_if_it_came_early(parent: Parent, early: bool) -> None:
    if early:
        give_up = time.monotonic() + TIMEOUT
        while not handles_sigterm(parent.process.pid):
            assert time.monotonic() < give_up
        parent.process.send_signal(signal.SIGTERM)
    parent.start()
    parent.hear("port")
    if not early:
        parent.process.send_signal(signal.SIGTERM)
    assert parent.handed_over() == "signal"


def test_the_status_of_a_child_contains_the_warnings_of_the_supervisor(parent: Parent) -> None:
    """A later list replaces the former one."""
    parent.start()
    parent.hear("port")
    for deaths in (1, 2):
        error = {"at": 1.0, "level": "error", "message": f"p0: ended {deaths} times", "died": True}
        parent.say(warnings={"messages": [error], "counts": {"error": deaths}})
        while (status := ask(parent.folder / "p1", "status"))["log"]["error"] != deaths:
            assert parent.process.poll() is None
        assert status["errors"][-1] == error and len(status["errors"]) == status["log"]["warning"] + 1


def test_a_child_is_paused_by_the_user_or_the_supervisor(parent: Parent) -> None:
    """The child reports a command of the user to the supervisor, but not a command of the supervisor."""
    parent.start(paused=True)
    parent.hear("port")
    folder = parent.folder / "p1"
    assert ask(folder, "status")["paused"] == ["user"]
    assert ask(folder, "resume") == {"paused": []} and parent.hear("paused") is False
    parent.say(paused=True)
    while ask(folder, "status")["paused"] != ["user"]:
        assert parent.process.poll() is None
    parent.say(stop="signal")
    assert next(iter(json.loads(parent._lines.readline()))) == "report"


def test_a_child_forks_its_parser_and_logs_under_its_name(parent: Parent) -> None:
    parent.start(level=20)
    parent.hear("port")
    pid = parent.process.pid
    assert Path(f"/proc/{pid}/task/{pid}/children").read_text().split(), "there is no parser"
    ask(parent.folder / "p1", "pause")
    assert " p1 INFO crawler: paused" in (parent.folder / "crawler.log").read_text()
