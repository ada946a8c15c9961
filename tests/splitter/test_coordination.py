"""Test how N processes agree on shares, limits and the end.

Messages may be delayed or lost, and the network may be cut.
"""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.splitter.coordination import Coordination, Progress, Weights
from crawler.splitter.wire import Counters
from tests.splitter.links import Unread


class Views:
    """The views of N processes.

    `tell_all` immediately delivers a message from each process to each other process. A test may also deliver
    messages late or lose them.
    """

    def __init__(self, count: int, **limits: object) -> None:
        self.names = [f"p{index}" for index in range(count)]
        self.progress = {name: Progress(work=1) for name in self.names}
        self.boots = dict.fromkeys(self.names, 0)
        self.limits = limits
        self.views = {name: self.make(name) for name in self.names}
        self.now = 0.0

    def make(self, name: str) -> Coordination:
        boot = b"%d" % self.boots[name]
        return Coordination(name, self.names, boot, lambda: self.progress[name], **self.limits)

    def restart(self, name: str) -> None:
        self.boots[name] += 1
        self.views[name] = self.make(name)

    def pairs(self) -> list[tuple[str, str]]:
        return [(one, other) for one in self.names for other in self.names if one != other]

    def tell_all(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            for one, other in self.pairs():
                self.views[other].record_counters(one, self.views[one].counters_for(other), self.now)

    def shares(self) -> dict[str, float]:
        return {name: view.share(self.now) for name, view in self.views.items()}


def test_shares_follow_the_hosts_that_have_work() -> None:
    views = Views(3, rate=30.0)
    assert views.shares() == pytest.approx(dict.fromkeys(views.names, 1 / 3))
    for work in ((10, 10, 10), (10, 20, 30), (0, 0, 5), (7, 0, 0), (0, 0, 0)):
        for name, hosts in zip(views.names, work, strict=True):
            views.progress[name].work = hosts
        views.tell_all(3)
        expected = [hosts / max(1, sum(work)) for hosts in work]
        assert list(views.shares().values()) == pytest.approx(expected)
    views.progress["p1"].work = 4
    views.tell_all(3)
    assert views.views["p1"].share(views.now) == 1.0


def test_refresh_is_shared_by_weight_from_the_first_messages_on() -> None:
    views = Views(3)
    assert [view.refresh_share() for view in views.views.values()] == [0.0] * 3
    for name, weight in zip(views.names, (0.0, 30.0, 10.0), strict=True):
        views.progress[name].weight = weight
    assert [view.refresh_share() for view in views.views.values()] == [0.0, 1 / 3, 1 / 3]
    views.tell_all(3)
    assert [view.refresh_share() for view in views.views.values()] == [0.0, 0.75, 0.25]
    views.now += 1e6
    assert views.views["p1"].refresh_share() == 0.75, (
        "a silent peer keeps its weight, because it may still be working"
    )


def test_one_process_alone_has_the_whole_rate() -> None:
    assert Coordination("p0", ["p0"], b"", Progress, rate=5.0).share(0.0) == 1.0


@given(st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_shares_never_add_up_to_more_than_the_rate(seed: int) -> None:
    """First, each process receives messages from all others.

    After that, work changes all the time, and messages are late or lost.
    """
    rng = random.Random(seed)
    views = Views(rng.choice([2, 3, 5]))
    views.tell_all(3)
    on_the_way: dict[tuple[str, str], list[Counters]] = {pair: [] for pair in views.pairs()}
    for _ in range(150):
        views.now += rng.uniform(0, 0.05)
        name = rng.choice(views.names)
        views.progress[name].work = rng.choice([0, 1, 2, 10, 100])
        views.progress[name].weight = rng.choice([0.0, 0.1, 3.0, 1e6])
        one, other = pair = rng.choice(views.pairs())
        on_the_way[pair].append(views.views[one].counters_for(other))
        one, other = pair = rng.choice(views.pairs())
        queue = on_the_way[pair]
        if queue and rng.random() < 0.8:
            message = queue.pop(0)
            if rng.random() < 0.8:
                views.views[other].record_counters(one, message, views.now)
        assert sum(views.shares().values()) <= 1 + 1e-9
        assert sum(view.refresh_share() for view in views.views.values()) <= 1 + 1e-9


@given(st.integers(0, 1 << 32))
@settings(max_examples=15)
def test_shares_hold_across_a_cut_and_no_process_starves(seed: int) -> None:
    """The network splits into two parts for some minutes.

    The shares may exceed the rate only for some seconds after the network has healed.
    """
    rng = random.Random(seed)
    views = Views(rng.choice([2, 3, 4]))
    for name in views.names:
        views.progress[name].work = rng.choice([0, 1, 50])
    views.tell_all(3)
    part = set(rng.sample(views.names, rng.randrange(1, len(views.names))))
    for second in range(200):
        views.now += 1.0
        for one, other in views.pairs():
            if (one in part) == (other in part) or not 20 <= second < 150:
                message = views.views[one].counters_for(other)
                if rng.random() < 0.9:
                    views.views[other].record_counters(one, message, views.now)
        if rng.random() < 0.2:
            views.progress[rng.choice(views.names)].work = rng.choice([1, 50])
        if not 150 <= second < 160:
            assert sum(views.shares().values()) <= 1 + 1e-9, second
        if 100 <= second < 150:
            working = [name for name in views.names if views.progress[name].work and name in part]
            assert not working or any(views.shares()[name] > 0 for name in working)
    views.tell_all(3)
    busy = [name for name in views.names if views.progress[name].work]
    assert sum(views.shares()[name] for name in busy) == pytest.approx(1.0 if busy else 0.0)


def test_a_missing_process_does_not_change_the_shares_of_the_others() -> None:
    views = Views(4)
    views.progress["p3"].work = 1000
    views.tell_all(3)
    assert views.shares()["p0"] == pytest.approx(1 / 1003)
    for _ in range(70):
        views.now += 1.0
        for one, other in views.pairs():
            if "p3" not in (one, other):
                views.views[other].record_counters(one, views.views[one].counters_for(other), views.now)
    assert views.shares() == pytest.approx(dict.fromkeys(views.names, 0.25))


def test_a_restarted_process_counts_as_uninformed_until_it_echoes_a_message() -> None:
    """Until the restarted process echoes their messages, the other processes use no more than their equal shares."""
    views = Views(2)
    views.progress["p0"].work = 99
    views.tell_all(3)
    assert views.shares() == pytest.approx({"p0": 0.99, "p1": 0.01})
    views.restart("p1")
    views.views["p0"].record_counters("p1", views.views["p1"].counters_for("p0"), views.now)
    assert views.shares() == pytest.approx({"p0": 0.5, "p1": 0.5})
    views.tell_all(3)
    assert views.shares() == pytest.approx({"p0": 0.99, "p1": 0.01})


def test_memory_of_sent_messages_is_bounded() -> None:
    views = Views(2)
    for work in range(5000):
        views.progress["p0"].work = 5000 - work
        views.views["p0"].counters_for("p1")
    peer = views.views["p0"]._peers["p1"]
    assert len(peer.outstanding) <= 256
    assert peer.least("work") == 0
    views.tell_all(2)
    assert views.shares()["p0"] == pytest.approx(1 / 2)


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("left", [0, 1, 7, 100])
def test_the_limit_of_pages_is_exceeded_at_most_by_what_each_other_process_may_begin(
    count: int, left: int
) -> None:
    """A schedule reaches the bound of `splitter/README.md`: no process hears of the last fetches of the others."""
    views = Views(count, pages_max=100)
    for name in views.names[1:]:
        views.progress[name].pages = (100 - left) // count
    views.progress["p0"].pages = 100 - left - (count - 1) * ((100 - left) // count)
    views.tell_all(2)
    for rounds in range(3):
        for name, view in views.views.items():
            while view.pages_left(views.now):
                views.progress[name].in_flight += 1
        begun = sum(each.pages + each.in_flight for each in views.progress.values())
        assert begun == 100 + (count - 1) * left, rounds
        views.tell_all()


def test_pages_and_bytes_of_all_count_towards_the_limits() -> None:
    views = Views(3, pages_max=100, bytes_max=1000)
    view = views.views["p0"]
    assert view.pages_left(views.now) == 100
    for index, name in enumerate(views.names):
        views.progress[name].pages, views.progress[name].in_flight = 20 + index, 5
    views.tell_all(2)
    assert view.pages_left(views.now) == 100 - 63 - 15
    assert view.limit_reached == ""
    views.now += 31.0  # after silence_max, the fetches in flight of a missing process no longer count
    assert view.pages_left(views.now) == 100 - 63 - 5
    views.progress["p2"].pages = 60
    views.tell_all()
    assert view.limit_reached == "max_pages" and view.pages_left(views.now) == 0
    views.progress["p2"].pages, views.progress["p1"].bytes = 0, 1000
    views.tell_all()
    assert view.limit_reached == "max_bytes"
    assert Coordination("p0", ["p0"], b"", Progress).pages_left(0.0) is None


@given(st.integers(0, 1 << 32), st.integers(1, 5))
@settings(max_examples=40)
def test_the_end_is_found_and_never_too_early(seed: int, count: int) -> None:
    """Work moves between processes as links, which travel only through outboxes, in random order."""
    rng = random.Random(seed)
    views = Views(count)
    tasks = dict.fromkeys(views.names, 0)
    outboxes: list[tuple[str, str]] = []  # (sender, receiver) of each link in transit
    tasks["p0"] = 10

    def refresh(name: str) -> None:
        progress = views.progress[name]
        progress.idle, progress.outbox = tasks[name] == 0, sum(one == name for one, _ in outboxes)

    def work(name: str) -> None:
        if tasks[name]:
            tasks[name] -= 1
            for _ in range(rng.choice([0, 0, 1, 2])):
                other = rng.choice(views.names)
                if other == name:
                    tasks[name] += 1
                else:
                    outboxes.append((name, other))
                    views.progress[name].appended += 1

    def deliver() -> None:
        if outboxes:
            one, other = outboxes.pop(rng.randrange(len(outboxes)))
            tasks[other] += 1
            views.progress[other].applied += 1

    def restart(name: str) -> None:
        views.restart(name)

    actions: list[Callable[[], None]] = [lambda: work(rng.choice(views.names)), deliver]
    for step in range(1500):
        if step < 300 or rng.random() < 0.5:
            rng.choice(actions)()
        if rng.random() < 0.01 and step < 500:
            restart(rng.choice(views.names))
        for name in views.names:
            refresh(name)
        if count > 1:
            one, other = rng.choice(views.pairs())
            views.views[other].record_counters(one, views.views[one].counters_for(other), views.now)
        else:
            views.views["p0"].advance()
        if any(view.ended for view in views.views.values()):
            assert not outboxes and not any(tasks.values())
        if step > 750:
            tasks = dict.fromkeys(tasks, 0)
            outboxes.clear()
    for name in views.names:
        refresh(name)
    views.tell_all(4)
    assert all(view.ended for view in views.views.values())
    assert all(view.all_know for view in views.views.values())


def test_an_echo_from_before_a_restart_is_ignored() -> None:
    """p1 has received message 50 of p0. Then p0 is restarted, and its message numbers begin at 1 again."""
    views = Views(2)
    views.tell_all(50)
    views.restart("p0")
    for name in views.names:
        views.progress[name].idle = True
    for _ in range(3):
        views.views["p0"].record_counters("p1", views.views["p1"].counters_for("p0"), views.now)
    assert not views.views["p0"].ended
    assert views.views["p0"]._peers["p1"].held is None
    views.tell_all(2)
    assert views.views["p0"].ended


def test_a_message_is_handled_without_reading_other_peers() -> None:
    """At each heartbeat, a process receives a message from each peer.

    If it examined all peers for each message, the cost would grow with the square of N.
    """
    views = Views(4)
    views.tell_all(2)
    for name in ("p1", "p2"):
        views.progress[name].idle = True
    view = views.views["p0"]
    view._peers = Unread(view._peers)
    for _ in range(3):
        for name in ("p1", "p2", "p3"):
            views.views[name].record_counters("p0", view.counters_for(name), views.now)
            view.record_counters(name, views.views[name].counters_for("p0"), views.now)
    assert not view.ended


def test_one_round_is_not_enough() -> None:
    """p1 reported that it was idle, and then received a link from p0.

    Now p0 is idle, but at no instant were both idle.
    """
    views = Views(2)
    views.tell_all(2)
    for name in views.names:
        views.progress[name].idle = True
    early = views.views["p1"].counters_for("p0")
    views.progress["p1"].idle, views.progress["p1"].applied = False, 1
    views.progress["p0"].appended = 1
    views.views["p0"].record_counters("p1", early, 0.0)
    views.views["p0"].advance()
    assert not views.views["p0"].ended


@pytest.mark.parametrize(
    ("who", "what"),
    [("p0", "appended"), ("p0", "applied"), ("p1", "appended"), ("p1", "applied"), ("p1", "boot")],
)
def test_rounds_with_work_in_between_do_not_count(who: str, what: str) -> None:
    """All processes are idle in both rounds, but in between, one of them applied or sent a link, or was restarted."""
    views = Views(3)
    view = views.views["p0"]
    views.tell_all(2)
    for name in views.names:
        views.progress[name].idle = True

    def hear_all() -> None:
        for name in ("p1", "p2"):
            views.views[name].record_counters("p0", view.counters_for(name), views.now)
            view.record_counters(name, views.views[name].counters_for("p0"), views.now)

    hear_all()  # the last message completes the first round
    assert view._round is not None and not view.ended
    if what == "boot":
        views.restart(who)
    else:
        setattr(views.progress[who], what, 1)
    hear_all()
    assert not view.ended
    hear_all()
    hear_all()
    assert view.ended


def test_an_old_message_of_a_process_is_dropped() -> None:
    views = Views(2)
    view = views.views["p0"]
    first, second = views.views["p1"].counters_for("p0"), views.views["p1"].counters_for("p0")
    views.progress["p1"].pages = 9
    third = views.views["p1"].counters_for("p0")
    for message in (third, first, second):
        view.record_counters("p1", message, 0.0)
    assert view.rates_stated()["p1"].pages == 9
    views.restart("p1")
    views.progress["p1"].pages = 10
    view.record_counters("p1", views.views["p1"].counters_for("p0"), 0.0)
    assert view.rates_stated()["p1"].pages == 10, "a new boot numbers its messages from one"


@given(st.integers(0, 1 << 32), st.integers(2, 4))
def test_messages_of_different_times_prove_only_a_real_end(seed: int, count: int) -> None:
    """Totals can be equal although messages crossed: two processes may have exchanged one link in each direction.

    Each process sends random links and finishes its work; a message of a random idle process is delivered.
    """
    rng, names = random.Random(seed), [f"p{index}" for index in range(count)]
    weights = {name: Weights(name, [other for other in names if other != name]) for name in names}
    sent = {name: dict.fromkeys(weights[name]._to, 0) for name in names}
    applied = {name: dict.fromkeys(weights[name]._to, 0) for name in names}
    work, transit = dict.fromkeys(names, 1), []
    own = Progress()
    view = Coordination("p0", names, b"0", lambda: own)
    for number in range(1, 300):
        name = rng.choice(names)
        if transit and rng.random() < 0.5:
            sender, owner = transit.pop(rng.randrange(len(transit)))
            sent[sender][owner] += 1
            applied[owner][sender] += 1
            work[owner] += 1
        elif work[name]:
            work[name] -= 1
            others = [other for other in names if other != name]
            transit += [(name, rng.choice(others)) for _ in range(rng.choice((0, 0, 1, 2)))]
        elif all(sender != name for sender, _ in transit):
            sums = weights[name].sent_sum(sent[name]), weights[name].applied_sum(applied[name])
            if name == "p0":
                own = Progress(idle=True, sent_sum=sums[0], applied_sum=sums[1])
            else:
                said = Counters(name.encode(), number, idle=True, sent_sum=sums[0], applied_sum=sums[1])
                view.record_counters(name, said, 0.0)
        busy = bool(transit) or any(work.values())
        assert not (view.proves_end() and busy), number
    if not busy:
        own = Progress(
            True, *[0] * 3, weights["p0"].sent_sum(sent["p0"]), weights["p0"].applied_sum(applied["p0"])
        )
        for name in names[1:]:
            sums = weights[name].sent_sum(sent[name]), weights[name].applied_sum(applied[name])
            said = Counters(name.encode(), 1000, idle=True, sent_sum=sums[0], applied_sum=sums[1])
            view.record_counters(name, said, 0.0)
        assert view.proves_end()
