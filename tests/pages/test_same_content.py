"""The content-seen test: counts by host and digest, the latest ones."""

from crawler.pages.same_content import SameContent


def test_pages_are_counted_by_host_and_content() -> None:
    same = SameContent()
    assert [same.count(1, b"x") for _ in range(3)] == [1, 2, 3]
    assert [same.count(2, b"x"), same.count(1, b"y"), same.count(1, b"x")] == [1, 1, 4]


def test_the_one_not_counted_for_longest_is_forgotten() -> None:
    same = SameContent(entries_max=2)
    for host in (1, 2, 1, 3):  # 2 is the oldest when 3 comes
        same.count(host, b"x")
    assert same.count(1, b"x") == 3
    assert same.count(3, b"x") == 2
    assert same.count(2, b"x") == 1


def test_as_many_are_remembered_as_were_asked_for() -> None:
    same = SameContent(entries_max=3)
    for host in (1, 2, 3):
        same.count(host, b"x")
    assert [same.count(host, b"x") for host in (1, 2, 3)] == [2, 2, 2]
