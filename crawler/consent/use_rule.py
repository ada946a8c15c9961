"""Decides whether a stored copy may be used for a purpose (`consent/README.md`, "What may be used").

    export --allow, serve.allow, get --allow, Crawl.stored(allow=)  ->  UseRule.refusal(copy)  ->  Refusal, or None

With `consent.retroactive`, a refusal at the page's last fetch counts for its earlier copies, too. A permission
that the site gives later does not.
"""

from typing import NamedTuple

from crawler.config import ConsentConfig
from crawler.config.forms import use_of
from crawler.consent.receipts import Receipt, load
from crawler.consent.resolving import Consent, UseDecision
from crawler.consent.statements import ALLOW, REFUSE
from crawler.errors import ConfigError, DamageError, UsageError
from crawler.records import Capture, PageRecord
from crawler.storage.kv import KeyValue

USES_CACHED_MAX = 4096  # maximum number of receipts whose answers are cached; a host has a few receipts
_NOTHING = Consent()
_known: dict[bytes, Consent] = {}


class Refusal(NamedTuple):
    """The reason why a copy may not be used. `later` is True if only a later fetch refused it."""

    why: str
    later: bool = False


class UseRule(NamedTuple):
    """The rule for one use. It refers to a field of `Consent`, and to the settings of `[consent]`."""

    use: str
    unknown_allowed: bool = False
    retroactive: bool = False

    @classmethod
    def of(cls, name: str, config: ConsentConfig, unknown: str = "") -> "UseRule | None":
        """Return the rule for the use `name`, such as "train-ai"; None for "". `unknown` overrides `consent.unknown`.

        Raises:
            UsageError: there is no such use.
        """
        if not name:
            return None
        try:
            use = use_of(name)
        except ConfigError as error:
            raise UsageError(f"allow: {error}") from None
        return cls(use, (unknown or config.unknown) == "allow", config.retroactive)

    def refusal(
        self, store: KeyValue, fingerprint: int, capture: Capture, record: PageRecord | None
    ) -> Refusal | None:
        """Return the reason why a copy may not be used; None if it may be used. `record` is the page's record."""
        name = self.use.replace("_", "-")
        try:
            said = self._answer(store, fingerprint, capture.receipt)
            later = UseDecision()
            if self.retroactive and record is not None:
                later = self._answer(store, fingerprint, record.receipt)
        except DamageError as error:
            return Refusal(f"its consent receipt cannot be read: {error}")
        if said.preference is REFUSE:
            return Refusal(f"{name} was refused when the page was fetched ({said.source})")
        if later.preference is REFUSE:
            why = f"{name} was refused at a later fetch of the page ({later.source})"
            return Refusal(why, later=said.preference is ALLOW or self.unknown_allowed)
        if said.preference is ALLOW or self.unknown_allowed:
            return None
        return Refusal(f"the site does not say whether {name} is allowed (consent.unknown = refuse)")

    def _answer(self, store: KeyValue, fingerprint: int, digest: bytes) -> UseDecision:
        decision: UseDecision = getattr(uses_of(store, fingerprint, digest), self.use)
        return decision


def uses_of(store: KeyValue, fingerprint: int, digest: bytes) -> Consent:
    """Return the answers of a receipt. If there is no receipt, all answers are unknown.

    Because a digest identifies the content of a receipt, one cache serves all stores.

    Raises:
        DamageError: the receipt is damaged, or missing although a copy refers to it.
    """
    if not digest:
        return _NOTHING
    uses = _known.get(digest)
    if uses is None:
        receipt = load(store, fingerprint, digest, Receipt)
        if receipt is None:
            raise DamageError(f"store: the receipt {digest.hex()} is missing")
        if len(_known) >= USES_CACHED_MAX:
            _known.clear()
        uses = _known[digest] = receipt.uses
    return uses
