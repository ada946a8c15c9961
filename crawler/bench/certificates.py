"""Certificates for loopback servers, made with the `openssl` command."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]


def make_chain(folder: Path, names: Sequence[str]) -> None:
    """Make a certificate authority and a certificate that it signed, and write both to the folder.

    `ca.pem` is the authority's certificate. `leaf.pem` holds the signed certificate and its P-256 key.

    `names` are subject names such as "DNS:localhost" or "IP:127.0.0.1".

    Raises:
        OSError, CalledProcessError: the `openssl` command is missing or failed.
    """

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    openssl("req", "-x509", *_NEW_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")
    openssl("req", "-new", *_NEW_KEY[:-2], "-keyout", "leaf.key", "-out", "leaf.csr", "-subj", "/CN=leaf")
    folder.joinpath("names").write_text(f"subjectAltName={','.join(names)}\n")
    openssl(
        "x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", "names", "-out", "leaf.crt",
    )  # fmt: skip
    parts = [folder.joinpath(name).read_bytes() for name in ("leaf.crt", "leaf.key")]
    folder.joinpath("leaf.pem").write_bytes(b"".join(parts))
