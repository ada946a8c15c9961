"""Test two processes after one has lost data: confirmed entries, sent entries, or unsynced writes."""

import msgspec
import pytest

from crawler.splitter.doorkeeper import Doorkeeper
from crawler.splitter.session import Common, SessionState
from crawler.splitter.spool import Greeting
from crawler.splitter.wire import Reason
from crawler.storage.kv import MemoryStore
from tests.splitter.ends import (
    CONFIG,
    Ends,
    commit,
    common_store,
    exchange,
    greeted,
    links_for,
    pair,
    process,
)


def drain(*ways: Ends, now: float = 0.0) -> None:
    """Let the sessions send entries, and let the owners commit and confirm them.

    The function returns when there is nothing left to send.
    """
    processes = [way.dialler.common for way in ways] + [way.listener.common for way in ways]
    before = None
    while before != (before := [(each.outbox.links, each.inbox.applied) for each in processes]):
        for way in ways:
            way.dialler.pump(now)
            exchange(way, now)
            commit(way.listener.common)
            commit(way.dialler.common)
            way.listener.pump(now)
            exchange(way, now)


def connected(one: Common, other: Common) -> Ends:
    return greeted(one, other, to=other.identity.name)


def cut(way: Ends) -> None:
    for session in (way.dialler, way.listener):
        session.connection_lost("reset")


def settled(one: Common, other: Common) -> Ends:
    """Connect again until the greeting no longer renumbers the queue; return the session."""
    while (way := connected(one, other)).dialler.state is not SessionState.STREAMING:
        assert way.dialler.ending is not None
        cut(way)
        commit(one)  # this commit makes the fresh epoch durable
    return way


def test_two_full_outboxes_drain_each_other() -> None:
    """Each queue is much longer than a window. So each process must confirm entries before its own queue is sent."""
    one, other = process("p0"), process("p1")
    commit(one, [("p1", links_for("p1", 600))])
    commit(other, [("p0", links_for("p0", 500))])
    assert all(each.outbox.bytes > 10 * CONFIG.window_bytes for each in (one, other))
    ways = connected(one, other), connected(other, one)
    for way in ways:  # both windows are full before any entry is confirmed
        way.dialler.pump(0.0)
    drain(*ways)
    assert (one.outbox.links, other.outbox.links) == (0, 0)
    assert (one.inbox.applied, other.inbox.applied) == (500, 600)
    for each in (one, other):
        each.outbox._check()
        each.inbox._check()
        assert each.outbox.sent == each.outbox.appended


def copied_store(common: Common) -> MemoryStore:
    return MemoryStore(dict(common_store[id(common)]._data))


def earlier_state(one: Common, *, kept: int) -> Common:
    """Let p1 confirm 50 links of p0, and return p1 with an earlier state of its store.

    In that state, p1 had confirmed only `kept` of these links.
    """
    other = process("p1")
    if kept:
        commit(one, [("p1", links_for("p1", kept))])
        way = connected(one, other)
        drain(way)
        cut(way)
    store = copied_store(other)
    commit(one, [("p1", links_for("p1", 50 - kept))])
    way = connected(one, other)
    drain(way)
    cut(way)
    return process("p1", store=store, boot=b"after it")


@pytest.mark.parametrize("kept", [0, 20])
def test_a_process_that_lost_confirmed_links_is_refused_until_they_are_queued_again(kept: int) -> None:
    """The disk of the process is empty or was restored from a backup.

    Both sides report the number of missing links.
    """
    one = process("p0")
    behind = earlier_state(one, kept=kept)
    commit(one, [("p1", links_for("p1", 30))])
    for _ in range(2):
        there, back = connected(one, behind), connected(behind, one)
        for session in (there.dialler, there.listener, back.dialler, back.listener):
            assert session.ending is not None and session.ending.reason is Reason.BEHIND
            assert f"p1 lacks {50 - kept} links of p0 that it had confirmed" in session.ending.text
            assert "`crawler recover p1` in its directory" in session.ending.text
        assert there.listener.ending.by_peer and back.dialler.ending.by_peer
    assert one.outbox.links == 30 and one.outbox.spools["p1"].ready
    one.outbox.start_over("p1")
    commit(one, [("p1", links_for("p1", 50 - kept))])
    assert connected(behind, one).dialler.state is SessionState.STREAMING
    drain(settled(one, behind))
    assert (one.outbox.links, behind.inbox.applied) == (0, 50 - kept + 30 + kept)
    one.outbox._check()


