"""Lead an operator through a crawl at random, and judge the crawl by the log of its web.

A walk is a sequence of steps that its seed determines: commands by every entrance, signals to the processes,
kills, stops, starts with other settings, and readings of the crawl between them. The model of a walk is a
list of rules, each in force from the instant at which a command returned: no request to a blocked host, none
for a withdrawn or retired page, none during a pause. At the end, all blocks are lifted and the crawl is
finished. Then every page that the walk did not take away must have been fetched, and all outputs must agree.
"""

import asyncio
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import crawler as api
from crawler.cli.loopback import free_port
from crawler.storage.files import is_held
from tests.end_to_end.test_live import ask
from tests.end_to_end.web import Ran, run
from tests.faults import walk_web
from tests.faults.planted import planted
from tests.faults.power import family, kill_all
from tests.faults.walk_web import HOSTS, ISLAND, PAGES, TREE, children, failing, gone, location
from tests.upgrade.support import unpacked

ROOT = Path(__file__).resolve().parents[2]
CONCURRENCY = 8
LATE = 0.1  # seconds by which the server may log a request after the crawler has sent it
COMMITTED = 3.0  # seconds after which a fetch that was answered must be on disk
DELAYS = (0.05, 0.1, 0.2)
WAIT_MAX = 120.0
PROMPT = 60.0  # seconds within which all pages must be refreshed
# exit codes of a crawl that a signal ends while it starts
INTERRUPTED = (130, -signal.SIGINT, -signal.SIGTERM)
BUSY = 75  # exit code of a command that needs the lock of a directory in use


class Request(NamedTuple):
    """A request in the log of the web. `end` is infinite and `status` 0 if the answer was not completed."""

    begin: float
    end: float
    host: str
    path: str
    status: int
    retry_after: float


class Rule(NamedTuple):
    """A promise about requests: none that `matches` begins in the time from `begin` to `end`."""

    what: str
    matches: Callable[[Request], bool]
    begin: float
    end: float = float("inf")


class Setting(NamedTuple):
    """A value that may be in force from `begin` on, and is certainly in force from `since` on."""

    value: float
    begin: float
    since: float = float("inf")


class Settings:
    """The values that a setting has had. A value replaces the earlier values once it is certainly in force."""

    def __init__(self, first: Sequence[Setting] = ()) -> None:
        self.made = list(first)

    def confirm(self, made: Setting, since: float) -> None:
        """Note that a value is certainly in force."""
        self.made[self.made.index(made)] = made._replace(since=since)

    def possible(self, begin: float, end: float) -> list[float]:
        """Return the values that may have been in force between two instants."""
        return [
            each.value
            for number, each in enumerate(self.made)
            if each.begin <= end and not any(later.since <= begin for later in self.made[number + 1 :])
        ]


class State(NamedTuple):
    """The state of the model at the time of a backup."""

    made: float
    processes: int
    seeds: list[int]
    blocked: set[int]
    settings: dict[str, list[float]]


Overrides = dict[str, dict[str, float]]  # maps the match of each `[[override]]` to its settings


