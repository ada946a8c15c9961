"""Test the control socket, which exists only while its server runs, and the results and errors of `ask`."""

import asyncio
import errno
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from crawler.admin import control_client
from crawler.admin.control import ControlServer
from crawler.admin.control_client import NOBODY, ask
from crawler.errors import BusyError, CrawlerError, DirectoryError


@asynccontextmanager
async def serving(folder: Path, handler: Callable[[dict[str, Any]], Awaitable[Any]]) -> AsyncIterator[None]:
    """Answer commands with the handler until the block is left."""
    server = ControlServer(folder, handler)
    await server.start()
    yield
    await server.close()


async def echo(request: dict[str, Any]) -> dict[str, Any]:
    return request


async def nothing(_: dict[str, Any]) -> None: ...


LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


async def test_a_socket_that_cannot_be_deleted_does_not_fail_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system has become read-only. The next server replaces the socket."""

    def unlink(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as context:
        async with serving(tmp_path, nothing):
            context.setattr(Path, "unlink", unlink)
    async with serving(tmp_path, echo):
        assert await asyncio.to_thread(ask, tmp_path, "hello") == {"command": "hello"}


@LOOPS
def test_the_socket_is_deleted_on_close_and_nothing_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Python 3.13 also deletes the socket by its path.

    The path names the folder by the number of its descriptor. When the socket is deleted, this number may
    already belong to another file.
    """
    other = tmp_path / "other"
    other.touch()

    async def play() -> None:
        before = os.open(tmp_path, os.O_RDONLY)
        os.close(before)  # the descriptor of the folder will get the number that is freed here
        async with serving(tmp_path, nothing):
            taken = [os.open(other, os.O_RDONLY) for _ in range(20)]
            assert before in taken or os.path.exists(f"/proc/self/fd/{before}")
            assert (tmp_path / "control.sock").is_socket()
        await asyncio.sleep(0)
        for descriptor in taken:
            os.close(descriptor)

    with caplog.at_level(logging.ERROR), asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(play())
    assert not caplog.records and not (tmp_path / "control.sock").exists()


@LOOPS
@pytest.mark.parametrize("sent", [b"", b'{"command": "slow"}\n'], ids=["idle", "in a command"])
def test_nothing_is_logged_if_the_loop_ends_while_a_connection_is_open(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    sent: bytes,
) -> None:
    """In Python 3.11, asyncio printed "Exception in callback" with a traceback and CancelledError."""

    async def play() -> socket.socket:
        begun = asyncio.Event()

        async def never(_: dict[str, Any]) -> None:
            begun.set()
            await asyncio.Event().wait()

        async with serving(tmp_path, never):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.connect(str(tmp_path / "control.sock"))
            client.sendall(b"{\n" + sent)
            reader, writer = await asyncio.open_unix_connection(sock=client.dup())
            assert b"not a JSON object" in await reader.readline()
            if sent:
                await begun.wait()
            writer.close()
        return client

    with caplog.at_level(logging.ERROR), asyncio.Runner(loop_factory=new_loop) as runner:
        client = runner.run(asyncio.wait_for(play(), 10.0))
    with client:
        client.settimeout(10.0)
        assert client.recv(1) == b"", "the connection is closed"
    assert not caplog.records


@LOOPS
def test_two_servers_that_start_together_leave_the_umask_unchanged(
    tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Two servers that start together must not restore each other's temporary umask."""

    async def play() -> None:
        servers = [ControlServer(tmp_path / name, nothing) for name in ("a", "b")]
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
        await asyncio.gather(*(server.start() for server in servers))
        for name in ("a", "b"):
            assert (tmp_path / name / "control.sock").stat().st_mode & 0o777 == 0o600
        await asyncio.gather(*(server.close() for server in servers))

    before = os.umask(0o027)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(play())
    assert os.umask(before) == 0o027


def test_every_malformed_command_gets_an_error_line(tmp_path: Path) -> None:
    """The connection stays open, and the next command is answered.

    Only a line longer than one MiB closes the connection.
    """
    malformed = [b"", b"{", b"[1]", b"null", b'"status"', b"\xff\xfe", b"[" * 5000, b'{"a": 1}{']

    async def play() -> None:
        async with serving(tmp_path, echo):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "control.sock"), limit=2 << 20)
            for line in malformed:
                writer.write(line + b'\n{"command": "x"}\n')
                answer = msgspec.json.decode(await reader.readline())
                assert (answer["ok"], answer["code"]) == (False, 2) and "not a JSON object" in answer[
                    "error"
                ], line
                assert msgspec.json.decode(await reader.readline()) == {
                    "ok": True,
                    "result": {"command": "x"},
                }
            fits = b'{"a": "' + b"b" * ((1 << 20) - 10)
            writer.write(fits + b'"}\n')
            assert len(await reader.readline()) > 1 << 20
            writer.write(b" " * ((1 << 20) + 1))
            error = "the request has more than 1048576 bytes"
            last = msgspec.json.decode(await reader.readline())
            assert last == {"ok": False, "error": error, "code": 2} and not await reader.read()
            writer.close()

    asyncio.run(play())


def _asked(folder: Path, *requests: tuple[str, dict[str, Any]]) -> list[Any]:
    """Send requests with `ask`, and return the results or errors. The server raises errors for "refuse" and "fail"."""

    async def handler(request: dict[str, Any]) -> Any:
        match request["command"]:
            case "refuse":
                raise DirectoryError("not this one")
            case "fail":
                raise KeyError("a bug")
        return request

    def one(command: str, arguments: dict[str, Any]) -> Any:
        try:
            return ask(folder, command, **arguments)
        except CrawlerError as error:
            return str(error), error.exit_code

    async def play() -> list[Any]:
        async with serving(folder, handler):
            return [await asyncio.to_thread(one, *request) for request in requests]

    return asyncio.run(play())


