"""Lets all processes agree, without a central process, on shares of the rate, on limits and on the end of the crawl.

Every process sends its `Counters` to every other process about once a second, with acks and heartbeats. From
these counters, each process computes its share of the rate, the state of the limits, and the end of the
crawl.

**Rate.** Let w_i be the number of those hosts of process i that have work. Process i takes the share

    w_i / (w_i + sum over j of the w_j received)

of the rate. Process i sends w_i to all peers, but some peers may still hold an older value of w_i. In its own
share, process i uses the least value of w_i that any peer might hold. A peer holds either the value that it
echoed last or a value that was sent to it since. So the value of w_i by which the others divide is never less
than the value that process i itself uses. Therefore the shares never add up to more than 1, even if messages
are lost or late. A share grows only after all peers have received the new value.

A peer that has sent nothing for `silence_max` is missing. A missing peer may be dead, or it may be cut off
and still fetching. In both cases, 1/N of the rate stays reserved for the missing peer. The c processes that
still receive messages from each other divide c/N of the rate in proportion to their work. If the new share of
a process is smaller than the former share, the process uses the new share immediately. If the new share is
larger, the process uses the new share only after another `silence_max`, because by then the missing process
has reduced its own share. A process that has heard from no peer uses 1/N of the rate. So the shares can add
up to more than 1 only for about a second, the interval between messages, while processes start or after a
network cut has ended.

**Known pages.** The part of the rate that is spent on known pages is divided in the same way, in proportion
to the `weight` of each process's refresh schedule. A peer may still hold an older weight of a process, as it
may hold an older w_i. So in its own share of this part, a process uses, as its own weight, the least value
that any peer might hold. The processes also send the levels of their refresh schedules, and each schedule
adjusts its weight to the levels of the others.

**Addresses.** Each process takes 1/N of the rate of an IP address (`shared_addresses.py`).

**Limits.** To check the limits of pages and bytes, each process adds up the numbers that it received last from all
processes. These numbers include fetches in flight (`splitter/README.md`, "Coordination without a central process").

**The end.** To find out whether the crawl has ended, each process compares the latest messages of all
processes twice, in two rounds. A round is good if all processes, including itself, are idle with empty
outboxes. In the second round, the values (boot, appended, applied) of each process must be the same as in the
first, in messages that were written after the first round was complete. A message proves that it was written
after the first round by echoing a number that was sent after the first round. If the values are the same, no
link was left or in transit between the rounds, because an entry leaves an outbox only after its owner has
applied it. A process that finds the values of both rounds equal tells the others that the crawl has ended
(`ended`), once it has stored that durably (`tells_end`). A missing peer delays the end, but not the crawl.

A process whose peers have left cannot make a second round. Instead, the last message of each process can
prove the end (the vector method of Mattern 1987). Every process must be idle with an empty outbox, and every
process must have applied exactly the links that the others have sent to it. If both conditions hold, no
process has sent a link after its last message. The reason is that an idle process sends a link only after it
has received one, and all links that were sent before the last messages had also been applied before them. So
if a link were sent after a last message, its cause would have to be an earlier link that was also sent after
a last message. The first of these links could have no cause, so no link is sent after a last message. A
message could contain a count for each pair of processes, but it would be long. So each message contains two
sums over the peers, in which the count of a pair is multiplied by a pseudo-random weight of 48 bits
(`Weights`). If the sums over all processes are equal, the counts of every pair are equal, except with a
probability of about 2^-48.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from crawler.splitter.shared_addresses import SharedAddresses
from crawler.splitter.wire import Counters, PastEnd

# Maximum number of messages to a peer that wait for the peer's echo. The counters of these messages are
# remembered. If there are more, the oldest are merged.
_OUTSTANDING_MAX = 256


class Progress(msgspec.Struct, gc=False):
    """The progress of a process at this moment. The fields have the same meaning as in `Counters`."""

    idle: bool = False
    outbox: int = 0
    appended: int = 0
    applied: int = 0
    sent_sum: int = 0
    applied_sum: int = 0
    pages: int = 0
    bytes: int = 0
    in_flight: int = 0
    work: int = 0
    level: float = 0.0
    weight: float = 0.0
    busy: bool = False
    past_end: PastEnd = PastEnd.NONE


class Weights:
    """The weights of links in `sent_sum` and `applied_sum`: two for each peer, one per direction."""

    def __init__(self, me: str, peers: Iterable[str]) -> None:
        names = list(peers)
        self._to = {name: _weight(me, name) for name in names}
        self._from = {name: _weight(name, me) for name in names}

    def sent_sum(self, links: Mapping[str, int]) -> int:
        """Return the weighted sum of the links that were sent to each peer and confirmed."""
        return sum(self._to[name] * count for name, count in links.items()) & _SUM_MASK

    def applied_sum(self, links: Mapping[str, int]) -> int:
        """Return the weighted sum of the links that were applied from each peer."""
        return sum(self._from[name] * count for name, count in links.items()) & _SUM_MASK


def _weight(sender: str, receiver: str) -> int:
    digest = hashlib.blake2b(f"{sender}\0{receiver}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big")


_SUM_MASK = (1 << 62) - 1  # the sums fit into a `_Count` of `wire.py`


class _Told(msgspec.Struct, frozen=True, gc=False):
    """The work and the weight that a peer learned from the message with this `number`.

    The shares of the rate are computed from these values.
    """

    number: int
    work: int
    weight: float


class _Round(msgspec.Struct):
    """A good round: the values reported in it, and the peers from which a later message is still awaited.
    `number` is the number of our last message when the round was complete. A peer is awaited until it echoes
    a message with a higher number.
    """

    said: tuple[int, int, int]
    number: int
    awaited: set[str]


class _Peer:
    """The last values received from a peer, and the values of this process that the peer might still use."""

    __slots__ = ("echo", "heard", "heard_at", "held", "outstanding", "rest")

    def __init__(self) -> None:
        self.heard: Counters | None = None
        self.echo = 0  # the number of our last message that the peer has echoed
        self.heard_at = float("-inf")
        self.rest: tuple[bytes, int, int] | None = None  # (boot, appended, applied) if the peer is idle
        self.held: _Told | None = None  # our last message that the peer has echoed
        self.outstanding: deque[_Told] = deque()  # our messages sent after `held`

    def least(self, field: str) -> float:
        """Return the smallest `work` or `weight` that this process has sent and that the peer may still use.

        Returns 0 if the peer has echoed none of our messages.
        """
        if self.held is None:
            return 0.0
        return min(getattr(told, field) for told in (self.held, *self.outstanding))


class Coordination:
    """One process's view of the whole crawl.

    `progress` returns the current progress of the process. `rate` is in pages per second. For `rate`,
    `pages_max` and `bytes_max`, 0 means no limit.
    """

    def __init__(
        self,
        me: str,
        names: Iterable[str],
        boot: bytes,
        progress: Callable[[], Progress],
        *,
        rate: float = 0.0,
        pages_max: int = 0,
        bytes_max: int = 0,
        silence_max: float = 30.0,
        addresses_max: int = 20_000,
    ) -> None:
        self.me = me
        self.boot = boot
        self.rate = rate
        self.pages_max = pages_max
        self.bytes_max = bytes_max
        self.silence_max = silence_max
        self._progress = progress
        self.ended = False
        # False while this process knows that the crawl has ended, but has not stored it. The process tells
        # its peers only after it has stored the end, because a crash would make it forget the end.
        self.tells_end = True
        self._number = 0
        self._peers = {name: _Peer() for name in names if name != me}
        self.addresses = SharedAddresses(self._peers, addresses_max)
        self._at_work = len(self._peers)  # number of peers that have work or have sent nothing yet
        self._changes = 0  # number of changes of the peers' `rest` values
        self._round: _Round | None = None

    # -- input ------------------------------------------------------------------------------------

    def counters_for(self, name: str) -> Counters:
        """Return the counters for a message to the peer `name`, and record that they were sent."""
        peer = self._peers[name]
        self._number += 1
        own = self._progress()
        if len(peer.outstanding) == _OUTSTANDING_MAX:
            first, second = peer.outstanding.popleft(), peer.outstanding.popleft()
            least = min(first.work, second.work), min(first.weight, second.weight)
            peer.outstanding.appendleft(_Told(second.number, *least))
        peer.outstanding.append(_Told(self._number, own.work, own.weight))
        heard = peer.heard
        echo, echo_boot = (heard.number, heard.boot) if heard is not None else (0, b"")
        return Counters(
            self.boot,
            self._number,
            echo,
            echo_boot,
            ended=self.ended and self.tells_end,
            addresses=self.addresses.take(name),
            **msgspec.structs.asdict(own),
        )

    def record_counters(self, name: str, counters: Counters, now: float) -> None:
        """Record the counters that a peer sent.

        A message that is not newer than the last one is ignored.
        """
        peer = self._peers[name]
        self.addresses.hear(counters.addresses)
        last = peer.heard
        if last is not None and last.boot == counters.boot and counters.number <= last.number:
            return
        if last is not None and last.boot != counters.boot:  # a restarted peer holds none of our values
            peer.held, peer.echo = None, 0
        peer.heard, peer.heard_at = counters, now
        # if the boot numbers differ, the echo answers an earlier start of this process
        if counters.echo_boot == self.boot:
            peer.echo = counters.echo
        while peer.outstanding and peer.outstanding[0].number <= peer.echo:
            peer.held = peer.outstanding.popleft()
        self._note_rest(peer, counters)
        if self._round is not None and peer.echo > self._round.number:
            self._round.awaited.discard(name)
        self.ended = self.ended or counters.ended
        self.advance()

    def applied_by(self, name: str, boot: bytes) -> int:
        """Return how many links a start of a peer has applied, according to its last message; 0 if there is none."""
        heard = self._peers[name].heard
        return heard.applied if heard is not None and heard.boot == boot else 0

    def _note_rest(self, peer: _Peer, counters: Counters) -> None:
        idle = counters.idle and not counters.outbox
        rest = (counters.boot, counters.appended, counters.applied) if idle else None
        if rest != peer.rest:
            self._at_work += (rest is None) - (peer.rest is None)
            self._changes += 1
            peer.rest = rest

    # -- the end ----------------------------------------------------------------------------------

    def advance(self) -> None:
        """Begin, confirm or abandon a round. Call this also when this process has become idle.

        Each message that arrives leads to such a call, too. To save time, only a call that begins a round
        examines all peers.
        """
        said = self._all_idle()
        if said is None:
            self._round = None
            return
        if self._round is None or self._round.said != said:
            self._round = _Round(said, self._number, set(self._peers))
        if not self._round.awaited:
            self.ended = True

    def _all_idle(self) -> tuple[int, int, int] | None:
        """Return None if a process has work. Otherwise, return a value that changes if any process works later.

        A process has work unless it is idle and its outbox is empty.
        """
        if self._at_work:
            return None
        own = self._progress()
        return (self._changes, own.appended, own.applied) if own.idle and not own.outbox else None

    def proves_end(self) -> bool:
        """Return whether the last messages of all processes prove that no process has work."""
        if not self.heard_all or self._all_idle() is None:
            return False
        everyone = self._everyone()
        return not (sum(each.sent_sum - each.applied_sum for each in everyone) & _SUM_MASK)

    @property
    def all_know(self) -> bool:
        """True if the crawl has ended and every peer has reported the end, so no peer waits for this process."""
        return self.ended and not self.uninformed()

    # -- shares and limits ------------------------------------------------------------------------

    def share(self, now: float) -> float:
        """Return the part of the rate, from 0 to 1, that this process may use now."""
        if not self._peers:
            return 1.0
        present = [peer for peer in self._peers.values() if self._is_present(peer, now)]
        among_present = self._portion("work", present) * (len(present) + 1) / self.process_count
        absent = [peer for peer in self._peers.values() if not self._is_present(peer, now)]
        if all(now - peer.heard_at >= 2 * self.silence_max or peer.held is None for peer in absent):
            return among_present
        known = [peer for peer in self._peers.values() if peer.held is not None]
        return min(among_present, self._portion("work", known))

    def _is_present(self, peer: _Peer, now: float) -> bool:
        return peer.held is not None and now - peer.heard_at < self.silence_max

    def uninformed(self) -> list[str]:
        """Return the peers that have not yet reported the end of the crawl."""
        return [name for name, peer in self._peers.items() if peer.heard is None or not peer.heard.ended]

    @property
    def heard_all(self) -> bool:
        """True if every peer has sent something since this process started."""
        return all(peer.heard is not None for peer in self._peers.values())

    def missing(self, now: float) -> list[str]:
        """Return the peers that have sent nothing for `silence_max`."""
        return [name for name, peer in self._peers.items() if not self._is_present(peer, now)]

    def _portion(self, field: str, peers: Collection[_Peer]) -> float:
        """Return this process's part of the sum of its own work, or weight, and that of `peers`.

        A peer may still hold an older value for this process. So the least value that any of `peers` might hold is
        used (see "Rate" above).
        """
        mine = min([getattr(self._progress(), field), *(peer.least(field) for peer in peers)])
        return (
            mine / (mine + sum(getattr(peer.heard, field) for peer in peers if peer.heard)) if mine else 0.0
        )

    def refresh_share(self) -> float:
        """Return this process's part, 0 to 1, of the rate for known pages.

        The rate is divided in proportion to the weights of the schedules.

        A peer that has sent nothing for a long time keeps its weight. Until all peers have echoed a message,
        the part is at most 1/N.
        """
        peers = self._peers.values()
        if any(peer.held is None for peer in peers):
            return 1.0 / self.process_count if self._progress().weight else 0.0
        return self._portion("weight", peers)

    def rates_stated(self) -> dict[str, Progress | Counters]:
        """Return, by name, this process's progress and the last counters of each peer."""
        others = {name: peer.heard for name, peer in self._peers.items() if peer.heard is not None}
        return {self.me: self._progress(), **others}

    def pages_left(self, now: float) -> int | None:
        """Return the number of fetches that may begin before the limit of pages is reached; None if there is no limit."""
        if not self.pages_max:
            return None
        in_flight = sum(
            peer.heard.in_flight
            for peer in self._peers.values()
            if peer.heard and self._is_present(peer, now)
        )
        everyone = self._everyone()
        pages = sum(each.pages for each in everyone)
        return max(0, self.pages_max - pages - everyone[0].in_flight - in_flight)

    @property
    def limit_reached(self) -> str:
        """The limit that the crawl as a whole has reached: "max_pages", "max_bytes" or ""."""
        if not (self.pages_max or self.bytes_max):
            return ""
        everyone = self._everyone()
        if self.pages_max and sum(each.pages for each in everyone) >= self.pages_max:
            return "max_pages"
        if self.bytes_max and sum(each.bytes for each in everyone) >= self.bytes_max:
            return "max_bytes"
        return ""

    def _everyone(self) -> list[Progress | Counters]:
        """Return this process's progress, followed by the last counters of each peer."""
        return [self._progress(), *(peer.heard for peer in self._peers.values() if peer.heard is not None)]

    @property
    def process_count(self) -> int:
        """The number of processes.

        Each process multiplies its gaps per address by this number, because any process may have hosts at
        that address.
        """
        return len(self._peers) + 1

    def __contains__(self, name: str) -> bool:
        return name in self._peers

    def __repr__(self) -> str:
        heard = sum(peer.heard is not None for peer in self._peers.values())
        return f"Coordination({self.me}: heard {heard} of {len(self._peers)}, ended {self.ended})"
