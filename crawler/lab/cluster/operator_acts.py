"""The acts of an operator in a virtual world: stops, second runs, changed limits, commands.

Acts of the operator are not faults. Each act is recorded in `Observed.acts`, with the data that the judge
needs. A command to a process that is not running is skipped, because it would fail.
"""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from crawler.admin import withdrawal
from crawler.admin.control import in_turns
from crawler.errors import CrawlerError, StoreError
from crawler.lab.cluster.cluster_settings import START, Act
from crawler.lab.cluster.fault_plan import BOOT, POWER_CUT, Fault
from crawler.lab.cluster.machine import Machine, nobody
from crawler.lab.cluster.population import Population
from crawler.lab.cluster.resharding import Reshard, draw_table
from crawler.pages.withdrawals import RuleFile
from crawler.process.live_services import LiveServices
from crawler.process.process import Process
from crawler.serve.http_error import HttpError

DOWN_EVERY = 1.0  # seconds between two checks whether all processes are down
PROMPT = (1.0, 5.0)  # in a second run, processes start after this many seconds; one process may start later


class OperatorActs:
    """Carries out the acts of a plan. `METHODS` names the method of each kind."""

    METHODS = {
        "term": "_terminate",
        "rerun": "_run_again",
        "limits": "_change_limits",
        "block": "_block",
        "retire": "_retire",
        "withdraw": "_withdraw",
        "signal": "_signal",
        "notice": "_notice",
        "reshard": "_reshard",
    }

    def __init__(self, population: Population) -> None:
        self._population = population
        self._acts = population.observed.acts

    def carry_out(self, act: Fault) -> None:
        machines = self._population.machines
        getattr(self, self.METHODS[act.kind])(machines[act.machines[0] % len(machines)], act)

    def _note(self, act: Fault, target: str = "", until: float = 0.0) -> None:
        self._acts.append(Act(act.kind, asyncio.get_running_loop().time() - START, target, until))

    # -- runs -----------------------------------------------------------------------------

    def _terminate(self, machine: Machine, act: Fault) -> None:
        """Stop a process by TERM. Start it again `length` seconds after it has ended."""
        if self._population.terminate(machine, act.length):
            self._note(act)

    def _run_again(self, machine: Machine, act: Fault) -> None:
        """Stop every process by TERM or by a power cut, and start all again.

        One of them starts after `length` seconds. After a power cut, each start is `BOOT` seconds later.
        """
        population = self._population
        self._note(act)
        for place, each in enumerate(list(population.machines)):
            away = act.length if each is machine else PROMPT[0] + (PROMPT[1] - PROMPT[0]) * (place % 3) / 2
            if act.point == POWER_CUT:
                self._cut_power(each, "a second run")
                away += BOOT
            elif population.terminate(each, away):
                continue
            population.run_later(each, away)

    def _cut_power(self, machine: Machine, when: str) -> None:
        if machine.life is not None:
            self._population.note_end(machine.life, f"power at {when}", killed=True)
            self._population.kill(machine.life, power=True)

    def _reshard(self, machine: Machine, act: Fault) -> None:
        """Stop every process by TERM or by a power cut. Once all are down, divide the crawl anew and start it again.

        A crawl directory has no place for a copy of a machine, so a run with clones is not resharded.
        """
        population = self._population
        if population.is_closed or population.observed.cloned_at:
            return
        population.is_closed = True
        if act.point != POWER_CUT:
            return self._reshard_when_down(act)
        for each in population.machines:
            self._cut_power(each, "a reshard")
        return population.later(BOOT, partial(self._reshard_when_down, act))

    def _reshard_when_down(self, act: Fault) -> None:
        population = self._population
        if any(each.life is not None for each in population.machines):
            for each in population.machines:
                population.terminate(each, PROMPT[1])
            population.later(DOWN_EVERY, partial(self._reshard_when_down, act))
            return
        rng = random.Random(f"reshard {population.world.settings.seed} {act.amount}")
        try:
            Reshard(population, draw_table(rng, population.partition), rng).run()
            self._note(act)
        except StoreError:
            pass  # if a disk is full, the crawl continues with the old table
        except CrawlerError as error:
            if not population.observed.restored:
                population.observed.unexpected.append(f"reshard: {error}")
        population.is_closed = False
        for place, each in enumerate(population.machines):
            population.run_later(each, PROMPT[0] + place % 3)

    def _change_limits(self, machine: Machine, act: Fault) -> None:
        """Start a second run with other limits on pages per host and depth."""
        self._population.set_limits(int(act.amount))
        self._run_again(machine, act)

    # -- commands ---------------------------------------------------------------------------

    def _block(self, machine: Machine, act: Fault) -> None:
        """Block a host in the process that owns the host. Lift the block after `length` seconds.

        If the process is not running at that time, the block is lifted when the process runs again.
        """
        host = self._host(act)
        self._command(
            self._owner(host), {"command": "block", "host": host}, partial(self._blocked, act, host)
        )

    def _blocked(self, act: Fault, host: str, answer: Any) -> None:
        now = asyncio.get_running_loop().time() - START
        self._acts.append(Act(act.kind, now, host, now + act.length))
        self._population.later(act.length, partial(self._unblock, host))

    def _unblock(self, host: str) -> None:
        """Unblock a host now, or when its process starts again. If the process has ended, start a second run."""
        request, machine = {"command": "unblock", "host": host}, self._machine_of(host)
        if (process := self._owner(host)) is not None:
            self._command(process, request, lambda answer: None)
            return
        self._population.first_commands.setdefault(machine.label, []).append(request)
        if self._population.is_over(machine):
            for each in self._population.machines:
                self._population.run_again(each)

    def _retire(self, machine: Machine, act: Fault) -> None:
        """Drop the waiting entry of a page from the frontier of the process that owns the page."""
        url = self._page(act)
        request = {"command": "retire", "pattern": f"^{url}$"}
        self._command(self._owner(url), request, partial(self._retired, act, url))

    def _retired(self, act: Fault, url: str, answer: Any) -> None:
        if answer["retired"]:
            self._note(act, url)

    def _signal(self, machine: Machine, act: Fault) -> None:
        """Send a change signal for a page to the process of the machine. Another process may own the page."""
        url = self._page(act)
        running = self._population.running.get(machine.label)
        self._command(
            running and running[1], {"command": "signal", "urls": [url]}, lambda said: self._note(act, url)
        )

    def _notice(self, machine: Machine, act: Fault) -> None:
        """Report a changed page in the same way as the page server and the Python API.

        Another process may own the page.
        """
        if (running := self._population.running.get(machine.label)) is not None:
            self._run_in(running[1], machine, partial(self._report, act, self._page(act), running[1]))

    async def _report(self, act: Fault, url: str, process: Process) -> None:
        await LiveServices(process).signal([url], "indexnow:world")
        self._note(act, url)

    def _withdraw(self, machine: Machine, act: Fault) -> None:
        """Withdraw a page and erase its copies, in the process that owns the page."""
        url = self._page(act)
        process = self._owner(url)
        if process is None:
            return
        config, place = self._population.config, self._machine_of(url)
        order = withdrawal.TakeDown(url=url, erase=True)
        rules = RuleFile(place.folder, config.pages.withdrawals_max)
        steps = withdrawal.conduct(order, rules, asyncio.get_running_loop().time())
        self._run_in(process, place, partial(self._erase, act, url, process, steps))

    async def _erase(self, act: Fault, url: str, process: Process, steps: withdrawal.Requests) -> None:
        answer: Any = None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration:
                break
            answer = [await _answer(process, request)]
            # each step depends on the data that the previous step has stored
            if not await process.commits.kept():
                return
        self._note(act, url)

    # -- means --------------------------------------------------------------------------------

    def _host(self, act: Fault) -> str:
        hosts = self._population.world.web.hosts
        return hosts[int(act.amount * len(hosts))].name

    def _page(self, act: Fault) -> str:
        """Return the URL of a page that is not the seed."""
        web = self._population.world.web
        return web.url(1 + int(act.amount * (len(web.host_of) - 1)))

    def _machine_of(self, url: str) -> Machine:
        name = self._population.owner(url if "://" in url else f"http://{url}/")
        return next(each for each in self._population.machines if each.name == name)

    def _owner(self, url: str) -> Process | None:
        running = self._population.running.get(self._machine_of(url).label)
        return running[1] if running is not None else None

    def _command(self, process: Process | None, request: dict[str, Any], then: Callable[[Any], None]) -> None:
        """Send a command to a process. Call `then` with the answer once the change is durable."""
        if process is not None:
            machine = next(each for each in self._population.machines if each.name == process.stages.name)
            self._run_in(process, machine, partial(self._order, process, request, then))

    async def _order(self, process: Process, request: dict[str, Any], then: Callable[[Any], None]) -> None:
        answer = await _answer(process, request)
        if await process.commits.kept():
            then(answer)

    def _run_in(self, process: Process, machine: Machine, work: Callable[[], Any]) -> None:
        """Run a coroutine in the context of a running process, so that a kill of the process also ends it."""
        running = self._population.running.get(machine.label)
        if running is None or running[1] is not process:
            return
        task = asyncio.get_running_loop().create_task(_quietly(work()), context=nobody(running[0]))
        self._population.keep(task)


async def _answer(process: Process, request: dict[str, Any]) -> Any:
    return await in_turns(process.commands.steps(request))


async def _quietly(work: Any) -> None:
    """Run a command. Ignore errors of the crawler: they are only messages to the operator."""
    try:
        await work
    except (CrawlerError, HttpError):
        pass
