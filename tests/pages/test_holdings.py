"""Test which process answers for a URL of which several processes have copies."""

from itertools import permutations

import pytest

from crawler.pages.holdings import HeldCopies, answering

OWNER = HeldCopies(owner=True, whole=True, fetched_at=1.0)
HIDDEN = HeldCopies(owner=True, withheld="noarchive")
OLD, NEW = (HeldCopies(whole=True, fetched_at=at) for at in (2.0, 3.0))
PART = HeldCopies(fetched_at=9.0)
WITHHELD = HeldCopies(withheld="withdrawn")


@pytest.mark.parametrize(
    ("holdings", "expected"),
    [
        ((None, None, None), None),
        ((OLD, NEW, OWNER), OWNER),
        ((NEW, WITHHELD, OWNER), OWNER),
        ((OLD, NEW, HIDDEN), HIDDEN),
        ((OLD, NEW, None), NEW),
        ((OLD, PART, None), OLD),
        ((None, PART, None), PART),
        ((NEW, WITHHELD, None), WITHHELD),
    ],
)
def test_the_owner_comes_first_then_a_refusal_then_the_newest_copy(
    holdings: tuple[HeldCopies | None, ...], expected: HeldCopies | None
) -> None:
    for order in permutations(holdings):
        found = dict(zip(("p0", "p1", "p2"), order, strict=True))
        name = answering(found)
        assert (None if name is None else found[name]) == expected


def test_of_equal_processes_the_first_by_name_answers() -> None:
    assert answering({"p2": NEW, "p1": NEW, "p3": NEW}) == "p1"
