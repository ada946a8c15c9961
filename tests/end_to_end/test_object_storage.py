"""Test uploads of WARC files and exports to object storage, with an S3 server (moto) over real sockets."""

import io
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from warcio.archiveiterator import ArchiveIterator

import crawler
from crawler.errors import UsageError
from crawler.pages import shipping
from crawler.pages.shipping import NOTE
from tests.end_to_end.cut_network import Proxy
from tests.end_to_end.web import FAST, Web, crawl, page, run

PAGES = 24
SMALL = ("--set", "pages.segment_bytes=4000")
BUCKET = "archive"


class S3:
    """An S3 server, and an independent client that reads from it."""

    def __init__(self) -> None:
        import boto3
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        host, port = self.server.get_host_and_port()
        self.address = f"http://{host}:{port}"
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=self.address,
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
        )
        self.client.create_bucket(Bucket=BUCKET)

    def objects(self, prefix: str) -> dict[str, bytes]:
        """Return the content of the objects under a prefix.

        The keys are the names of the objects without the prefix.
        """
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/").get("Contents", [])
        names = [each["Key"] for each in found]
        return {
            name.removeprefix(f"{prefix}/"): self.client.get_object(Bucket=BUCKET, Key=name)["Body"].read()
            for name in names
        }


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    made = S3()
    yield made
    made.server.stop()


