"""The frontier as a whole, in the model of the shell (`model.py`)."""

from crawler.records import Task
from tests.frontier.model import Crawl, link


def test_hands_out_every_url_once() -> None:
    crawl = Crawl()
    urls = [f"https://h{n % 7}.a{n % 3}.org/{n}" for n in range(300)]
    crawl.add([link(url) for url in urls])
    assert crawl.run() == "done"
    assert sorted(crawl.done) == sorted(urls)
    pages = [errand.url for errand in crawl.handed if errand.task is Task.PAGE]
    assert sorted(pages) == sorted(urls)
    assert crawl.frontier.counters()["todo"] == 0
