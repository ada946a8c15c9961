"""The commands that only a running process has: pause, resume and set."""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from crawler.config import Config
from crawler.crawl import safe_settings
from crawler.errors import UsageError
from crawler.frontier.pauses import USER

if TYPE_CHECKING:
    from crawler.process.opening.stages import Stages
    from crawler.process.process import Process

log = logging.getLogger("crawler")


def _tell_nobody(_paused: bool) -> None:
    """Do nothing (the default of `LiveCommands.tell_paused`)."""


class LiveCommands:
    """Adds the commands to those of `process`. A change of the log level does not affect the handler `errors`.

    When the user pauses or resumes the crawl, `tell_paused` is called, so that a supervisor can inform the
    other processes, including those that start later.
    """

    def __init__(self, process: "Process", stages: "Stages", errors: logging.Handler) -> None:
        self._process, self._context = process, stages.context
        self._pauses, self._refreshes = stages.frontier.pauses, stages.refresh is not None
        self._concurrency_max = stages.config.crawl.concurrency
        self._errors = errors
        self.tell_paused: Callable[[bool], None] = _tell_nobody
        process.commands.add(pause=self.pause, resume=self.resume, set=self.set)

    def pause(self) -> dict[str, Any]:
        """Fetch nothing until `resume`."""
        return self._told(True)

    def resume(self) -> dict[str, Any]:
        """End the pause."""
        return self._told(False)

    def _told(self, paused: bool) -> dict[str, Any]:
        self.set_paused(paused)
        self.tell_paused(paused)
        return {"paused": list(self._pauses.reasons)}

    def set_paused(self, paused: bool) -> None:
        """Begin or end the pause that the user wants, in this process."""
        if paused == (USER in self._pauses.reasons):
            return
        if paused:
            self._pauses.pause()
            log.info("paused: nothing is fetched until `crawler resume`")
        else:
            self._pauses.resume()
            log.info("going on")
            self._process.run_end.wake()

    def set(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Change settings that can be changed while the crawl runs."""
        if "refresh.share" in settings and not self._refreshes:
            raise UsageError(
                "refresh.share: this crawl does not refresh pages; start it with --refresh-share"
            )
        made = live_settings(self._context.config, settings, self._concurrency_max)
        if level := settings.get("log.level"):
            logging.getLogger("crawler").setLevel(level.upper())
            for handler in logging.getLogger("crawler").handlers:
                if handler is not self._errors:
                    handler.setLevel(level.upper())
        self._process.configure(made)
        return {"set": dict(settings)}


def live_settings(config: Config, given: Mapping[str, str], concurrency_max: int) -> Config:
    """Return `config` with the given settings changed.

    Raises:
        UsageError, ConfigError: a setting cannot be changed while the crawl runs, or its value is invalid.
    """
    made = safe_settings.changed(config, given)
    if made.crawl.concurrency > concurrency_max:
        raise UsageError(
            f"crawl.concurrency: at most {concurrency_max}, its value at the start, while the crawl runs"
        )
    refresh = replace(config.refresh, share=made.refresh.share)
    return replace(
        config, politeness=made.politeness, crawl=made.crawl, refresh=refresh, override=made.override
    )
