"""Maps the stored names of callbacks to the user's functions."""

import inspect

from crawler.api.request import Callback, Request, callback_name
from crawler.errors import UsageError


class Callbacks:
    """The callbacks of a crawl. `parse` receives pages whose request names no other callback."""

    def __init__(self, parse: Callback | None) -> None:
        self._parse = parse
        self._named: dict[str, Callback] = {}

    @property
    def are_given(self) -> bool:
        """Return whether the user has given any callback."""
        return self._parse is not None or bool(self._named)

    def remember(self, request: Request) -> None:
        """Remember the callbacks of a request by their names."""
        for callback in (request.callback, request.errback):
            if callback is not None:
                self._named[callback_name(callback)] = callback

    def named(self, name: str) -> Callback:
        """Return the callback with this name, from a request of this run or from the module of `parse`."""
        if not name:
            assert self._parse is not None
            return self._parse
        owner = getattr(self._parse, "__self__", None) or inspect.getmodule(self._parse)
        found = self._named.get(name) or getattr(owner, name, None)
        if not callable(found):
            raise UsageError(f"no callback {name!r}: define it in the module or class of `parse`")
        return found  # type: ignore[no-any-return]
