"""Command-line parsers whose errors are one line, like all other errors."""

import argparse
from typing import NoReturn

from crawler.errors import UsageError


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; `{self.prog} --help` lists the flags")