def test_a_fresh_epoch_does_not_hide_a_loss() -> None:
    """The queue was renumbered after the backup was made. So the numbers agree, although links are missing."""
    first = process("p0")
    behind = earlier_state(first, kept=20)
    again = process("p0", store=common_store[id(first)], clean=False, boot=b"after it")
    there = connected(again, behind)
    assert there.dialler.ending.reason is Reason.BEHIND


def test_a_process_that_is_behind_does_not_replace_the_connected_one_of_its_name() -> None:
    one, other = process("p0"), process("p1", incarnation=1)
    store = copied_store(other)
    commit(one, [("p1", links_for("p1", 50))])
    drain(connected(one, other))
    door = Doorkeeper(sessions_max=6)
    present = greeted(other, one, to="p0", door=door)
    copy = greeted(process("p1", store=store, boot=b"copy", incarnation=2), one, to="p0", door=door)
    assert copy.dialler.ending.reason is Reason.BEHIND
    assert present.dialler.state is SessionState.STREAMING


def test_an_older_start_confirms_nothing_once_a_newer_start_is_connected() -> None:
    """The older start would confirm links that the newer one lacks, and the newer one would be refused as behind."""
    one, older = process("p0"), process("p1", incarnation=1)
    newer = process("p1", store=copied_store(older), boot=b"copy", incarnation=2)
    door = Doorkeeper(sessions_max=6)
    commit(one, [("p1", links_for("p1", 10))])
    way = greeted(one, older, own_door=door)
    assert way.dialler.state is SessionState.STREAMING
    greeted(newer, one, to="p0", door=door)
    assert "a newer start" in str(way.dialler.ending) and way.dialler in door.take_parted()
    door.leave(way.dialler)
    cut(way)
    commit(older)
    assert older.inbox.applied == 10
    again = greeted(one, older, own_door=door)
    assert again.dialler.ending.reason is again.listener.ending.reason is Reason.DOUBLE
    assert again.dialler.ending.newest == 0, "the newest start is connected"
    assert one.outbox.links == 10
    drain(pair(one, newer, own_door=door))
    assert (one.outbox.links, newer.inbox.applied) == (0, 10)


def test_a_newer_start_that_was_dialled_replaces_the_older_one_that_is_connected() -> None:
    one, door = process("p0"), Doorkeeper(sessions_max=6)
    older = greeted(process("p1", incarnation=1), one, to="p0", door=door)
    newer = process("p1", boot=b"newer", incarnation=2)
    way = greeted(one, newer, own_door=door)
    assert way.dialler.state is SessionState.STREAMING
    assert "a newer start" in str(older.listener.ending) and older.listener in door.take_parted()
    again = greeted(process("p1", boot=b"older", incarnation=1), one, to="p0", door=door)
    assert again.dialler.ending.reason is Reason.DOUBLE
    greeted(newer, one, to="p0", door=door)
    assert way.dialler.state is SessionState.STREAMING, "both directions of the newest start stay"


@pytest.mark.parametrize("is_dialled", [False, True])
@pytest.mark.parametrize("boot", [b"boot 1", b"boot 3"])
def test_of_two_starts_with_the_same_number_each_peer_refuses_the_same_one(
    boot: bytes, is_dialled: bool
) -> None:
    one, door = process("p0"), Doorkeeper(sessions_max=6)

    def session(twin: Common) -> Ends:
        return greeted(one, twin, own_door=door) if is_dialled else greeted(twin, one, to="p0", door=door)

    first = session(process("p1", boot=b"boot 2", incarnation=5))
    second = session(process("p1", boot=boot, incarnation=5))
    refused, kept = (first, second) if boot == b"boot 3" else (second, first)
    assert kept.dialler.state is kept.listener.state is SessionState.STREAMING
    refused = session(refused.listener.common if is_dialled else refused.dialler.common)
    assert refused.dialler.ending.reason is Reason.DOUBLE
    assert kept.dialler.state is kept.listener.state is SessionState.STREAMING


