"""Starts one Chromium browser when it is first needed, watches it, and ends it with all its child processes.

The browser has no network, because its proxy is a closed port. If the system allows it, the browser also runs
in a network namespace without interfaces (`launch.py`). The crawler answers the browser's requests over the
protocol's pipe (`rendering.py`).

    start     a new profile folder (`profile_folder.py`), a child process in a process group of its own
    page      a browser context, which holds the cookies and caches of one page, and a target in it
    end       the process group is killed, the pipe closed, and the profile folder removed

A target that the crawler did not open, such as a pop-up, is closed before it runs.
"""

import asyncio
import logging
import os
import pwd
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from crawler.config import RenderConfig
from crawler.render.profile_folder import ProfileFolder, remove_abandoned
from crawler.render.protocol import BrowserError, Params, Pipe, Session
from crawler.render.work_account import ProcessTime, WorkAccount

log = logging.getLogger("crawler")

# The browsers to look for, in this order. The first one is preferred to Debian's
# /usr/bin/chromium-headless-shell, because the latter is a script that stays alive as the parent process.
PROGRAMS = (
    "/usr/lib/chromium/chromium-headless-shell",
    "chromium-headless-shell",
    "chrome-headless-shell",
    "chromium",
    "google-chrome",
    "google-chrome-stable",
)
_LAUNCH = Path(__file__).with_name("launch.py")
_START_MAX = 30.0  # seconds
_ANSWER_MAX = 10.0  # seconds; a browser whose pages are busy still answers within milliseconds
_END_MAX = 5.0
_NOBODY = "nobody"
_OFF = (
    "AcceptCHFrame,AutofillServerCommunication,BackForwardCache,CertificateTransparencyComponentUpdater,"
    "DialMediaRouteProvider,InterestFeedContentSuggestions,MediaRouter,OptimizationHints,Prerender2,"
    "SpeculationRulesPrefetchFuture,Translate,WebRtcHideLocalIpsWithMdns"
)


class MissingBrowserError(BrowserError):
    """No browser is installed, or the browser that the configuration names is missing."""


def find_program(name: str) -> str:
    """Return the path of the browser: `name` or, if no name is given, the first browser that is installed.

    Raises:
        MissingBrowserError: no such browser is installed.
    """
    for candidate in (name,) if name else PROGRAMS:
        if path := shutil.which(candidate):
            return os.path.realpath(path) if name else path
    if name:
        raise MissingBrowserError(f"render.browser: {name}: no such program")
    raise MissingBrowserError(
        "no browser found: install Debian's package chromium-headless-shell, or name one in render.browser"
    )


def arguments(program: str, home: str, user_agent: str, config: RenderConfig) -> list[str]:
    """Return the command that starts the browser."""
    command = [
        program,
        "--remote-debugging-pipe",
        f"--user-data-dir={home}",
        f"--user-agent={user_agent}",
        # These flags leave the browser no way to the network.
        "--proxy-server=127.0.0.1:9",
        "--proxy-bypass-list=<-loopback>",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--dns-prefetch-disable",
        "--disable-quic",
        "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
        "--no-pings",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-domain-reliability",
        "--disable-client-side-phishing-detection",
        "--disable-sync",
        "--disable-default-apps",
        "--disable-extensions",
        "--no-first-run",
        "--no-default-browser-check",
        "--no-service-autorun",
        "--password-store=basic",
        f"--disable-features={_OFF}",
        # With these flags, hidden pages run as fast as visible ones.
        "--disable-renderer-backgrounding",
        "--disable-backgrounding-occluded-windows",
        "--disable-background-timer-throttling",
        "--disable-breakpad",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--mute-audio",
        f"--js-flags=--max-old-space-size={max(16, config.heap_bytes_max >> 20)}",
        "--window-size=1280,1024",
    ]
    if "headless-shell" not in program:
        command.append("--headless=new")
    if not config.sandbox:
        command.append("--no-sandbox")
    return command


