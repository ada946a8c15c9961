"""Test sessions without sockets: the handshake, every refusal, the timers, and violations of the protocol."""

import random
from functools import partial
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.config import SplitterConfig
from crawler.splitter import session as sessions
from crawler.splitter.doorkeeper import Doorkeeper
from crawler.splitter.partition import Partition
from crawler.splitter.session import Backoff, Dialler, Listener, SessionState
from crawler.splitter.wire import (
    WITHOUT_ASKS,
    Ack,
    Ask,
    AskedRequest,
    Counters,
    Entries,
    Fetched,
    Frame,
    Heartbeat,
    Reason,
    Resync,
    Welcome,
    encode_entries,
)
from tests.splitter.ends import CONFIG, NAMES, commit, exchange, greeted, links_for, pair, process, streaming


def test_links_flow_and_only_what_is_durable_is_confirmed() -> None:
    one, other, ends = streaming()
    commit(one, [("p1", links_for("p1", 10))])
    ends.dialler.pump(0.0)
    exchange(ends)
    assert one.outbox.links == 10
    assert other.inbox.waiting
    received = commit(other)
    assert [link for entry in received for link in entry.links] == links_for("p1", 10)
    assert one.outbox.links == 10
    ends.listener.pump(0.0)
    exchange(ends)
    assert one.outbox.links == 0
    one.outbox._check()
    other.inbox._check()


def test_a_small_bound_of_a_frame_makes_more_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender keeps its frames below the size that its peer accepts, and the same links arrive."""
    config = msgspec.structs.replace(CONFIG, frame_bytes_max=700)
    monkeypatch.setattr("tests.splitter.ends.CONFIG", config)
    one, other, ends = streaming()
    links = links_for("p1", 60)
    commit(one, [("p1", links)])
    received, frames = [], []
    ends.dialler.pump(0.0)
    while one.outbox.links:
        while sent := ends.dialler.data_to_send():
            frames.append(len(sent))
            ends.listener.receive(sent, 0.0)
            ends.dialler.pump(0.0)
        received += [link for entry in commit(other) for link in entry.links]
        ends.listener.pump(0.0)
        ends.dialler.receive(ends.listener.data_to_send(), 0.0)
        assert ends.dialler.state is ends.listener.state is SessionState.STREAMING
    assert received == links
    assert len(frames) > 10 and max(frames) <= config.frame_bytes_max


def test_a_long_queue_leaves_a_frame_at_a_time_until_the_window_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The owner of the links commits the first entries while the next entries are read from the queue."""
    monkeypatch.setattr("crawler.splitter.session._FRAME_BYTES", 700)
    one, other, ends = streaming()
    spool = one.outbox.spools["p1"]
    commit(one, [("p1", links_for("p1", 60))])
    in_flight = []
    ends.dialler.more = True
    while ends.dialler.more:
        ends.dialler.pump(0.0)
        in_flight.append(spool.in_flight_bytes)
        ends.listener.receive(ends.dialler.data_to_send(), 0.0)
    steps = [after - before for before, after in pairwise([0, *in_flight])]
    assert len(steps) > 3 and steps[-1] == 0
    assert all(0 < step <= 700 for step in steps[:-1])
    assert in_flight[-1] <= CONFIG.window_bytes < spool.bytes
    assert sum(len(entry.links) for entry in commit(other)) < 60
    spool._check()


def test_heartbeats_carry_counters_both_ways() -> None:
    one, other, ends = streaming()
    for now in (1.0, 2.0, 3.0):
        assert ends.dialler.next_wakeup() <= now
        ends.dialler.tick(now)
        ends.listener.tick(now)
        exchange(ends, now)
    assert one.coordination._peers["p1"].heard.number >= 3
    assert other.coordination._peers["p0"].heard.echo >= 2


