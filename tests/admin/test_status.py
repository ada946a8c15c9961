"""One status of several processes: what is added up and what is not."""

from crawler.admin import status


def test_counts_add_up_and_instants_and_peers_do_not() -> None:
    parts = [
        {"name": "p0", "now": 7.0, "urls": {"done": 1}, "peers": {"p0": {"p1": {"outbox_links": 4}}}},
        {
            "name": "p1",
            "now": 5.0,
            "urls": {"done": 2, "new": 3},
            "peers": {"p1": {"p0": {"outbox_links": 2}}},
        },
    ]
    assert status.merge(parts) == {
        "name": "p0",
        "now": 7.0,
        "urls": {"done": 3, "new": 3},
        "peers": {"p0": {"p1": {"outbox_links": 4}}, "p1": {"p0": {"outbox_links": 2}}},
    }
