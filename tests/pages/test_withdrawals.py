"""Test the rules that withdraw stored pages, and their file."""

from pathlib import Path

import pytest

from crawler.errors import DamageError, UsageError
from crawler.pages.captures import record_key
from crawler.pages.withdrawals import FILE, RuleFile, Subject, Withdrawals, load_rules, place_of, url_digest
from crawler.records import Outcome, PageState
from tests.pages.support import Site, fetch

PAGE = "https://www.example.org/private/a?b=1"


@pytest.mark.parametrize(
    ("target", "covered", "others"),
    [
        (Subject(url="http://example.org/a"), ["http://example.org/a", "https://www.example.org/a"], [
            "http://example.org/ab", "http://example.org/a/", "http://other.example.org/a"]),
        (Subject(host="example.org"), ["https://example.org:8443/x", "http://www.example.org/"], [
            "http://sub.example.org/", "http://example.org.example/", "http://notexample.org/"]),
        (Subject(host="http://WWW.Example.org/"), ["https://example.org/x"], ["http://example.com/"]),
        (Subject(prefix="https://example.org/private"), ["http://example.org/private", "http://example.org/private/a"], [
            "http://example.org/public", "http://example.org:81/private", "http://example.com/private"]),
        (Subject(url="example.org/a"), ["http://example.org/a"], ["http://example.org/"]),
        (Subject(prefix="example.org/p"), ["http://example.org/private"], ["http://example.org/"]),
        (Subject(before=100.0), ["http://example.org/", "https://a.example/b"], []),
    ],
)  # fmt: skip
def test_the_urls_that_a_rule_covers(
    tmp_path: Path, target: Subject, covered: list[str], others: list[str]
) -> None:
    """The scheme and a leading `www.` are ignored.

    A host covers all its ports. A prefix covers only the port that it names.
    """
    rule = RuleFile(tmp_path, 10).add(target.rule(5.0, "asked"))
    withdrawals = Withdrawals(tmp_path)
    for url in covered:
        assert withdrawals.of_copy(url, 50.0) == rule
        assert withdrawals.stops(url) == (not target.before)
        assert rule.is_about(url)
    for url in others:
        assert (
            withdrawals.of_copy(url, 50.0) is None and not withdrawals.stops(url) and not rule.is_about(url)
        )


def test_a_date_limits_a_rule_to_older_copies(tmp_path: Path) -> None:
    RuleFile(tmp_path, 10).add(Subject(host="example.org", before=100.0).rule(5.0))
    withdrawals = Withdrawals(tmp_path)
    assert withdrawals.of_copy("http://example.org/", 99.9) is not None
    assert withdrawals.of_copy("http://example.org/", 100.0) is None
    assert withdrawals.of_copy("http://example.com/", 1.0) is None
    assert not withdrawals.stops("http://example.org/")


@pytest.mark.parametrize(
    "target",
    [
        Subject(),
        Subject(url="http://a.example/", host="a.example"),
        Subject(url="ftp://a.example/"),
        Subject(host="not a host"),
        Subject(host="http://example.org/private/"),
        Subject(host="example.org:8080"),
        Subject(prefix="/path"),
    ],
)
def test_invalid_targets(target: Subject) -> None:
    with pytest.raises(UsageError):
        target.rule(1.0)


def test_rules_are_replaced_kept_and_undone(tmp_path: Path) -> None:
    """If a rule is given twice, the time of the first one is kept. Only a rule that is in force can be undone."""
    file = RuleFile(tmp_path, 2)
    first = file.add(Subject(host="a.example").rule(1.0))
    assert file.add(Subject(host="www.a.example").rule(2.0, "now with a reason")).at == first.at
    assert [rule.reason for rule in load_rules(tmp_path)] == ["now with a reason"]
    file.add(Subject(url=PAGE).rule(3.0))
    with pytest.raises(UsageError, match="withdrawals_max"):
        file.add(Subject(host="b.example").rule(4.0))
    withdrawals = Withdrawals(tmp_path)
    assert len(withdrawals.rules) == 2 and withdrawals.stops("http://example.org/private/a?b=1")
    file.undo(Subject(url=PAGE.replace("https", "http")).rule(5.0))
    revision = withdrawals.revision
    withdrawals.reload()
    assert withdrawals.revision > revision and not withdrawals.stops(PAGE)
    with pytest.raises(UsageError, match="no such withdrawal"):
        file.undo(Subject(url=PAGE).rule(5.0))


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """If the rules cannot be read, this is an error, and must not be taken to mean that there are no rules."""
    (tmp_path / FILE).write_bytes(b'{"rules": [')
    with pytest.raises(DamageError, match="withdrawals"):
        Withdrawals(tmp_path)


def test_withdrawn_places_and_digests_are_known() -> None:
    assert place_of(PAGE) == "example.org/private/a?b=1"
    assert url_digest(PAGE) == url_digest("http://example.org/private/a?b=1")
    assert url_digest(PAGE) != url_digest("http://example.org/private/a?b=2")


def test_an_answer_in_flight_is_not_stored(tmp_path: Path) -> None:
    """End a fetch after its page was withdrawn.

    No copy is stored. The record of the page is not written again either, because an erasure may be deleting
    it.
    """
    site = Site(tmp_path / "p0")
    site.visit(fetch(body=b"<p>old</p>"))
    before = site.store.get(record_key(1))
    RuleFile(tmp_path, 10).add(Subject(host="site.example").rule(1.0))
    site.cache.withdrawals = Withdrawals(tmp_path)
    site.visit(fetch(body=b"<p>new</p>"))
    site.visit(fetch("http://site.example/never", outcome=Outcome.WITHDRAWN, status=0, body=b""), 2)
    assert site.store.get(record_key(1)) == before
    assert len(list(site.cache.stored_captures())) == 1
    assert site.cache.get(1) is None and list(site.cache.all_captures()) == []
    record = site.cache.record(2)
    assert record is not None and record.state is PageState.RETIRED
    assert list(site.cache.all_records()) == [] and len(list(site.cache.stored_records())) == 2


def test_a_payload_that_only_a_withdrawn_page_holds_is_stored_again(tmp_path: Path) -> None:
    site = Site(tmp_path / "p0")
    RuleFile(tmp_path, 10).add(Subject(host="site.example").rule(1.0))
    site.visit(fetch())
    site.cache.withdrawals = Withdrawals(tmp_path)
    site.visit(fetch("http://other.example/"), 2)
    site.visit(fetch("http://third.example/"), 3)
    assert [capture.kind for _, capture in site.cache.all_captures()] == ["response", "revisit"]
    assert site.cache.get(2) is not None and site.cache.get(3) is not None
