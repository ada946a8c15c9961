"""Test consent receipts: pages with equal statements share one receipt, and an incomplete receipt allows nothing."""

import hashlib

import msgspec
import pytest

from crawler.config import ConsentConfig, RobotsConfig
from crawler.consent.receipts import (
    DIGEST_BYTES,
    Receipt,
    SiteStatements,
    load,
    read_block,
    receipt_key,
    unpack,
)
from crawler.consent.resolving import UseDecision
from crawler.consent.site_book import SiteBook
from crawler.consent.stamping import Stamping, load_whole
from crawler.consent.statements import ALLOW, REFUSE, UNKNOWN
from crawler.errors import DamageError
from crawler.fetcher.outcome import of_status
from crawler.records import Extracted, Fetch, Outcome, ReceiptStamp
from crawler.robots.cache import RobotsCache
from crawler.storage.commit import Change
from crawler.storage.keys import RECEIPT
from crawler.storage.kv import MemoryStore, scan_prefix, seal, unseal
from crawler.urls.canonical import authority

SITE = "http://h.example"
PAGE = f"{SITE}/a"
FINGERPRINT = 0x1234_5678_9ABC_DEF0
ROBOTS = b"User-agent: *\nContent-Usage: train-ai=y\nLicense: http://h.example/l.xml\nDisallow: /private\n"
RSL = b'<rsl><content url="/"><license><permits type="usage">search</permits></license></content></rsl>'


class Desk:
    """A store, and the objects that make consent receipts."""

    def __init__(self, robots: bytes = b"", **config: bool) -> None:
        self.store = MemoryStore()
        self.robots = RobotsCache(self.store, RobotsConfig(), "crawler", 100)
        self.book = SiteBook(
            self.store,
            self.robots,
            ConsentConfig(**config),
            token="crawler",
            fingerprint=lambda url: FINGERPRINT,
            record_of=lambda url, at: b"",
        )
        self.stamping = Stamping(self.store, self.book, "crawler")
        self.read_robots(robots, 100.0)

    def read_robots(self, body: bytes, at: float) -> None:
        self.robots.record(SITE, status=200, outcome=Outcome.FETCHED, body=body, complete=True, now=at)

    def learn(self, url: str, body: bytes, kind: str = "application/rsl+xml", status: int = 200) -> None:
        outcome = of_status(status, conditional=False, has_body=True, has_location=False)
        fetch = Fetch(url, outcome, status=status, content=body, content_type=kind, began=101.0)
        key, value = self.book.learn(SITE, url, fetch, 101.0)
        self._put([(key, value)])

    def stamp(
        self, fetch: Fetch, extracted: Extracted | None = None, before: bytes | None = None
    ) -> ReceiptStamp:
        change = Change()
        if not fetch.site:
            fetch.site = self.book.note(authority(fetch.url))
        stamp = self.stamping.stamp(fetch, FINGERPRINT, extracted, before, change)
        self._put(change.operations)
        return stamp

    def receipt(self, *args: object, **options: object) -> Receipt:
        found = load(self.store, FINGERPRINT, self.stamp(*args, **options).digest, Receipt)  # type: ignore[arg-type]
        assert found is not None
        return found

    def stored(self) -> int:
        return sum(1 for _ in scan_prefix(self.store, RECEIPT))

    def _put(self, operations: object) -> None:
        batch = self.store.batch()
        for key, value in operations:  # type: ignore[attr-defined]
            batch.put(key, value)
        self.store.write(batch)


def page(url: str = PAGE, *headers: tuple[bytes, bytes], kind: str = "text/html", status: int = 200) -> Fetch:
    outcome = Outcome.UNCHANGED if status == 304 else Outcome.FETCHED
    return Fetch(url, outcome, status=status, headers=headers, content_type=kind)


def read(*metas: tuple[str, str], licenses: tuple[str, ...] = ()) -> Extracted:
    return Extracted(PAGE, statements=list(metas), licenses=list(licenses))


