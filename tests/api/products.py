"""A user's program of ten lines that writes 50 products to a file. Tests check it with `mypy --strict` and run it."""

import sys
from collections.abc import Iterator

import crawler


def parse(page: crawler.Page) -> Iterator[dict[str, str] | crawler.Request]:
    if page.css("h1.product"):
        yield {"url": page.url, "name": page.css("h1").text, "price": page.css(".price").text}
    for link in page.css("a.more, .products a").attrs("href"):
        yield crawler.Request(link)


if __name__ == "__main__":
    url, items, directory = sys.argv[1:]
    local = {"network": {"allow_networks": ["127.0.0.0/8"]}, "politeness": {"delay": 0, "delay_factor": 0}}
    crawler.run(url, parse, items=items, follow=False, directory=directory, config=local)
