"""Test the signature fields of requests: the two profiles, reuse, rotation, challenges, and limits."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.config import IdentityConfig
from crawler.signing.key_file import write_keys
from crawler.signing.message_signatures import key_id_of
from crawler.signing.request_signer import RequestSigner, asks_for_signature, make_signer
from crawler.signing.signing_keys import SigningKey

NOW = 1_800_000_000.0
OLD, NEW = SigningKey(bytes(32)), SigningKey(bytes([1]) * 32)


@pytest.fixture
def identity(tmp_path: Path) -> IdentityConfig:
    write_keys(tmp_path / "key", (OLD,))
    return IdentityConfig(
        signature="dictionary", signature_agent="https://bot.example/", key_file=str(tmp_path / "key")
    )


def lines(fields: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in fields.split("\r\n") if line)


def key_id(fields: str) -> str:
    return key_id_of(b"GET / HTTP/1.1\r\n" + fields.encode() + b"\r\n")


def test_without_signing_there_is_no_signer() -> None:
    assert make_signer(IdentityConfig()) is None


@pytest.mark.parametrize(
    ("profile", "agent", "covered"),
    [
        ("dictionary", 'sig="https://bot.example"', '("@authority" "signature-agent";key="sig")'),
        ("string", '"https://bot.example"', '("@authority" "signature-agent")'),
    ],
)
def test_the_signature_fields_of_each_profile(
    identity: IdentityConfig, profile: Any, agent: str, covered: str
) -> None:
    signer = make_signer(replace(identity, signature=profile))
    assert signer is not None
    made = lines(signer.fields("example.org:8080", NOW + 0.9))
    assert made["Signature-Agent"] == agent
    assert made["Signature-Input"] == (
        f'sig={covered};created=1800000000;expires=1800007200;keyid="{OLD.id}";tag="web-bot-auth"'
    )
    assert made["Signature"].startswith("sig=:") and len(made) == 3


def test_a_signature_is_used_for_a_host_for_an_hour(identity: IdentityConfig) -> None:
    signer = RequestSigner(identity)
    first = signer.fields("a.example", NOW)
    assert signer.fields("a.example", NOW + 3599) is first
    assert signer.fields("b.example", NOW) != first
    later = signer.fields("a.example", NOW + 3600)
    assert "created=1800003600" in later and later != first


def test_the_memory_of_signatures_is_bounded(identity: IdentityConfig) -> None:
    signer = RequestSigner(replace(identity, signature_hosts_max=3))
    first = [signer.fields(f"h{number}", NOW) for number in range(5)]
    assert repr(signer).endswith("3 authorities)")
    assert signer.fields("h4", NOW) is first[4] and signer.fields("h0", NOW) is not first[0]


def test_a_rotated_key_takes_over_without_a_restart(identity: IdentityConfig) -> None:
    signer = RequestSigner(identity)
    assert key_id(signer.fields("a.example", NOW)) == OLD.id
    write_keys(Path(identity.key_file), (NEW,))
    assert key_id(signer.fields("a.example", NOW + 1)) == OLD.id, "the file is checked every ten seconds"
    assert key_id(signer.fields("a.example", NOW + 10)) == NEW.id


def test_a_key_file_that_is_lost_does_not_stop_the_crawl(
    identity: IdentityConfig, caplog: pytest.LogCaptureFixture
) -> None:
    signer = RequestSigner(identity)
    first = signer.fields("a.example", NOW)
    Path(identity.key_file).unlink()
    assert signer.fields("a.example", NOW + 20) is first
    assert key_id(signer.fields("b.example", NOW + 40)) == OLD.id
    assert len(caplog.records) == 1 and "signed with the previous key" in caplog.text


def test_a_challenge_makes_later_requests_signed(identity: IdentityConfig) -> None:
    signer = RequestSigner(replace(identity, sign_when="challenge"))
    asked = ((b"Accept-Signature", b'sig=("@authority");tag="web-bot-auth"'),)
    assert signer.fields("a.example", NOW) == ""
    assert not signer.note("a.example", 403, (), signed=False)
    assert signer.fields("a.example", NOW) == ""
    assert signer.note("a.example", 403, asked, signed=False), (
        "the request should be repeated with a signature"
    )
    assert signer.fields("a.example", NOW) and not signer.fields("b.example", NOW)
    assert not signer.note("a.example", 403, asked, signed=True), "a signed request is not repeated"
    assert not signer.note("b.example", 200, asked, signed=False), "this answer does not ask for a signature"
    assert signer.fields("b.example", NOW)


def test_the_memory_of_challenges_is_bounded(identity: IdentityConfig) -> None:
    signer = RequestSigner(replace(identity, sign_when="challenge", signature_hosts_max=2))
    for number in range(4):
        signer.note(f"h{number}", 403, ((b"accept-signature", b"x=()"),), signed=False)
    assert [bool(signer.fields(f"h{number}", NOW)) for number in range(4)] == [False, False, True, True]


@pytest.mark.parametrize(
    ("status", "name", "value", "asks"),
    [
        (200, b"Accept-Signature", b'sig1=("@authority" "signature-agent");tag="web-bot-auth"', True),
        (
            403,
            b"accept-signature",
            b'sig1=("@authority");created;keyid="k"',
            True,
        ),  # RFC 9421, 5.1; this challenge names no tag
        (403, b"accept-signature", b'a=("@path");tag="payments", b=();tag="web-bot-auth"', True),
        (403, b"accept-signature", b'sig1=("@authority");tag="payments"', False),
        (403, b"accept-signature", b"", False),
        (403, b"accept-signature", b'("web-bot-auth', False),
        (403, b"accept-signature", b"\xff" * 5000, False),
        (401, b"WWW-Authenticate", b'Signature realm="bots"', True),
        (401, b"www-authenticate", b'Basic realm="x", HTTP-Message-Signatures', True),
        (403, b"www-authenticate", b'Bot tag="web-bot-auth"', True),
        (401, b"www-authenticate", b'Bearer error_description="The signature is invalid"', False),
        (401, b"www-authenticate", b'Basic realm="signatures"', False),
        (503, b"www-authenticate", b"Signature", False),
        (403, b"x-other", b"web-bot-auth", False),
    ],
)
def test_answers_that_ask_for_signatures(status: int, name: bytes, value: bytes, asks: bool) -> None:
    assert asks_for_signature(status, [(b"server", b"x"), (name, value)]) is asks