@pytest.mark.parametrize("is_dialled", [False, True])
def test_a_newer_start_that_lacks_links_does_not_replace_the_connected_one(is_dialled: bool) -> None:
    """The missing links came from another process, so this peer would not count them as lost."""
    one, door, original = process("p0"), Doorkeeper(sessions_max=6), process("p1", incarnation=1)
    copied = copied_store(original)
    third = process("p2")
    commit(third, [("p1", links_for("p1", 10))])
    drain(connected(third, original))
    assert original.inbox.applied == 10
    present = greeted(original, one, to="p0", door=door)

    def session(copy: Common) -> Ends:
        return greeted(one, copy, own_door=door) if is_dialled else greeted(copy, one, to="p0", door=door)

    refused = session(process("p1", store=copied, boot=b"copy", incarnation=2)).dialler
    assert refused.ending.reason is Reason.DOUBLE and "lacks 10 links" in refused.ending.text
    assert present.dialler.state is present.listener.state is SessionState.STREAMING
    newer = process("p1", store=copied_store(original), boot=b"newer", incarnation=3)
    assert session(newer).dialler.state is SessionState.STREAMING
    assert present.listener.ending is not None, "this start lacks nothing"


def test_links_that_arrive_twice_are_no_loss() -> None:
    """After an unclean stop without synced writes, links are sent again, and the peer counts these links twice."""
    one, other = process("p0"), process("p1")
    commit(one, [("p1", links_for("p1", 10))])
    way = connected(one, other)
    way.dialler.pump(0.0)
    exchange(way)
    commit(other)
    cut(way)
    again = process("p0", store=common_store[id(one)], clean=False, boot=b"after it")
    drain(settled(again, other))
    assert other.inbox.applied == 20 == again.outbox.spools["p1"].confirmed.applied
    cut(way)
    assert connected(again, other).dialler.state is SessionState.STREAMING


@pytest.mark.parametrize("connected_now", [False, True])
def test_an_older_start_learns_the_newest_number_unless_the_newest_is_connected(connected_now: bool) -> None:
    """A start may appear to be older only because its clock is behind.

    But a copy of a running process must not continue.
    """
    one, door = process("p0"), Doorkeeper(sessions_max=6)
    newer = greeted(process("p1", incarnation=5000), one, to="p0", door=door)
    if not connected_now:
        cut(newer)
        door.leave(newer.listener)
    older = greeted(process("p1", boot=b"older", incarnation=3000), one, to="p0", door=door)
    ending = older.dialler.ending
    assert ending.reason is Reason.DOUBLE and ending.newest == (0 if connected_now else 5000)
    assert "(1970-01-01 00:00:05+00:00, this one 1970-01-01 00:00:03+00:00)" in ending.text
    assert "its clock is behind" in ending.text


@pytest.mark.parametrize("number", [1 << 62, (1 << 63) - 1])
def test_start_numbers_beyond_any_date_can_be_reported(number: int) -> None:
    one, door = process("p0"), Doorkeeper(sessions_max=6)
    greeted(process("p1", incarnation=number), one, to="p0", door=door)
    older = greeted(process("p1", boot=b"older", incarnation=1), one, to="p0", door=door)
    assert f"({number}, this one 1970" in older.dialler.ending.text