REFUSALS = {
    Reason.CRAWL: (lambda: process("p0", crawl="another"), lambda: process("p1")),
    Reason.NAME: (lambda: process("p0"), lambda: process("p2")),
    Reason.TABLE: (
        lambda: process("p0", partition=Partition.equal_ranges(NAMES, epoch=2)),
        lambda: process("p1"),
    ),
    Reason.CANONICAL: (lambda: process("p0", canonical=2), lambda: process("p1")),
    Reason.FINGERPRINT: (lambda: process("p0", check=b"other"), lambda: process("p1")),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_a_disagreement_is_refused_and_both_ends_know_why(reason: Reason) -> None:
    one, other = (make() for make in REFUSALS[reason])
    ends = pair(one, other)
    commit(one, [("p1", links_for("p1", 10))])
    exchange(ends)
    assert ends.listener.ending.reason is ends.dialler.ending.reason is reason
    assert ends.dialler.ending.by_peer and not ends.listener.ending.by_peer
    assert one.outbox.links == 10
    assert not other.inbox.waiting
    assert ends.dialler.state is ends.listener.state is SessionState.ENDED


def test_an_unknown_peer_name_is_refused() -> None:
    one = process("p0")
    one.identity = msgspec.structs.replace(one.identity, name="p9")
    ends = greeted(one, process("p1"))
    assert ends.dialler.ending.reason is Reason.NAME
    assert "p9" in str(ends.dialler.ending)


def test_a_listener_refuses_another_secret_before_it_reveals_anything() -> None:
    ends = greeted(process("p0", secret=b"one"), process("p1", secret=b"another"))
    assert ends.listener.ending.reason is Reason.SECRET
    assert ends.dialler.ending.reason is Reason.SECRET


def test_a_listener_without_the_secret_gets_no_link() -> None:
    """A listener without the secret sends every frame that it can make.

    The listener's first frame that needs the key ends the session.
    """
    one = process("p0")
    ends = pair(one, process("p1", secret=b"guess"))
    commit(one, [("p1", links_for("p1", 10))])
    ends.listener.receive(ends.dialler.data_to_send(), 0.0)
    ends.dialler.receive(ends.listener.data_to_send(), 0.0)
    ends.dialler.data_to_send()  # this is the Hello, which this listener cannot check
    ends.listener._send(Welcome(b"boot", 0, 0))
    ends.dialler.receive(ends.listener.data_to_send(), 0.0)
    assert ends.dialler.ending.reason is Reason.SECRET
    assert one.outbox.spools["p1"].in_flight_bytes == 0


def test_another_protocol_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = process("p1")
    monkeypatch.setattr(sessions, "PROTOCOL", sessions.PROTOCOL + 1)
    ends = pair(process("p0"), other)
    monkeypatch.undo()
    exchange(ends)
    assert ends.listener.ending.reason is ends.dialler.ending.reason is Reason.PROTOCOL


def test_a_recorded_connection_cannot_be_replayed() -> None:
    one, other = process("p0"), process("p1")
    first = pair(one, other)
    said = []
    for _ in range(4):
        said.append(first.dialler.data_to_send())
        first.listener.receive(said[-1], 0.0)
        first.dialler.receive(first.listener.data_to_send(), 0.0)
    again = Listener(other, Doorkeeper(sessions_max=6).admit, 0.0)
    for data in said:
        again.receive(data, 0.0)
    assert again.ending.reason is Reason.SECRET


def test_a_second_process_of_a_live_name_is_refused() -> None:
    _, other, ends = streaming()
    twin = process("p0", crawl="crawl", boot=b"another")
    second = greeted(twin, other, door=ends.door)
    assert second.dialler.ending.reason is Reason.DOUBLE
    assert ends.listener.ending is None
    ends.listener.connection_lost("reset")
    ends.door.leave(ends.listener)
    third = greeted(twin, other, door=ends.door)
    assert third.dialler.state is SessionState.STREAMING


def test_the_newer_start_of_a_name_wins_and_the_older_one_is_told_to_stop() -> None:
    """If both ran, a node and a process on a copy of its folder would send requests to the same hosts."""
    _, other, ends = streaming()
    copy = process("p0", crawl="crawl", boot=b"another", incarnation=7)
    second = greeted(copy, other, door=ends.door)
    assert second.dialler.state is SessionState.STREAMING and ends.listener.ending is not None
    older = greeted(process("p0", crawl="crawl", incarnation=6), other, door=ends.door)
    assert older.dialler.ending.reason is Reason.DOUBLE and older.dialler.ending.by_peer
    assert second.dialler.state is SessionState.STREAMING


def test_a_process_that_reconnects_replaces_its_old_connection() -> None:
    one, other, ends = streaming()
    second = greeted(one, other, door=ends.door)
    assert second.dialler.state is SessionState.STREAMING
    assert "again" in str(ends.listener.ending)


def test_a_reconnect_waits_until_what_is_queued_is_durable() -> None:
    """Entries of the old connection may not be durable yet.

    After an early Welcome, these entries would be applied twice.
    """
    one, other, ends = streaming()
    commit(one, [("p1", links_for("p1", 10))])
    ends.dialler.pump(0.0)
    exchange(ends)
    ends.dialler.connection_lost("cut")
    ends.listener.connection_lost("cut")
    second = greeted(one, other)
    assert (second.dialler.state, second.listener.state) == (SessionState.GREETING, SessionState.DRAINING)
    for now in range(1, 100):
        second.listener.tick(float(now))
        exchange(second, float(now))
        second.dialler.tick(float(now))
        exchange(second, float(now))
    assert second.dialler.state is SessionState.GREETING, "heartbeats keep a draining connection alive"
    first = commit(other)
    second.listener.pump(100.0)
    exchange(second, 100.0)
    assert second.dialler.state is SessionState.STREAMING
    assert one.outbox.links == 0
    assert not other.inbox.waiting
    assert sum(len(entry.links) for entry in first) == 10


def test_silence_ends_a_session_after_30_seconds() -> None:
    one, _, ends = streaming()
    commit(one, [("p1", links_for("p1", 10))])
    ends.dialler.pump(0.0)
    assert one.outbox.spools["p1"].in_flight_bytes
    for now in range(1, 31):
        ends.dialler.tick(float(now))
    assert str(ends.dialler.ending) == "silent for 30 s"
    assert one.outbox.spools["p1"].in_flight_bytes == 0
    one.outbox._check()


def test_a_handshake_has_ten_seconds() -> None:
    listener = Listener(process("p1"), Doorkeeper(sessions_max=6).admit, 0.0)
    assert listener.next_wakeup() == 10.0
    listener.receive(b"\x00", 9.0)
    listener.tick(9.9)
    assert listener.ending is None
    listener.tick(10.0)
    assert "no handshake" in str(listener.ending)


def test_a_missing_entry_is_requested_once_and_resent() -> None:
    one, other, ends = streaming()
    commit(one, [("p1", links_for("p1", 40))])
    _, entries = one.outbox.spools["p1"].take_unsent()
    assert len(entries) > 3
    for sequence in range(1, len(entries)):  # the first entry is missing
        ends.dialler._send(Entries(sequence + 1, [entries[sequence]]))
    ends.listener.receive(ends.dialler.data_to_send(), 0.0)
    answer = ends.listener.data_to_send()
    assert answer.count(bytes([Frame.RESYNC, 0x91, 0])) == 1
    ends.dialler.receive(answer, 0.0)
    for _ in range(3):
        exchange(ends)
        commit(other)
        ends.listener.pump(0.0)
    exchange(ends)
    assert one.outbox.links == 0
    assert other.inbox.applied == 40


REQUEST = AskedRequest("http://a/robots.txt")


def test_a_dialler_asks_for_requests_and_gets_the_answers_in_any_order() -> None:
    _, other, ends = streaming()
    asked: list[Ask] = []
    other.asked = lambda session, ask: asked.append(ask)
    answers: dict[str, bytes] = {}
    requests = [AskedRequest("http://a/robots.txt"), AskedRequest("http://b/", "POST", ("A: b",), b"body")]
    for request in requests:
        ends.dialler.ask(request, partial(answers.__setitem__, request.url))
    exchange(ends)
    assert [ask.request for ask in asked] == requests and not answers
    for ask in reversed(asked):
        ends.listener.answer(ask.number, ask.request.url.encode())
    exchange(ends)
    assert answers == {each.url: each.url.encode() for each in requests} and ends.dialler.ending is None


def test_a_long_answer_is_sent_in_parts_and_other_messages_between_them() -> None:
    """Each `pump` sends one part. When the last one is sent, the sender is told, so that it frees the memory."""
    one, other, ends = streaming()
    asked: list[Ask] = []
    other.asked = lambda session, ask: asked.append(ask)
    answers: list[bytes] = []
    sent: list[int] = []
    ends.dialler.ask(REQUEST, answers.append)
    ends.dialler.ask(REQUEST, answers.append)
    exchange(ends)
    long = bytes(range(256)) * 64
    ends.listener.answer(asked[0].number, long, lambda: sent.append(0))
    ends.listener.answer(asked[1].number, b"short", lambda: sent.append(1))
    parts = 0
    while True:
        data = ends.listener.data_to_send()
        assert len(data) <= 3 * CONFIG.frame_bytes_max
        ends.dialler.receive(data, 0.0)
        if not ends.listener.more:
            break
        parts += 1
        ends.listener.pump(0.0)
    assert answers == [long, b"short"] and sent == [0, 1] and parts > 5


def test_the_sender_of_an_answer_is_told_when_the_session_ends() -> None:
    _, other, ends = streaming()
    sent: list[int] = []
    ends.dialler.ask(REQUEST, lambda answer: None)
    other.asked = lambda session, ask: session.answer(ask.number, bytes(9999), lambda: sent.append(1))
    exchange_once = ends.dialler.data_to_send()
    ends.listener.receive(exchange_once, 0.0)
    assert not sent
    ends.listener.connection_lost("cut")
    assert sent == [1]


def test_an_answer_that_is_longer_than_announced_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "ANSWER_BYTES_MAX", 1000)
    for length, reason in ((1000, None), (1001, Reason.PROTOCOL)):
        _, other, ends = streaming()
        answers: list[bytes] = []
        other.asked = lambda session, ask, length=length: session.answer(ask.number, bytes(length))
        ends.dialler.ask(REQUEST, answers.append)
        exchange(ends)
        while ends.listener.more and ends.dialler.ending is None:
            ends.listener.pump(0.0)
            exchange(ends)
        assert (ends.dialler.ending and ends.dialler.ending.reason) == reason
        assert answers == [bytes(1000) if reason is None else b""]


