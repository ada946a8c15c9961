"""The shop that the tour in the README crawls, and a program that serves it.

python -m tests.end_to_end.tour_shop [PORT]     serve http://localhost:8000/ until Ctrl-C
"""

import sys
import threading

from tests.api.shop import shop
from tests.end_to_end.web import Web, page

APP = """fetch('teas.json').then(answer => answer.json()).then(teas => {
  root.innerHTML = teas.map(tea => `<a href="${tea}">${tea}</a>`).join(' ');
});"""
ROBOTS = "User-agent: *\nDisallow: /private/\nContent-Usage: search=y, train-ai=n\n"


def tour_shop(port: int = 0) -> Web:
    """Return a shop of fifty products, with a style sheet, a missing page, a moved page, and a page with a script."""
    routes = shop()
    routes["/"] = (
        f"{routes['/']}<link rel=stylesheet href=/style.css><a href=/old>old</a> <a href=/gone>gone</a>"
        "<a href=/private/>staff</a>"
    )
    css = {"Content-Type": "text/css"}
    return Web(
        routes
        | {
            "/robots.txt": (200, {"Content-Type": "text/plain"}, ROBOTS),
            "/style.css": (200, css, "@import url('more.css?v=2'); body { background: url(/logo.png) }"),
            "/more.css?v=2": (200, css, "h1 { color: green }"),
            "/logo.png": (200, {"Content-Type": "image/png"}, b"\x89PNG"),
            "/old": (301, {"Location": "/older"}, ""),
            "/older": (302, {"Location": "/about"}, ""),
            "/app/": "<title>app</title><div id=root></div><script src=/app/app.js></script>",
            "/app/app.js": (200, {"Content-Type": "text/javascript"}, APP),
            "/app/teas.json": (200, {"Content-Type": "application/json"}, '["Assam", "Sencha"]'),
            "/app/Assam": page(text="Assam"),
            "/app/Sencha": page(text="Sencha"),
        },
        port=port,
    )


if __name__ == "__main__":
    with tour_shop(int(sys.argv[1]) if len(sys.argv) > 1 else 8000) as web:
        print(web.url(), flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass
