"""Stage 2: sends one HTTP request within all limits and records exactly one outcome.

fetchers.py      S  the interface between a process and its fetchers, and the table of fetchers
fetch_request.py    a request and its bytes
redaction.py        removes credentials before anything is shown or stored
direct_requests.py  requests outside the crawl, for a login
client.py        S  the fetcher "http": connections, time limits, the resend rule
connection.py    S  one connection: bytes out, bytes in, deadlines, duration of the exchange
connector.py     S  opens connections past the address guard, direct or through a proxy
proxy_health.py     logs at once when the proxy fails
tls_transport.py S  TLS on one connection, with little memory while idle
idle_pool.py        idle connections, one per host
answer.py           assembles one answer from arriving bytes: limits, framing, decoding (no I/O)
framing.py          header block, end of the body, chunks (RFC 9112)
outcome.py          maps status, headers and failures to exactly one Outcome and Blame
address_guard.py    the addresses that the crawler never connects to
cookies.py          RFC 6265, within size limits
tls.py              TLS contexts that resume sessions
resolver.py      S  resolves host names to addresses; dns_cache.py keeps the results

In the list, S marks the shell: the files that wait, use the network or read a clock.
"""
