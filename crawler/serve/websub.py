"""WebSub (W3C Recommendation, January 2018), the subscriber's side: hubs push what is new in a feed.

    we    -> hub    hub.mode=subscribe&hub.topic=T&hub.callback=.../websub/TOKEN&hub.secret=S
    hub   -> we     GET /websub/TOKEN?hub.mode=subscribe&hub.topic=T&hub.challenge=C     answered with C
    hub   -> we     POST /websub/TOKEN, the feed, X-Hub-Signature: sha256=HMAC(S, body)   answered 2xx

The token, 16 random bytes, is the capability: who does not know it can neither
confirm a subscription nor deliver. A delivery whose signature is wrong is
answered 202 and ignored, as section 8 asks. One signal a delivery entry.
"""

import hmac
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from crawler.serve.refusal import Refusal

LEASE_DEFAULT = 864_000.0  # seconds (10 days), where the hub names none
LEASE_MAX = 10 * 864_000.0
SUBSCRIPTIONS_MAX = 10_000
_DIGESTS = ("sha1", "sha256", "sha384", "sha512")


class Subscription(msgspec.Struct):
    """A topic at a hub; `until` is 0 until the hub has verified it."""

    hub: str
    topic: str
    secret: str
    until: float = 0.0
    wanted: bool = True


class Subscriptions:
    """By token; `random` gives random bytes."""

    def __init__(self, random: Callable[[int], bytes]) -> None:
        self._random = random
        self._by_token: OrderedDict[str, Subscription] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_token)

    def begin(self, hub: str, topic: str, callback: str, lease: float = LEASE_DEFAULT) -> dict[str, str]:
        """The form that asks a hub for a subscription; `callback` is the address before the token.

        Raises:
            Refusal: 429, there are as many as may be.
        """
        if len(self._by_token) >= SUBSCRIPTIONS_MAX:
            raise Refusal(429, "too_many", f"{SUBSCRIPTIONS_MAX} subscriptions are the most")
        token, secret = self._random(16).hex(), self._random(32).hex()
        self._by_token[token] = Subscription(hub, topic, secret)
        return {
            "hub.mode": "subscribe",
            "hub.topic": topic,
            "hub.callback": f"{callback}/websub/{token}",
            "hub.lease_seconds": str(int(lease)),
            "hub.secret": secret,
        }

    def verify(self, token: str, fields: dict[str, str], now: float) -> str:
        """The challenge, if we asked for what the hub wants verified (section 5.3).

        Raises:
            Refusal: 404, we did not.
        """
        subscription = self._by_token.get(token)
        mode = fields.get("hub.mode", "")
        if subscription is None or fields.get("hub.topic") != subscription.topic:
            raise Refusal(404, "unknown", "no such subscription")
        if mode == "denied":
            del self._by_token[token]
            return ""
        if not fields.get("hub.challenge") or mode != ("subscribe" if subscription.wanted else "unsubscribe"):
            raise Refusal(404, "unknown", "this was not asked for")
        if mode == "unsubscribe":
            del self._by_token[token]
        else:
            subscription.until = now + _lease(fields.get("hub.lease_seconds", ""))
        return fields["hub.challenge"]

    def deliver(self, token: str, body: bytes, signature: str, now: float) -> Subscription | None:
        """The subscription that a delivery is good for; None if its signature is wrong or missing.

        Raises:
            Refusal: 410, there is no such subscription, so that the hub ends it.
        """
        subscription = self._by_token.get(token)
        if subscription is None or subscription.until < now:
            raise Refusal(410, "unknown", "no such subscription")
        method, _, value = signature.strip().partition("=")
        if method.lower() not in _DIGESTS:
            return None
        wanted = hmac.new(subscription.secret.encode(), body, method.lower()).hexdigest()
        good = hmac.compare_digest(wanted.encode(), value.strip().lower().encode("utf-8", "replace"))
        return subscription if good else None

    def due(self, now: float, ahead: float) -> list[str]:
        """Tokens whose lease ends within `ahead` seconds: to be asked for again."""
        return [token for token, each in self._by_token.items() if 0.0 < each.until < now + ahead]


def _lease(text: str) -> float:
    if text.isascii() and text.isdigit() and len(text) < 12:
        return min(float(text), LEASE_MAX)
    return LEASE_DEFAULT
