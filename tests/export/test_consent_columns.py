"""Test that a page counts once for each use, however many processes have copies of it."""

import pytest

from crawler.config.forms import USE_NAMES
from crawler.consent.statements import USES
from crawler.export.consent_columns import stored_uses
from tests.pages.formats.test_newest import archive_of, url_of

PAGE = ({1: 200}, (1, False))  # what a process has of a page: a copy, and its record


@pytest.mark.parametrize("processes", [1, 3])
def test_a_page_counts_at_its_owner_only(processes: int) -> None:
    """A page was once counted for each process with a copy, but exports have one row for each URL."""
    pages = range(1, 7)
    archives = [archive_of(dict.fromkeys(pages, PAGE)) for _ in range(processes)]
    counted = [
        url
        for number, archive in enumerate(archives)
        for url, _ in stored_uses(archive, lambda page, number=number: page % processes == number)
    ]
    assert sorted(counted) == [url_of(page) for page in pages]


def test_settings_name_the_uses_about_which_sites_make_statements() -> None:
    assert tuple(USE_NAMES.values()) == USES
