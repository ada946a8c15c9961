"""Error responses: a status and, as JSON, the reason."""

import msgspec


class HttpError(Exception):
    """An error response: `status`, a JSON object with the reason, and `fields` to add to the header.

    Expected: caused by the client or by the state of the crawl.
    """

    def __init__(self, status: int, state: str, why: str, **more: object) -> None:
        super().__init__(f"{status} {state}: {why}")
        self.status = status
        self.body = {"state": state, "why": why, **more}
        self.fields: tuple[tuple[str, str], ...] = ()

    def content(self) -> bytes:
        """Return the JSON text."""
        return msgspec.json.encode(self.body) + b"\n"
