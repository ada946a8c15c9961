"""Test signing keys: thumbprints, public keys, and rotations without a gap."""

from math import inf

import pytest

from crawler.errors import UsageError
from crawler.signing.signing_keys import SigningKey, decode, published, rotated, signing, thumbprint

DAY = 86_400.0
FIRST, SECOND, THIRD = bytes(32), bytes([1]) * 32, bytes([2]) * 32


def test_the_thumbprint_of_rfc_8037() -> None:
    """The public key in RFC 8037, A.2, and the thumbprint in A.3 are computed from the private key in A.1."""
    key = SigningKey(decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"))
    assert key.x == "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
    assert key.id == thumbprint(key.x) == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


def test_the_public_form_has_no_private_part() -> None:
    key = SigningKey(FIRST, begins=5.0, ends=9.5)
    assert key.public() == {
        "kty": "OKP", "crv": "Ed25519", "kid": key.id, "x": key.x, "use": "sig", "nbf": 5, "exp": 9,
    }  # fmt: skip
    assert decode(key.secret()["d"]) == FIRST
    assert "nbf" not in SigningKey(FIRST).public() and "exp" not in SigningKey(FIRST).public()


def test_a_rotation_leaves_no_moment_without_a_published_key() -> None:
    """Every signature stays valid for its whole day, and no key signs before it has been published for a day."""
    old = (SigningKey(FIRST, 0.0),)
    keys = rotated(old, SECOND, 1000.0, at_once=False)
    for now in range(1000, 1000 + int(3 * DAY), 3600):
        current = signing(keys, now)
        shown = [key.id for key in published(keys, now)]
        assert current.id in shown
        if current.id == keys[0].id:
            assert now < 1000 + DAY
        else:
            assert now >= 1000 + DAY
            last_of_old = 1000 + DAY - 1
            assert (keys[0].id in shown) or now > last_of_old + DAY - 3600
    assert [key.id for key in published(keys, 1000 + 3 * DAY)] == [keys[1].id]


def test_a_second_rotation_waits_for_the_first() -> None:
    keys = rotated((SigningKey(FIRST),), SECOND, 1000.0, at_once=False)
    with pytest.raises(UsageError, match="previous rotation is not finished"):
        rotated(keys, THIRD, 1000.0 + DAY - 1, at_once=False)
    later = rotated(keys, THIRD, 1000.0 + 1.5 * DAY, at_once=False)
    assert len(later) == 3
    assert [key.ends for key in later] == [1000.0 + 2 * DAY, 1000.0 + 3.5 * DAY, inf]
    assert len(rotated(keys, THIRD, 1000.0 + 10 * DAY, at_once=False)) == 2


def test_an_immediate_rotation_drops_all_other_keys() -> None:
    keys = rotated((SigningKey(FIRST),), SECOND, 1000.0, at_once=False)
    (alone,) = rotated(keys, THIRD, 1001.0, at_once=True)
    assert alone.id == SigningKey(THIRD).id and signing((alone,), 1001.0) is alone


def test_with_a_clock_that_is_behind_the_first_key_signs() -> None:
    key = SigningKey(FIRST, begins=1000.0)
    assert signing((key,), 5.0) is key
