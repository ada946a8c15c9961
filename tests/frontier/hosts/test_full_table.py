"""Test every call that may add a host while the host table is full. Right after opening, the table is full.

The columns of the table grow in place (`frontier/hosts/table.py`). So a column that a caller fetched before a
host was added is still valid afterwards.
"""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from crawler.frontier.frontier import Frontier
from crawler.storage.kv import MemoryStore
from tests.frontier.model import Crawl, fetched, link

FRONTIER = Path(__file__).resolve().parents[3] / "crawler" / "frontier"
UNKNOWN = "never-met.org"


def reopened(store: MemoryStore) -> Crawl:
    """Reopen a crawl with more hosts than fit into a new table, so that its table has no free row."""
    first = Crawl(store=store, concurrency=2)
    first.add([f"https://h{n}.d{n % 50}.org/" for n in range(1100)])
    first.step(first.now + 1.0)
    batch = store.batch()
    first.frontier.flush(batch, first.now)
    store.write(batch)
    crawl = Crawl(store=store, concurrency=2, now=first.now)
    hosts = crawl.frontier._hosts
    assert len(hosts) == hosts._capacity == 1100
    return crawl


def hop(frontier: Frontier, now: float) -> None:
    # the first request waits, because the address may have received requests before
    assert frontier.hops.borrow(UNKNOWN, now, address="10.9.9.9") == now + 0.5
    assert frontier.hops.borrow(UNKNOWN, now + 0.5, address="10.9.9.9") == 0.0
    frontier.hops.give_back(fetched(f"https://{UNKNOWN}/"), now + 2.0)


def add(frontier: Frontier, now: float) -> None:
    batch = MemoryStore().batch()
    frontier.enqueue(
        [link(f"https://{UNKNOWN}/"), *(link(f"https://n{n}.org/") for n in range(3000))], batch, now
    )
    frontier.committed(batch, now)


@pytest.mark.parametrize(
    "call",
    [
        hop,
        add,
        lambda frontier, now: frontier.hops.give_back(fetched(f"https://{UNKNOWN}/"), now),
        lambda frontier, now: frontier.blocks.block(UNKNOWN),
        lambda frontier, now: frontier.blocks.unblock(UNKNOWN, now),
        lambda frontier, now: frontier.views.explain(f"https://{UNKNOWN}/", now),
    ],
    ids=["hop", "add", "give_back", "block", "unblock", "explain"],
)
def test_an_unknown_host_can_be_added_while_the_table_is_full(
    call: Callable[[Frontier, float], None],
) -> None:
    """A redirect hop to an unknown host once crashed the process if the table was full, even after a restart."""
    crawl = reopened(MemoryStore())
    call(crawl.frontier, crawl.now)
    crawl.frontier._check()


def test_only_the_table_touches_the_memory_of_its_columns() -> None:
    """No other module may create a view of a column, because a view prevents the table from growing."""
    table_only = {"_columns", "_view", "_grow", "memoryview"}
    for path in sorted(FRONTIER.glob("**/*.py")):
        # these modules have tables of their own, so they may create views
        if path == FRONTIER / "hosts" / "table.py" or path.parent.name == "refresh":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            assert name not in table_only, f"{path.name}:{node.lineno} uses {name}"


def test_arrays_returned_by_the_table_are_copies() -> None:
    """Every method of the table that returns an array returns a copy."""
    crawl = Crawl()
    crawl.add(["https://a.org/"])
    for table in (crawl.frontier._hosts, crawl.frontier._registry.domains):
        for name in table._columns:
            for numbers in (table.array(name), table.gather(name, slice(0, 1))):
                assert numbers.flags.owndata
