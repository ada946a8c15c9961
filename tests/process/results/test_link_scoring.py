"""Test the links of a crawl with an order: their scores, their classes in the DUE and outbox, and moved URLs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crawler.config import ExtractConfig
from crawler.extract.collected import Context
from crawler.extract.links import extract_page
from crawler.orders.classes import LEAST, NEUTRAL, class_in, class_of
from crawler.orders.order import FoundOn
from crawler.process.results.admission import LinkContext
from crawler.process.results.link_scoring import LinkSource, _classes, page_score
from crawler.records import Link, LinkFlag
from crawler.splitter.inbox import Received
from crawler.splitter.wire import decode_entry, encode_entries
from crawler.storage.commit import Change
from tests.process.results.test_admission import HERE, HOME, THERE, by_owner
from tests.process.support import Joint, fetch, made, redirect

OpenJoint = Callable[..., Joint]
ANYWHERE = {"scope": "any"}
PAGE = b"""<title>Good title</title>
<a href="/best">best of all</a> <a href="/none">nothing</a> <a href="/best">again</a>
<a href="http://b.org/good#part"><img><b>not</b>
  bad</a> <a href="/none#x"></a>"""


def classes(links: list[Link]) -> dict[str, int]:
    return {link.url: class_in(link.flags) for link in links}


def test_words_judges_by_the_text_of_the_first_anchor_that_has_one(
    open_joint: OpenJoint, tmp_path: Path
) -> None:
    """Test all steps from the bytes of a page to the class in the flags of a link. The extractor is real."""
    weights = tmp_path / "weights"
    weights.write_text("anchor:best 3\nanchor:again 100\ntitle:good 1\nanchor:bad -2\nurl:b -1\n")
    joint = open_joint(order={"name": "words", "file": str(weights)}, crawl=ANYWHERE)
    assert joint.stages.decisions.reads_anchors
    extracted = extract_page(PAGE, Context(HOME, want_anchors=True), ExtractConfig())
    assert extracted.hrefs == ["/best", "/none", "http://b.org/good"]
    assert extracted.anchors == ["best of all", "nothing", "not bad"]
    change = joint.follow(HOME, fetch(HOME, PAGE), extracted)

    def expected(odds: float) -> int:
        return class_of(1 / (1 + 2.718281828**-odds))

    found = classes(change.links)
    assert found == {
        "http://a.org/best": expected(4),
        "http://a.org/none": expected(1),
        "http://b.org/good": expected(-2),
    }
    assert found["http://b.org/good"] > found["http://a.org/none"] >= found["http://a.org/best"]


def test_without_an_order_no_anchor_is_read_and_no_class_given(joint: Joint) -> None:
    assert not joint.stages.decisions.reads_anchors
    assert extract_page(PAGE, Context(HOME), ExtractConfig()).anchors == []
    change = joint.visit(fetch(HOME), extract_page(PAGE, Context(HOME), ExtractConfig()))
    assert set(classes(change.links).values()) == {NEUTRAL} and not any(link.flags for link in change.links)


def test_opic_cash_accumulates_and_moves_a_waiting_url(open_joint: OpenJoint) -> None:
    """The URL moves to a better class, both before and after it is queued.

    Each move is part of the change that contains the new link.
    """
    joint = open_joint(
        order={"name": "opic"}, crawl=ANYWHERE, cache={"bits": 12}, traps={"same_digest_pages_max": 20}
    )
    hub = "http://c.org/"
    worth = 2.0**-16

    def linked(n: int) -> float:
        """Process another page that links to the hub and to one other URL; return the hub's score."""
        links = f'<a href="{hub}">x</a><a href="http://{n}.org/">y</a>'.encode()
        change = Change()
        extracted = extract_page(links, Context(HOME), ExtractConfig())
        page = FoundOn(f"{HOME}{n}", 2.0**-15, 0, "", len(extracted.hrefs))
        made(joint.admission.links(change, HOME, extracted.hrefs, LinkContext(1), source=LinkSource(page)))
        joint.stages.commits.commit(change)
        return page.score / 2

    for n in range(8):
        worth += linked(n)
    joint.stages.commits.commit_now(Change())
    assert abs(_entry(joint, hub)["class"] - class_of(worth)) <= 2
    for n in range(8, 40):
        worth += linked(n)
        joint.frontier._check()
    assert abs(_entry(joint, hub)["class"] - class_of(worth)) <= 2
    assert _entry(joint, hub)["importance"] == pytest.approx(worth, rel=0.25)
    assert joint.frontier.views.explain(hub, joint.clock.now())["best"] == _entry(joint, hub)["importance"]
    assert joint.frontier.views.counters()["todo"] == 9


