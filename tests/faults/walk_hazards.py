"""Steps of a walk (`walk.py`) that change the environment of a crawl: its clock, its disk, its settings, its clients."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from tests.end_to_end.test_live import ask
from tests.faults.power import family, kill_all
from tests.faults.walk import COMMITTED, STEPS, Setting, State, Walk, walk
from tests.faults.walk_web import HOSTS
from tests.upgrade.support import FORMER

HOUR, YEAR = 3600.0, 365 * 86_400.0
SHIFTS = (-YEAR, -HOUR, -5.0, 0.0, 5.0, HOUR, YEAR)
CLIENTS, PIPELINED = 3, 12
# The crawl cannot recreate these files, so an operator restores them from a copy.
KEPT = ("seed", "crawl.toml", "buckets.json", "withdrawn.json")
# exit codes of commands on a damaged directory: damage, invalid configuration, lost WARC files
DAMAGED = (1, 2, 3)


# -- clocks


def set_clock(walk: Walk) -> None:
    """Set the clock. A process keeps its clock; commands, and processes that start later, have the new clock."""
    shift = walk.rng.choice(SHIFTS)
    walk.tell("set the clock", shift)
    walk.clock.write_text(str(shift))
    walk.jumps.append(time.time())


# -- clients of the page server


def kill_while_serving(walk: Walk) -> None:
    """Kill processes while clients read pages from them.

    No answer may contain wrong bytes. After a restart, the crawl has each page that was served.
    """
    if not walk.lives:
        walk.start()
    had = sorted(walk.had() - walk.doubtful)
    if not had:
        return
    pages = [walk.content_url(walk.rng.choice(had)) for _ in range(PIPELINED)]
    clients = list(_connected(walk, pages))
    time.sleep(walk.rng.choice((0.0, 0.002, 0.01, 0.05)))
    assert walk.process is not None
    running = family(walk.process.pid)
    walk.tell("kill while", len(clients), "clients read", len(pages), "pages")
    walk.kills.append(time.time())
    kill_all(running)
    walk.kills.append(time.time())
    walk._note_end(-signal.SIGKILL)
    served = {url for client in clients for url in _served(walk, client, pages)}
    walk.tell("  served", len(served))
    walk.start("--max-pages", "1")
    for url in sorted(served):
        _ask_again(walk, url)


def _connected(walk: Walk, pages: list[str]) -> Iterator[socket.socket]:
    """Connect clients, each of which requests all pages at once."""
    requests = "".join(f"GET /page?url={quote(url)} HTTP/1.1\r\nHost: localhost\r\n\r\n" for url in pages)
    for _ in range(CLIENTS):
        with suppress(OSError):
            client = socket.create_connection(("127.0.0.1", walk.serve), timeout=30)
            client.sendall(requests.encode())
            yield client


def _served(walk: Walk, client: socket.socket, pages: list[str]) -> Iterator[str]:
    """Yield the pages that a client received completely, and compare all bytes that it received."""
    data = _received(client)
    for url in pages:
        head, found, rest = data.partition(b"\r\n\r\n")
        if not found:
            return
        status = int(head.split(b" ", 2)[1])
        lengths = [
            line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
        ]
        if not lengths:
            walk.fault("no Content-Length in the answer for", url, head)
            return
        length = int(lengths[0])
        body, data = rest[:length], rest[length:]
        expected = walk.body(url)
        if status == 200 and not (length == len(expected) and expected.startswith(body)):
            walk.fault("torn:", url, head, body[:100])
        if len(body) < length:
            return
        if status == 200:
            yield url


def _received(client: socket.socket) -> bytes:
    parts = []
    with client, suppress(ConnectionError):
        while part := client.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def _ask_again(walk: Walk, url: str) -> None:
    """Compare a page that was served before a kill with what is served now."""
    target, expected = f"/page?url={quote(url)}", walk.body(url)
    status, body = 503, b""
    while status == 503 and walk.lives:  # a process that has the page may not be ready
        time.sleep(0.05)
        with suppress(OSError):
            status, _, body = ask(walk.serve, target)
    if status == 503:  # the crawl has ended
        status, body = 200, walk.command("get", url).text.encode()
    if (status, body) != (200, expected):
        walk.fault("served before a kill, but not after it:", url, status, body[:100])


# -- settings


def override(walk: Walk) -> None:
    """Let the next start set or clear the `[[override]]` tables of hosts."""
    tables = {}
    for host in walk.rng.sample(range(HOSTS), walk.rng.choice((0, 1, 2))):
        chosen = {"delay": walk.rng.choice((0.3, 0.5)), "min_age": 2.0, "pages": 5, "depth": 1}
        for key in walk.rng.sample(sorted(chosen), 2):
            del chosen[key]
        tables[walk.web.address(host)] = chosen
    walk.overrides = tables


def reshard(walk: Walk) -> None:
    """Stop the crawl, and divide it among another number of processes."""
    if not rest(walk):
        return
    walk.processes = walk.rng.choice((1, 2, 3))
    if len(list(walk.directory.glob("p*.begun"))) != walk.processes:
        walk.command("reshard", "--to", str(walk.processes))


# -- disks


def rest(walk: Walk) -> bool:
    """Stop the crawl. Return whether its directory is complete."""
    if walk.lives:
        walk.stop()
    if walk.lives:
        return False
    walk._note_end()
    # a process that lost its disk may not have been started again
    return (
        len(list(walk.directory.glob("p*.begun"))) == walk.processes
        and walk.command("status", "-q").code == 0
    )


def back_up(walk: Walk) -> None:
    """Copy the directory as `OPERATING.md` says: at rest, or while the processes are frozen."""
    if not (walk._is_ready() if walk.lives else any(walk.directory.glob("p*.begun"))):
        return
    copy = walk.folder / "backup"
    shutil.rmtree(copy, ignore_errors=True)
    frozen = _processes(walk) if walk.lives else []
    made = time.time()
    _signal(frozen, signal.SIGSTOP)
    walk.tell("back up; frozen:", frozen)
    subprocess.run(["cp", "-a", walk.directory, copy], check=True)
    _signal(frozen, signal.SIGCONT)
    walk.copy = State(
        made,
        walk.processes,
        list(walk.seeds),
        set(walk.blocked),
        {key: each.possible(made, made) for key, each in walk.settings.items()},
    )


def _signal(running: list[int], number: int) -> None:
    """Send a signal to processes, unless they have ended."""
    for process in running:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def _processes(walk: Walk) -> list[int]:
    """Return the ids that `OPERATING.md` reads from the lock files."""
    paths = [*walk.directory.glob("*.lock"), *walk.directory.glob("*/node.lock")]
    words = [path.read_text().split() for path in paths]
    # a command of this process may have left a lock file that no process of the crawl has taken yet
    return [
        each for each in dict.fromkeys(int(each[1]) for each in words if len(each) > 1) if each != os.getpid()
    ]


def restore(walk: Walk) -> None:
    """Restore the directory from its copy, or only the folder of one of several processes."""
    copy = walk.copy
    if copy is None or not rest(walk):
        return
    backup = walk.folder / "backup"
    names = sorted(path.stem for path in backup.glob("p*.begun"))
    one = walk.rng.random() < 0.5 and copy.processes == walk.processes > 1
    kept = walk.directory / "withdrawn.json"
    if one:
        name = walk.rng.choice(names)
        walk.tell("restore", name)
        shutil.rmtree(walk.directory / name)
        subprocess.run(["cp", "-a", backup / name, walk.directory], check=True)
    else:
        walk.tell("restore")
        withdrawn = kept.read_bytes() if kept.exists() else None
        shutil.rmtree(walk.directory)
        subprocess.run(["cp", "-a", backup, walk.directory], check=True)
        walk.processes = copy.processes
        _set_back(walk, copy.settings)
        if withdrawn is not None:
            kept.write_bytes(withdrawn)
    _go_back(walk, copy, whole=not one)
    walk.command("check", codes=(0, 3) if one else (0,))
    if one:
        walk.command("check", "--repair")
        walk.command("check")


def _go_back(walk: Walk, copy: State, *, whole: bool) -> None:
    """Let the model forget what was commanded after the copy was made.

    Blocks are lost only with the `whole` directory.
    """
    now = time.time()
    walk.forgotten.append((copy.made - COMMITTED, now))
    walk.doubtful |= {page for seed in set(walk.seeds) - set(copy.seeds) for page in range(seed, seed + 4)}
    walk.seeds = list(copy.seeds)
    for rule in [each for each in walk.rules if each.begin > copy.made - COMMITTED and each.end > now]:
        if rule not in walk.withdrawn.values() and (whole or rule not in walk.blocked.values()):
            walk._end_rule(rule)
    for host in copy.blocked - set(walk.blocked):  # it may be blocked again; `finish` unblocks it
        walk.blocked[host] = walk._rule("nothing", lambda _: False)


def _set_back(walk: Walk, settings: dict[str, list[float]]) -> None:
    """Let the model take earlier values, or none, for possible. Only the delay of all hosts is always set."""
    now = time.time()
    for key, each in walk.settings.items():
        each.made += [Setting(value, now) for value in settings.get(key, [] if key == "delay" else [0.0])]


def lose_disk(walk: Walk) -> None:
    """Lose the folder of one of several processes, and recover its links from the others."""
    if walk.processes == 1 or not rest(walk):
        return
    name = f"p{walk.rng.randrange(walk.processes)}"
    walk.tell("lose", name)
    shutil.rmtree(walk.directory / name)
    (walk.directory / f"{name}.begun").unlink(missing_ok=True)
    _go_back(walk, State(0.0, walk.processes, list(walk.seeds), set(walk.blocked), {}), whole=False)
    walk.command("recover", name)
    walk.start()


def damage(walk: Walk) -> None:
    """Damage a file of a crawl at rest, and repair the crawl. A lost secret is put back first."""
    if not rest(walk):
        return
    kinds: dict[str, list[Path]] = {}
    for path in sorted(walk.directory.rglob("*")):
        if path.is_file() and not path.is_symlink():
            kinds.setdefault(path.suffix or path.name, []).append(path)
    path = walk.rng.choice(kinds[walk.rng.choice(sorted(kinds))])
    how, before = walk.rng.choice((_delete, _cut, _flip)), path.read_bytes()
    place = walk.rng.randrange(max(1, len(before)))
    walk.tell("damage", path.relative_to(walk.directory), how.__name__, place, "of", len(before))
    how(path, place)
    walk.forgotten.append((0.0, time.time()))
    for rule in [each for each in walk.rules if each.what.endswith("is retired")]:
        walk._end_rule(rule)  # a repair may find the URL again
    if path.name == "crawl.toml":
        _set_back(walk, {})
    walk.command("check", codes=(0, *DAMAGED))
    if walk.command("check", "--repair", codes=(0, *DAMAGED)).code:
        if path.name not in KEPT:
            walk.fault("not repaired:", path, how.__name__, place)
        else:
            path.write_bytes(before)
            walk.command("check", "--repair")
    walk.command("check")


def _delete(path: Path, _place: int) -> None:
    path.unlink()


def _cut(path: Path, place: int) -> None:
    os.truncate(path, place)


def _flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[place] ^= 0xFF
        path.write_bytes(data)


# Maps each step to its weight.
HAZARDS: dict[Callable[[Walk], None], int] = {
    set_clock: 3, kill_while_serving: 4, override: 4, reshard: 3, back_up: 4, restore: 4, lose_disk: 2, damage: 6,
}  # fmt: skip
ALL = {**{step: weight for step, weight in STEPS.items() if step is not Walk.reshard}, **HAZARDS}


class Plan(NamedTuple):
    """The kind of walk that must find a bug of `planted.py`, by the steps of this kind."""

    weights: dict[Callable[[Walk], None], int]
    processes: int = 1
    refreshes: bool = False
    former: str = ""


_RUNNING = {Walk.start: 4, Walk.stop: 2, Walk.kill: 1}
PLANTED = {
    "future-kept": Plan({**_RUNNING, set_clock: 4}, refreshes=True),
    "torn-answers": Plan({**_RUNNING, kill_while_serving: 4}),
    "recovery-cuts": Plan({**_RUNNING, kill_while_serving: 4}),
    "overrides-ignored": Plan({**_RUNNING, override: 4}),
    "reshard-forgets": Plan({**_RUNNING, reshard: 4}, processes=3),
    "behind-unseen": Plan({**_RUNNING, back_up: 2, restore: 4}, processes=3),
    "recover-nothing": Plan({**_RUNNING, lose_disk: 4}, processes=3),
    "cut-unseen": Plan({**_RUNNING, damage: 8}),
    "upgrade-forgets": Plan(_RUNNING, former="2026-11-21-8b1fd0a"),
    "block-unstored": Plan({**_RUNNING, Walk.block: 4}),
}


def make(folder: Path, seed: int, steps: int, bug: str = "") -> Walk:
    """Make a walk with all steps, or a walk that must find a planted bug.

    Every second crawl has three processes, every third keeps its pages fresh, and every fifth of the others
    continues a crawl of an earlier version.
    """
    if bug in PLANTED:
        plan = PLANTED[bug]
    else:
        refreshes = seed % 3 == 2
        former = FORMER[seed // 5 % len(FORMER)] if seed % 5 == 0 and not refreshes else ""
        plan = Plan(ALL, (1, 3)[seed % 2], refreshes, former)
    return walk(
        folder, seed, steps, plan.processes,
        refreshes=plan.refreshes, weights=plan.weights, former=plan.former, bug=bug,
    )  # fmt: skip
