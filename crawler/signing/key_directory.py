"""The key directory is the document with the public keys. Sites fetch the key directory to check signatures.

The directory is a JWK set. The response is signed with each key in it, and only for the authority of
`identity.signature_agent` (`signing/README.md`, "Key directory"; draft-ietf-webbotauth-httpsig-protocol,
"Possession Proof on the Directory Response").
"""

import hashlib

import msgspec

from crawler.signing.message_signatures import Component, byte_sequence, signature_values
from crawler.signing.signing_keys import Keys, published

PATH = "/.well-known/http-message-signatures-directory"
MEDIA_TYPE = "application/http-message-signatures-directory+json"
TAG = "http-message-signatures-directory"
PROOF_LIFETIME = 7 * 86_400  # seconds until a proof expires; operators of bot lists fetch a new one sooner


def directory_body(keys: Keys, now: float) -> bytes:
    """Return the JWK set of the keys in use."""
    return msgspec.json.encode({"keys": [key.public() for key in published(keys, now)]})


def proof_fields(body: bytes, keys: Keys, agent: str, now: float) -> list[tuple[str, str]]:
    """Return the header fields of a response with `body`: they have one signature for each published key."""
    digest = f"sha-256={byte_sequence(hashlib.sha256(body).digest())}"
    authority = agent.partition("://")[2].rstrip("/").lower()
    components: list[Component] = [('"@authority";req', authority), ('"content-digest"', digest)]
    created, inputs, signatures = int(now), [], []
    for number, key in enumerate(published(keys, now)):
        signed, signature = signature_values(components, key, created, created + PROOF_LIFETIME, TAG)
        inputs.append(f"binding{number}={signed}")
        signatures.append(f"binding{number}={signature}")
    return [
        ("Content-Digest", digest),
        ("Signature-Input", ", ".join(inputs)),
        ("Signature", ", ".join(signatures)),
    ]
