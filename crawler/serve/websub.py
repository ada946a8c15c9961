"""The subscriber's side of WebSub (W3C Recommendation, January 2018): hubs push new entries of a feed.

    we    -> hub    hub.mode=subscribe&hub.topic=T&hub.callback=.../websub/TOKEN&hub.secret=S
    hub   -> we     GET /websub/TOKEN?hub.mode=subscribe&hub.topic=T&hub.challenge=C     answered with C
    hub   -> we     POST /websub/TOKEN, the feed, X-Hub-Signature: sha256=HMAC(S, body)   answered 2xx

TOKEN consists of the number of the process that subscribed (its slot) and 16 random bytes. The token is a
capability: only its holder can confirm a subscription or deliver a notification. If a process receives a
request with a token of another process, it forwards the request to that process. A delivery with a wrong
signature is answered with 202 and ignored, as section 8 demands. Each entry of a delivery is one signal.

A subscription that its hub has not verified is requested again, at growing intervals. A subscription whose
lease is about to end is requested again under the same callback, which makes the hub extend the subscription
(section 5.1). Subscriptions and tokens are kept only in memory. After a restart, each topic is subscribed to
again with a new token, and deliveries to the old tokens are answered with 410.
"""

import hmac
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable

import msgspec

from crawler.serve.http_error import HttpError

LEASE_DEFAULT = 864_000.0  # number of seconds (10 days) of a lease if the hub does not state its length
LEASE_MAX = 10 * 864_000.0
SUBSCRIPTIONS_MAX = 10_000
# seconds until a subscription that the hub has not verified is requested again; the wait doubles with each
# repetition, up to RETRY_MAX
RETRY_FIRST = 60.0
RETRY_MAX = 86_400.0
RENEWED_AT = 0.1  # fraction of a lease that is left when the lease is renewed
_PLACE_DIGITS = 4  # number of hexadecimal digits of a slot; enough for as many processes as there are buckets
_DIGESTS = ("sha1", "sha256", "sha384", "sha512")


class Subscription(msgspec.Struct):
    """A subscription to a topic at a hub. `until` is the end of its lease, or 0 until the hub has verified it."""

    hub: str
    topic: str
    secret: str
    until: float = 0.0
    lease: float = LEASE_DEFAULT  # length of the granted lease, in seconds
    ask_at: float = 0.0
    tries: int = 0  # number of requests sent since the hub last verified the subscription

    def asked(self, now: float) -> None:
        """Schedule a repetition of the request just sent. Each request that the hub does not verify doubles the wait."""
        self.ask_at = now + min(RETRY_MAX, RETRY_FIRST * 2.0**self.tries)
        self.tries = min(self.tries + 1, 32)

    def verified(self, lease: float, now: float) -> None:
        """Take note that the hub has verified the subscription."""
        self.lease, self.until, self.tries = lease, now + lease, 0
        self.ask_at = self.until - RENEWED_AT * lease


def slot_of(token: str, processes: int) -> int:
    """Return the slot (below `processes`) of the process that made a token; 0 if the text is not a token."""
    digits = token[:_PLACE_DIGITS]
    place = int(digits, 16) if re.fullmatch("[0-9a-f]+", digits) else 0
    return place if place < processes else 0


class Subscriptions:
    """The subscriptions by token. `random` returns random bytes, and `place` is the slot of this process."""

    def __init__(self, random: Callable[[int], bytes], place: int = 0) -> None:
        self._random = random
        self._place = f"{place:0{_PLACE_DIGITS}x}"
        self._by_token: OrderedDict[str, Subscription] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_token)

    def want(self, topics: Iterable[tuple[str, str]]) -> None:
        """Add a subscription for each (topic, hub) that has none yet. `due` will return the requests to send for them.

        Raises:
            HttpError: 429, the maximum number of subscriptions is reached.
        """
        known = {(each.topic, each.hub) for each in self._by_token.values()}
        for topic, hub in topics:
            if (topic, hub) in known:
                continue
            if len(self._by_token) >= SUBSCRIPTIONS_MAX:
                raise HttpError(429, "too_many", f"at most {SUBSCRIPTIONS_MAX} subscriptions are possible")
            token, secret = self._place + self._random(16).hex(), self._random(32).hex()
            self._by_token[token] = Subscription(hub, topic, secret)

    def due(self, callback: str, now: float) -> list[tuple[str, dict[str, str]]]:
        """Return the forms to send now, as (hub, form): for topics not verified yet and for leases about to end.

        `callback` is the callback URL without the token.
        """
        forms = []
        for token, each in self._by_token.items():
            if each.ask_at <= now:
                each.asked(now)
                form = {
                    "hub.mode": "subscribe",
                    "hub.topic": each.topic,
                    "hub.callback": f"{callback}/websub/{token}",
                    "hub.lease_seconds": str(int(LEASE_DEFAULT)),
                    "hub.secret": each.secret,
                }
                forms.append((each.hub, form))
        return forms

    def verify(self, token: str, fields: dict[str, str], now: float) -> str:
        """Return the challenge if this process requested the subscription that the hub wants verified (section 5.3).

        Raises:
            HttpError: 404, no such request was sent.
        """
        subscription = self._by_token.get(token)
        mode = fields.get("hub.mode", "")
        if subscription is None or fields.get("hub.topic") != subscription.topic:
            raise HttpError(404, "unknown", "no such subscription")
        if mode == "denied":
            del self._by_token[token]
            return ""
        if not fields.get("hub.challenge") or mode != "subscribe":
            raise HttpError(404, "unknown", "this subscription was not requested")
        subscription.verified(_lease(fields.get("hub.lease_seconds", "")), now)
        return fields["hub.challenge"]

    def deliver(self, token: str, body: bytes, signature: str, now: float) -> Subscription | None:
        """Return the subscription of a delivery, or None if the signature is wrong or missing.

        Raises:
            HttpError: 410, there is no such subscription; the hub should end it.
        """
        subscription = self._by_token.get(token)
        if subscription is None or subscription.until < now:
            raise HttpError(410, "unknown", "no such subscription")
        method, _, value = signature.strip().partition("=")
        if method.lower() not in _DIGESTS:
            return None
        wanted = hmac.new(subscription.secret.encode(), body, method.lower()).hexdigest()
        good = hmac.compare_digest(wanted.encode(), value.strip().lower().encode("utf-8", "replace"))
        return subscription if good else None


def _lease(text: str) -> float:
    if text.isascii() and text.isdigit() and len(text) < 12:
        return min(float(text), LEASE_MAX)
    return LEASE_DEFAULT
