"""Control a real Chromium over the DevTools protocol: open pages, evaluate scripts, press keys, take screenshots.

The browser is the one that a crawl would use. Debian's `chromium-headless-shell` is the first choice, because it
takes a quarter of the CPU time of `chromium`.
"""

import asyncio
import base64
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from crawler.render.browser import MissingBrowserError, find_program
from tests.waiting import WAIT_MAX

try:
    PROGRAM: str | None = find_program("")
except MissingBrowserError:
    PROGRAM = None
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--remote-debugging-port=0", "--hide-scrollbars", "--no-default-browser-check",
)  # fmt: skip


class Page:
    """A browser tab.

    `requests` are the URLs that the tab requested, and `blocked` those that it blocked. `messages` are the
    messages of its console.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.requests: list[str] = []
        self.blocked: list[str] = []
        self.messages: list[str] = []
        self._urls: dict[str, str] = {}
        self.frames: list[str] = []
        self.events = 0  # number of server-sent events
        self.dialogs: list[str] = []  # the questions of dialogs, which are answered by `agrees`
        self.agrees = True
        self._answers: set[asyncio.Task[Any]] = set()
        self.idle = asyncio.Event()  # set when, after `open`, nothing has been loaded for half a second
        self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for message in self._socket:
            data = message.json()
            if (waiter := self._waiting.pop(data.get("id", 0), None)) is not None and not waiter.done():
                waiter.set_result(data)
            elif data.get("method") == "Network.requestWillBeSent":
                self.requests.append(data["params"]["request"]["url"])
                self._urls[data["params"]["requestId"]] = data["params"]["request"]["url"]
            elif data.get("method") == "Network.loadingFailed" and data["params"].get("blockedReason"):
                self.blocked.append(self._urls.get(data["params"]["requestId"], ""))
            elif data.get("method") == "Log.entryAdded":
                self.messages.append(data["params"]["entry"]["text"])
            elif data.get("method") == "Runtime.consoleAPICalled":
                self.messages.append(str(data["params"]["args"]))
            elif data.get("method") == "Page.frameNavigated":
                self.frames.append(data["params"]["frame"]["url"])
            elif data.get("method") == "Network.eventSourceMessageReceived":
                self.events += 1
            elif data.get("method") == "Page.javascriptDialogOpening":
                self.dialogs.append(data["params"]["message"])
                self._answers.add(
                    asyncio.create_task(self.call("Page.handleJavaScriptDialog", accept=self.agrees))
                )
            elif data.get("method") == "Page.lifecycleEvent" and data["params"]["name"] == "networkIdle":
                self.idle.set()

    async def call(self, method: str, **parameters: Any) -> Any:
        """Send one command of the protocol. Return its result."""
        number = next(self._numbers)
        waiter = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        answer = await asyncio.wait_for(waiter, WAIT_MAX)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    async def open(self, url: str) -> None:
        """Open an address and wait until the document is loaded."""
        self.idle.clear()
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' || document.readyState === 'interactive'")

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression. If it is a promise, wait for its result."""
        result = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"])[:2000])
        return result["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait until an expression is true. Return its value."""
        async with asyncio.timeout(WAIT_MAX):
            while True:
                with suppress(RuntimeError):
                    if value := await self.evaluate(expression):
                        return value
                await asyncio.sleep(0.05)

    async def settled(self) -> None:
        """Wait until the page has loaded nothing for half a second."""
        async with asyncio.timeout(WAIT_MAX):
            await self.idle.wait()

    async def next_event(self) -> None:
        """Wait until the page has shown the figures of a server-sent event that began after this call."""
        seen = self.events
        async with asyncio.timeout(WAIT_MAX):
            while self.events < seen + 2:
                await asyncio.sleep(0.02)
        await self.evaluate("new Promise(drawn => requestAnimationFrame(() => setTimeout(drawn)))")

    async def press(self, key: str, **more: Any) -> None:
        """Press a key: Tab, Enter, or a character."""
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        text = {"Enter": "\r", "Tab": ""}.get(key, key)
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=codes.get(key, 0),
                **({"text": text} if kind == "keyDown" and text else {}), **more,
            )  # fmt: skip

    async def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the window and whether the user prefers dark colours."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = "dark" if dark else "light"
        await self.call(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
        )

    async def picture(self, path: Path, *, whole: bool = True) -> None:
        """Save a screenshot as PNG."""
        data = await self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(data["data"]))


class Chromium:
    """A browser whose profile is in `folder`. Each test opens a tab of its own, with its own cookies and storage."""

    def __init__(self, folder: Path, *flags: str) -> None:
        assert PROGRAM is not None
        self._folder = folder
        self._process = subprocess.Popen(
            [PROGRAM, *_FLAGS, *flags, f"--user-data-dir={folder}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(folder)},
        )  # fmt: skip

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    async def _listening(self) -> str:
        """Return the port on which the browser listens, and the path of its socket."""
        file = self._folder / "DevToolsActivePort"
        async with asyncio.timeout(WAIT_MAX):
            while not file.exists() or "\n" not in file.read_text():
                assert self._process.poll() is None, "Chromium does not start"
                await asyncio.sleep(0.02)
        return file.read_text().replace("\n", "", 1)

    @asynccontextmanager
    async def tab(self) -> AsyncIterator[Page]:
        address = f"ws://127.0.0.1:{await self._listening()}"
        async with aiohttp.ClientSession() as session, session.ws_connect(address) as control:
            owner = Page(control)
            context = await owner.call("Target.createBrowserContext", disposeOnDetach=True)
            target = await owner.call("Target.createTarget", url="about:blank", **context)
            address = f"{address.partition('/devtools')[0]}/devtools/page/{target['targetId']}"
            async with session.ws_connect(address, max_msg_size=1 << 26) as socket:
                page = Page(socket)
                for domain in ("Page", "Runtime", "Network", "Log"):
                    await page.call(f"{domain}.enable")
                await page.call("Page.setLifecycleEventsEnabled", enabled=True)
                yield page
            for each in (page, owner):
                each._listener.cancel()
                await asyncio.gather(each._listener, return_exceptions=True)


_shared: list[Chromium] = []  # the browser of all tests that need no flags of their own


@asynccontextmanager
async def browser(folder: Path, *flags: str) -> AsyncIterator[Page]:
    """Yield a tab of the shared browser. With `flags`, start a separate browser with its profile in `folder`."""
    if flags:
        own = Chromium(folder, *flags)
        try:
            async with own.tab() as page:
                yield page
        finally:
            own.end()
        return
    if not _shared:
        _shared.append(Chromium(Path(tempfile.mkdtemp())))
    async with _shared[0].tab() as page:
        yield page


def end_shared() -> None:
    """End the shared browser, and delete its profile."""
    while _shared:
        chromium = _shared.pop()
        chromium.end()
        shutil.rmtree(chromium._folder, ignore_errors=True)
