"""Reads the bytes of a robots.txt at once, with the limits of the default configuration."""

from crawler.config import RobotsConfig
from crawler.robots.rules import Parsed, RobotsRules, reading

LIMITS = RobotsConfig()


def parse(body: bytes, token: str) -> RobotsRules:
    return RobotsRules(read(body, token))


def read(
    body: bytes, token: str, *, rules_max: int = LIMITS.rules_max, wildcards_max: int = LIMITS.wildcards_max
) -> Parsed:
    pieces = reading(body, token, rules_max=rules_max, wildcards_max=wildcards_max)
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            parsed: Parsed = end.value
            return parsed
