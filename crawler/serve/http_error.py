"""A request that is not answered with a copy: its status and, as JSON, the reason."""

import msgspec


class HttpError(Exception):
    """`status` and the JSON object that says why; `fields` are added to the header.

    Expected: the client, or the state of the crawl, asks for it.
    """

    def __init__(self, status: int, state: str, why: str, **more: object) -> None:
        super().__init__(f"{status} {state}: {why}")
        self.status = status
        self.body = {"state": state, "why": why, **more}
        self.fields: tuple[tuple[str, str], ...] = ()

    def content(self) -> bytes:
        """The JSON text."""
        return msgspec.json.encode(self.body) + b"\n"