def test_pages_with_equal_statements_share_one_receipt() -> None:
    desk = Desk(b"User-agent: *\nDisallow: /x\n")
    digests = {desk.stamp(page(f"{SITE}/{n}"), read()).digest for n in range(50)}
    assert len(digests) == 1
    assert desk.stored() == 2  # the receipt and the statements of the site
    other = desk.stamp(page(PAGE, (b"TDM-Reservation", b"1")), read())
    assert other.digest not in digests and other.answers == "tdm=n"
    assert desk.stored() == 3


def test_a_receipt_names_the_statements_in_force() -> None:
    desk = Desk(ROBOTS.replace(b"License", b"Nothing") + b"Allow: /a\n")
    receipt, site = (
        load_whole(desk.store, FINGERPRINT, desk.stamp(page(), read(("robots", "noai"))).digest) or ()
    )
    assert receipt.rule == "Allow: /a" and receipt.metas == (("robots", "noai"),)
    assert receipt.deciding == (("content-usage-robots", "train-ai=y"),)
    assert receipt.uses.train_ai == UseDecision(REFUSE, "page-names") and receipt.key_id == ""
    assert (site.robots_url, site.robots_at, site.robots_status) == (f"{SITE}/robots.txt", 100.0, 200)
    assert site.group == "*" and site.token == "crawler" and site.usage == ("train-ai=y",)
    assert len(site.robots_digest) == 32


def test_the_robots_txt_current_at_the_fetch_counts() -> None:
    desk = Desk(b"User-agent: *\nContent-Usage: train-ai=n\n")
    fetch = page()
    fetch.site = desk.book.note(SITE)
    desk.read_robots(b"User-agent: *\nContent-Usage: train-ai=y\n", 200.0)
    assert desk.receipt(fetch, read()).uses.train_ai.preference is REFUSE
    assert desk.receipt(page(), read()).uses.train_ai.preference is ALLOW


def test_a_page_gets_the_receipt_of_the_line_for_its_path() -> None:
    desk = Desk(b"User-agent: *\nContent-Usage: train-ai=y\nContent-Usage: /n/ train-ai=n\n")
    assert desk.receipt(page(f"{SITE}/n/1"), read()).uses.train_ai.preference is REFUSE
    assert desk.receipt(page(f"{SITE}/y"), read()).uses.train_ai.preference is ALLOW


@pytest.mark.parametrize(
    ("body", "status", "answer"),
    [(RSL, 200, ALLOW), (b"no", 200, UNKNOWN), (b"", 404, UNKNOWN), (None, 0, UNKNOWN)],
    ids=["read", "not RSL", "missing", "not fetched yet"],
)
def test_an_announced_licence_that_was_not_read_allows_nothing(
    body: bytes | None, status: int, answer: object
) -> None:
    desk = Desk(ROBOTS)
    if body is not None:
        desk.learn(f"{SITE}/l.xml", body, status=status)
    receipt = desk.receipt(page(), read())
    assert receipt.uses.search.preference is answer
    assert receipt.uses.train_ai.preference is (ALLOW if answer is ALLOW else UNKNOWN)
    assert receipt.complete is (answer is ALLOW)


def test_a_page_announces_a_licence_by_header_or_link_element() -> None:
    desk = Desk()
    refusing = RSL.replace(b"permits", b"prohibits")
    desk.learn(f"{SITE}/own.xml", refusing)
    link = (b"Link", b'</own.xml>; rel="license"; type="application/rsl+xml"')
    assert desk.receipt(page(PAGE, link), read()).uses.search == UseDecision(REFUSE, "rsl")
    assert desk.receipt(page(), read(licenses=("own.xml",))).uses.search == UseDecision(REFUSE, "rsl")
    assert desk.receipt(page(), read()).uses.search == UseDecision()


