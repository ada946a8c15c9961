"""The control socket comes and goes with its server, whatever else the process opens."""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from crawler.admin.control import REQUEST_BYTES_MAX, ControlServer


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_it_is_gone_when_closed_and_nothing_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Python 3.13 deletes it by its path too, which begins with a descriptor that may be another file's by then."""
    other = tmp_path / "other"
    other.touch()

    async def answer(_: dict[str, Any]) -> None: ...

    async def play() -> None:
        before = os.open(tmp_path, os.O_RDONLY)
        os.close(before)  # the number that the folder's descriptor gets
        server = ControlServer(tmp_path, answer)
        await server.start()
        taken = [os.open(other, os.O_RDONLY) for _ in range(20)]
        assert before in taken or os.path.exists(f"/proc/self/fd/{before}")
        assert (tmp_path / "control.sock").is_socket()
        await server.close()
        await asyncio.sleep(0)
        for descriptor in taken:
            os.close(descriptor)

    with caplog.at_level(logging.ERROR), asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(play())
    assert not caplog.records and not (tmp_path / "control.sock").exists()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_two_that_begin_at_once_leave_the_mask_of_new_files_as_it_was(
    tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Each set it and put back what it had found; the second had found the first one's, for good."""

    async def answer(_: dict[str, Any]) -> None: ...

    async def play() -> None:
        servers = [ControlServer(tmp_path / name, answer) for name in ("a", "b")]
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
        await asyncio.gather(*(server.start() for server in servers))
        for name in ("a", "b"):
            assert (tmp_path / name / "control.sock").stat().st_mode & 0o777 == 0o600
        await asyncio.gather(*(server.close() for server in servers))

    os.umask(before := os.umask(0o022))
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(play())
    os.umask(after := os.umask(0o022))
    assert after == before


def test_every_malformed_command_gets_an_error_line(tmp_path: Path) -> None:
    """The connection goes on, and the next command is answered; only a line without an end ends it."""
    malformed = [b"", b"{", b"[1]", b"null", b'"status"', b"\xff\xfe", b"[" * 5000, b'{"a": 1}{']

    async def handler(request: dict[str, Any]) -> Any:
        return request

    async def play() -> None:
        server = ControlServer(tmp_path, handler)
        await server.start()
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "control.sock"))
        for line in malformed:
            writer.write(line + b'\n{"command": "x"}\n')
            answer = msgspec.json.decode(await reader.readline())
            assert (answer["ok"], answer["code"]) == (False, 2) and "no JSON object" in answer["error"], line
            assert msgspec.json.decode(await reader.readline()) == {"ok": True, "result": {"command": "x"}}
        writer.write(b" " * (REQUEST_BYTES_MAX + 1))
        assert b"a request of more than" in await reader.readline() and not await reader.read()
        writer.close()
        await server.close()

    asyncio.run(play())
