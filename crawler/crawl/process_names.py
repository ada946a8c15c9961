"""The names of the processes of a crawl. (`topology.py` determines which buckets each of them owns.)"""

from crawler.config import Config
from crawler.config.forms import named_addresses


def process_names(config: Config) -> list[str]:
    if config.splitter.peers:
        return sorted(named_addresses(config.splitter.peers))
    return [f"p{index}" for index in range(max(1, config.crawl.processes))]
