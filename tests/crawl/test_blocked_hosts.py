"""Test the file of blocked hosts, and that a host is blocked in the file and in the store, or in neither."""

from collections.abc import Callable
from pathlib import Path

import pytest

from crawler.crawl.blocked_hosts import FILE, add_blocked, load_blocked, remove_blocked
from tests.process.answering.test_commands import ask
from tests.process.support import Joint


def test_hosts_are_added_and_removed(tmp_path: Path) -> None:
    assert load_blocked(tmp_path) == set()
    add_blocked(tmp_path, ["b.org", "a.org"])
    add_blocked(tmp_path, ["b.org"])
    assert load_blocked(tmp_path) == {"a.org", "b.org"}
    remove_blocked(tmp_path, "b.org")
    remove_blocked(tmp_path, "c.org")
    assert load_blocked(tmp_path) == {"a.org"}


def test_a_flipped_byte_blocks_no_other_host(tmp_path: Path) -> None:
    """A file with a flipped byte counts as empty, even if the byte belongs to the name of a host."""
    add_blocked(tmp_path, ["a.org"])
    data = (tmp_path / FILE).read_bytes()
    for place in range(len(data) - 1):
        (tmp_path / FILE).write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert load_blocked(tmp_path) == set(), place


@pytest.mark.parametrize(
    "content", [b"", b"[", b'["a.org"]', b'{"hosts":["a.org"],"crc32":1}', b'{"hosts":["\xff"]}']
)
def test_a_damaged_file_counts_as_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert load_blocked(tmp_path) == set()
    add_blocked(tmp_path, ["a.org"])
    assert load_blocked(tmp_path) == {"a.org"}


NAMES = ("p0", "p1")
HOSTS = {f"h{number}.org" for number in range(8)}


def blocked(folder: Path, change: Callable[[Joint], None] = lambda joint: None) -> dict[str, set[str]]:
    """Open each process, call `change`, and return the hosts that it blocks after it was opened again."""
    for name in NAMES:
        joint = Joint(folder, names=NAMES, me=name)
        change(joint)
        joint.close()
    found = {}
    for name in NAMES:
        joint = Joint(folder, names=NAMES, me=name)
        found[name] = joint.frontier.blocks.names()
        joint.close()
    return found


def commanded(command: str, *hosts: str) -> Callable[[Joint], None]:
    def give(joint: Joint) -> None:
        for host in hosts:
            ask(joint.stages, command, host=host)

    return give


def test_a_process_blocks_its_own_hosts_in_the_file(tmp_path: Path) -> None:
    """This is the state after a kill between the two changes of a block, and after the loss of a store."""
    add_blocked(tmp_path, HOSTS)
    found = blocked(tmp_path)
    assert found["p0"] | found["p1"] == HOSTS and not found["p0"] & found["p1"]
    assert found["p0"] and found["p1"]


def test_a_lost_file_is_written_anew_from_the_stores(tmp_path: Path) -> None:
    before = blocked(tmp_path, commanded("block", *HOSTS))
    (tmp_path / FILE).unlink()
    assert blocked(tmp_path) == before
    assert load_blocked(tmp_path) == HOSTS


def test_an_unblocked_host_is_in_neither_place(tmp_path: Path) -> None:
    blocked(tmp_path, commanded("block", *HOSTS))
    found = blocked(tmp_path, commanded("unblock", "h1.org", "h2.org"))
    assert found["p0"] | found["p1"] == load_blocked(tmp_path) == HOSTS - {"h1.org", "h2.org"}
