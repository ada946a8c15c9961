"""The fetch tasks that are given out, with the hosts and fetch slots they hold.

    look-up        holds its host
    page, robots   hold their host and one of the `concurrency` fetch slots
    denied URL     holds its host

A fetch task that waits for a redirect hop is *aside*: it frees its fetch slot and address. The task keeps its
host, but hops of other tasks may use that host, after its gap; otherwise two fetch tasks that redirect to each
other's hosts would deadlock. A request that has held its fetch slot for a long time while other tasks need a slot is
*slow*: it frees the slot, but keeps its host and its address. The number of slow requests is limited to
`SLOW_SHARE` times the number of slots; further slow requests are ended.
"""

from crawler.frontier.discovery import entries
from crawler.frontier.hosts.front_host import FrontHost, Refetch
from crawler.frontier.hosts.table import HostTable
from crawler.records import FetchTask, TaskKind

# The maximum number of slow requests, which continue without a fetch slot, as a share of the fetch slots.
# A slow request holds a connection although it holds no fetch slot.
SLOW_SHARE = 0.5
_WITH_PLACE = (TaskKind.PAGE, TaskKind.ROBOTS)


class Outstanding:
    """Counts and records the fetch tasks that are taken and not yet released.

    `held` maps host keys to the hosts that tasks hold. `requests` is the number of fetch slots that are
    taken, out of `concurrency`. At present, at most `requests_max` slots may be taken.
    """

    def __init__(self, hosts: HostTable, concurrency: int) -> None:
        self._hosts = hosts
        self.concurrency = concurrency
        self.requests_max = concurrency
        self.run_is_full = False  # whether a limit of the run lets no further request start
        self.held: dict[int, FrontHost] = {}
        self.requests = 0
        self._fetch_tasks = 0
        self._refetches = 0  # refetches given out since the start
        self._aside: set[int] = set()  # keys of the hosts whose fetch task continues without a fetch slot
        self._slow: set[int] = set()  # host keys of slow requests, until their fetch tasks are released
        self._slow_max = int(concurrency * SLOW_SHARE)

    def __len__(self) -> int:
        """Return the number of fetch tasks that are not released."""
        return self._fetch_tasks

    @property
    def is_full(self) -> bool:
        """True if no fetch slot may be taken now."""
        return self.requests >= self.requests_max

    @property
    def is_nearly_full(self) -> bool:
        """True if nine in ten fetch slots are taken; then hosts that are not prompt lose some of their slots."""
        return 10 * self.requests >= 9 * self.concurrency

    def acquire(self, host: FrontHost, task: TaskKind, url: str = "") -> FetchTask:
        """Give out a fetch task.

        If the host has a known page to refetch, a task of the kind PAGE or DENIED is for this page.
        Otherwise, it is for the first URL of the host's queue.
        """
        assert not host.held and host.key not in self.held, host
        host.held = True
        host.rests_until = 0.0
        host.served += 1
        self.held[host.key] = host
        self._fetch_tasks += 1
        if task in _WITH_PLACE:
            self.requests += 1
        if task is TaskKind.RESOLVE:
            return FetchTask(task, host.key, host.name, "", attempt=self._hosts.failures[host.slot])
        if task is TaskKind.ROBOTS:
            return FetchTask(task, host.key, host.name, url, address=host.address_name())
        page: Refetch | entries.Todo
        if host.refetch is not None:
            self._refetches += 1
            order = -self._refetches  # negative, because the page is in no queue
            host.given_out.add(order)
            page, url, depth, attempt = host.refetch, host.refetch.url, host.refetch.depth, 0
        else:
            order, page = host.take_first()
            url, depth = entries.join_url(host.name, page.tail), entries.depth_of(order, page)
            attempt = page.attempt
        return FetchTask(
            task, host.key, host.name, url, page.fingerprint, depth=depth, via=page.via,
            redirects=page.redirects, flags=page.flags, order=order, attempt=attempt, address=host.address_name(),
        )  # fmt: skip

    def let_go(self, host: FrontHost) -> None:
        """Record that the host no longer has a fetch task."""
        del self.held[host.key]
        host.held = False

    def release(self, fetch_task: FetchTask, host: FrontHost) -> None:
        """End the fetch task and free its fetch slot."""
        host.given_out.discard(fetch_task.order)
        self._fetch_tasks -= 1
        if fetch_task.host in self._aside or fetch_task.host in self._slow:
            self._aside.discard(fetch_task.host)
            self._slow.discard(fetch_task.host)
        elif fetch_task.kind in _WITH_PLACE:
            self.requests -= 1

    def is_aside(self, host_key: int) -> bool:
        return host_key in self._aside

    def step_aside(self, host_key: int) -> bool:
        """Free the fetch slot of the host's task; return False if it has no slot, or if too many tasks have no slot."""
        if host_key in self._aside or len(self._aside) >= self.concurrency:
            return False
        self._aside.add(host_key)
        self.requests -= host_key not in self._slow
        self._slow.discard(host_key)
        return True

    def is_slow(self, host_key: int) -> bool:
        return host_key in self._slow

    def go_slow(self, host_key: int) -> bool:
        """Free the fetch slot of a running request; return False if it has no slot or too many requests are slow."""
        if host_key in self._aside or host_key in self._slow or len(self._slow) >= self._slow_max:
            return False
        self._slow.add(host_key)
        self.requests -= 1
        return True

    def come_back(self, host_key: int) -> None:
        """Take a fetch slot again, even if that exceeds `requests_max`."""
        self._aside.discard(host_key)
        self.requests += 1

    def _check(self) -> None:
        assert len(self.held) <= self._fetch_tasks and self.requests <= self.concurrency
        assert self._aside <= set(self.held) and not self._aside & self._slow
        assert len(self._slow) <= self._slow_max
        assert all(host.held for host in self.held.values())
