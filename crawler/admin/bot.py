"""Builds the page about the bot: its operator and purpose, the way to opt out, and the rules that the bot obeys.

The admin server and the public listener (`bot_server.py`) both show the page about the bot. On the admin
server only, this page also gives access to the list of requests that the crawler sent to a host
(`/bot/ledger`).
"""

from html import escape

from crawler.config import Config
from crawler.signing.key_directory import PATH
from crawler.signing.key_file import OFF
from crawler.version import __version__

_OWN_STYLE = """<style>
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem }
:root { color-scheme: light dark }
table { border-collapse: collapse } th { text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0 }
td { padding: .2rem 0; overflow-wrap: anywhere } pre { overflow-x: auto }
</style>"""
_DASHBOARD_STYLE = "<link rel=stylesheet href=/static/dashboard.css>"
_LEDGER = """<h2>Requests to your host</h2>
<form action=/bot/ledger><input type=hidden name=format value=html>
<label>Host name <input name=host required></label> <button>Show</button></form>
"""


def page(config: Config, *, public: bool = False) -> bytes:
    """Return an HTML document for webmasters; a `public` document has no links to the admin server."""
    identity, politeness, robots = config.identity, config.politeness, config.robots
    contact = identity.contact
    href = contact if "://" in contact else f"mailto:{contact}"
    reach = (
        f'<a href="{escape(href)}">{escape(contact)}</a>' if contact else "nobody: no contact is configured"
    )
    obeys = (
        "obeyed, as RFC 9309 specifies"
        if robots.policy == "obey"
        else "not obeyed (the operator is testing their own site)"
    )
    least = f"{politeness.delay:g} s"
    if politeness.delay_factor:
        least += (
            f", or {politeness.delay_factor:g} times as long as your last answer took "
            f"(but not more than {politeness.delay_max:g} s for this reason)"
        )
    errors = f"a pause of {politeness.backoff_first:g} s that doubles up to {politeness.backoff_max / 3600:g} hours"
    rows = [
        ("User-Agent begins with", f"<code>{escape(identity.token)}/</code>"),
        ("Contact", reach),
        ("robots.txt", f"{obeys}; a copy is used for at most {robots.copy_max_age / 3600:g} hours"),
        ("Simultaneous requests per host", "one"),
        ("Minimum gap between requests", least),
        ("Crawl-delay", f"obeyed, up to {politeness.crawl_delay_max / 3600:g} hours"),
        ("429 and 503", "the gap doubles each time; Retry-After is obeyed"),
        ("After errors", errors),
        ("noindex, nofollow, noarchive", "obeyed; a noarchive page is never shown from the cache"),
        *_signing(config),
    ]  # fmt: skip
    table = "".join(f"<tr><th scope=row>{name}</th><td>{text}</td></tr>" for name, text in rows)
    token = escape(identity.token)
    return f"""<!doctype html>
<html lang=en><head><meta charset=utf-8><meta name=viewport content="width=device-width">
<title>About the crawler {token}</title>{_OWN_STYLE if public else _DASHBOARD_STYLE}</head>
<body class=text><main><h1>About the crawler <code>{token}</code></h1>
<p>This is a program called crawler (version {escape(__version__)}). It fetches public pages, slowly from each site.</p>
<table>{table}</table>
<h2>How to keep it out</h2>
<p>Add this to your site's robots.txt; it takes effect within {robots.copy_max_age / 3600:g} hours:</p>
<pre>User-agent: {token}
Disallow: /</pre>
{"" if public else _LEDGER}</main></body></html>
""".encode()


def _signing(config: Config) -> list[tuple[str, str]]:
    identity = config.identity
    if identity.signature == OFF:
        return []
    agent = escape(identity.signature_agent.rstrip("/"))
    which = "all requests" if identity.sign_when == "always" else "requests to sites that ask for it"
    return [
        (
            "Signatures",
            f'{which} (Web Bot Auth, RFC 9421), with the keys at <a href="{agent}{PATH}">{agent}</a>',
        )
    ]