def test_a_command_is_answered_or_rejected_or_reported_as_a_bug(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The client receives the exit code of a rejected command.

    After a bug, the exit code is 1, and the traceback is logged. The next command is answered.
    """
    with caplog.at_level(logging.ERROR, "crawler"):
        found = _asked(tmp_path, ("get", {"urls": ["a"] * 20_000}), ("refuse", {}), ("fail", {}), ("x", {}))
    answered, refused, failed, after = found
    assert answered == {"command": "get", "urls": ["a"] * 20_000} and after == {"command": "x"}
    assert refused == ("not this one", DirectoryError.exit_code) and DirectoryError.exit_code != 1
    assert failed == ("internal error: KeyError: 'a bug'; see the log", 1)
    (record,) = caplog.records
    assert record.exc_info is not None and '"command":"fail"' in record.getMessage()


def test_no_answer_if_no_process_runs(tmp_path: Path) -> None:
    """There is no answer if the folder or the socket is missing, or if the folder is a file.

    There is also no answer if a dead process left its socket. The next server replaces this socket.
    """
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")  # opening this named pipe would wait for a writer
    before = len(os.listdir("/proc/self/fd"))
    for folder in (tmp_path / "none", tmp_path / "file", tmp_path / "fifo", tmp_path):
        assert ask(folder, "status") is NOBODY
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(str(tmp_path / "control.sock"))
    assert (tmp_path / "control.sock").is_socket() and ask(tmp_path, "status") is NOBODY
    assert _asked(tmp_path, ("status", {})) == [{"command": "status"}]
    assert ask(tmp_path, "status") is NOBODY and len(os.listdir("/proc/self/fd")) == before


def test_ask_waits_half_a_minute_and_reads_up_to_64_mib() -> None:
    assert (control_client.TIMEOUT, control_client.ANSWER_BYTES_MAX) == (30.0, 64 << 20)


@pytest.mark.parametrize(
    "answer", [b"", b'{"ok": true, "result": 1}\n', b'{"ok": false, "error": "no"}\n', None]
)
def test_a_server_that_disconnects_or_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes | None
) -> None:
    """A server that disconnects counts as absent, but a silent server is an error.

    The errors that old versions of the server send have no exit code.
    """
    monkeypatch.setattr(control_client, "TIMEOUT", 0.2)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "control.sock"))
        listening.listen()
        over = threading.Event()

        def serve() -> None:
            link, _ = listening.accept()
            assert link.recv(1000) == b'{"command":"status","a":1}\n'
            if answer is None:
                over.wait(10.0)
            else:
                link.sendall(answer)
            link.close()

        thread = threading.Thread(target=serve)
        thread.start()
        if answer is None:
            with pytest.raises(BusyError, match="does not answer"):
                ask(tmp_path, "status", a=1)
        elif b"no" in answer:
            with pytest.raises(CrawlerError, match="^no$") as caught:
                ask(tmp_path, "status", a=1)
            assert caught.value.exit_code == 1
        else:
            assert ask(tmp_path, "status", a=1) == (1 if answer else NOBODY)
        over.set()
        thread.join()


def test_a_server_without_folder_or_socket_leaves_nothing_open(tmp_path: Path) -> None:
    """If the folder or the socket is missing, closing gives no error, and the umask is unchanged."""

    async def play() -> None:
        server = ControlServer(tmp_path / "none", nothing)
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(FileNotFoundError):
            await server.start()
        assert len(os.listdir("/proc/self/fd")) == before
        await server.close()
        async with serving(tmp_path, nothing):
            (tmp_path / "control.sock").unlink()  # a user may delete the socket to clean up
        await asyncio.sleep(0.05)
        assert len(os.listdir("/proc/self/fd")) == before

    mask = os.umask(0o027)
    asyncio.run(play())
    assert os.umask(mask) == 0o027


def test_a_file_system_without_sockets_is_refused_in_one_line() -> None:
    with pytest.raises(DirectoryError, match=r"^/sys/control\.sock: cannot be created: .*; a crawl needs"):
        asyncio.run(ControlServer(Path("/sys"), nothing).start())


def test_a_client_that_disconnects_does_not_affect_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A client resets the connection before the answer is sent.

    Nothing is logged, and the next client is answered.
    """
    answered = asyncio.Event()

    async def handler(request: dict[str, Any]) -> Any:
        await asyncio.sleep(0.05)
        answered.set()
        return "a" * (8 << 20)

    async def play() -> None:
        async with serving(tmp_path, handler):
            _, writer = await asyncio.open_unix_connection(str(tmp_path / "control.sock"))
            writer.write(b"{}\n")
            await writer.drain()
            writer.transport.abort()
            await asyncio.wait_for(answered.wait(), 10.0)
            assert len(await asyncio.to_thread(ask, tmp_path, "x")) == 8 << 20

    with caplog.at_level(logging.ERROR):
        asyncio.run(play())
    assert not caplog.records


def test_a_client_that_reads_no_answers_gets_no_more(tmp_path: Path) -> None:
    """A client requests one MiB 300 times but reads no answer.

    The server buffers only little output, and it answers other clients.
    """
    count = 0

    async def handler(request: dict[str, Any]) -> Any:
        nonlocal count
        count += 1
        return "a" * (1 << 20)

    async def play() -> None:
        async with serving(tmp_path, handler):
            _, writer = await asyncio.open_unix_connection(str(tmp_path / "control.sock"), limit=1024)
            writer.write(b"{}\n" * 300)
            for _ in range(3):
                await asyncio.to_thread(ask, tmp_path, "x")
            assert 3 < count < 30
            writer.transport.abort()

    asyncio.run(play())
