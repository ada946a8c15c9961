"""Test the key directory, and compare its signed response with the test vector of the draft."""

import msgspec

from crawler.signing.key_directory import directory_body, proof_fields
from crawler.signing.message_signatures import byte_sequence, parameters, signature_base
from crawler.signing.signing_keys import SigningKey, decode, rotated

TEST_KEY = SigningKey(decode("n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU"))


def test_the_test_vector_of_a_signed_directory() -> None:
    """The test vector is "Signed Directory Response" of draft-ietf-webbotauth-httpsig-protocol.

    Only `expires` differs.
    """
    body = (
        b'{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U",'
        b'"x":"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs","use":"sig"}]}'
    )
    assert directory_body((TEST_KEY,), 1735689600.0) == body
    fields = dict(proof_fields(body, (TEST_KEY,), "https://signature-agent.test", 1735689600.0))
    digest = "sha-256=:CADMT2aBdV/rqQr/NIru64ERQkCobVvllA4V0fLFDu0=:"
    assert fields["Content-Digest"] == digest
    components = [('"@authority";req', "signature-agent.test"), ('"content-digest"', digest)]
    signed = parameters(
        components,
        [("created", 1735689600), ("expires", 4889289600), ("keyid", TEST_KEY.id),
         ("tag", "http-message-signatures-directory")],
    )  # fmt: skip
    assert byte_sequence(TEST_KEY.sign(signature_base(components, signed))) == (
        ":l6P8R67tm3kujAxbHWio7ll01qrEZ0dKD/WWlGhNYEmTnFZM8Wt0VQ9zqGfvo7T/UMkBxsigzChM1Gpz7gOVBg==:"
    )
    ours = fields["Signature-Input"].removeprefix("binding0=")
    assert ours.replace(";expires=1736294400", ";expires=4889289600") == signed


def test_each_published_key_signs() -> None:
    keys = rotated((SigningKey(bytes(32)),), bytes([1]) * 32, 1000.0, at_once=False)
    body = directory_body(keys, 1000.0)
    rows = msgspec.json.decode(body)["keys"]
    assert [row["kid"] for row in rows] == [key.id for key in keys]
    assert all("d" not in row for row in rows)
    fields = dict(proof_fields(body, keys, "https://Bot.example:8443/", 1000.0))
    assert fields["Signature"].count("binding") == fields["Signature-Input"].count("binding") == 2