class Browser:
    """A running browser. `ended` is called once, when the browser has ended for any reason."""

    def __init__(self, config: RenderConfig, user_agent: str, ended: Callable[["Browser"], None]) -> None:
        self._config = config
        self._user_agent = user_agent
        self._ended = ended
        self._folder: ProfileFolder | None = None
        self._process: asyncio.subprocess.Process | None = None
        # maps each target that is being opened to its session, once the session is known
        self._ours: dict[str, asyncio.Future[str]] = {}
        self._opening_one = asyncio.Lock()
        self._work = WorkAccount()
        self.session: Session
        self.pages = 0  # number of pages that were opened so far
        self.in_use = 0  # number of pages open now

    async def start(self) -> None:
        """Start the browser.

        Raises:
            BrowserError: the browser cannot be started.
            OSError: the system has no room for its profile, or for another process.
        """
        program = find_program(self._config.browser)
        user = self._user()
        try:
            await self._launch(program, user)
            await asyncio.wait_for(self._prepare(), _START_MAX)
        except (BrowserError, TimeoutError) as error:
            await self.close()
            raise BrowserError(_why_not(program, self._config)) from error
        except BaseException:
            await self.close()
            raise

    def _user(self) -> pwd.struct_passwd | None:
        """Return the user as whom the browser runs; None stands for the user of this process.

        Raises:
            BrowserError: there is no such user.
        """
        if os.geteuid() != 0 or not self._config.sandbox:
            return None
        try:
            return pwd.getpwnam(_NOBODY)
        except KeyError:
            raise BrowserError(
                f"the system has no user {_NOBODY}, as whom the browser of root's crawl runs; set render.sandbox = false"
            ) from None

    async def _launch(self, program: str, user: pwd.struct_passwd | None) -> None:
        """Start the process of the browser, in a new profile folder, and open its pipe."""
        await asyncio.to_thread(remove_abandoned)
        self._folder = ProfileFolder(None if user is None else user.pw_uid)
        home = str(self._folder.profile)
        ours_read, theirs_write = os.pipe()
        theirs_read, ours_write = os.pipe()
        self.session = Session(Pipe(ours_read, ours_write, self._pipe_ended))
        command = [sys.executable, "-I", "-S", str(_LAUNCH), str(os.getpid())]
        command += [str(theirs_read), str(theirs_write), home, "-" if user is None else user.pw_name, "1"]
        command += arguments(program, home, self._user_agent, self._config)
        nothing = asyncio.subprocess.DEVNULL
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                pass_fds=(theirs_read, theirs_write),
                start_new_session=True,
            )
        finally:
            os.close(theirs_read)
            os.close(theirs_write)
        self.session.listen(self._on_event)

    async def _prepare(self) -> None:
        await self.session.call("Browser.getVersion")
        await self.session.call("Browser.setDownloadBehavior", behavior="deny")
        await self.session.call(
            "Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=True, flatten=True
        )

    def _on_event(self, method: str, params: Params) -> None:
        """Attach to the targets that the crawler opened. Close all other targets, such as pop-ups."""
        if method != "Target.attachedToTarget":
            return
        target = params["targetInfo"]
        if target["type"] == "page" and not target.get("openerId") and target["url"] in ("", "about:blank"):
            self._opening(target["targetId"]).set_result(params["sessionId"])
        else:  # a paused target would block the page that opened it
            Session(self.session.pipe, params["sessionId"]).tell("Runtime.runIfWaitingForDebugger")
            self.session.tell("Target.closeTarget", targetId=target["targetId"])

    def _opening(self, target: str) -> asyncio.Future[str]:
        future = self._ours.get(target)
        if future is None or future.done():
            future = self._ours[target] = asyncio.get_running_loop().create_future()
        return future

    async def open_page(self) -> tuple[Session, str, str]:
        """Open an empty page; return its session, target and browser context.

        Pages are opened one at a time, so a renderer process that appears during the call belongs to the new
        page.

        Raises:
            BrowserError: the browser has ended, or does not open a page.
        """
        try:
            async with self._opening_one, asyncio.timeout(_START_MAX):
                return await self._open_page()
        except TimeoutError as error:
            self.kill()
            raise BrowserError("the browser did not open a page") from error

    async def _open_page(self) -> tuple[Session, str, str]:
        made = await self.session.call("Target.createBrowserContext", disposeOnDetach=True)
        context = made["browserContextId"]
        made = await self.session.call("Target.createTarget", url="about:blank", browserContextId=context)
        target = made["targetId"]
        identity = await (self._ours.get(target) or self._opening(target))
        self._ours.pop(target, None)
        self.pages += 1
        session = Session(self.session.pipe, identity)
        # only the renderer can answer this call, so the answer shows that the renderer runs
        await session.call("Runtime.getIsolateId")
        self._work.opened(context, await self._processes())
        return session, target, context

    def close_page(self, context: str) -> None:
        """Close a page, with everything in its browser context."""
        self._work.closed(context)
        self.session.tell("Target.disposeBrowserContext", browserContextId=context)

    async def _processes(self) -> list[ProcessTime]:
        info = await self.session.call("SystemInfo.getProcessInfo")
        return [ProcessTime(each["id"], each["type"], each["cpuTime"]) for each in info["processInfo"]]

    async def measure(self) -> None:
        """Measure the CPU time of the browser's processes.

        Raises:
            BrowserError: the browser has ended.
        """
        self._work.look(await self._processes())

    def worked(self, context: str) -> float:
        """Return the CPU time of a page, in seconds, at the last measurement."""
        return self._work.seconds(context)

    def memory(self) -> dict[int, int]:
        """Return the private memory of each of the browser's processes, in bytes."""
        group = self._process.pid if self._process is not None else 0
        return {pid: _private_bytes(pid) for pid in _processes_of(group)} if group else {}

    def relieve(self, memory: Mapping[int, int]) -> bool:
        """End the renderer that uses the most memory, unless the other processes use more; return whether it ended."""
        sizes = {pid: memory[pid] for pid in self._work.renderers() if pid in memory}
        largest = max(sizes, key=sizes.__getitem__, default=0)
        if not largest or sizes[largest] < sum(memory.values()) - sum(sizes.values()):
            return False
        with suppress(ProcessLookupError):
            os.kill(largest, signal.SIGKILL)
        return True

    def _pipe_ended(self) -> None:
        for future in self._ours.values():
            if not future.done():
                future.set_exception(BrowserError("the browser has ended"))
                future.exception()  # mark the exception as retrieved, in case no caller awaits it
        self._ours.clear()
        self._ended(self)

    async def end_if_hung(self) -> None:
        """Kill the browser if it does not answer a call."""
        try:
            await asyncio.wait_for(self.session.call("Browser.getVersion"), _ANSWER_MAX)
        except TimeoutError:
            log.warning("rendering: the browser did not answer for %.0f s; it was ended", _ANSWER_MAX)
            self.kill()
        except BrowserError:  # it has ended
            return

    def kill(self) -> None:
        """Kill the browser's process group, and close the pipe. All calls in progress fail."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if hasattr(self, "session"):
            self.session.pipe.close()

    async def close(self) -> None:
        """End the browser and remove its folder. Calling this is harmless if the browser has already ended."""
        self.kill()
        if self._process is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), _END_MAX)
        if self._folder is not None:
            await asyncio.to_thread(self._folder.remove)


def _why_not(program: str, config: RenderConfig) -> str:
    if config.sandbox:
        return (
            f"{program} did not start; if this system does not allow its sandbox "
            "(unprivileged user namespaces), set render.sandbox = false"
        )
    return f"{program} did not start"


def _processes_of(group: int) -> list[int]:
    """Return the processes of the browser's session. Some helper processes leave its process group."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                stat = Path(f"/proc/{name}/stat").read_text(encoding="latin-1")
                if int(stat.rpartition(")")[2].split()[3]) == group:
                    found.append(int(name))
    return found


def _private_bytes(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="latin-1").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    return 0