class WalkWeb:
    """A context manager that runs the server of `walk_web.py`."""

    def __init__(self, folder: Path, net: str) -> None:
        self._log, self._net = folder / "web.log", net

    def __enter__(self) -> Self:
        words = [sys.executable, "-m", "tests.faults.walk_web", self._net, str(self._log)]
        pipe = subprocess.PIPE
        self._server = subprocess.Popen(words, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        assert self._server.stdout is not None
        self.port = int(self._server.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()

    def address(self, host: int) -> str:
        return f"{self._net}.{host + 1}"

    def at(self, host: int, path: str) -> str:
        """Return the URL of a path on a host."""
        return f"http://{self.address(host)}:{self.port}{path}"

    def url(self, page: int) -> str:
        return self.at(page % HOSTS, f"/{page}")

    def requests(self) -> list[Request]:
        """Return all requests so far, in the order of their begins."""
        found: dict[str, Request] = {}
        for line in self._log.read_text().splitlines():
            kind, number, at, *rest = line.split()
            if kind == "begin":
                found[number] = Request(float(at), float("inf"), rest[0], rest[1], 0, 0.0)
            else:
                found[number] = found[number]._replace(
                    end=float(at), status=int(rest[0]), retry_after=float(rest[1])
                )
        return list(found.values())


class Walk:
    """One walk; `steps` makes it, and `judged` returns the broken promises."""

    def __init__(
        self, folder: Path, web: WalkWeb, seed: int, processes: int, *, refreshes: bool = False, bug: str = ""
    ) -> None:
        self.folder, self.directory, self.web, self.processes = folder, folder / "crawl", web, processes
        self.refreshes = refreshes
        self.clock = folder / "clock"  # the number of seconds by which the clock is ahead
        self.clock.write_text("0")
        self.bugs = ",".join(filter(None, (bug, f"clock@{self.clock}")))
        self.rng = random.Random(seed)
        self.story: list[str] = []
        self.problems: list[str] = []
        self.rules: list[Rule] = []
        self.blocked: dict[int, Rule] = {}
        self.withdrawn: dict[str, Rule] = {}
        self.paused: Rule | None = None
        # by key: "delay", or the name of a setting of an `[[override]]` and its host, such as "delay 127.20.7.1"
        self.settings: dict[str, Settings] = defaultdict(Settings)
        self.pending: list[tuple[str, Setting]] = []  # settings of a start that is not known to be ready
        self.overrides: Overrides | None = None  # the `[[override]]` tables that the next start sets
        self.copy: State | None = None
        self.kills: list[float] = []
        # times of fetches that the crawl may have forgotten, because a disk was lost or an earlier state restored
        self.forgotten: list[tuple[float, float]] = []
        self.jumps: list[float] = []  # instants at which the clock was set
        self.former: dict[str, bytes] = {}  # the pages of the directory at the beginning
        self.retired: list[str] = []
        self.seeds = list(range(HOSTS))
        self.doubtful: set[int] = set()  # pages that may or may not be fetched
        self.process: subprocess.Popen[str] | None = None
        self.started = 0.0

    # -- the steps

    def steps(self, count: int, weights: Mapping[Callable[["Walk"], None], int]) -> None:
        """Make `count` random steps, which are drawn by their weights, and finish the crawl."""
        self.start()
        for _ in range(count):
            step = self.rng.choices(list(weights), [*weights.values()])[0]
            step(self)
            time.sleep(self.rng.choice((0.0, 0.1, 0.4, 0.8)))
        self.finish()

    def tell(self, *words: object) -> None:
        self.story.append(f"{time.time():.3f} " + " ".join(map(str, words)))

    def fault(self, *words: object) -> None:
        self.tell("FAULT", *words)
        self.problems.append(" ".join(map(str, words)))

    @property
    def lives(self) -> bool:
        """True if the crawl runs."""
        return self.process is not None and self.process.poll() is None

    def start(self, *more: str) -> None:
        """Start the crawl with the seeds, unless it runs."""
        if self.lives:
            return
        self._note_end()
        self.admin, self.serve = free_port(), free_port()
        delay = (
            self.rng.choice(DELAYS) if not self.settings["delay"].made or self.rng.random() < 0.5 else None
        )
        flags = [] if delay is None else ["--delay", str(delay)]
        if self.overrides is not None:
            flags += ["--config", self._write_overrides(self.overrides)]
        begun = any(self.directory.glob("p*.begun"))
        refreshes = self.refreshes and begun and not more
        limits = self.rng.choice(((), ("--depth", "2"), ("--max-pages", "25"), ("--pages-per-host", "6")))
        flags += more or (REFRESHING if refreshes else limits)
        scope = "any" if self.former else "host"
        words = [*BASE, "--dir", str(self.directory), "--scope", scope, *flags]
        words += ["--admin", f"127.0.0.1:{self.admin}", "--serve", f"127.0.0.1:{self.serve}"]
        if self.processes > 1:
            words += ["--processes", str(self.processes), *QUICK]
        if self.former:
            words += ["--proxy", self.web.at(0, ""), "--set", "refresh.share=0"]
        seeds = [] if refreshes else [self.web.url(page) for page in range(HOSTS)]
        name = "refresh" if refreshes else "crawl"
        self._set(delay)
        self.tell("start", *flags)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.signalled", self.bugs, name, *seeds, *words],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self.started = time.time()
        if self.rng.random() < 0.8:
            self._ready()

    def _ready(self) -> None:
        """Wait until the crawl answers, or has ended."""
        give_up = time.monotonic() + WAIT_MAX
        while self.lives and time.monotonic() < give_up:
            with suppress(OSError):
                if ask(self.admin, "/readyz")[0] == 200:  # the settings have been saved
                    self._confirm()
                    return
            time.sleep(0.05)

    def _write_overrides(self, tables: Overrides) -> str:
        """Write a configuration file. Return its path."""
        listed = (
            ", ".join([f'match = "{match}"', *(f"{key} = {value}" for key, value in values.items())])
            for match, values in tables.items()
        )
        path = self.folder / "overrides.toml"
        path.write_text(f"override = [{', '.join(f'{{{each}}}' for each in listed)}]\n")
        return str(path)

    def _set(self, delay: float | None) -> None:
        """Note the settings of a start."""
        now, made = time.time(), dict[str, float]()
        if delay is not None:
            made["delay"] = delay
        if self.overrides is not None:
            for host in map(self.web.address, range(HOSTS)):
                values = self.overrides.get(host, {})
                made |= {f"{key} {host}": values.get(key, 0.0) for key in ("delay", "min_age")}
        self.overrides = None
        self.pending = [(key, Setting(value, now)) for key, value in made.items()]
        for key, each in self.pending:
            self.settings[key].made.append(each)

    def _confirm(self) -> None:
        """Note that the settings of the last start were saved."""
        for key, each in self.pending:
            self.settings[key].confirm(each, self.started)
        self.pending = []

    def _is_ready(self) -> bool:
        try:
            return ask(self.admin, "/healthz")[0] == 200
        except OSError:
            return False

    def _note_end(self, *codes: int) -> None:
        """Wait for the end of the crawl. It must have ended with 0 or one of `codes`."""
        if self.process is None:
            return
        out, err = self.process.communicate(timeout=WAIT_MAX)
        self.tell("ended with", self.process.returncode, err[-300:])
        # a command held the lock of the directory, or another program took the port
        if self.process.returncode == BUSY or "cannot listen" in err:
            for key, each in self.pending:
                self.settings[key].made.remove(each)
            self.pending = []
            codes += (self.process.returncode,)
        if self.process.returncode not in (0, *codes):
            self.fault("the crawl ended with", self.process.returncode, out, err)
        # a signal that arrives while the interpreter starts ends any program in this way
        starts = "<frozen site>" in err or "import early_signals" in err
        if "Traceback" in err and not starts:
            self.fault("traceback:", err)
        self._unpause()
        self.process = None

    def _unpause(self) -> None:
        if self.paused is not None:
            self._end_rule(self.paused)
            self.paused = None

    def _end_rule(self, rule: Rule) -> None:
        """End a rule, unless it has ended."""
        if rule in self.rules:
            self.rules[self.rules.index(rule)] = rule._replace(end=time.time())

    def _rule(self, what: str, matches: Callable[[Request], bool]) -> Rule:
        rule = Rule(what, matches, time.time())
        self.rules.append(rule)
        return rule

    def command(self, *words: str, codes: tuple[int, ...] = (0,)) -> Ran:
        """Run a command on the directory."""
        self.tell(*words)
        with planted(self.bugs):
            ran = run(*words, "--dir", self.directory)
        if ran.code not in codes or "Traceback" in ran.err:
            self.fault("command", words, ran)
        self.tell(
            "  returned",
            ran.code,
            ran.text[-200:].strip() if words[0] not in ("export",) else "",
            ran.err[-300:].strip(),
        )
        return ran

    def do(self, **request: Any) -> bool:
        """Send a command to the admin server; return whether it was carried out."""
        if not self.lives:
            return False
        try:
            token = (self.directory / "admin-token").read_text().strip()
            status, _, body = ask(
                self.admin, "/do", "POST", request, Content_Type="application/json", X_Admin_Token=token
            )
        except OSError as error:
            self.tell("http", request, "not answered", error)
            return False
        self.tell("http", request, status, body[:200])
        if status not in (200, 503, 409, 400):
            self.fault("http", request, status, body)
        return status == 200

    def seed(self) -> None:
        left = [page for page in range(TREE, PAGES, ISLAND) if page not in self.seeds]
        if not left:
            return
        page = self.rng.choice(left)
        url = self.web.url(page)
        if (
            self.rng.random() < 0.5
            and self.do(command="seed", urls=[url])
            or self.command("seed", url, codes=(0, 2, 3, BUSY)).code == 0
        ):
            self.seeds.append(page)

    def signal(self) -> None:
        self.command("signal", self.web.url(self.rng.randrange(PAGES)), codes=(0, 3, BUSY))

    def block(self) -> None:
        host = self.rng.randrange(HOSTS)
        address = self.web.address(host)
        done = self.rng.random() < 0.5 and self.do(command="block", host=address)
        if (
            done or self.command("block", address, codes=(0, 3, BUSY)).code == 0
        ) and host not in self.blocked:
            self.blocked[host] = self._rule(f"{address} is blocked", lambda asked: asked.host == address)

    def unblock(self) -> None:
        if not self.blocked:
            return
        host = self.rng.choice(list(self.blocked))
        address = self.web.address(host)
        self._end_rule(self.blocked.pop(host))
        if not (self.rng.random() < 0.5 and self.do(command="unblock", host=address)):
            ran = self.command("unblock", address, codes=(0, 3, BUSY))
            if ran.code:  # it may have reached the owner or not
                self.command("unblock", address, codes=(0, 3, BUSY))

    def retire(self) -> None:
        """Retire a few pages. Pages whose links were stored long ago are never requested again."""
        pages = self.rng.sample(range(HOSTS, TREE), 4)
        self.doubtful |= set(pages)
        pattern = "/(" + "|".join(map(str, pages)) + ")$"
        self.retired.append(pattern)
        begun = time.time()
        asked = {page_of(each.path) for each in self.web.requests()}
        done = self.rng.random() < 0.5 and self.do(command="retire", pattern=pattern)
        if not done and self.command("retire", pattern, codes=(0, 3, BUSY)).code:
            return
        requests = self.web.requests()
        for page in pages:
            if page in asked:
                continue
            parent = (page - 1) // walk_web.FANOUT
            shown = [each.end for each in requests if each.status == 200 and location(parent)[1] == each.path]
            quiet = not any(begun - 5 < kill for kill in self.kills) and begun - self.started > 3
            quiet = quiet and not self.forgotten
            if shown and shown[0] < begun - 3 and quiet and page not in {page_of(r.path) for r in requests}:
                self._rule(f"/{page} is retired", lambda asked, page=page: page_of(asked.path) == page)

    def withdraw(self) -> None:
        page, form = self.rng.randrange(HOSTS, PAGES), self.rng.choice(("url", "prefix"))
        url = self.web.url(page)
        chosen = url if form == "url" else url[:-1]
        if chosen in self.withdrawn:
            return
        self.doubtful |= {
            n
            for n in range(PAGES)
            for url in (self.web.url(n), self.content_url(n))
            if covers(url, chosen, form)
        }
        entrance = self.rng.choice(("cli", "http", "python"))
        if entrance == "http" and self.do(command="withdraw", reason="walk", **{form: chosen}):
            pass
        elif entrance == "python":
            self.tell("Crawl.withdraw", form, chosen)
            try:
                crawl = api.Crawl(directory=self.directory)
                asyncio.run(crawl.withdraw(**{form: chosen}))
            except api.CrawlerError as error:
                self.tell("  failed", error)
                return
        elif self.command(
            "withdraw", *(("--prefix",) if form == "prefix" else ()), chosen, codes=(0, 3, BUSY)
        ).code:
            return
        self.withdrawn[chosen] = self._rule(
            f"{chosen} ({form}) is withdrawn",
            lambda asked, chosen=chosen, form=form: self._taken(asked, chosen, form),
        )

    def _taken(self, asked: Request, chosen: str, form: str) -> bool:
        return covers(f"http://{asked.host}:{self.web.port}{asked.path}", chosen, form)

    def undo(self) -> None:
        if not self.withdrawn:
            return
        chosen = self.rng.choice(list(self.withdrawn))
        form = () if self.withdrawn[chosen].what.find("(url)") >= 0 else ("--prefix",)
        self._end_rule(self.withdrawn.pop(chosen))
        self.command("withdraw", *form, chosen, "--undo", codes=(0, 3, BUSY))

    def pause(self) -> None:
        if not self.lives or self.paused is not None:
            return
        done = self.rng.random() < 0.5 and self.do(command="pause")
        if done or self.command("pause", codes=(0, 2, 3, BUSY)).code == 0:
            self.paused = self._rule("the crawl is paused", lambda asked: not asked.path.startswith("/moved"))
            time.sleep(self.rng.choice((0.3, 0.8)))
            if self.rng.random() < 0.7:
                self.compare_paused()

    def resume(self) -> None:
        if not self.lives or self.paused is None:
            return
        self._unpause()
        if not (self.rng.random() < 0.5 and self.do(command="resume")):
            self.command("resume", codes=(0, 2))

    def set_delay(self) -> None:
        delay = self.rng.choice(DELAYS)
        begun = time.time()
        settings = {"politeness.delay": str(delay)}
        done = self.rng.random() < 0.5 and self.do(command="set", settings=settings)
        if done or self.command("set", f"politeness.delay={delay}", codes=(0, 3, BUSY)).code == 0:
            self.settings["delay"].made.append(Setting(delay, begun, time.time()))

    def stop(self) -> None:
        if not self.lives:
            return self.start()
        how = self.rng.choice(("stop", "SIGINT", "SIGTERM", "http"))
        self.tell("stop by", how)
        begun = time.time()
        assert self.process is not None
        ready = self._is_ready()
        if how == "stop":
            if self.command("stop", "--wait", codes=(0,) if ready else (0, 3)).code:
                return None
        elif how == "http":
            if not self.do(command="stop"):
                return None
        else:
            self.process.send_signal(getattr(signal, how))
        self._note_end(*(() if ready else INTERRUPTED))
        if time.time() - begun > 20:
            self.fault("stop took", time.time() - begun)
        if ready:
            self.compare_at_rest()
        return None

    def kill(self) -> None:
        if not self.lives:
            return self.start()
        assert self.process is not None
        running = family(self.process.pid)
        how = self.rng.choice(("all", "one", "first")) if len(running) > 1 else "all"
        self.tell("kill", how)
        self.kills.append(time.time())
        if how == "all":
            kill_all(running)
        elif how == "one":
            kill_all([self.rng.choice(running[1:])])
            return None
        else:
            kill_all(running[:1])
            begun = time.monotonic()
            while any(map(is_held, self.directory.glob("*/node.lock"))):
                if time.monotonic() - begun > 30:
                    self.fault("children outlive their supervisor")
                    kill_all(running)
                time.sleep(0.05)
        self.kills.append(time.time())
        self._note_end(-signal.SIGKILL)
        return None

    def check(self) -> None:
        begun = any(self.directory.glob("p*.begun"))
        codes = (0, 3, BUSY) if self.lives or not begun else (0,)
        self.command("check", codes=codes)

    def reshard(self) -> None:
        if self.lives or self.processes == 1:
            return
        self._note_end()
        self.processes = self.rng.choice((2, 3, 4))
        if len(list(self.directory.glob("p*.begun"))) != self.processes:
            self.command("reshard", "--to", str(self.processes))

    def read(self) -> None:
        """Read the crawl by some output."""
        what = self.rng.choice(("export", "report", "why", "get", "top", "serve", "list"))
        page = self.rng.randrange(PAGES)
        if what == "export":
            self._exported()
        elif what == "report":
            self.command("report", "--format", "json", codes=(0, 2, 3, BUSY))
        elif what == "why":
            self._why(page)
        elif what == "get":
            self.command("get", self.web.url(page), codes=(0, 3, 4, BUSY))
        elif what == "serve" and self.lives:
            with suppress(OSError):
                ask(self.serve, f"/page?url={self.web.url(page)}")
        elif what == "list":
            with suppress(api.CrawlerError):
                list(api.Crawl(directory=self.directory).stored())

    # -- comparisons

    def _why(self, page: int) -> dict[str, Any]:
        ran = self.command("why", self.web.url(page), "--json", codes=(0, 3, BUSY))
        return json.loads(ran.out) if ran.code == 0 else {}

    def _exported(self) -> Counter[str]:
        """Return how often the export has each URL."""
        ran = self.command("export", "--format", "jsonl", codes=(0, 3, BUSY))
        rows = [json.loads(line) for line in ran.text.splitlines()]
        for row in rows:
            if row["warc_file"] and (why := self._withheld(row["url"])):
                self.fault(f"exported: {row['url']}: {why}")
        return Counter(row["url"] for row in rows)

    def _withheld(self, url: str) -> str:
        for chosen, rule in self.withdrawn.items():
            form = "url" if "(url)" in rule.what else "prefix"
            if covers(url, chosen, form):
                return rule.what
        return ""

    def compare_paused(self) -> None:
        """Compare the status by the command, HTTP, and metrics while nothing changes."""
        give_up = time.monotonic() + 20
        while time.monotonic() < give_up:
            try:
                before = json.loads(ask(self.admin, "/status")[2])
                if _still(before):
                    told = json.loads(run("status", "--json", "--dir", self.directory).out)
                    metrics = ask(self.admin, "/metrics")[2].decode()
                    if numbers(before) != numbers(json.loads(ask(self.admin, "/status")[2])):
                        continue
                    if numbers(before) != numbers(told):
                        self.fault("status differs", numbers(before), numbers(told))
                    pages = sum(
                        float(line.split()[-1])
                        for line in metrics.splitlines()
                        if line.startswith("crawler_pages_total")
                    )
                    if pages != sum(before.get("pages", {}).values()):
                        self.fault("metrics differ", pages, before.get("pages"))
                    return
            except (OSError, ValueError, KeyError):
                if not self.lives:
                    return
            time.sleep(0.1)
        self.fault(
            "a paused crawl does not come to rest",
            before["frontier"],
            before["due"],
            before["splitter"],
            before["members"],
        )

    def compare_at_rest(self) -> None:
        """Compare the report of a crawl that ended with its status."""
        ran = self.command("status", "--json", codes=(0, 3, BUSY))
        if ran.code:
            return
        told = json.loads(ran.out)
        if not (self.directory / "report.json").exists():  # the crawl was stopped before it began
            return
        report = json.loads((self.directory / "report.json").read_text())
        if report["conservation"] != "holds":
            self.fault("conservation:", report["conservation"])
        for name in ("pages", "urls", "stored", "bytes"):
            if (told.get(name) or {}) != (report.get(name) or {}):
                self.fault("report and status differ in", name, told.get(name), report.get(name))
        if told["frontier"]["todo"] != report["frontier"]["todo"]:
            self.fault("report and status differ in todo")

    # -- the end

    def continue_former(self, name: str) -> None:
        """Put an earlier crawl into the directory."""
        unpacked(name, self.folder)
        self.tell("continue", name)
        self.processes = len(list(self.directory.glob("p[0-9]")))
        copy = shutil.copytree(self.directory, self.folder / "former")
        self.former = {page.url: page.content for page in api.Crawl(directory=copy).stored()}

    def finish(self) -> None:
        """Lift all blocks, and crawl to the end without limits; then judge."""
        if self.lives:
            self.process.send_signal(signal.SIGINT)
        self._note_end(*INTERRUPTED)
        self.clock.write_text("0")
        self.jumps.append(time.time())
        for host in list(self.blocked):
            self._end_rule(self.blocked.pop(host))
            self.command("unblock", self.web.address(host))
        self.check()
        if self.overrides is not None or any(
            each.made for key, each in self.settings.items() if key != "delay"
        ):
            self.overrides = {}
        self.start("--depth", "100", "--max-pages", "0", "--pages-per-host", "100000")
        assert self.process is not None
        self._note_end_within(90)
        if self.refreshes:
            self._refresh_all()
        self.command("check")
        self.compare_at_rest()
        self.judge()

    def _refresh_all(self) -> None:
        """Refresh until each stored page was fetched again. A wrong clock in an earlier run may not prevent it."""
        wanted = {location(page) for page in self._expected() & self.had() - self.doubtful}
        begun = time.time()
        self.start()
        left = {(self.web.address(host), path) for host, path in wanted}
        while left and self.lives and time.time() - begun < PROMPT:
            time.sleep(0.2)
            left -= {(each.host, each.path) for each in self.web.requests() if each.begin > begun}
        if left:
            self.fault("not refreshed within", PROMPT, "s:", sorted(left))
        if self.lives:
            assert self.process is not None
            self.process.send_signal(signal.SIGINT)
        self._note_end(*INTERRUPTED)

    def _note_end_within(self, seconds: float) -> None:
        assert self.process is not None
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.fault("the crawl does not end:", run("status", "-v", "--dir", self.directory).text)
            self.process.send_signal(signal.SIGINT)
        self._note_end()

    def judge(self) -> None:
        """Compare the log of the web with the rules and with the outputs."""
        requests = self.web.requests()
        for rule in self.rules:
            for asked in requests:
                if rule.begin + LATE < asked.begin < rule.end and rule.matches(asked):
                    self.fault(
                        f"{asked.host}{asked.path} requested {asked.begin - rule.begin:.3f} s after: {rule.what}"
                    )
        for asked in requests:
            if asked.path.startswith("/no"):
                self.fault("forbidden by robots.txt:", asked)
        self._judge_gaps(requests)
        self._judge_pages(requests)

    def _judge_gaps(self, requests: list[Request]) -> None:
        by_host: dict[str, list[Request]] = defaultdict(list)
        for each in requests:
            by_host[each.host].append(each)
        for host, asked in by_host.items():
            calm = host == self.web.address(walk_web.CALM)
            for before, after in zip(asked, asked[1:], strict=False):
                least = self._least_delay(host, before.end, after.begin)
                if calm and before.path != "/robots.txt":
                    least = max(least, walk_web.CRAWL_DELAY)
                gap = after.begin - before.end
                if gap < least - 0.005:
                    self.fault(f"gap of {gap:.3f} s, not {least}, before", after, "after", before)
                lost = any(0 <= kill - before.end < 0.5 for kill in self.kills) or any(
                    before.end <= lost <= after.begin
                    for lost in [*self.jumps, *(end for _, end in self.forgotten)]
                )
                if before.retry_after and gap < before.retry_after - 0.005 and not lost:
                    self.fault(f"Retry-After {before.retry_after} ignored: {gap:.3f}", before, after)

    def _least_delay(self, host: str, begin: float, end: float) -> float:
        """Return the smallest delay of a host that may have been in force between two instants."""
        least = min(self.settings["delay"].possible(begin, end))
        own = self.settings[f"delay {host}"]
        return min((each or least for each in own.possible(begin, end)), default=least)

    def _judge_pages(self, requests: list[Request]) -> None:
        done: dict[str, list[Request]] = defaultdict(list)
        for each in requests:
            if each.path != "/robots.txt" and each.status in (200, 302, 404):
                done[f"{each.host}{each.path}"].append(each)
        self._judge_repeats(done)
        expected = self._expected()
        exported = self._exported()
        for page in expected - self.doubtful:
            host, path = location(page)
            answered = done.get(f"{self.web.address(host)}{path}")
            if not answered and not failing(page):
                self.fault(f"lost: page {page}", json.dumps(self._why(page).get("verdict")))
            if not (gone(page) or failing(page)) and not exported[self.content_url(page)]:
                self.fault(f"not exported: page {page}")
        self._judge_former(requests, exported)
        self._judge_contents()
        for url, count in exported.items():
            if count > 1:
                self.fault(f"{url} exported {count} times")

    def _judge_former(self, requests: list[Request], exported: Counter[str]) -> None:
        """All pages of an earlier crawl are stored, and those that it had are not fetched again."""
        hosts = {urlsplit(url).netloc for url in self.former}
        asked = {f"http://{each.host}{each.path}" for each in requests}
        for url in sorted(self.former.keys() & asked):
            if not self.forgotten and not self.refreshes:
                self.fault("fetched again, though an earlier crawl had it:", url)
        for host in sorted(hosts):
            for path in walk_web.former_paths():
                above = [f"http://{host}{path[:length]}" for length in range(1, len(path) + 1)]
                retired = any(re.search(pattern, url) for pattern in self.retired for url in above)
                if not exported[above[-1]] and not retired:
                    self.fault("not exported:", above[-1])

    def _judge_contents(self) -> None:
        """Each stored page has the content that the web serves."""
        with planted(self.bugs):
            stored = [page for page in api.Crawl(directory=self.directory).stored() if page.status == 200]
        for page in stored:
            if page.content != (expected := self.body(page.url)):
                self.fault(f"{page.url} has the content", page.content[:100], "instead of", expected[:100])

    def body(self, url: str) -> bytes:
        """Return the content of a page that the web has."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        if url in self.former:
            return self.former[url]
        if parts.hostname in walk_web.FORMER_HOSTS:
            return walk_web.former_content(parts.hostname, parts.path)
        return walk_web.content(parts.path, self.web.at)

    def content_url(self, page: int) -> str:
        return self.web.at(*location(page))

    def _expected(self) -> set[int]:
        """Return the pages that can be reached from the seeds."""
        found, had = set[int](), self.had()
        todo = list(self.seeds)
        while todo:
            page = todo.pop()
            found.add(page)
            if page in self.doubtful and page not in had:
                self.doubtful |= set(below(page))
            if not (gone(page) or failing(page)):
                todo += children(page)
        return found

    def had(self) -> set[int]:
        """Return the pages whose content was answered."""
        answered = {(each.host, each.path) for each in self.web.requests() if each.status == 200}
        places = {page: location(page) for page in range(PAGES)}
        return {page for page, (host, path) in places.items() if (self.web.address(host), path) in answered}

    def _judge_repeats(self, done: dict[str, list[Request]]) -> None:
        """A page is fetched again only by a refresh, or if a kill soon followed its fetch."""
        if self.refreshes:
            return
        for where, answers in done.items():
            for before, after in zip(answers, answers[1:], strict=False):
                killed = any(before.begin - LATE <= kill <= before.end + COMMITTED for kill in self.kills)
                if not killed and not any(
                    begin <= before.end and before.begin <= end for begin, end in self.forgotten
                ):
                    self.fault(
                        f"fetched again: {where} after {after.begin - before.end:.3f} s", before, after
                    )


def covers(url: str, chosen: str, form: str) -> bool:
    return url == chosen if form == "url" else url.startswith(chosen)


def page_of(path: str) -> int:
    """Return the number of the page that a path belongs to, or -1."""
    name = path.removeprefix("/").removeprefix("moved")
    return int(name) if name.isdigit() else -1


def below(page: int) -> Iterator[int]:
    for child in children(page):
        yield child
        yield from below(child)


def _still(status: dict[str, Any]) -> bool:
    splitter = status["splitter"]
    crossing = splitter and (splitter["waiting"] or splitter["sent"] != splitter["applied"])
    members = all(each["state"] == "running" for each in status["members"])
    return members and not (status["frontier"]["in_flight"] or status["due"]["pending"] or crossing)


def numbers(status: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers on which all views of a still crawl agree."""
    return {
        "pages": status.get("pages", {}),
        "bytes": status.get("bytes", {}),
        "urls": status.get("urls", {}),
        "todo": status["frontier"]["todo"],
        "parked": status["frontier"]["parked"],
        "blocked": status["frontier"]["hosts_blocked"],
        "new": status["due"]["new"],
    }


BASE = (
    "--allow-network", "127.0.0.0/8", "--delay-factor", "0", "--progress", "none", "-q",
    "--set", "crawl.patience=8", "--concurrency", str(CONCURRENCY), "--set", "due.max_wait=0.05",
    "--set", "politeness.backoff_first=0.2", "--set", "politeness.backoff_max=1",
    "--set", "politeness.slowdown_max=4", "--set", "politeness.slowdown_gap=0.01",
    "--set", "frontier.retry_delays=[0.2]",
)  # fmt: skip
REFRESHING = ("--set", "refresh.min_age=0.5", "--set", "refresh.max_age=3", "--set", "refresh.speed=100000")
QUICK = ("--set", "splitter.heartbeat=0.2", "--set", "splitter.backoff_max=0.3")
# Maps each step to its weight.
STEPS: dict[Callable[[Walk], None], int] = {
    Walk.seed: 3, Walk.signal: 1, Walk.block: 4, Walk.unblock: 3, Walk.retire: 3, Walk.withdraw: 3, Walk.undo: 1,
    Walk.pause: 3, Walk.resume: 5, Walk.set_delay: 2, Walk.stop: 3, Walk.kill: 4, Walk.start: 6, Walk.check: 2,
    Walk.read: 3, Walk.reshard: 2,
}  # fmt: skip


def walk(
    folder: Path,
    seed: int,
    steps: int,
    processes: int,
    *,
    refreshes: bool = False,
    weights: Mapping[Callable[[Walk], None], int] = STEPS,
    former: str = "",
    bug: str = "",
) -> Walk:
    """Make a walk in `folder`, and return it.

    Args:
        weights: weight of each step.
        former: name of an earlier crawl (`tests/upgrade/support.py`), which the walk continues.
        bug: bugs of `planted.py`, which the walk should find.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with WalkWeb(folder, f"127.{20 + seed % 200}.7") as web:
        made = Walk(folder, web, seed, processes, refreshes=refreshes, bug=bug)
        try:
            if former:
                made.continue_former(former)
            made.steps(steps, weights)
        finally:
            if made.lives:
                assert made.process is not None
                kill_all(family(made.process.pid))
                made.process.communicate()
            (folder / "story").write_text("\n".join(made.story))
        return made