def test_questions_that_are_open_when_a_session_ends_are_answered_with_nothing() -> None:
    _, other, ends = streaming()
    other.asked = lambda session, ask: None
    answers: list[bytes] = []
    ends.dialler.ask(REQUEST, answers.append)
    exchange(ends)
    ends.dialler.connection_lost("cut")
    assert answers == [b""]
    ends.listener.connection_lost("cut")
    sent: list[int] = []
    ends.listener.answer(1, b"late", lambda: sent.append(1))
    assert not ends.listener.data_to_send() and sent == [1]


def test_a_peer_cannot_ask_for_any_number_of_requests_at_once() -> None:
    _, other, ends = streaming()
    asked: list[int] = []
    other.asked = lambda session, ask: asked.append(ask.number)
    answers: list[bytes] = []
    for _ in range(sessions.QUESTIONS_MAX + 3):
        ends.dialler.ask(REQUEST, answers.append)
    exchange(ends)
    assert len(asked) == sessions.QUESTIONS_MAX and answers == [b""] * 3
    ends.listener.answer(asked[0], b"done")
    ends.dialler.ask(REQUEST, answers.append)
    exchange(ends)
    assert len(asked) == sessions.QUESTIONS_MAX + 1 and answers[3:] == [b"done"]


def test_a_process_of_the_earlier_protocol_is_accepted() -> None:
    one, other = process("p0"), process("p1")
    ends = pair(one, other)
    older = ends._replace(dialler=sessions.Dialler(one, "p1", lambda _: None, 0.0, WITHOUT_ASKS))
    exchange(older)
    assert older.dialler.state is older.listener.state is SessionState.STREAMING


