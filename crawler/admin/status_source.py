"""The source of the admin server's answers: its own process, or several processes over their control sockets."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from crawler.admin.control_client import ANSWER_BYTES_MAX, RESTART_WAIT, SOCKET
from crawler.admin.status import Status, resting
from crawler.errors import CrawlerError, UsageError
from crawler.unix_sockets import short_path

Request = Mapping[str, Any]
_RETRY_INTERVAL = 0.1  # seconds between two requests to a process that may be restarting
TIMEOUT = 10.0  # a process that does not answer within this many seconds is left out


class Answers(list[Any]):
    """The answers to one request; `missing` names the processes that did not answer it."""

    missing: tuple[str, ...] = ()


class StatusSource(Protocol):
    """The processes of a crawl, to which the admin server sends requests."""

    async def ask(self, request: Request, *, first: bool = False, patient: bool = False) -> Answers:
        """Return the answers of all processes that answer. With `first`, return only one answer.

        With `patient`, wait up to `RESTART_WAIT` seconds for a process that does not answer while others do.

        Raises:
            CrawlerError: all processes rejected the request; the message is the reason of one of them.
        """

    def not_ready(self) -> str:
        """Return why the crawl is not ready, or "" if it is."""


class OwnProcess:
    """A source with only one process: the one that the server runs in."""

    def __init__(self, run: Callable[[Request], Awaitable[Any]], not_ready: Callable[[], str]) -> None:
        self._run = run
        self.not_ready = not_ready

    async def ask(self, request: Request, *, first: bool = False, patient: bool = False) -> Answers:
        return Answers([await self._run(request)])


class Supervision(Protocol):
    """The interface through which a parent tells what it knows about its processes."""

    @property
    def ending(self) -> bool:
        """True if the processes have been told to end. Then a process that does not answer counts as ended."""


class SiblingProcesses:
    """The processes that answer on the control sockets in `folders`; `supervision` is what their parent knows.

    The last status of each process is kept. If a process does not answer, its last status is used instead.
    `_missing` contains each process that did not answer when it was last asked. Several requests may run at
    the same time, so `_missing` does not show which processes answered a particular request. `Answers.missing`
    shows this.
    """

    def __init__(self, folders: Mapping[str, Path], supervision: Supervision | None = None) -> None:
        self._folders = folders
        self._supervision = supervision
        self._missing: set[str] = set(folders)
        self._last: dict[str, Any] = {}

    async def ask(self, request: Request, *, first: bool = False, patient: bool = False) -> Answers:
        names = list(self._folders)
        found = await (self._ask_one(names, request) if first else self._ask_each(names, request))
        names = list(found)
        give_up = asyncio.get_running_loop().time() + RESTART_WAIT
        while (
            patient and 0 < len(_silent(found)) < len(found) and asyncio.get_running_loop().time() < give_up
        ):
            await asyncio.sleep(_RETRY_INTERVAL)
            found |= await self._ask_each(_silent(found), request)
        answers = {name: answer for name, answer in found.items() if not isinstance(answer, BaseException)}
        failures = [answer for answer in found.values() if isinstance(answer, BaseException)]
        missing = tuple(_silent(found))
        self._missing = self._missing - set(names) | set(missing)
        if failures and not answers:
            raise failures[0] if isinstance(failures[0], CrawlerError) else CrawlerError("no process answers")
        if request["command"] == "status":
            self._last |= answers
            answers |= {name: self._resting(name) for name in missing}
        made = Answers(answers[name] for name in names if name in answers)
        made.missing = missing
        return made

    async def _ask_each(self, names: Sequence[str], request: Request) -> dict[str, Any]:
        found = await asyncio.gather(*(self._ask(name, request) for name in names), return_exceptions=True)
        return dict(zip(names, found, strict=True))

    async def _ask_one(self, names: Sequence[str], request: Request) -> dict[str, Any]:
        """Return the answer of the first process that answers, or the exception of the last one."""
        found: dict[str, Any] = {}
        for name in names:
            found = await self._ask_each([name], request)
            if not _silent(found):
                break
        return found

    def _resting(self, name: str) -> Any:
        last = self._last.get(name)
        state = "ended" if self._supervision is not None and self._supervision.ending else "missing"
        return resting(Status(name=name) if last is None else Status.of(last), state).plain()

    async def _ask(self, name: str, request: Request) -> Any:
        async with asyncio.timeout(TIMEOUT):
            with short_path(self._folders[name], SOCKET) as path:
                reader, writer = await asyncio.open_unix_connection(path, limit=ANSWER_BYTES_MAX)
            try:
                writer.write(msgspec.json.encode(request) + b"\n")
                answer = msgspec.json.decode(await reader.readline())
            finally:
                writer.close()
        if not answer["ok"]:
            kind = UsageError if answer.get("code") == UsageError.exit_code else CrawlerError
            raise kind(answer["error"])
        return answer["result"]

    def not_ready(self) -> str:
        return f"{', '.join(sorted(self._missing))} did not answer" if self._missing else ""


def _silent(found: Mapping[str, Any]) -> list[str]:
    """Return the processes that did not answer. A process that rejects a request has answered."""
    return [
        name
        for name, answer in found.items()
        if isinstance(answer, BaseException) and not isinstance(answer, CrawlerError)
    ]