@pytest.fixture
def place(s3: S3, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Set the environment variables for access to the server. Return the URL of an empty prefix."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3.address,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{prefix_of(request)}"


def prefix_of(request: pytest.FixtureRequest) -> str:
    return "".join(c if c.isalnum() else "-" for c in request.node.name)


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    routes = {"/": page(*(f"/{n}" for n in range(PAGES)))}
    routes |= {f"/{n}": page(text=random.Random(n).randbytes(1500).hex()) for n in range(PAGES)}
    with Web(routes) as served:
        yield served


def segments(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*/warc/*.warc.gz")}


@pytest.mark.parametrize("processes", [1, 3])
def test_a_crawl_ships_its_segments(
    processes: int, web: Web, s3: S3, place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory = tmp_path / "crawl"
    more = ("--processes", processes) if processes > 1 else ()
    crawl(directory, web.url(), *SMALL, "--set", f"pages.ship={place}", *more)
    made = segments(directory)
    assert len(made) > 5 or processes > 1
    assert s3.objects(prefix_of(request)) == made
    assert shipping.waiting(directory.glob("*/warc")) == []
    again = run("ship", "--dir", directory)
    assert again.code == 0 and again.text.startswith("0 WARC files shipped")


def test_segments_deleted_locally_can_be_fetched_back(web: Web, s3: S3, place: str, tmp_path: Path) -> None:
    directory = tmp_path / "crawl"
    crawl(directory, web.url(), *SMALL)
    made = segments(directory)
    unnamed = run("ship", "--dir", directory, "--delete")
    assert unnamed.code == 2 and "name the storage with --to URL" in unnamed.err
    assert run("ship", "--dir", directory, "--to", place).code == 0
    freed = run("ship", "--dir", directory, "--delete").text  # without --to, the storage is the one used last
    assert freed == f"0 WARC files shipped to {place}; {sum(map(len, made.values())):,} bytes deleted here\n"
    assert segments(directory) == {}
    told = run("get", web.url("/3"), "--dir", directory)
    assert told.code == 3 and "crawler ship --fetch" in told.err and "Traceback" not in told.err
    for form, code in (("warc", 3), ("text", 3), ("jsonl", 3), ("cdxj", 0), ("crawl-log", 0)):
        exported = run("export", "--dir", directory, "--format", form)
        assert exported.code == code and exported.err.count("ship --fetch") == (code == 3), exported
    of_store = run("export", "--dir", directory, "--format", "jsonl", "--fields", "url,status")
    assert of_store.code == 0 and len(of_store.text.splitlines()) == PAGES + 1
    assert run("check", "--dir", directory).code == 0
    erased = run("withdraw", web.url("/3"), "--erase", "--dir", directory)
    assert erased.code == 3 and "ship --fetch" in erased.err
    crawl(directory, web.url())  # the crawl can be opened and continued without its segments
    assert run("ship", "--dir", directory, "--list").text.count("not here") == len(made)
    fetched = run("ship", "--dir", directory, "--fetch")
    # a command that takes long, as on a busy machine, prints lines of progress
    assert fetched.code == 0 and all(" bytes transferred, " in line for line in fetched.err.splitlines())
    assert fetched.text.splitlines()[-1] == f"{len(made)} WARC files brought back"
    assert made.items() <= segments(directory).items()
    assert run("get", web.url("/3"), "--dir", directory).code == 0
    assert run("check", "--dir", directory).code == 0


def test_an_erasure_replaces_the_object(
    web: Web, s3: S3, place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory = tmp_path / "crawl"
    crawl(directory, web.url(), *SMALL, "--set", f"pages.ship={place}")
    before = segments(directory)
    assert run("withdraw", web.url("/3"), "--erase", "--dir", directory).code == 0
    now = segments(directory)
    assert now != before
    assert s3.objects(prefix_of(request)) == before
    assert run("ship", "--dir", directory).text.splitlines()[-1].startswith("1 WARC file shipped to ")
    assert s3.objects(prefix_of(request)) == now


def test_an_object_of_another_crawl_is_not_replaced(
    web: Web, s3: S3, place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory = tmp_path / "crawl"
    crawl(directory, web.url())
    (name,) = segments(directory)
    s3.client.put_object(Bucket=BUCKET, Key=f"{prefix_of(request)}/{name}", Body=b"of another crawl")
    told = run("ship", "--dir", directory, "--to", place, "--delete")
    assert told.code == 75 and "exists with other content" in told.err
    assert [*segments(directory)] == [name]
    assert s3.objects(prefix_of(request)) == {name: b"of another crawl"}


def test_a_crawl_continues_if_the_storage_does_not_answer(
    web: Web, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "crawl"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("crawler.storage.object_store._RETRIES", {"max_retries": 0})
    report = crawl(directory, web.url(), "--set", f"pages.ship={place}")
    assert report["pages"]["fetched"] == PAGES + 1
    assert "crawler ship --dir" in (directory / "crawler.log").read_text()
    told = run("ship", "--dir", directory, "--to", place)
    assert told.code == 75 and len(told.err.strip().splitlines()) == 1
    assert "cannot be reached or fails (HTTP error: error sending request); try again later" in told.err


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (503, 75, "the storage cannot be reached or fails (503 Service Unavailable); try again later"),
        (403, 2, "the storage rejects the credentials in the environment (403 Forbidden)"),
    ],
)
def test_a_storage_that_refuses_is_described_in_one_short_line(
    web: Web,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    code: int,
    message: str,
) -> None:
    """The line once contained the whole request and the settings of the library's retries."""
    directory = tmp_path / "crawl"
    crawl(directory, web.url())
    monkeypatch.setattr("crawler.storage.object_store._RETRIES", {"max_retries": 0})
    (segment,) = directory.glob("p0/warc/*.warc.gz")
    with Web({f"/{BUCKET}/{place.rpartition('/')[2]}/{segment.name}": (status, {}, "")}) as storage:
        monkeypatch.setenv("AWS_ENDPOINT_URL", storage.url("", "127.0.0.1").rstrip("/"))
        told = run("ship", "--dir", directory, "--to", place)
    assert told.code == code and told.err == f"crawler: {place}/{segment.name}: {message}\n"


def test_a_bucket_that_does_not_exist_is_the_users_mistake(web: Web, place: str, tmp_path: Path) -> None:
    """The exit code was 75, as for a storage that does not answer, which means: try again later."""
    directory, missing = tmp_path / "crawl", "s3://no-such-bucket/prefix"
    crawl(directory, web.url())
    for command in (
        ("ship", "--dir", directory, "--to", missing),
        ("export", "--dir", directory, "--format", "cdxj", "--to", f"{missing}/pages.cdxj"),
    ):
        told = run(*command)
        assert told.code == 2 and "the bucket does not exist" in told.err, told
        assert len(told.err.strip().splitlines()) == 1


def _killed(fault: str, *command: object) -> None:
    """Run a command that kills itself at a fault point."""
    words = [sys.executable, "-m", "crawler", *map(str, command)]
    environ = {**os.environ, "CRAWLER_FAULT": fault}
    killed = subprocess.run(words, env=environ, check=False, capture_output=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL, (fault, killed)


def test_no_kill_loses_a_segment_or_ships_it_twice(
    web: Web, s3: S3, place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory = tmp_path / "crawl"
    crawl(directory, web.url(), *SMALL)
    made = segments(directory)
    points = ("segment shipped", "shipping noted", "segment deleted")
    ship = ("ship", "--dir", directory, "--to", place)
    for fault in (f"{point}:{nth}" for point in points for nth in (1, 2)):
        _killed(fault, *ship, "--delete")
        there = s3.objects(prefix_of(request))
        assert all(there[path.name.removesuffix(NOTE)] for path in directory.glob(f"*/warc/*{NOTE}"))
        assert segments(directory) | there == made
    assert run(*ship, "--delete").code == 0
    assert s3.objects(prefix_of(request)) == made
    assert segments(directory) == {}
    for step in ("written", "synced", "renamed"):
        _killed(f"segment fetched, {step}:1", *ship, "--fetch")
        assert all(data == made[name] for name, data in segments(directory).items())
    assert run(*ship, "--fetch").code == 0
    assert segments(directory) == made
    assert not list(directory.glob("*/warc/*~*")), "the next run overwrites what a kill has left"


def test_kills_of_a_crawl_that_ships_lose_nothing(
    s3: S3, place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A crawl is killed `CRAWLER_KILLS` times at random times while it ships and deletes its segments.

    In the end, the storage has the response of each page exactly once, and no segment is left on the local
    disk.
    """
    kills = int(os.environ.get("CRAWLER_KILLS", "3"))
    rng = random.Random(kills)
    pages = 16 * kills
    routes = {"/": page(*(f"/{n}" for n in range(pages)))}
    routes |= {f"/{n}": page(text=random.Random(n).randbytes(1500).hex()) for n in range(pages)}
    directory = tmp_path / "crawl"
    flags = (
        "--set",
        f"pages.ship={place}",
        "--set",
        "pages.ship_delete=true",
        "--set",
        "pages.ship_interval=0.1",
    )
    shipped: list[int] = []
    with Web(routes) as web:
        command = [
            "-m",
            "tests.end_to_end.shipping_crawl",
            "crawl",
            web.url(),
            "--dir",
            str(directory),
            *FAST,
        ]
        for _ in range(kills):
            asked = len(web.asked)
            process = subprocess.Popen([sys.executable, *command, "--delay", "0.05", *SMALL, *flags])
            while len(web.asked) < asked + 12 and process.poll() is None:
                time.sleep(0.01)
            with suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0, 0.3))
            process.kill()
            assert process.wait() == -signal.SIGKILL, "the crawl still had pages to fetch"
            there = s3.objects(prefix_of(request))
            shipped.append(len(there))
            assert all(there[path.name.removesuffix(NOTE)] for path in directory.glob(f"*/warc/*{NOTE}"))
            here = segments(directory)
            assert all(here[name] == there[name] for name in here.keys() & there.keys())
        assert len({*shipped}) > kills // 2, "segments are shipped while the crawl runs"
        assert subprocess.run([sys.executable, *command, *SMALL, *flags], check=False).returncode == 0
    assert run("ship", "--dir", directory, "--to", place, "--delete").code == 0
    assert segments(directory) == {}
    stored = Counter(
        record.rec_headers["WARC-Target-URI"].removeprefix(web.url("/"))
        for data in s3.objects(prefix_of(request)).values()
        for record in ArchiveIterator(io.BytesIO(data))
        if record.rec_type == "response"
    )
    del stored["robots.txt"]
    assert stored == Counter(["", *map(str, range(pages))])
    assert run("ship", "--dir", directory, "--fetch").code == 0
    assert run("check", "--dir", directory).code == 0


def test_a_segment_larger_than_one_request_is_uploaded_in_parts(
    web: Web,
    s3: S3,
    place: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = tmp_path / "crawl"
    crawl(directory, web.url())
    monkeypatch.setattr("crawler.storage.object_store.WHOLE_BYTES_MAX", 8000)
    assert run("ship", "--dir", directory, "--to", place).code == 0
    assert s3.objects(prefix_of(request)) == segments(directory)
    for path in directory.glob(f"*/warc/*{NOTE}"):
        path.unlink()  # simulates a kill before the note was written
    assert run("ship", "--dir", directory, "--to", place).code == 0
    assert s3.objects(prefix_of(request)) == segments(directory)


def test_check_reports_objects_that_are_missing(
    web: Web, s3: S3, place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """`crawler check` once passed after the objects of a crawl, or their whole bucket, had been deleted."""
    directory = tmp_path / "crawl"
    crawl(directory, web.url(), *SMALL)
    assert run("ship", "--dir", directory, "--to", place).code == 0
    first, second, third, *_ = sorted(segments(directory))
    prefix = prefix_of(request)
    for name in (first, second):
        s3.client.delete_object(Bucket=BUCKET, Key=f"{prefix}/{name}")
    s3.client.put_object(Bucket=BUCKET, Key=f"{prefix}/{third}", Body=b"short")
    (elsewhere,) = directory.glob(f"*/warc/{first}")
    kept = elsewhere.rename(tmp_path / first)
    length = len(segments(directory)[third])
    cure = "; `crawler check --repair`, then `crawler ship` copy the local file again"
    lost = ", and the local file was deleted; bring the object back from a backup or an earlier version"
    told = run("check", "--dir", directory)
    assert told.code == 3 and told.text.splitlines() == [
        f"{place}/{first}: is missing in object storage{lost}",
        f"{place}/{second}: is missing in object storage{cure}",
        f"{place}/{third}: has 5 bytes instead of {length:,} in object storage{cure}",
    ]
    assert run("check", "--repair", "--dir", directory).code == 1  # the first segment is lost
    kept.rename(elsewhere)
    s3.client.delete_object(Bucket=BUCKET, Key=f"{prefix}/{third}")
    assert run("check", "--repair", "--dir", directory).code == 0
    assert run("ship", "--dir", directory).text.splitlines()[-1].startswith("3 WARC files shipped to ")
    assert run("check", "--dir", directory).code == 0
    assert s3.objects(prefix) == segments(directory)


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("s3://no-such-bucket/x", "s3://no-such-bucket/x: the bucket does not exist"),
        ("file:///no-such-folder/x", "file:///no-such-folder/x: the folder does not exist"),
    ],
)
def test_check_reports_a_storage_that_is_gone(
    storage: str, message: str, web: Web, place: str, tmp_path: Path
) -> None:
    directory = tmp_path / "crawl"
    assert place
    crawl(
        directory,
        web.url(),
        *SMALL,
        "--set",
        "pages.ship_interval=0.01",
        "--set",
        f"pages.ship=file://{tmp_path}/s",
    )
    settings = directory / "crawl.toml"
    settings.write_text(settings.read_text().replace(f"file://{tmp_path}/s", storage))
    told = run("check", "--dir", directory)
    assert told.code == 3 and told.text.splitlines() == [message]
    (tmp_path / "s").rename(tmp_path / "t")
    assert run("ship", "--dir", directory, "--delete", "--to", f"file://{tmp_path}/u").code == 0
    told = run("check", "--dir", directory)
    assert (
        f"file://{tmp_path}/s: the folder does not exist; " in told.text and " kept only there" in told.text
    )


def test_a_crawl_says_what_it_waits_for_at_its_end(
    web: Web, s3: S3, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crawl once waited up to `pages.ship_patience` for its last files silently."""
    monkeypatch.setattr("crawler.crawl.shipper.NOTICE_AFTER", 0.1)
    proxy = Proxy(int(s3.address.rpartition(":")[2]))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
    proxy.open.clear()
    directory = tmp_path / "crawl"
    crawl(directory, web.url(), "--set", f"pages.ship={place}", "--set", "pages.ship_patience=1")
    proxy.close()
    said = (directory / "crawler.log").read_text()
    assert f"copying WARC files to {place}: file 1 of 1, crawl-p0-" in said
    assert "bytes transferred; waiting at most 1 s more" in said


@pytest.mark.parametrize("terminal", [False, True])
def test_a_slow_transfer_is_followed(
    terminal: bool, web: Web, s3: S3, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`crawler ship` printed nothing while the storage was slow. Here, the network is cut until it prints a line."""
    directory = tmp_path / "crawl"
    crawl(directory, web.url())
    proxy = Proxy(int(s3.address.rpartition(":")[2]))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
    proxy.open.clear()
    reader, writer = os.openpty() if terminal else os.pipe()
    shipping_it = subprocess.Popen(
        [sys.executable, "-m", "crawler", "ship", "--dir", directory, "--to", place],
        stdout=subprocess.PIPE,
        stderr=writer,
    )
    told = b""
    while b" s" not in told:
        told += os.read(reader, 1000)
    proxy.open.set()
    out, _ = shipping_it.communicate()
    os.close(writer)
    os.close(reader)
    proxy.close()
    (name,) = segments(directory)
    length = len(segments(directory)[name])
    assert f"file 1 of 1, {name}: 0 of {length:,} bytes transferred, ".encode() in told
    assert shipping_it.returncode == 0
    assert out.decode() == f"{length:,} bytes  {place}/{name}\n1 WARC file shipped to {place}\n"


def test_exports_go_to_object_storage(
    web: Web, s3: S3, place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory = tmp_path / "crawl"
    crawl(directory, web.url())
    one = ("export", "--dir", directory, "--format", "parquet", "--to", f"{place}/rows.parquet")
    assert run(*one).code == 0
    again = run(*one)
    assert again.code == 0 and "is there already" in again.err
    parts = ("export", "--dir", directory, "--format", "jsonl", "--part-size", "8k", "-o", f"{place}/rows")
    assert run(*parts).code == 0
    there = s3.objects(prefix_of(request))
    (tmp_path / "rows.parquet").write_bytes(there.pop("rows.parquet"))
    assert pyarrow.parquet.read_table(tmp_path / "rows.parquet").num_rows == PAGES + 1
    listed = json.loads(there.pop("rows/manifest.json"))
    assert {each["name"]: each["bytes"] for each in listed} == {
        name: len(data) for name, data in there.items()
    }
    rows = b"".join(data for name, data in sorted(there.items())).splitlines()
    assert len(rows) == PAGES + 1 and len(there) > 1
    other = run("export", "--dir", directory, "--format", "parquet", "--fields", "url", *one[5:])
    assert other.code == 75 and "exists with other content" in other.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("crawl", "--dir", "s3://bucket/a", "http://127.0.0.1:9/"), "must be a local folder"),
        (("crawl", "--dir", "here", "--set", "pages.ship=ftp://x/y", "http://127.0.0.1:9/"), "pages.ship"),
        (("crawl", "--dir", "here", "--set", "pages.ship=bucket", "http://127.0.0.1:9/"), "pages.ship"),
    ],
)
def test_an_invalid_storage_url_is_rejected(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = run(*arguments)
    assert told.code == 2 and message in told.err and len(told.err.strip().splitlines()) == 1
    assert not (tmp_path / "s3:").exists()


@pytest.mark.parametrize("call", [partial(crawler.run, "http://127.0.0.1:9/"), crawler.Crawl])
def test_python_refuses_a_directory_in_object_storage(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="s3://bucket/a: a crawl directory must be a local folder"):
        call(directory="s3://bucket/a")
    assert list(tmp_path.iterdir()) == []