def breach(message: object, to: str = "dialler") -> sessions.Ending:
    """Send `message` to a streaming session, from a peer that has the keys; return how the session ended."""
    _, _, ends = streaming()
    source, target = (ends.listener, ends.dialler) if to == "dialler" else (ends.dialler, ends.listener)
    source._send(message)
    target.receive(source.data_to_send(), 0.0)
    assert target.ending is not None
    return target.ending


COUNTERS = Counters(b"", 1 << 40)


@pytest.mark.parametrize(
    "message", [Ack(1, COUNTERS), Resync(1), Welcome(b"", 0, 0), Entries(1, []), Fetched(1, b"", True)]
)
def test_a_listener_that_violates_the_protocol_is_disconnected(message: object) -> None:
    assert breach(message).reason is Reason.PROTOCOL


def entry_for(name: str) -> bytes:
    return encode_entries(links_for(name, 1), 1000)[0][0]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Ack(0, COUNTERS), Reason.PROTOCOL),
        (Fetched(1, b"", True), Reason.PROTOCOL),
        (Welcome(b"", 0, 0), Reason.PROTOCOL),
        (Entries(1, [b"x"]), Reason.PROTOCOL),
        (Entries(1, [entry_for("p2")]), Reason.OWNER),
        (Entries(1, [entry_for("p1")] * 400), Reason.PROTOCOL),
    ],
)
def test_a_dialler_that_violates_the_protocol_is_disconnected(message: object, reason: Reason) -> None:
    assert breach(message, to="listener").reason is reason


