"""Test the parts of the virtual world: order of events, silent connections, loss of unsynced data."""

import asyncio
import contextvars
import math
import os
import random
import socket
from pathlib import Path

import pytest

from crawler.lab.cluster import fault_plan
from crawler.lab.cluster.disk import SyncedFiles
from crawler.lab.cluster.machine import CURRENT, JournalStore, Killed, Life, Machine, SystemCalls
from crawler.lab.cluster.virtual_loop import VirtualLoop
from crawler.lab.cluster.virtual_network import VirtualNetwork
from crawler.splitter.peers import readable
from crawler.storage.engines import open_store
from crawler.storage.files import Lock


@pytest.fixture
def loop():  # type: ignore[no-untyped-def]
    made = VirtualLoop(VirtualNetwork(random.Random(1)), 100.0)
    asyncio.set_event_loop(made)
    yield made
    asyncio.set_event_loop(None)
    made.close()


def make_life(folder: Path, name: str = "p0", number: int = 1) -> Life:
    return Life(Machine(name, name, folder, random.Random(2)), number)


def in_life(life: Life | None, function, *args):  # type: ignore[no-untyped-def]
    context = contextvars.copy_context()
    context.run(CURRENT.set, life)
    return context.run(function, *args)


# -- time


def test_time_jumps_and_equal_instants_keep_their_order(loop: VirtualLoop) -> None:
    seen: list[tuple[int, float]] = []
    for number in range(20):
        loop.call_at(100.0 + number // 7 * 50.0, lambda n=number: seen.append((n, loop.time())))
    loop.run_until_complete(asyncio.sleep(1000.0))
    assert [number for number, _ in seen] == list(range(20))
    assert [at for _, at in seen] == [100.0 + n // 7 * 50.0 for n in range(20)]
    assert loop.time() == 1100.0


def test_time_passes_during_waits_of_zero_seconds(loop: VirtualLoop) -> None:
    """If no time passed, a wait whose duration is rounded to 0 would be repeated forever at the same instant."""

    async def spin() -> None:
        until = loop.time() + 2e-6
        while loop.time() < until:
            await asyncio.sleep(0)

    loop.run_until_complete(spin())
    assert 100.0 < loop.time() < 100.001 and loop.steps < 10_000


def test_an_executor_does_one_job_after_the_other(loop: VirtualLoop, tmp_path: Path) -> None:
    async def jobs() -> list[int]:
        seen: list[int] = []
        await asyncio.gather(*(loop.run_in_executor("writer", seen.append, n) for n in range(9)))
        return seen

    task = in_life(make_life(tmp_path), loop.create_task, jobs())
    assert loop.run_until_complete(task) == list(range(9))
    assert loop.time() > 100.0


def test_dead_lives_never_run_and_suspended_ones_resume(loop: VirtualLoop, tmp_path: Path) -> None:
    seen: list[str] = []
    dead, still = make_life(tmp_path), make_life(tmp_path, "p1")
    in_life(dead, loop.call_later, 1.0, seen.append, "dead")
    in_life(still, loop.call_later, 1.0, seen.append, "still")
    in_life(still, loop.call_later, 2.0, seen.append, "later")
    dead.dead, still.frozen_until = True, 150.0
    loop.run_until_complete(asyncio.sleep(10.0))
    assert seen == []
    loop.run_until_complete(asyncio.sleep(60.0))
    assert seen == ["still", "later"]


# -- the wire


class Ear(asyncio.Protocol):
    """A protocol that records received data."""

    def __init__(self) -> None:
        self.heard = b""
        self.lost: list[BaseException | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, error: BaseException | None) -> None:
        self.lost.append(error)


class Pair:
    """Two simulated processes with a connection from the first to the second."""

    def __init__(self, loop: VirtualLoop, folder: Path) -> None:
        self.loop, self.wire = loop, loop._wire
        self.lives = make_life(folder, "p0", 1), make_life(folder, "p1", 2)
        self.near, self.far = Ear(), Ear()
        listening = in_life(self.lives[1], self.wire.listen, ("10.0.0.2", 1))

        async def accept() -> None:
            await readable(listening)
            accepted, _ = listening.accept()
            await loop.connect_accepted_socket(lambda: self.far, accepted)

        taking = in_life(self.lives[1], loop.create_task, accept())
        dialling = in_life(
            self.lives[0], loop.create_task, loop.create_connection(lambda: self.near, "10.0.0.2", 1)
        )
        loop.run_until_complete(asyncio.wait_for(dialling, 10.0))
        loop.run_until_complete(taking)

    def wait(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))


def write_in(loop: VirtualLoop, transport: asyncio.Transport, data: bytes) -> None:
    """Write to a transport while the event loop runs."""

    async def write() -> None:
        transport.write(data)

    loop.run_until_complete(write())


def test_bytes_arrive_in_order_despite_loss_and_splitting(loop: VirtualLoop, tmp_path: Path) -> None:
    pair, said = Pair(loop, tmp_path), b""
    pair.wire.loss = 0.5
    for size in (1, 5, 39, 200, 3000, 50_000):
        data = random.Random(size).randbytes(size)
        said += data
        write_in(loop, pair.near.transport, data)
    pair.wait(60.0)
    assert pair.far.heard == said


def test_a_cut_way_holds_bytes_back_until_it_is_restored(loop: VirtualLoop, tmp_path: Path) -> None:
    pair = Pair(loop, tmp_path)
    pair.wire.cut.add(("p0", "p1"))
    write_in(loop, pair.near.transport, b"hello")
    pair.wait(30.0)
    assert pair.far.heard == b"" and not pair.far.lost
    write_in(loop, pair.far.transport, b"welcome")
    pair.wait(3.0)
    assert pair.near.heard == b"welcome", "only one way is cut"
    pair.wire.cut.clear()
    pair.wait(3.0)
    assert pair.far.heard == b"hello"


@pytest.mark.parametrize("silent", [True, False])
def test_a_killed_process_resets_its_connections_and_a_power_cut_is_silent(
    loop: VirtualLoop, tmp_path: Path, silent: bool
) -> None:
    pair = Pair(loop, tmp_path)

    async def kill() -> None:
        pair.lives[1].dead = True
        pair.wire.end_of(pair.lives[1], silent=silent)

    loop.run_until_complete(kill())
    pair.wait(5.0)
    assert bool(pair.near.lost) is not silent
    assert not pair.far.lost


# -- the disk


def test_a_power_cut_undoes_only_the_last_unsynced_batches() -> None:
    rng, whole = random.Random(3), set()
    for _ in range(50):
        machine = Machine("m", "m", Path(), rng)
        store = JournalStore(machine)
        for number in range(10):
            batch = store.batch(sync=number == 4)
            batch.put(b"k%d" % number, b"v")
            batch.put(b"last", b"%d" % number)
            store.write(batch)
        machine.store.lose_power(rng)
        data = dict(machine.store.scan(b""))
        kept = int(data[b"last"])
        assert list(data) == sorted([b"last", *(b"k%d" % n for n in range(kept + 1))])
        whole.add(kept)
    assert whole == {4, 5, 6, 7, 8, 9}


def test_the_store_behaves_as_a_store_on_the_disk(tmp_path: Path) -> None:
    rng, store, model = (
        random.Random(4),
        JournalStore(Machine("m", "m", Path(), random.Random())),
        open_store(tmp_path),
    )
    for _ in range(300):
        for target in (store, model):
            state = rng.getstate()
            batch = target.batch()
            for _ in range(rng.randrange(4)):
                key = bytes([rng.randrange(30)])
                if rng.random() < 0.6:
                    batch.put(key, rng.randbytes(2))
                else:
                    batch.delete(key)
            target.write(batch)
            after = rng.getstate()
            rng.setstate(state)
        rng.setstate(after)
        start, stop = bytes([rng.randrange(30)]), rng.choice([None, bytes([rng.randrange(30)])])
        backwards = rng.random() < 0.5
        assert list(store.scan(start, stop, reverse=backwards)) == list(
            model.scan(start, stop, reverse=backwards)
        )


def test_a_power_cut_keeps_what_was_synced_of_a_file(tmp_path: Path) -> None:
    lengths = set()
    for seed in range(40):
        folder = tmp_path / str(seed)
        folder.mkdir()
        path, files = folder / "log", SyncedFiles()
        path.write_bytes(b"synced")
        files.file_synced(str(path), path.stat())
        with path.open("ab") as file:
            file.write(b" and not")
        (folder / "new").write_bytes(b"x")
        files.lose_power(folder, random.Random(seed))
        assert path.read_bytes().startswith(b"synced")
        lengths.add((path.stat().st_size, (folder / "new").exists()))
    assert {size for size, _ in lengths} > {6} and {there for _, there in lengths} == {True, False}


def test_dead_lives_cannot_write_and_a_full_disk_accepts_nothing(tmp_path: Path) -> None:
    system, life = SystemCalls(), make_life(tmp_path)
    with system.installed():
        descriptor = in_life(life, os.open, tmp_path / "file", os.O_WRONLY | os.O_CREAT)
        assert in_life(life, os.write, descriptor, b"one") == 3
        life.machine.room = 1
        assert in_life(life, os.write, descriptor, b"two") == 1
        with pytest.raises(OSError, match="No space"):
            in_life(life, os.write, descriptor, b"wo")
        life.machine.room = math.inf
        life.dead = True
        system.end(life)
        with pytest.raises(Killed):
            in_life(life, os.write, descriptor, b"three")
        os.close(descriptor)  # late cleanup code cannot close a file of another process
        os.write(descriptor, b"four")
    assert (tmp_path / "file").read_bytes() == b"onet"


def test_the_end_of_a_life_closes_no_file_that_has_the_number_of_a_file_it_had_closed(tmp_path: Path) -> None:
    """A file object closes its descriptor without `os.close`.

    Afterwards, another file may have the descriptor's number.
    """
    system = SystemCalls()
    first, second = make_life(tmp_path / "first"), make_life(tmp_path / "second")
    for life in (first, second):
        life.machine.folder.mkdir()
    with system.installed():
        descriptor = in_life(first, os.open, first.machine.folder / "file", os.O_WRONLY | os.O_CREAT)
        open(descriptor, "wb").close()
        assert (
            in_life(second, os.open, second.machine.folder / "file", os.O_WRONLY | os.O_CREAT) == descriptor
        )
        system.end(first)
        assert in_life(second, os.write, descriptor, b"kept") == 4

        late = open(descriptor, "wb")  # noqa: SIM115 - late cleanup code of the second life closes the file
        system.end(second)
        late.close()
        assert in_life(None, os.open, tmp_path / "other", os.O_WRONLY | os.O_CREAT) == descriptor
    os.write(descriptor, b"open")
    os.close(descriptor)
    assert (second.machine.folder / "file").read_bytes() == b"kept"
    assert (tmp_path / "other").read_bytes() == b"open"


def test_a_lock_of_a_dead_life_closes_no_file_of_another_process(tmp_path: Path) -> None:
    """A lock that is released late, or by a child forked after the simulation, closes no file of another process."""
    system, life = SystemCalls(), make_life(tmp_path)
    with system.installed():
        locks = [in_life(life, Lock, tmp_path / f"{number}.lock", "p0") for number in range(2)]
        life.dead = True
        system.end(life)
    # these sockets get the same numbers as the descriptors of the locks had
    pairs = [socket.socketpair() for _ in locks]
    locks.pop().release()
    child = os.fork()
    if not child:
        try:
            for _, far in pairs:
                far.sendall(b"open")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for near, far in pairs:
        assert near.recv(4) == b"open"
        near.close()
        far.close()


def test_faults_are_drawn_in_order_and_by_seed() -> None:
    drawn = fault_plan.draw(3, tuple(fault_plan.KINDS), 80, machines=3, within=100.0)
    assert drawn == fault_plan.draw(3, tuple(fault_plan.KINDS), 80, machines=3, within=100.0)
    assert drawn != fault_plan.draw(4, tuple(fault_plan.KINDS), 80, machines=3, within=100.0)
    assert [fault.at for fault in drawn] == sorted(fault.at for fault in drawn)
    assert {fault.kind for fault in drawn} == set(fault_plan.KINDS)
    alone = fault_plan.draw(3, tuple(fault_plan.KINDS), 80, machines=1, within=100.0)
    assert not {"partition", "one-way", "loss", "clone"} & {fault.kind for fault in alone}