@pytest.mark.parametrize("count", [5, 60])
def test_a_lost_tail_at_the_sender_is_noticed_and_nothing_later_is_dropped(count: int) -> None:
    """A power cut loses unsynced groups that were sent and confirmed.

    After that, new entries get the numbers of the lost entries. The peer must not drop these new entries as
    repeated, however many there are.
    """
    one, other = process("p0"), process("p1")
    commit(one, [("p1", links_for("p1", 10))])
    way = connected(one, other)
    drain(way)
    kept = copied_store(one)
    commit(one, [("p1", links_for("p1", 20))])
    drain(way)
    assert other.inbox.applied == 30
    cut(way)
    again = process("p0", store=kept, boot=b"after it")
    commit(again, [("p1", links_for("p1", count))])
    assert Greeting.TAIL_LOST in str(connected(again, other).dialler.ending)
    commit(again)
    drain(settled(again, other))
    again.outbox._check()
    assert (again.outbox.links, other.inbox.applied) == (0, 30 + count)


def test_a_process_and_its_copy_never_confirm_each_others_entries() -> None:
    """Let a machine return with its queue after a copy of this queue was used elsewhere.

    The copy has used the same numbers for other entries.
    """
    first, other = process("p0"), process("p1")
    commit(first, [("p1", links_for("p1", 10))])
    way = connected(first, other)
    drain(way)
    copy = process("p0", store=copied_store(first), boot=b"a copy..", incarnation=2)
    commit(first, [("p1", links_for("p1", 20))])
    cut(way)
    commit(copy, [("p1", links_for("p1", 30))])
    way = connected(copy, other)
    assert way.dialler.state is SessionState.STREAMING
    drain(way)
    cut(way)
    again = process("p0", store=common_store[id(first)], boot=b"again...", incarnation=3)
    commit(again, [("p1", links_for("p1", 40))])
    assert Greeting.TAIL_LOST in str(connected(again, other).dialler.ending)
    commit(again)
    drain(settled(again, other))
    again.outbox._check()
    assert (again.outbox.links, other.inbox.applied) == (0, 10 + 30 + 20 + 40)


@pytest.mark.parametrize("end", ["sender", "receiver", "both"])
def test_a_queue_that_was_stored_without_a_check_loses_nothing(end: str) -> None:
    """Earlier versions stored no checksum of a queue, so the checksum is read as 0.

    If only one side has a checksum, entries are sent again under a fresh epoch.
    """
    one, other = process("p0"), process("p1")
    way = connected(one, other)
    commit(one, [("p1", links_for("p1", 10))])
    drain(way)
    cut(way)
    if end != "receiver":
        spool = one.outbox.spools["p1"]
        spool.confirmed = msgspec.structs.replace(spool.confirmed, chain=0)
    if end != "sender":
        source = other.inbox._sources["p0"]
        source.durable = msgspec.structs.replace(source.durable, chain=0)
    commit(one, [("p1", links_for("p1", 20))])
    greeted = connected(one, other)
    assert (greeted.dialler.state is SessionState.STREAMING) is (end == "both")
    if end == "both":
        drain(greeted)
    else:
        commit(one)
        drain(settled(one, other))
    assert (one.outbox.links, other.inbox.applied) == (0, 30)


def test_entries_sent_but_not_confirmed_are_confirmed_by_the_next_greeting() -> None:
    one, other = process("p0"), process("p1")
    way = connected(one, other)
    commit(one, [("p1", links_for("p1", 10))])
    way.dialler.pump(0.0)
    way.listener.receive(way.dialler.data_to_send(), 0.0)
    commit(other)
    cut(way)
    drain(settled(one, other))
    assert (one.outbox.links, other.inbox.applied) == (0, 10)


def test_an_unclean_start_without_synced_writes_begins_a_fresh_epoch() -> None:
    one, other = process("p0"), process("p1")
    commit(one, [("p1", links_for("p1", 10))])
    way = connected(one, other)
    way.dialler.pump(0.0)
    exchange(way)
    commit(other)
    way.listener.pump(0.0)
    exchange(way)  # the entries are confirmed, but their deletes are not committed
    epoch = one.outbox.spools["p1"].state.epoch
    cut(way)
    again = process("p0", store=common_store[id(one)], clean=False, boot=b"after it")
    assert again.outbox.spools["p1"].state.epoch != epoch
    commit(again, [("p1", links_for("p1", 10))])
    drain(settled(again, other))
    assert other.inbox.applied == 30  # the ten links whose deletes were not committed arrived twice
