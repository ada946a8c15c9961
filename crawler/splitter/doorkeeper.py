"""Admits the sessions of peers, so that each name has the sessions of only one process.

There is at most one listening session per peer. If a peer connects again with the same boot id, the new
session replaces the old one, because the old connection must have broken unnoticed.

Two processes with the same name would lose links and send requests to the same hosts, for example if one
of them runs on a copy of the folder. So only the newest start of a name has sessions, in both directions
(`splitter/README.md`, "Protocol"):

* The first session of a newer start ends all sessions of the older start, also those that this process has
  dialled. An older start is refused. Of two starts with the same number, the one with the larger boot id is newer.
* A process that has lost links after it confirmed them is also refused, and the existing sessions of its
  name stay. The same holds for a newer start that has applied fewer links than the connected process of its
  name: it runs on a copy of an earlier state, and another peer may miss links that it lacks. If it replaced
  the connected process here and were refused there, no process of this name would remain.
"""

from datetime import UTC, datetime

from crawler.splitter.session import Dialler, Listener
from crawler.splitter.wire import Reason, Refuse
from crawler.wording import several

_REPLACED = "a newer start of the peer is connected"


class Doorkeeper:
    """Decides which sessions of peers are admitted, and limits the number of listening sessions."""

    def __init__(self, *, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._known: dict[str, Listener] = {}
        self._dialled: dict[str, Dialler] = {}
        self._newest: dict[str, int] = {}  # for each peer, the number of its latest start that was admitted
        self._strangers: dict[Listener, None] = {}  # sessions not yet admitted, oldest first
        # sessions replaced or rejected since the last `take_parted`
        self._parted: list[Listener | Dialler] = []

    def enter(self, session: Listener) -> None:
        """Register a new connection.

        If there are too many connections, end the oldest one whose client has not been admitted.
        """
        self._strangers[session] = None
        if len(self._strangers) + len(self._known) > self._sessions_max:
            oldest = next(iter(self._strangers))
            oldest.turn_away()
            self._parted.append(oldest)

    def admit(self, session: Listener) -> Refuse | None:
        """Admit a session that sent a Hello, or return the reason for refusing it."""
        if (refusal := self._double(session)) is not None:
            return refusal
        if session.loss:
            return Refuse(Reason.BEHIND, session.loss)
        if (refusal := self._earlier_state(session)) is not None:
            return refusal
        self._replace(self._known.get(session.peer), "the peer has connected again")
        dialled = self._dialled.get(session.peer)
        if dialled is not None and dialled.boot != session.boot:
            self._replace(dialled, _REPLACED)
        self._newest[session.peer] = session.incarnation
        self._strangers.pop(session, None)
        self._known[session.peer] = session
        return None

    def accept(self, session: Dialler) -> Refuse | None:
        """Accept a session that got a Welcome, or return the reason for refusing the peer."""
        if (refusal := self._double(session) or self._earlier_state(session)) is not None:
            return refusal
        known = self._known.get(session.peer)
        if known is not None and known.boot != session.boot:
            self._replace(known, _REPLACED)
        self._newest[session.peer] = session.incarnation
        self._dialled[session.peer] = session
        return None

    def _double(self, session: Listener | Dialler) -> Refuse | None:
        """Return a refusal if a newer start of the peer is known."""
        newest = self._newest.get(session.peer, 0)
        present = self._connected(session.peer)
        if session.incarnation < newest:
            text = (
                f"a newer start of this name is known ({_instant(newest)}, this one {_instant(session.incarnation)}); "
                "the older process runs on a copy, or its clock is behind"
            )
            return Refuse(Reason.DOUBLE, text, 0 if present else newest)
        if present is not None and session.incarnation == newest and session.boot < present.boot:
            return Refuse(
                Reason.DOUBLE, "another process of this name was started at the same time and is connected"
            )
        return None

    def _earlier_state(self, session: Listener | Dialler) -> Refuse | None:
        """Return a refusal if the connected process of the peer's name has applied links that the new one lacks."""
        present = self._connected(session.peer)
        if present is None or present.boot == session.boot:
            return None
        missing = present.applied - session.applied
        if missing <= 0:
            return None
        return Refuse(
            Reason.DOUBLE,
            f"it lacks {several(missing, 'link')} that the connected process of this name has received; "
            "it runs on a copy of an earlier state",
        )

    def _connected(self, peer: str) -> Listener | Dialler | None:
        """Return a session with the newest start of a peer that has not ended; None if there is none."""
        for session in (self._known.get(peer), self._dialled.get(peer)):
            if session is not None and session.ending is None:
                return session
        return None

    def _replace(self, session: Listener | Dialler | None, text: str) -> None:
        if session is not None and session.ending is None:
            session.supersede(text)
            self._parted.append(session)

    def take_parted(self) -> list[Listener | Dialler]:
        """Return the sessions that were replaced or rejected since the last call.

        The caller must then send the last messages of these sessions.
        """
        parted, self._parted = self._parted, []
        return parted

    def leave(self, session: Listener | Dialler) -> None:
        """Remove a session that has ended."""
        if isinstance(session, Dialler):
            if self._dialled.get(session.peer) is session:
                del self._dialled[session.peer]
            return
        self._strangers.pop(session, None)
        if self._known.get(session.peer) is session:
            del self._known[session.peer]

    def __len__(self) -> int:
        return len(self._strangers) + len(self._known)


def _instant(incarnation: int) -> str:
    """Return the time of a start as text, computed from the start's number.

    The number is the time in ms, unless the clock was behind the time of an earlier start.
    """
    try:
        return datetime.fromtimestamp(incarnation / 1000, UTC).isoformat(" ", "seconds")
    except (OverflowError, ValueError, OSError):
        return str(incarnation)
