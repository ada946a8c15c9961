"""What a TLS client computes for a full handshake: CPU of its side alone, without sockets.

Client and server are two ends in memory; a chain of two P-256 certificates is made by the `openssl` command.
"""

import ssl
import subprocess
import tempfile
import time
from pathlib import Path

HANDSHAKES = 50
_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]


def handshake_cpu() -> float:
    """Seconds of CPU a handshake, the mean of some; 0 where there is no `openssl` command."""
    with tempfile.TemporaryDirectory(prefix="crawler-tls-") as folder:
        try:
            make_chain(Path(folder))
        except (OSError, subprocess.CalledProcessError):
            return 0.0
        server, client = _contexts(Path(folder))
        return sum(_client_side(server, client) for _ in range(HANDSHAKES)) / HANDSHAKES


def make_chain(folder: Path) -> None:
    """Put an authority (`ca.pem`) and a certificate of it for `localhost` (`leaf.pem`, `leaf.key`) into the folder.

    Raises:
        OSError, CalledProcessError: there is no `openssl` command, or it cannot.
    """

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    openssl("req", "-x509", *_NEW_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")
    openssl(
        "req", "-new", *_NEW_KEY[:-2], "-keyout", "leaf.key", "-out", "leaf.csr", "-subj", "/CN=localhost"
    )
    folder.joinpath("names").write_text("subjectAltName=DNS:localhost\n")
    openssl(
        "x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", "names", "-out", "leaf.pem",
    )  # fmt: skip


def _contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "leaf.pem", folder / "leaf.key")
    return server, ssl.create_default_context(cafile=str(folder / "ca.pem"))


def _client_side(server: ssl.SSLContext, client: ssl.SSLContext) -> float:
    """Seconds of CPU that the client computes in one handshake."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    begun = time.thread_time()
    asking = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    took = time.thread_time() - begun
    while True:
        begun = time.thread_time()
        done = _step(asking)
        took += time.thread_time() - begun
        if _step(answering) and done:
            return took


def _step(end: ssl.SSLObject) -> bool:
    """Go on with a handshake; whether it is over."""
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
