"""Test that shipping is tried again after a failure of the storage or of this machine."""

import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from crawler.config import convert
from crawler.crawl import shipper
from crawler.crawl.shipper import Shipper, ShippingResult
from crawler.errors import ObjectStoreError
from tests.waiting import WAIT_MAX


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ObjectStoreError("s3://b: no answer"), "s3://b: no answer"),
        (OSError(errno.EMFILE, "Too many open files", "a.warc.gz"), "a.warc.gz: Too many open files"),
        (MemoryError(), "no memory"),
    ],
)
def test_shipping_goes_on_after_a_failure(
    tmp_path: Path,
    error: Exception,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once, an error of the system ended the thread with a traceback, and nothing more was shipped."""
    tries: list[int] = []
    shipped = threading.Event()

    def ship(*_: Any, **__: Any) -> ShippingResult:
        tries.append(1)
        if len(tries) < 3:
            raise error
        shipped.set()
        return ShippingResult(0, 0)

    monkeypatch.setattr(shipper, "ship_waiting", ship)
    monkeypatch.setattr(shipper.log, "propagate", True)
    config = convert({"pages": {"ship": f"file://{tmp_path}", "ship_interval": 0.01}}).pages
    ships = Shipper(tmp_path, config, lambda: 0.0)
    ships.start()
    assert shipped.wait(WAIT_MAX)
    ships._ending.set()
    assert ships._ended.wait(WAIT_MAX)
    assert caplog.text.count("it is tried again") == 1 and said in caplog.text
