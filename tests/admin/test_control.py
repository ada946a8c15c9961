"""The control socket comes and goes with its server, whatever else the process opens."""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from crawler.admin.control import ControlServer


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
