"""Pairs of authorities that were proven to be the same site (`urls/README.md`, "Forms of a URL").

    http -> https, www <-> apex, or both at once; default ports only

An authority that has itself answered a request with a page never becomes an alias, because it may redirect
only some pages, such as log-in pages. An alias stays an alias. No authority is both an alias and the target of
one. Only duplicate keys change, never the URL that is requested.

Each process learns equivalences only from its own requests. A link from a peer carries the fingerprint that
the peer computed; the owner of a domain computes the fingerprints of received links again.
"""

from collections import OrderedDict
from collections.abc import Mapping

from crawler.urls.canonical import authority, target

PROOFS = 5  # this many redirects to the same path on one other authority prove an equivalence
# Maximum number of pairs, which take 250 bytes each. Once this maximum is reached, no further pair is proven,
# so each redirect costs a request.
_PROVEN_MAX = 100_000
# Maximum number of authorities that are remembered. For each authority, the table holds either the number of
# its redirects, or the fact that it has answered. The least recently seen authority is dropped first.
_TRIAL_MAX = 20_000
_ANSWERED = ("", 0)


class Equivalences:
    """Counts redirects between authorities. `proven` maps an authority to the one that replaces it in keys."""

    def __init__(self, proven: Mapping[str, str] | None = None) -> None:
        self.proven: dict[str, str] = dict(proven or {})
        self.revision = 0
        self._trial: OrderedDict[str, tuple[str, int]] = OrderedDict()

    def redirected(self, url: str, location: str) -> bool:
        """Count a redirect between two request forms; return whether it proved an equivalence."""
        source, other = authority(url), authority(location)
        if source in self.proven or target(url) != target(location) or not _names_of_one_site(source, other):
            return False
        known, count = self._trial.get(source, (other, 0))
        if (known, count) == _ANSWERED or self._stands_for(other) == source:
            return False
        count = count + 1 if known == other else 1
        if count >= PROOFS and len(self.proven) < _PROVEN_MAX:
            return self._prove(source, other)
        self._note(source, (other, count))
        return False

    def answered(self, url: str) -> None:
        """Record that a request form was answered with a page, so its authority never becomes an alias."""
        self._note(authority(url), _ANSWERED)

    def state(self) -> dict[str, str]:
        """Return the state to be stored. After a restart, pass it to a new object as `proven`."""
        return dict(self.proven)

    def _prove(self, source: str, other: str) -> bool:
        final = self._stands_for(other)
        for name, known in self.proven.items():
            if known == source:
                self.proven[name] = final
        self.proven[source] = final
        self._trial.pop(source, None)
        self.revision += 1
        return True

    def _stands_for(self, name: str) -> str:
        return self.proven.get(name, name)

    def _note(self, source: str, entry: tuple[str, int]) -> None:
        self._trial[source] = entry
        self._trial.move_to_end(source)
        if len(self._trial) > _TRIAL_MAX:
            self._trial.popitem(last=False)

    def _check(self) -> None:
        # no authority is both an alias and the target of an alias
        assert not self.proven.keys() & set(self.proven.values()), self
        assert len(self._trial) <= _TRIAL_MAX, self
        assert len(self.proven) <= _PROVEN_MAX, self

    def __repr__(self) -> str:
        return f"Equivalences({len(self.proven)} proven, {len(self._trial)} on trial)"


def _names_of_one_site(source: str, other: str) -> bool:
    """Return whether `other` differs from `source` only by https instead of http, by a leading `www.`, or by both."""
    if source == other or source.startswith("https:") and other.startswith("http:"):
        return False
    source, other = source.partition("//")[2], other.partition("//")[2]
    if ":" in source or ":" in other:
        return False
    return source.removeprefix("www.") == other.removeprefix("www.")
