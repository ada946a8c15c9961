"""The page about the bot, from the configuration: its identity, its purpose, how to opt out, the rules it obeys."""

from html import escape

from crawler.config import Config
from crawler.version import __version__


def page(config: Config) -> bytes:
    """Return an HTML document for webmasters."""
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
    least = f"{politeness.delay:g} s, or {politeness.delay_factor:g} times as long as your last answer took"
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
    ]  # fmt: skip
    table = "".join(f"<tr><th scope=row>{name}</th><td>{text}</td></tr>" for name, text in rows)
    token = escape(identity.token)
    return f"""<!doctype html>
<html lang=en><head><meta charset=utf-8><meta name=viewport content="width=device-width">
<title>About the crawler {token}</title><link rel=stylesheet href=/static/dashboard.css></head>
<body class=text><main><h1>About the crawler <code>{token}</code></h1>
<p>This is a program called crawler (version {escape(__version__)}). It fetches public pages, slowly from each site.</p>
<table>{table}</table>
<h2>How to keep it out</h2>
<p>Add this to your site's robots.txt; it takes effect within {robots.copy_max_age / 3600:g} hours:</p>
<pre>User-agent: {token}
Disallow: /</pre>
<h2>Requests to your host</h2>
<form action=/bot/ledger><label>Host name <input name=host required></label> <button>Show</button></form>
</main></body></html>
""".encode()
