"""Stage 2: one HTTP request with every limit, ended in one recorded outcome.

fetchers.py      S  the seam: what a process asks of a fetcher, and the table of fetchers
fetch_request.py    what is asked, and its bytes
redaction.py        what may be shown and kept of it
direct_requests.py           requests outside the frontier's order, for a hub or a login
client.py        S  the fetcher "http": connections, time-outs, the resend rule
connection.py    S  one connection: bytes out, bytes in, deadlines, how long the exchange took
connector.py     S  opens connections past the guard, straight or through a proxy
proxy_health.py     a proxy that fails is named in the log at once
tls_transport.py S  TLS on one connection, small while idle
idle_pool.py             kept connections, one a host
answer.py           one answer out of arriving bytes: limits, framing, decoding (no I/O)
framing.py          header block, where a body ends, chunks (RFC 9112)
coding.py           content codings within limits
outcome.py          status, headers and failures to exactly one Outcome and Blame
address_guard.py    the addresses that are never connected to
cookies.py          RFC 6265 within caps, off by default
tls.py              contexts that resume sessions
resolver.py      S  names to addresses; dns_cache.py what is known of them

S marks the shell: files that wait, talk or read a clock.
"""