def test_files_are_requested_once_and_again_after_a_day() -> None:
    desk = Desk(ROBOTS, tdmrep=True)
    site = desk.book.site(SITE)
    announced = desk.book.announced(site, PAGE, ())
    both = [f"{SITE}/.well-known/tdmrep.json", f"{SITE}/l.xml"]
    assert desk.book.wanted(SITE, announced, 101.0) == both
    desk.learn(both[0], b"<html>", kind="text/html")
    desk.learn(both[1], RSL)
    assert desk.book.wanted(SITE, announced, 102.0) == []
    assert desk.book.wanted(SITE, announced, 101.0 + 86_400.0) == both
    assert [each.problem for each in desk.book.site(SITE).statements.files] == ["", ""]
    many = [f"{SITE}/{n}.xml" for n in range(100)]
    # each host announces eight licences, of which one is known
    assert len(desk.book.wanted(SITE, many, 102.0)) == 7


def test_a_tdmrep_json_may_reserve_rights_and_a_broken_one_allows_no_mining() -> None:
    desk = Desk(b"User-agent: *\nContent-Usage: search=y\n", tdmrep=True)
    url = f"{SITE}/.well-known/tdmrep.json"
    desk.learn(url, b'[{"location": "/a", "tdm-reservation": 1}]', kind="application/json")
    assert desk.receipt(page(), read()).uses.tdm == UseDecision(REFUSE, "tdmrep")
    desk.learn(url, b"{", kind="application/json")
    allowed = desk.receipt(page(PAGE, (b"tdm-reservation", b"0")), read())
    assert allowed.uses.tdm.preference is UNKNOWN and allowed.uses.search.preference is ALLOW


@pytest.mark.parametrize(
    ("status", "kind", "preference"),
    [(404, "", ALLOW), (403, "text/html", ALLOW), (200, "text/html", ALLOW), (200, "", ALLOW)]
    + [(status, kind, UNKNOWN) for status in (408, 429, 500, 503) for kind in ("", "text/html")],
)
def test_a_site_whose_tdmrep_json_is_missing_may_be_mined_but_not_one_that_fails(
    status: int, kind: str, preference: str
) -> None:
    """A failing server might have a file that reserves rights. Error pages of such servers are mostly HTML."""
    desk = Desk(tdmrep=True)
    desk.learn(f"{SITE}/.well-known/tdmrep.json", b"<p>Sorry", kind=kind, status=status)
    receipt = desk.receipt(page(PAGE, (b"tdm-reservation", b"0")), read())
    assert receipt.uses.tdm.preference == preference


def test_an_unchanged_page_keeps_its_meta_elements_and_a_304_its_fields() -> None:
    desk = Desk()
    said = (b"Content-Usage", b"train-ai=n")
    first = desk.stamp(page(PAGE, said), read(("robots", "noai")))
    for answer in (page(PAGE, status=304), page(PAGE, said)):
        again = desk.receipt(answer, None, first.digest)
        assert again.metas == (("robots", "noai"),) and again.fields == (("content-usage", "train-ai=n"),)
    renewed = desk.receipt(page(PAGE, (b"content-usage", b"train-ai=y"), status=304), None, first.digest)
    assert renewed.fields == (("content-usage", "train-ai=y"),)
    fields_gone = desk.receipt(page(PAGE), None, first.digest)
    assert fields_gone.fields == ()


def test_a_page_that_no_browser_could_show_keeps_its_meta_elements_beside_those_of_its_answer() -> None:
    """A script may have written the known meta elements. The fields are those of the new answer."""
    desk = Desk()
    first = desk.stamp(page(PAGE, (b"Content-Usage", b"train-ai=n")), read(("robots", "noai")))
    answer = page(PAGE, (b"Content-Usage", b"search=y"))
    for said in (read(("tdm-reservation", "1"), ("robots", "noai")), read(("tdm-reservation", "1"))):
        later = desk.receipt(answer, said, first.digest)
        assert sorted(later.metas) == [("robots", "noai"), ("tdm-reservation", "1")]
        assert later.fields == (("content-usage", "search=y"),) and later.complete
    silent = desk.receipt(page(PAGE), read(), first.digest)
    assert (silent.metas, silent.fields, silent.complete) == ((("robots", "noai"),), (), True)
    scanned = Extracted(PAGE, parse_limit=True)
    assert not desk.receipt(page(PAGE), scanned, first.digest).complete
    assert not desk.receipt(page(PAGE), read(), b"").complete, "the known meta elements are lost"


