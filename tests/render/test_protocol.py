"""Test the protocol's pipe without a browser."""

import os

import pytest

from crawler.render.protocol import BrowserError, Pipe, Session


async def test_a_call_fails_if_the_browser_has_ended() -> None:
    """Once, a call whose message could not be written waited forever."""
    read, theirs = os.pipe()
    theirs_read, write = os.pipe()
    ended = []
    session = Session(Pipe(read, write, lambda: ended.append(True)))
    os.close(theirs_read)
    for _ in range(2):
        with pytest.raises(BrowserError, match="the browser has ended"):
            await session.call("Browser.getVersion")
    session.tell("Browser.close")
    assert ended == [True]
    os.close(theirs)
