"""Lives of simulated processes: which one runs, and that a dead one does nothing more.

Every callback of the loop runs in the context of the life that asked for it, so
`CURRENT` says whose code runs, however deep. A kill raises `Killed` through that
code; the loop then drops what the life had scheduled.
"""

from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crawler.lab.cluster.machine import Machine


class Killed(BaseException):
    """The process that runs this code has ended; no code of it runs on, but what unwinds."""


class Life:
    """One start of a process on a machine, until its end; `number` counts over all machines."""

    __slots__ = ("dead", "descriptors", "frozen_until", "machine", "number")

    def __init__(self, machine: "Machine", number: int) -> None:
        self.machine = machine
        self.number = number
        self.dead = False
        self.frozen_until = 0.0  # it stands still until then
        self.descriptors: set[int] = set()  # files it has open

    def __repr__(self) -> str:
        return f"Life({self.machine.label} {self.number}{', dead' * self.dead})"


CURRENT: ContextVar[Life | None] = ContextVar("life", default=None)


def nobody(life: Life | None = None) -> Context:
    """A context in which no life runs, or this one."""
    context = copy_context()
    context.run(CURRENT.set, life)
    return context