def test_a_page_whose_meta_elements_are_unknown_allows_nothing() -> None:
    """Meta elements are unknown if an earlier version stored the copy, or the page was only scanned or not parsed."""
    desk = Desk(b"User-agent: *\nContent-Usage: train-ai=y\n")
    for fetch, extracted, before in (
        (page(status=304), None, b""),
        (page(), Extracted(PAGE, parse_limit=True), None),
        (page(), None, None),
        (
            msgspec.structs.replace(page(kind=""), content=b"<html><meta name=robots content=noai>"),
            None,
            None,
        ),
    ):
        receipt = desk.receipt(fetch, extracted, before)
        assert not receipt.complete and receipt.uses.train_ai == UseDecision()
    assert desk.receipt(page(kind="image/png"), None).uses.train_ai.preference is ALLOW


def test_the_warc_block_restores_the_receipt_exactly() -> None:
    desk = Desk(ROBOTS)
    stamp = desk.stamp(page(PAGE, (b"tdm-policy", "é".encode())), read())
    block = read_block(stamp.block)
    assert block is not None
    assert block.receipt == load(desk.store, FINGERPRINT, stamp.digest, Receipt)
    assert block.site == load(desk.store, FINGERPRINT, block.receipt.site, SiteStatements)
    assert read_block(b"{}") is None and read_block(b"\xff") is None


def test_a_receipt_that_does_not_match_its_digest_is_damage() -> None:
    desk = Desk()
    digest = desk.stamp(page(), read()).digest
    key = receipt_key(FINGERPRINT, digest)
    data = unseal(key, desk.store.get(key) or b"")
    assert hashlib.sha256(data).digest()[:DIGEST_BYTES] == digest
    for other in (seal(data + b"\x00"), seal(data.replace(b"page-names", b"page-nomes"))):
        with pytest.raises(DamageError):
            unpack(key, other)


def test_files_in_memory_are_bounded() -> None:
    desk = Desk()
    desk.book._files._bytes_max = 2000
    for n in range(50):
        fetch = Fetch("", Outcome.FETCHED, status=200, content=RSL)
        desk._put([desk.book.learn(f"http://h{n}.example", f"http://h{n}.example/l.xml", fetch, 1.0)])
    assert desk.book._files._bytes <= 2000
    assert desk.book.site("http://h3.example").licenses  # the site is read from the store again


def test_statements_in_memory_are_bounded() -> None:
    """Hosts with a robots.txt of 10,000 rules once filled the memory: 4,096 sites were kept, whatever their size."""
    desk = Desk()
    rules = b"User-agent: *\n" + b"".join(b"Disallow: /private/%d/\n" % n for n in range(100))
    for kept in (desk.book._sites, desk.book._noted):
        kept._bytes_max = 200_000  # type: ignore[attr-defined]
    answer = {"status": 200, "outcome": Outcome.FETCHED, "complete": True, "now": 1.0}
    digests = []
    for n in range(50):
        desk.robots.record(f"http://h{n}.example", body=rules, **answer)
        digests.append(desk.book.note(f"http://h{n}.example"))
        site = desk.book.site(f"http://h{n}.example")
        assert site.rules is desk.robots.rules(f"http://h{n}.example"), "one copy of the rules in memory"
    assert 1 < len(desk.book._sites._kept) < 10 and 1 < len(desk.book._noted._kept) < 10
    assert desk.book.noted(digests[0], "http://h0.example").digest == digests[0], "made again"
