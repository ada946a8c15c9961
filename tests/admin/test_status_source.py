"""Test the answers of several processes over real control sockets."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from crawler.admin.health import MemberStatus
from crawler.admin.status import Status, whole
from crawler.admin.status_source import SiblingProcesses
from crawler.config import convert
from crawler.errors import UsageError
from crawler.supervision.supervisor import Supervisor


async def test_requests_at_the_same_time_do_not_mix_up_who_answered(tmp_path: Path) -> None:
    """A withdrawal while the dashboard waits for a status must not report a missing process."""
    release = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = msgspec.json.decode(await reader.readline())
        if request["command"] == "status":
            await release.wait()
        rejected = {"ok": False, "error": "no", "code": UsageError.exit_code}
        answered = {"ok": True, "result": {"name": "a", "state": "running"}}
        writer.write(msgspec.json.encode(rejected if request["command"] == "no" else answered) + b"\n")
        writer.close()

    for name in "ab":
        (tmp_path / name).mkdir()
    server = await asyncio.start_unix_server(answer, tmp_path / "a" / "control.sock")
    one = SiblingProcesses({"a": tmp_path / "a"})
    two = SiblingProcesses({name: tmp_path / name for name in "ab"})
    assert one.not_ready() == "a did not answer"
    slow = asyncio.create_task(one.ask({"command": "status"}))
    await asyncio.sleep(0)
    answers = await one.ask({"command": "withdraw"})
    assert len(answers) == 1 and answers.missing == () and one.not_ready() == ""
    release.set()
    assert (await slow).missing == ()
    assert (await two.ask({"command": "withdraw"})).missing == ("b",)
    statuses = await two.ask({"command": "status"})
    assert len(statuses) == 2 and statuses.missing == ("b",) and two.not_ready() == "b did not answer"
    assert (await two.ask({"command": "withdraw"}, first=True)).missing == ()
    with pytest.raises(UsageError):
        await one.ask({"command": "no"})
    assert one.not_ready() == "", "a process that rejects a request has answered"
    server.close()
    await server.wait_closed()


async def test_the_parent_knows_which_processes_have_ended(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        running = Status(name="a", members=[MemberStatus("a", "running")])
        writer.write(msgspec.json.encode({"ok": True, "result": running.plain()}) + b"\n")
        writer.close()

    parent = Supervisor(convert({"crawl": {"processes": 2}}), tmp_path, [])
    for name in "ab":
        (tmp_path / name).mkdir()
    server = await asyncio.start_unix_server(answer, tmp_path / "a" / "control.sock")
    source = SiblingProcesses({name: tmp_path / name for name in "ab"}, parent)
    for parent.ended, state in ((False, "missing"), (True, "ended")):
        status = whole([Status.of(part) for part in await source.ask({"command": "status"})])
        assert [member.state for member in status.members] == ["running", state]
    server.close()
    await server.wait_closed()