def _entry(joint: Joint, url: str) -> dict[str, int]:
    return dict(made(joint.frontier.views.entry(url))[0])


def test_targets_of_redirects_and_sitemaps_have_classes_of_their_own(open_joint: OpenJoint) -> None:
    """The target of a redirect has the score of the page that redirects. A sitemap comes before all pages."""
    joint = open_joint(order={"name": "depth", "depth_decay": 0.25}, crawl=ANYWHERE)
    change = joint.follow(HOME, redirect(HOME, "http://b.org/"), depth=9, flags=40 << 16 ^ NEUTRAL << 16)
    assert classes(change.links) == {"http://b.org/": 40}
    found = Change()
    made(joint.admission.links(found, HOME, ["/map.xml"], LinkContext(flags=LinkFlag.SITEMAP)))
    made(joint.admission.links(found, HOME, ["/deep"], LinkContext(depth=3)))
    assert classes(found.links) == {"http://a.org/map.xml": 0, "http://a.org/deep": class_of(0.25**3)}


def test_scores_travel_to_the_owner_which_adds_them_up(open_joint: OpenJoint) -> None:
    """The links are encoded and decoded as between two processes.

    A link whose score is higher than the score sent before is sent again, even if a cache contains the link.
    """
    joint = open_joint(
        names=(HERE, THERE),
        order={"name": "opic"},
        crawl=ANYWHERE,
        cache={"bits": 12},
        traps={"same_digest_pages_max": 20},
    )
    [foreign] = by_owner(joint, 1)[THERE]
    [own] = by_owner(joint, 1)[HERE]
    sent: list[Link] = []
    told = 0.0
    for n in range(20):
        url = f"{own}{n}"
        extracted = extract_page(f'<a href="{foreign}">x</a>'.encode(), Context(url), ExtractConfig())
        change = joint.follow(url, fetch(url), extracted)
        told += 2.0**-16
        for _, links in change.foreign:
            assert [link.url for link in links] == [foreign]
            sent += links
            assert change.counts["urls.to_outbox"] == 1 and "urls.cache_hits" not in change.counts
    assert 8 < len(sent) < 20, "each link adds something, but in the end less than two classes"
    brought = sum(2.0 ** (-class_in(link.flags) / 8) for link in sent)
    assert told * 0.75 < brought <= told * 1.05

    [(entry, _)] = encode_entries(
        [Link(joint.fingerprint(own), own, flags=link.flags) for link in sent], 1 << 20
    )
    received = decode_entry(entry)
    arrived = []
    for number, link in enumerate(received):
        making = joint.admission.received(Received(THERE, bytes(8), number + 1, [link], 100), [link])
        arrived += made(making)[0].links
    assert len(arrived) == 1
    joint.stages.commits.commit_now(lambda: _links(arrived))
    place = _entry(joint, own)["class"]
    assert abs(place - class_of(brought + 2.0**-16)) <= 2, "scores from before it was queued count, too"


def _links(links: list[Link]) -> Change:
    change = Change()
    change.links = links
    change.count("urls.received", len(links))
    change.count("urls.to_due", len(links))
    return change


def test_array_classes_equal_single_classes() -> None:
    scores = np.array([0.0, 2.0**-40, LEAST, 0.001, 0.3, 1.0])
    assert _classes(scores) == [class_of(score) for score in scores]


@pytest.mark.parametrize("order", [0, -5])
def test_a_page_that_was_in_no_queue_has_the_score_of_no_class(order: int) -> None:
    assert page_score(order) == 2.0**-16


def test_spellings_are_the_first_ones_without_fragments(open_joint: OpenJoint) -> None:
    joint = open_joint(crawl=ANYWHERE)
    hrefs = ["mailto:x", "/a#top", "http://a.org/a", "/b", "/a", "/c#x", "/b#y"]
    plain = joint.stages.intake.filter_links(HOME, hrefs)
    accepted, spellings = joint.stages.intake.filter_spelled(HOME, hrefs)
    assert accepted.urls == plain.urls and np.array_equal(accepted.fingerprints, plain.fingerprints)
    assert spellings == ["/a", "/b", "/c"] and accepted.rejected == {"scheme": 1}
