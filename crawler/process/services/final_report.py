"""Builds the report of a run that has ended, from the objects of its process."""

from crawler.admin.report import REASONS_SHOWN, Report, cpu_seconds, peak_rss_bytes
from crawler.frontier.views import shares
from crawler.process.process import Process

HOSTS_IN_REPORT = 100


def final_report(process: Process, crawl_id: str) -> Report:
    """Return the report of the run of `process` in the crawl `crawl_id`."""
    stages = process.stages
    now = stages.clock.now()
    views, hosts, counters = stages.views, stages.frontier.views, stages.point.counters
    return Report(
        crawl_id=crawl_id,
        started=process.started,
        ended=now,
        stopped_by=process.run_end.reason,
        counters=dict(counters),
        run_counters=dict(counters - process.exchange.before),
        frontier=views.frontier_counts(),
        hosts=list(hosts.hosts(now, HOSTS_IN_REPORT, explained=REASONS_SHOWN)),
        due=views.due_counts(),
        splitter=views.splitter_counts(),
        why_slow=shares(hosts.why_slow(now), now - process.started),
        cpu_seconds=cpu_seconds(),
        peak_rss_bytes=peak_rss_bytes(),
        refreshing=views.refreshing(now),
        problems=views.problems() if process.run_end.failure is None else ["not checked: the run failed"],
    )
