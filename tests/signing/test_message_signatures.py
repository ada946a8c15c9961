"""Test signature bases and signatures against the test vectors of RFC 9421 and of the Web Bot Auth draft.

Ed25519 is deterministic, so the same key and signature base always give the same signature.
"""

import pytest

from crawler.signing.message_signatures import byte_sequence, key_id_of, parameters, signature_base
from crawler.signing.signing_keys import SigningKey, decode

# The key "test-key-ed25519" of RFC 9421, B.1.4. Its thumbprint is given in
# draft-ietf-webbotauth-httpsig-protocol.
KEY = SigningKey(decode("n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU"))
KEY_ID = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"
AGENT = '"https://signature-agent.test"'


def draft(nonce: str, expires: int) -> list[tuple[str, str | int]]:
    return [
        ("created", 1735689600), ("keyid", KEY_ID), ("alg", "ed25519"), ("expires", expires), ("nonce", nonce),
        ("tag", "web-bot-auth"),
    ]  # fmt: skip


def test_the_vector_of_rfc_9421() -> None:
    """The vector is RFC 9421, B.2.6: signing a request with Ed25519."""
    components = [
        ('"date"', "Tue, 20 Apr 2021 02:07:55 GMT"), ('"@method"', "POST"), ('"@path"', "/foo"),
        ('"@authority"', "example.com"), ('"content-type"', "application/json"), ('"content-length"', "18"),
    ]  # fmt: skip
    signed = parameters(components, [("created", 1618884473), ("keyid", "test-key-ed25519")])
    assert signed == (
        '("date" "@method" "@path" "@authority" "content-type" "content-length")'
        ';created=1618884473;keyid="test-key-ed25519"'
    )
    base = signature_base(components, signed)
    assert base.startswith(b'"date": Tue, 20 Apr 2021 02:07:55 GMT\n"@method": POST\n')
    assert byte_sequence(KEY.sign(base)) == (
        ":wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==:"
    )


@pytest.mark.parametrize(
    ("identifier", "nonce", "expires", "signature"),
    [
        (
            '"signature-agent";key="agent2"',
            "n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==",
            4889289600,
            "RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg==",
        ),
        (
            '"signature-agent"',
            "e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4lAZYadIX6wW25MwG7DCT9RUKAJ0qVkU0mEeLElW1qg==",
            1735693200,
            "jdq0SqOwHdyHr9+r5jw3iYZH6aNGKijYp/EstF4RQTQdi5N5YYKrD+mCT1HA1nZDsi6nJKuHxUi/5Syp3rLWBA==",
        ),
    ],
    ids=["dictionary", "string"],
)
def test_the_vectors_of_web_bot_auth(identifier: str, nonce: str, expires: int, signature: str) -> None:
    """The vectors are from draft-ietf-webbotauth-httpsig-protocol, section "EdDSA Using Curve edwards25519"."""
    components = [('"@authority"', "example.com"), (identifier, AGENT)]
    base = signature_base(components, parameters(components, draft(nonce, expires)))
    assert byte_sequence(KEY.sign(base)) == f":{signature}:"


def test_the_key_id_is_read_from_the_head_of_a_request() -> None:
    head = (
        b'GET /keyid HTTP/1.1\r\nHost: a\r\nX: Signature-Input: ;keyid="no"\r\nSignature-Agent: "https://b"\r\n'
        b'Signature-Input: sig=("@authority");created=1;expires=2;keyid="yes-_";tag="web-bot-auth"\r\n'
        b"Signature: [redacted]\r\n\r\n"
    )
    assert key_id_of(head) == "yes-_"
    assert key_id_of(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n") == ""
    assert key_id_of(b'GET / HTTP/1.1\r\nSignature-Input: sig=()\r\nX: ;keyid="no"\r\n\r\n') == ""
