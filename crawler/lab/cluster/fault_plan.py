"""The faults of a simulated cluster, and the acts of its operator, drawn from a seed."""

import math
import random
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from crawler.errors import UsageError
from crawler.wording import not_one_of

KINDS = {
    "kill": "a process ends at a named point of its code (`storage/faults.py`), soon after it, or at any instant",
    "power": "a process ends in the same ways, and its machine loses what was not synced",
    "partition": "two machines cannot reach each other for a while; or one machine is cut off from all others",
    "one-way": "as a partition, but the bytes of the other machines still reach the first machine",
    "loss": "a share of the messages must be sent again",
    "reset": "the connections of a machine break; both ends notice this, or only one end",
    "slow-disk": "a disk is up to 200 times slower",
    "clock": "the wall clock of a machine jumps by up to a day, and its process is restarted",
    "full-disk": "a disk accepts only a few more bytes for a while; half of such disks do not report that they are full",
    "stop": "a process is suspended for a while",
    "clone": "a copy of a machine is started while the original runs, at once or later (as from a backup)",
    "restore": "a machine's disk is restored from a backup, and its process is restarted",
    "lost-disk": "a machine's disk is replaced by an empty one, and its process is restarted",
}
# Acts of the operator (`operator_acts.py`).
ACTS = {
    "term": "a process is stopped by TERM, with fetches in flight, and starts again",
    "rerun": "all processes are stopped, by TERM or by a power cut, and start a second run, one of them later",
    "limits": "a second run with other limits on pages per host and depth; the last such act lifts the limits",
    "block": "a host is blocked for a while",
    "retire": "the waiting entry of a page is dropped",
    "withdraw": "a page is withdrawn, and its copies are erased",
    "signal": "a command reports to a process that a page has changed",
    "notice": "an interface of the running crawl (page server, Python) reports to a process that a page has changed",
    "reshard": "all processes are stopped, by TERM or by a power cut, and the crawl is divided among other processes",
}
# all kinds but the last three (clones, restored backups, empty disks), for which other rules hold
USUAL = tuple(KINDS)[:-3]
# The points of the code at which a fault may happen, each with a number n. The fault happens at one of the
# first n visits of the point.
POINTS = {
    "seeds loading": 1,
    "fetch begun": 30,
    "segment begun": 3,
    "segment rolled": 2,
    "record appended": 20,
    "links written": 10,
    "links synced": 10,
    "synced": 20,
    "batch written": 20,
    "committed": 20,
    "flush joined": 3,
    "flush written": 3,
    "flush synced": 3,
    "flush renamed": 3,
    "flush named": 3,
    "flush ran": 3,
    "flush committed": 3,
    "flush finished": 3,
    "flush done": 3,
    "compaction written": 1,
    "compaction synced": 1,
    "compaction renamed": 1,
    "compaction named": 1,
    "compaction ran": 1,
    "compaction committed": 1,
    "run unlinked": 2,
    "compaction done": 1,
    "entries accepted": 5,
    "acks sent": 5,
    "entries sent": 5,
}
QUOTA = "quota"
POWER_CUT = "power cut"
# In half of the second runs (acts `rerun` and `limits`), one process starts late, after this number of
# seconds.
LATE = (150.0, 200.0)
TIGHT = (2, 8)  # range of the limit on pages per host; the limit on the depth has the same value
# A disk that becomes full still accepts a random number of bytes up to this maximum. The maximum is enough for a
# few group writes, so that any step of the crawl may be the first to fail.
ROOM_MAX = 10_000.0
BACKUP_MAX = 30.0  # maximum seconds from the copy of a disk to its use
# a process reaches these points once, when it ends; a fault happens there only if its settings name the point
ENDING_POINTS = ("stopping", "closing")
RESET_POINTS = ("entries accepted", "acks sent", "entries sent", "")
# Some kills come a little after the process has reached a named point. This is the range of the delay in
# seconds (log-uniform). A message, a sync and a group write take times of this order.
BEHIND = (0.001, 0.3)
# Seconds until a machine runs again. While the machine is down, the web servers still answer the requests
# that it had sent.
BOOT = 5.0
AT_ONCE = 0.2  # seconds until a service manager restarts a process


class Fault(msgspec.Struct, frozen=True):
    """A fault that starts at `at` and lasts `length` seconds on `machines`.

    A kill happens when the process reaches `point` for the `visits`-th time. The meaning of `amount` depends
    on the kind. For a kill, it is the number of seconds from the point to the end of the process. For a
    reset, it is true if both ends notice the reset. For a full disk, it is the number of bytes that the disk
    still accepts; with the point QUOTA, the disk does not report that it is full. For clone and restore, it
    is the age of the copy. For limits, it is the new limit, or 0 for no limit. For other acts, it is a number
    from 0 to 1 that selects the host or page.
    """

    at: float
    kind: str
    machines: tuple[int, ...]
    length: float = 0.0
    point: str = ""
    visits: int = 0
    amount: float = 0.0