def test_an_oversized_frame_is_refused_with_a_reason() -> None:
    _, _, ends = streaming()
    ends.listener.receive((CONFIG.frame_bytes_max + 100).to_bytes(4, "big"), 0.0)
    assert ends.listener.ending.reason is Reason.PROTOCOL
    ends.dialler.receive(ends.listener.data_to_send(), 0.0)
    assert "4196 bytes" in str(ends.dialler.ending) and ends.dialler.ending.by_peer


@given(st.binary(min_size=1, max_size=200), st.sampled_from(list(SessionState)))
@settings(max_examples=150)
def test_garbage_at_any_moment_ends_in_a_reason_or_waits(garbage: bytes, state: SessionState) -> None:
    one, other = process("p0"), process("p1")
    ends = pair(one, other)
    for _ in range(list(SessionState).index(state)):
        ends.listener.receive(ends.dialler.data_to_send(), 0.0)
        ends.dialler.receive(ends.listener.data_to_send(), 0.0)
    for end in (ends.dialler, ends.listener):
        end.receive(garbage, 0.0)
        assert end.ending is None or end.ending.reason in (Reason.PROTOCOL, Reason.SECRET)
        end.tick(31.0)
        assert end.ending is not None
    one.outbox._check()
    other.inbox._check()


@pytest.mark.parametrize("seed", range(10))
def test_any_cut_of_the_bytes_gives_the_same_exchange(seed: int) -> None:
    rng = random.Random(seed)
    one, other = process("p0"), process("p1")
    ends = pair(one, other)
    commit(one, [("p1", links_for("p1", 60))])
    for now in range(20):
        for source, target in ((ends.dialler, ends.listener), (ends.listener, ends.dialler)):
            data = source.data_to_send()
            while data:
                piece = rng.randrange(1, 400)
                target.receive(data[:piece], float(now))
                data = data[piece:]
        commit(other)
        ends.listener.pump(float(now))
    assert one.outbox.links == 0
    assert other.inbox.applied == 60


def test_the_oldest_unidentified_session_ends_at_the_limit() -> None:
    other = process("p1")
    door = Doorkeeper(sessions_max=3)
    listeners = [Listener(other, door.admit, 0.0) for _ in range(5)]
    for listener in listeners:
        door.enter(listener)
        for each in listeners:
            if each.ending is not None:
                door.leave(each)
    assert [listener.ending is None for listener in listeners] == [False, False, True, True, True]
    assert listeners[0].ending.reason is Reason.BUSY
    assert len(door) == 3


def test_backoff_doubles_from_a_tenth_to_thirty_seconds_with_jitter() -> None:
    class Middle(random.Random):
        def random(self) -> float:
            return 1.0

    backoff = Backoff(SplitterConfig(), Middle())
    waits = [backoff.next() for _ in range(12)]
    assert waits[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert waits[-3:] == [30.0] * 3
    backoff.reset()
    assert backoff.next() == pytest.approx(0.1)
    jittered = Backoff(SplitterConfig(), random.Random(1))
    assert 0.05 <= jittered.next() <= 0.1


@pytest.mark.parametrize("kind", [Dialler, Listener])
def test_the_table_of_states_names_real_methods(kind: type) -> None:
    assert all(callable(getattr(kind, method)) for row in kind.TABLE.values() for method in row.values())
    assert Heartbeat in kind.TABLE[SessionState.STREAMING]
