"""Builds HTTP message signatures (RFC 9421): the bytes that are signed, and the fields that carry a signature.

A signature covers components of a message. The signature base has one line per
component, `"name";parameters: value`, and a last line with the signature's own
parameters (RFC 9421, 2.5):

    "@authority": example.com
    "signature-agent";key="sig": "https://bot.example"
    "@signature-params": ("@authority" "signature-agent";key="sig");created=1;expires=2;keyid="k"

Component identifiers are given in their serialized form, such as `"@authority"` with its quotes. Values and
parameters must not contain quotes, backslashes or control characters. Callers only pass origins, thumbprints
and numbers, which contain none of these characters.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crawler.signing.signing_keys import SigningKey

Component = tuple[str, str]  # (serialized identifier, value)
Parameter = tuple[str, str | int]
_KEY_ID = re.compile(rb'\r\nSignature-Input:[^\r\n]*;keyid="([^"\r\n]*)"')


def parameters(components: Iterable[Component], values: Iterable[Parameter]) -> str:
    """Return the covered components and the parameters of a signature, in the form of Signature-Input (RFC 9421, 2.3)."""
    covered = " ".join(identifier for identifier, _ in components)
    own = "".join(
        f";{name}={value}" if type(value) is int else f';{name}="{value}"' for name, value in values
    )
    return f"({covered}){own}"


def signature_base(components: Sequence[Component], signed: str) -> bytes:
    """Return the bytes to sign for `components`. `signed` is what the function `parameters` has returned for them."""
    lines = [f"{identifier}: {value}" for identifier, value in components]
    return "\n".join([*lines, f'"@signature-params": {signed}']).encode("ascii")


def signature_values(
    components: Sequence[Component], key: "SigningKey", created: int, expires: int, tag: str
) -> tuple[str, str]:
    """Sign `components`; return the values of a member of Signature-Input and of Signature (RFC 9421, 4)."""
    values: list[Parameter] = [("created", created), ("expires", expires), ("keyid", key.id), ("tag", tag)]
    signed = parameters(components, values)
    return signed, byte_sequence(key.sign(signature_base(components, signed)))


def byte_sequence(data: bytes) -> str:
    """Return bytes in the form of a structured field: base64 between colons (RFC 9651, 4.1.8)."""
    return f":{b64encode(data).decode()}:"


def key_id_of(request_head: bytes) -> str:
    """Return the id of the key that signed a request, given its recorded head; "" if the request is not signed."""
    if b"\r\nSignature-Input:" not in request_head:
        return ""
    found = _KEY_ID.search(request_head)
    return found[1].decode("latin-1") if found else ""