def draw(
    seed: int,
    kinds: Sequence[str],
    count: int,
    *,
    machines: int,
    within: float,
    limits_within: float = math.inf,
    points: Sequence[str] = (),
) -> list[Fault]:
    """Draw `count` faults of these kinds within the first `within` seconds, in order of time.

    Limits change only within the first `limits_within` seconds. Kills happen at one of `points`. If `points` is
    empty, they happen at any known point or at any instant.

    Raises:
        UsageError: a kind or a point is unknown.
    """
    for point in points:
        if point not in POINTS and point not in ENDING_POINTS:
            raise UsageError(f"--points: {not_one_of(repr(point), (*POINTS, *ENDING_POINTS))}")
    for kind in kinds:
        if kind not in KINDS | ACTS:
            raise UsageError(f"--faults: {not_one_of(repr(kind), KINDS | ACTS)}")
    rng = random.Random(f"faults {seed}")
    kinds = [
        kind
        for kind in kinds
        if machines > 1 or kind not in ("partition", "one-way", "loss", "reset", "clone")
    ]
    drawn = [_draw(rng, rng.choice(kinds), machines, within, points) for _ in range(count)] if kinds else []
    share = min(1.0, limits_within / within)
    drawn = [replace(fault, at=fault.at * share) if fault.kind == "limits" else fault for fault in drawn]
    drawn.sort(key=lambda fault: fault.at)
    last = max((k for k, fault in enumerate(drawn) if fault.kind == "limits"), default=-1)
    return [replace(fault, amount=0.0) if k == last else fault for k, fault in enumerate(drawn)]


def first_limit(seed: int, plan: Sequence[Fault]) -> int:
    """Return the first limit of a run, which limits both the pages per host and the depth; 0 means no limit."""
    changes = any(fault.kind == "limits" for fault in plan)
    return random.Random(f"limits {seed}").randint(*TIGHT) if changes else 0


def _draw_act(rng: random.Random, kind: str, machines: int, at: float) -> Fault:
    one = rng.randrange(machines)
    amount = float(rng.randint(*TIGHT)) if kind == "limits" else rng.random()
    away = (
        rng.uniform(*LATE) if kind in ("rerun", "limits") and rng.random() < 0.5 else rng.uniform(1.0, 60.0)
    )
    return Fault(at, kind, (one,), away, POWER_CUT if rng.random() < 0.5 else "", amount=amount)


def _draw(rng: random.Random, kind: str, machines: int, within: float, points: Sequence[str] = ()) -> Fault:
    at, one = rng.uniform(0.0, within), rng.randrange(machines)
    if kind in ACTS:
        return _draw_act(rng, kind, machines, at)
    if kind in ("kill", "power"):
        point = rng.choice(points or [*POINTS, "", ""])
        away = rng.choice((AT_ONCE, rng.uniform(0.5, 20.0))) + BOOT * (kind == "power")
        behind = math.exp(rng.uniform(*map(math.log, BEHIND))) if point and rng.random() < 0.5 else 0.0
        return Fault(at, kind, (one,), away, point, rng.randint(1, POINTS.get(point, 1)), behind)
    if kind in ("partition", "one-way"):
        others = [k for k in range(machines) if k != one]
        parted = others if rng.random() < 0.3 else [rng.choice(others)]
        return Fault(at, kind, (one, *parted), rng.uniform(5.0, 90.0))
    if kind == "reset":
        point, both = rng.choice(RESET_POINTS), float(rng.random() < 0.5)
        return Fault(at, kind, (one,), 0.0, point, rng.randint(1, POINTS.get(point, 1)), both)
    amount = {
        "loss": rng.uniform(0.01, 0.3),
        "slow-disk": rng.uniform(5.0, 200.0),
        "clock": rng.choice((-1, 1)) * 10 ** rng.uniform(0.0, 4.9),
        "clone": rng.choice((0.0, rng.uniform(0.0, BACKUP_MAX))),
        "full-disk": rng.choice((0.0, rng.uniform(0.0, ROOM_MAX))),
    }.get(kind, 0.0)
    if kind == "restore":
        amount = rng.uniform(0.0, BACKUP_MAX)
    point = QUOTA if kind == "full-disk" and rng.random() < 0.5 else ""
    return Fault(at, kind, (one,), rng.uniform(2.0, 60.0), point, amount=amount)
