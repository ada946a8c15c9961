"""Test files that are written to disk while they arrive, and resumed transfers, against a scripted server."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from crawler.config import ByteCount, FetchConfig, Seconds
from crawler.errors import StoreError
from crawler.fetcher.file_body import FileBody, FileRule
from crawler.pages.change_detection import content_digest
from crawler.pages.stored_bodies import content_of
from crawler.records import Fetch, Outcome
from crawler.storage.parts import PartFolder
from tests.fetcher.scripted import Do, Script, Server, make_client, run, small

BODY = bytes(range(251)) * 1000
HELD = 10_000
LIMITS = small(body_bytes_max=ByteCount(100_000), wire_bytes_max=ByteCount(100_000))


def _rule(**changes: Any) -> FileRule:
    values: dict[str, Any] = {
        "parses": lambda kind, start: kind == "text/html",
        "is_asked": lambda url, kind: True,
        "held_bytes_max": HELD,
    }
    return FileRule(**values | changes)


def _answer(*lines: str, status: str = "200 OK", kind: str = "image/png", length: int = len(BODY)) -> bytes:
    fields = (f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {length}", *lines)
    return ("\r\n".join(fields) + "\r\n\r\n").encode()


def _rest(first: int, *lines: str, whole: int = len(BODY)) -> bytes:
    fields = (f"Content-Range: bytes {first}-{whole - 1}/{whole}", 'ETag: "1"', *lines)
    return _answer(*fields, status="206 Partial Content", length=whole - first)


class Transfer:
    """Requests one file several times. Each request is answered by the next script."""

    def __init__(
        self, folder: Path, *scripts: Script, rule: FileRule | None = None, listener: Any = None
    ) -> None:
        self._listener = listener
        self.body = FileBody(rule or _rule(), PartFolder(folder), "0f", resumable=True)
        self._scripts = scripts

    def fetch(self, config: FetchConfig = LIMITS) -> list[Fetch]:
        async def play() -> list[Fetch]:
            found = []
            async with Server(*self._scripts) as server:
                async with make_client(config) as client:
                    for _ in self._scripts:
                        request = server.request(file=self.body)
                        request.listener = self._listener
                        found.append(await client.fetch(request))
                self.requests = server.requests
            return found

        return run(play())


def _content(fetch: Fetch) -> bytes:
    assert fetch.part is not None and not fetch.body and not fetch.content
    return b"".join(fetch.part.pieces())


@pytest.mark.parametrize(
    "rule",
    [_rule(is_asked=lambda url, kind: False), _rule(bytes_max=100_000)],
    ids=["not asked for", "own limit"],
)
def test_other_files_are_truncated(tmp_path: Path, rule: FileRule) -> None:
    (got,) = Transfer(tmp_path, [_answer(), BODY], rule=rule).fetch()
    assert (got.outcome, got.truncated) == (Outcome.FETCHED, "length")
    assert _content(got) == BODY[:100_000]


def test_an_endless_stream_has_the_limit_of_a_page(tmp_path: Path) -> None:
    """The server must state the length of a file, unless the crawl accepts files of any length."""
    endless: Script = [b"HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\n\r\n", b"x" * 5000, Do.POUR]
    (got,) = Transfer(tmp_path, endless, rule=_rule(any_length=False)).fetch()
    assert (got.truncated, got.body_bytes) == ("length", 100_000)


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: %d",),
        ("Content-Length: %d", "content-length: %d"),
        ("Content-Length: %d, %d",),
        ("Transfer-Encoding: identity", "Content-Length: %d"),
    ],
)
def test_the_length_of_a_file_is_that_of_its_framing(tmp_path: Path, lines: tuple[str, ...]) -> None:
    """The length that ends the body also decides whether the file is fetched whole."""
    said = "\r\n".join(("HTTP/1.1 200 OK", "Content-Type: image/png", *lines, "", ""))
    script = [said.replace("%d", str(len(BODY))).encode(), BODY]
    (got,) = Transfer(tmp_path, script, rule=_rule(any_length=False)).fetch()
    assert (got.truncated, _content(got)) == ("", BODY)


def test_pages_and_small_files_stay_in_memory(tmp_path: Path) -> None:
    (page,) = Transfer(tmp_path, [_answer(kind="text/html"), BODY]).fetch()
    assert (page.part, page.truncated, page.body) == (None, "length", BODY[:100_000])
    (small_file,) = Transfer(tmp_path, [_answer(length=HELD), BODY[:HELD]]).fetch()
    assert (small_file.part, small_file.body, list(tmp_path.iterdir())) == (None, BODY[:HELD], [])


def test_the_coding_of_a_file_is_kept(tmp_path: Path) -> None:
    """A file is not decoded. A small body that would decode to more than the limit is stored as a file."""
    packed = gzip.compress(BODY * 8, 1)
    assert len(packed) > HELD
    (got,) = Transfer(tmp_path, [_answer("Content-Encoding: gzip", length=len(packed)), packed]).fetch()
    assert _content(got) == packed
    bomb = gzip.compress(bytes(1 << 20))
    (got,) = Transfer(tmp_path, [_answer("Content-Encoding: gzip", length=len(bomb)), bomb]).fetch()
    assert len(bomb) < HELD and _content(got) == bomb and not got.truncated


class Heard:
    """A listener that joins the pieces of the last answer that it received."""

    def restart(self) -> None:
        self.content = b""

    def feed(self, content: bytes) -> None:
        self.content += content


@pytest.mark.parametrize("content", [BODY, bytes(90_000), bytes(200_000), BODY[:HELD], bytes(HELD)])
@pytest.mark.parametrize("coded", [False, True])
def test_a_listener_hears_the_whole_content_of_a_body_on_disk(
    tmp_path: Path, content: bytes, coded: bool
) -> None:
    """The decoded content is hashed and cut at its limit, and its size decides whether the body is moved to disk."""
    heard, payload = Heard(), gzip.compress(content) if coded else content
    lines = ["Content-Encoding: gzip"] if coded else []
    rule = _rule(is_asked=lambda url, kind: False)
    script: Script = [_answer(*lines, kind="text/xml", length=len(payload)), payload]
    (got,) = Transfer(tmp_path, script, rule=rule, listener=heard).fetch()
    assert heard.content == content[:100_000]
    assert got.truncated == ("length" if len(content) > 100_000 else "")
    assert b"".join(content_of(got))[:100_000] == heard.content
    assert (got.part is None) is (len(content) <= HELD)
    if got.part is not None:
        assert not got.body and not got.content
        assert got.part.content_digest == content_digest(heard.content)


def test_a_file_that_broke_off_is_resumed(tmp_path: Path) -> None:
    first = [_answer('ETag: "1"', "X-First: yes"), BODY[:60_000], Do.CLOSE]
    second = [_rest(60_000), BODY[60_000:170_000], Do.CLOSE]
    transfer = Transfer(tmp_path, first, second, [_rest(170_000), BODY[170_000:]])
    broken, still, whole = transfer.fetch()
    assert (broken.outcome, still.outcome, whole.outcome) == (
        Outcome.TRUNCATED,
        Outcome.TRUNCATED,
        Outcome.FETCHED,
    )
    assert _content(whole) == BODY
    assert (whole.status, whole.header(b"x-first")) == (200, b"yes"), "the head is that of the first answer"
    assert b"Range" not in whole.request_head
    assert b'Range: bytes=60000-\r\nIf-Range: "1"\r\n' in transfer.requests[1]
    assert b"Range: bytes=170000-" in transfer.requests[2]
    assert whole.part is not None and whole.part.head.resumed == [60_000, 170_000]


def test_a_file_that_has_changed_begins_again(tmp_path: Path) -> None:
    first = [_answer('ETag: "1"'), BODY[:60_000], Do.CLOSE]
    changed = BODY[::-1]
    _, got = Transfer(tmp_path, first, [_answer('ETag: "2"'), changed]).fetch()
    assert _content(got) == changed and got.status == 200


@pytest.mark.parametrize(
    "answer",
    [
        [_answer(status="416 Range Not Satisfiable", length=0)],
        [_rest(50_000), BODY[50_000:]],
        [_rest(60_000, whole=len(BODY) + 1), BODY[60_000:] + b"x"],
        [_answer(status="206 Partial Content", length=5), b"hello"],
    ],
    ids=["416", "another part", "another length", "no Content-Range"],
)
def test_a_wrong_remainder_is_never_joined(tmp_path: Path, answer: Script) -> None:
    first = [_answer('ETag: "1"'), BODY[:60_000], Do.CLOSE]
    transfer = Transfer(tmp_path, first, answer, [_answer('ETag: "1"'), BODY])
    _, wrong, got = transfer.fetch()
    assert wrong.outcome is Outcome.TRUNCATED and wrong.part is None
    assert b"Range" not in transfer.requests[2] and _content(got) == BODY


@pytest.mark.parametrize(
    ("fields", "validator"),
    [
        (('ETag: "1"',), b'"1"'),
        (('ETag: W/"1"',), b""),
        (('ETag: "1"', "Accept-Ranges: none"), b""),
        (("Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT", "Date: Mon, 01 Jan 2024 00:00:01 GMT"), b""),
        (
            ("Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT", "Date: Mon, 01 Jan 2024 00:00:02 GMT"),
            b"Mon, 01 Jan 2024 00:00:00 GMT",
        ),
        (("Last-Modified: yesterday", "Date: Mon, 01 Jan 2024 00:00:02 GMT"), b""),
        ((), b""),
    ],
)
def test_only_a_strong_validator_resumes(tmp_path: Path, fields: tuple[str, ...], validator: bytes) -> None:
    """A transfer is resumed only with a strong validator (RFC 9110, sections 13.1.5 and 8.8.2.2)."""
    transfer = Transfer(
        tmp_path, [_answer(*fields), BODY[:60_000], Do.CLOSE], [_answer(*fields), BODY[:60_000], Do.CLOSE]
    )
    transfer.fetch()
    assert (b"If-Range: " + validator + b"\r\n" in transfer.requests[1]) is bool(validator)


def test_a_file_may_take_long_if_it_keeps_its_rate(tmp_path: Path) -> None:
    hasty = small(total_timeout=Seconds(0.2), silence_timeout=Seconds(5))
    slow: list[Any] = [_answer()]
    for start in range(0, len(BODY), 25_100):
        slow += [BODY[start : start + 25_100], 0.06]
    (got,) = Transfer(tmp_path, slow, rule=_rule(rate_min=1000)).fetch(hasty)
    assert (got.outcome, got.body_bytes) == (Outcome.FETCHED, len(BODY))
    (got,) = Transfer(tmp_path, slow, rule=_rule(rate_min=10_000_000)).fetch(hasty)
    assert (got.outcome, got.truncated) == (Outcome.TRUNCATED, "time")


def test_a_full_disk_ends_the_fetch_as_a_store_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("crawler.storage.parts.write_all", full)
    with pytest.raises(StoreError, match="No space left"):
        Transfer(tmp_path, [_answer(), BODY]).fetch()
