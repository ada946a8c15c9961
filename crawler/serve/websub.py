"""WebSub (W3C Recommendation, January 2018), the subscriber's side: hubs push what is new in a feed.

    we    -> hub    hub.mode=subscribe&hub.topic=T&hub.callback=.../websub/TOKEN&hub.secret=S
    hub   -> we     GET /websub/TOKEN?hub.mode=subscribe&hub.topic=T&hub.challenge=C     answered with C
    hub   -> we     POST /websub/TOKEN, the feed, X-Hub-Signature: sha256=HMAC(S, body)   answered 2xx

The token, 16 random bytes behind the place of the process that subscribed, is the
capability: who does not know it can neither confirm a subscription nor deliver. A
process that is asked for the token of another passes the request on. A delivery whose signature is wrong is
answered 202 and ignored, as section 8 asks. One signal a delivery entry.

A subscription that its hub has not verified is asked for again, at growing intervals.
One whose lease is about to end is asked for again under the same callback (section
5.1: the hub then extends it). Nothing is stored: after a restart topics are
subscribed under other tokens, and deliveries to forgotten tokens get 410.
"""

import hmac
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable

import msgspec

from crawler.serve.http_error import HttpError

LEASE_DEFAULT = 864_000.0  # seconds (10 days), where the hub names none
LEASE_MAX = 10 * 864_000.0
SUBSCRIPTIONS_MAX = 10_000
RETRY_FIRST = 60.0  # seconds until a hub that did not verify is asked again; doubles to RETRY_MAX
RETRY_MAX = 86_400.0
RENEWED_AT = 0.1  # of a lease are left when it is asked for anew
_PLACE_DIGITS = 4  # hexadecimal: as many processes as there are buckets
_DIGESTS = ("sha1", "sha256", "sha384", "sha512")


class Subscription(msgspec.Struct):
    """A topic at a hub; `until` is 0 until the hub has verified it."""

    hub: str
    topic: str
    secret: str
    until: float = 0.0
    wanted: bool = True
    lease: float = LEASE_DEFAULT  # that the hub granted, seconds
    ask_at: float = 0.0
    tries: int = 0  # since the hub verified last

    def asked(self, now: float) -> None:
        """It was asked for; what is not verified then is asked for again, later each time."""
        self.ask_at = now + min(RETRY_MAX, RETRY_FIRST * 2.0**self.tries)
        self.tries = min(self.tries + 1, 32)

    def verified(self, lease: float, now: float) -> None:
        """The hub has verified it."""
        self.lease, self.until, self.tries = lease, now + lease, 0
        self.ask_at = self.until - RENEWED_AT * lease


def slot_of(token: str, processes: int) -> int:
    """The place among `processes` of the one that has made a token; 0 for what is none."""
    digits = token[:_PLACE_DIGITS]
    place = int(digits, 16) if re.fullmatch("[0-9a-f]+", digits) else 0
    return place if place < processes else 0


class Subscriptions:
    """By token; `random` gives random bytes, `place` is that of this process among those of the crawl."""

    def __init__(self, random: Callable[[int], bytes], place: int = 0) -> None:
        self._random = random
        self._place = f"{place:0{_PLACE_DIGITS}x}"
        self._by_token: OrderedDict[str, Subscription] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_token)

    def begin(self, hub: str, topic: str, callback: str, lease: float = LEASE_DEFAULT) -> dict[str, str]:
        """The form that asks a hub for a subscription; `callback` is the address before the token.

        Raises:
            Refusal: 429, there are as many as may be.
        """
        if len(self._by_token) >= SUBSCRIPTIONS_MAX:
            raise HttpError(429, "too_many", f"{SUBSCRIPTIONS_MAX} subscriptions are the most")
        token, secret = self._place + self._random(16).hex(), self._random(32).hex()
        self._by_token[token] = Subscription(hub, topic, secret)
        return self._form(token, callback, lease)

    def _form(self, token: str, callback: str, lease: float) -> dict[str, str]:
        subscription = self._by_token[token]
        return {
            "hub.mode": "subscribe",
            "hub.topic": subscription.topic,
            "hub.callback": f"{callback}/websub/{token}",
            "hub.lease_seconds": str(int(lease)),
            "hub.secret": subscription.secret,
        }

    def want(self, topics: Iterable[tuple[str, str]]) -> None:
        """Take up (topic, hub) that nobody has subscribed to here; `due` then gives their forms."""
        known = {(each.topic, each.hub) for each in self._by_token.values()}
        for topic, hub in topics:
            if (topic, hub) not in known:
                self.begin(hub, topic, "")

    def due(self, callback: str, now: float) -> list[tuple[str, dict[str, str]]]:
        """(hub, form) to be sent now: of topics not verified yet, and of leases that come to their end."""
        forms = []
        for token, each in self._by_token.items():
            if each.wanted and each.ask_at <= now:
                each.asked(now)
                forms.append((each.hub, self._form(token, callback, LEASE_DEFAULT)))
        return forms

    def verify(self, token: str, fields: dict[str, str], now: float) -> str:
        """The challenge, if we asked for what the hub wants verified (section 5.3).

        Raises:
            Refusal: 404, we did not.
        """
        subscription = self._by_token.get(token)
        mode = fields.get("hub.mode", "")
        if subscription is None or fields.get("hub.topic") != subscription.topic:
            raise HttpError(404, "unknown", "no such subscription")
        if mode == "denied":
            del self._by_token[token]
            return ""
        if not fields.get("hub.challenge") or mode != ("subscribe" if subscription.wanted else "unsubscribe"):
            raise HttpError(404, "unknown", "this was not asked for")
        if mode == "unsubscribe":
            del self._by_token[token]
        else:
            subscription.verified(_lease(fields.get("hub.lease_seconds", "")), now)
        return fields["hub.challenge"]

    def deliver(self, token: str, body: bytes, signature: str, now: float) -> Subscription | None:
        """The subscription that a delivery is good for; None if its signature is wrong or missing.

        Raises:
            Refusal: 410, there is no such subscription, so that the hub ends it.
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
