"""Makes TLS contexts of two kinds, verifying and recording. Both kinds resume sessions.

A full handshake costs about ten times as much as a resumed one. For some hosts, each request needs a
handshake, because the gap between requests is longer than the time for which an idle connection is kept. So
the last session of each host is kept and offered again. A session takes 6 KiB, or more with a long
certificate chain, so sessions are kept only for the hosts whose connections ended last. These hosts include
those in the front of the frontier, from which the crawl will soon fetch again. Python takes 130 to 470 us to
copy a session. Tickets of TLS 1.3 arrive after the handshake. So the session is copied only once per
connection, when the connection ends. If the connection resumed a session that is still young, no session is
copied, because servers accept a ticket more than once.

`verify` uses the system's root certificates (`SSL_CERT_FILE` works). `record` accepts old
protocol versions, weak keys and broken chains; it is used only after verification
has failed, and the fetch is flagged.
"""

import ssl
from typing import Any

from crawler.records import Outcome

# Codes of OpenSSL (X509_V_ERR_*): not yet valid, expired; wrong host name, wrong address.
_NOT_VALID_NOW = frozenset({9, 10})
_WRONG_NAME = frozenset({62, 64})


def tls_outcome(error: BaseException) -> Outcome:
    """Return the outcome of a TLS handshake that failed with `error`."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return Outcome.TLS_ERROR
    if error.verify_code in _NOT_VALID_NOW:
        return Outcome.CERTIFICATE_EXPIRED
    if error.verify_code in _WRONG_NAME:
        return Outcome.CERTIFICATE_MISMATCH
    return Outcome.CERTIFICATE_UNTRUSTED


class ResumingContext(ssl.SSLContext):
    """A client context that offers each host its last session."""

    # number of hosts whose sessions are kept, in 12 MiB; the front has only some 500 hosts
    sessions_max = 2048

    def __init__(self, protocol: int) -> None:
        self._sessions: dict[str, ssl.SSLSession] = {}

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *arguments: Any, **options: Any
    ) -> ssl.SSLObject:
        hostname = options.get("server_hostname")
        session = self._sessions.get(hostname) if hostname else None
        return super().wrap_bio(incoming, outgoing, *arguments, **{**options, "session": session})

    def keep(self, hostname: str, ssl_object: ssl.SSLObject, now: float) -> None:
        """Remember the session of a connection that worked and now ends. `now` is wall time."""
        session = self._sessions.get(hostname)
        if session is None or not ssl_object.session_reused or now >= session.time + session.timeout / 2.0:
            try:
                session = ssl_object.session
            except ValueError:  # OpenSSL cannot serialize a session that holds a certificate of some 64 KiB
                return
            if session is None or not session.has_ticket:
                return
        self._sessions.pop(hostname, None)
        self._sessions[hostname] = session
        if len(self._sessions) > self.sessions_max:
            del self._sessions[next(iter(self._sessions))]


def verifying() -> ResumingContext:
    """Return a context that accepts only a certificate that the system's roots confirm and that names the host."""
    context = ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    context.set_alpn_protocols(["http/1.1"])
    return context


def recording() -> ResumingContext:
    """Return a context that accepts whatever the host offers: old versions, weak keys, any certificate."""
    context = ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.options |= getattr(ssl, "OP_LEGACY_SERVER_CONNECT", 0x4)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    except ValueError:
        pass  # the library does not support such an old version, so its own minimum applies
    return context
