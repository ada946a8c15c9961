from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.settings import Result, Settings

__all__ = ["Result", "Schedule", "Settings"]
