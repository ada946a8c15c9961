"""The first step of `crawler reshard`, which delivers all queued links, so that no link is in transit.

Each link that waits in an outbox is applied by its owner, through the same queues as over a connection. After
the links of all outboxes are applied, every DUE is flushed.
"""

from collections.abc import Sequence
from functools import partial

from crawler.errors import BehindError
from crawler.process.opening.stages import Stages
from crawler.splitter.session import lost_links_text
from crawler.splitter.spool import Greeting
from crawler.storage.commit import Change


def deliver_pending(processes: Sequence[Stages]) -> None:
    """Let each process apply the links that others have queued for it, and flush its DUE, until no link waits.

    Raise DamageError if an outbox or a queue is damaged, or if a process has lost links that it had confirmed.
    """
    by_name = {stages.name: stages for stages in processes}
    while True:
        for sender in processes:
            for peer in sender.topology.peers:
                _deliver(sender, by_name[peer])
        for stages in processes:
            stages.commits.commit_now(Change(sync=True))
        # A receiver may queue messages for other processes (credits), so another round may be needed.
        if not any(stages.outbox.links for stages in processes if stages.outbox):
            break


def _deliver(sender: Stages, receiver: Stages) -> None:
    """Deliver the queue of `sender` for `receiver` in the same way as a connection would."""
    assert sender.outbox is not None and receiver.inbox is not None
    spool = sender.outbox.spools[receiver.name]
    while True:
        durable = receiver.inbox.greet(sender.name, spool.state.epoch)
        assert durable is not None, receiver.inbox
        chain, applied = receiver.inbox.chain(sender.name), receiver.inbox.applied_from(sender.name)
        greeting = sender.outbox.welcome(receiver.name, spool.state.epoch, durable, chain, applied)
        if greeting is Greeting.GO_ON:
            break
        if greeting is Greeting.BEHIND:
            missing = spool.missing(applied)
            raise BehindError(
                lost_links_text(sender.name, receiver.name, missing, shares_directory=True), sender.name
            )
        sender.commits.commit(Change(sync=True))  # a new epoch must be durable before it is used
    while True:
        first, entries = spool.take_unsent()
        for sequence, entry in enumerate(entries, first):
            receiver.inbox.accept(sender.name, sequence, entry)
            for received in receiver.inbox.take():
                receiver.commits.commit(partial(receiver.decisions.received, received))
        if not entries:
            break
        spool.acknowledge(receiver.inbox.durable(sender.name))
    spool.disconnect()
    sender.commits.commit(Change(sync=True))
