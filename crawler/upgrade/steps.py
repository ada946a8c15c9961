"""The steps that bring a crawl directory from each former format to the next."""

from collections.abc import Callable

from crawler.crawl.directory import FORMAT, CrawlDirectory
from crawler.upgrade.disk_due import keep_due_on_disk
from crawler.upgrade.former_settings import renew_later_settings, renew_settings
from crawler.upgrade.marks import renew_marks
from crawler.upgrade.plain_runs import code_runs
from crawler.upgrade.refresh_records import lengthen_refresh_records
from crawler.upgrade.run_settings import drop_run_settings

STEPS: tuple[Callable[[CrawlDirectory], None], ...] = (
    renew_settings,
    code_runs,
    renew_marks,
    lengthen_refresh_records,
    keep_due_on_disk,
    drop_run_settings,
    renew_later_settings,
)
assert len(STEPS) == FORMAT
