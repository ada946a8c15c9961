"""A shop on loopback: five pages of ten products."""

from tests.end_to_end.web import Route

PRODUCTS = 50


def shop() -> dict[str, Route]:
    """Return the routes of the shop; `/about` is linked, but is not a product."""
    routes: dict[str, Route] = {"/about": "<title>About</title>"}
    for n in range(PRODUCTS):
        routes[f"/product/{n}"] = (
            f"<title>Tea {n}</title><h1 class=product>Tea {n}</h1><b class=price>{n}.50</b><a href=/about>About</a>"
        )
    for n in range(5):
        links = "".join(f"<a href='/product/{i}'>Tea {i}</a>" for i in range(10 * n, 10 * n + 10))
        more = f"<a class=more href='/shop?page={n + 1}'>more</a>" if n < 4 else ""
        routes["/" if not n else f"/shop?page={n}"] = (
            f"<title>Shop {n}</title><div class=products>{links}</div>{more}"
        )
    return routes
