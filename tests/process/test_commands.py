"""What a process answers: each command, and one line for each request that is none."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.admin.status import Status
from crawler.errors import UsageError
from crawler.frontier import views
from crawler.frontier.discovery import intake as discovery_intake
from crawler.process.commands import Commands
from crawler.process.stages import Stages
from tests.process.test_stages import URL, fetched, opened


@pytest.fixture
def stages(tmp_path: Path) -> Iterator[Stages]:
    stages = opened(tmp_path)
    yield stages
    assert stages.problems() == []
    stages.close()


def ask(stages: Stages, command: Any, **arguments: Any) -> Any:
    """The answer as the control socket sends it."""
    answer = Commands(stages, stages.commit_now).run({"command": command, **arguments})
    return msgspec.json.decode(msgspec.json.encode(answer))


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({}, "no command ''"),
        ({"command": "fly"}, "no command 'fly'"),
        ({"command": "run"}, "no command 'run'"),
        ({"command": ["why"]}, "no command"),
        ({"command": {"why": 1}}, "no command"),
        ({"command": "why"}, "why: .*url"),
        ({"command": "why", "url": 5}, "why: Expected `str`"),
        ({"command": "why", "url": URL, "more": 1}, "why: .*more"),
        ({"command": "status", "hosts": "all"}, "status: Expected `int`"),
        ({"command": "seed", "urls": URL}, "seed: Expected `array`"),
        ({"command": "seed", "urls": [URL, None]}, "seed: Expected `str`"),
        ({"command": "get", "url": "no url"}, "no http"),
        ({"command": "block", "host": "a b"}, "no host name"),
        ({"command": "unblock", "host": ""}, "no host name"),
        ({"command": "retire", "pattern": "("}, "no regular expression"),
    ],
)
def test_a_request_that_is_none_is_refused_in_one_line(
    stages: Stages, request_: dict[str, Any], words: str
) -> None:
    """`retire` of an open bracket, or a list in the place of a name, ended the connection without a word."""
    with pytest.raises(UsageError, match=words) as refusal:
        Commands(stages, stages.commit_now).run(request_)
    assert "\n" not in str(refusal.value)


def test_status_is_one_tree_and_can_be_read_back(stages: Stages) -> None:
    fetched(stages, URL)
    plain = ask(stages, "status")
    assert set(plain) >= {
        "name",
        "now",
        "pages",
        "urls",
        "bytes",
        "frontier",
        "due",
        "splitter",
        "peers",
        "waiting",
    }
    assert plain["pages"] == {"fetched": 1} and plain["due"]["new"] == 1 and plain["splitter"] == {}
    assert [host["host"] for host in plain["waiting"]] == ["a.org"]
    assert Status.of(plain).plain() == plain
    assert ask(stages, "status", hosts=0)["waiting"] == []


def test_why_tells_a_page_a_url_to_do_and_one_never_met(stages: Stages) -> None:
    fetched(stages, URL)
    ask(stages, "seed", urls=["http://a.org/todo"])
    page = ask(stages, "why", url=URL)
    assert page["known"] and page["record"]["state"] == "stored" and len(page["captures"]) == 1
    todo = ask(stages, "why", url="HTTP://A.org:80/todo#part")
    assert todo["url"] == "http://a.org/todo" and todo["known"] and todo["queue"] == "to do"
    assert todo["waiting"]["host"] == "a.org" and "record" not in todo
    assert not ask(stages, "why", url="http://b.org/")["known"]
    assert ask(stages, "why", url="mailto:x")["verdict"] == "Never asked: it is no usable http(s) URL."


def test_get_gives_the_stored_copy_or_nothing(stages: Stages) -> None:
    fetched(stages, URL)
    assert ask(stages, "get", url=URL)["content"] == "PGh0bWw+b25lIHBhZ2U8L2h0bWw+"
    head = ask(stages, "get", url=URL, headers=True)
    assert head["content"] == "" and ["Content-Type", "text/html"] in head["headers"]
    assert ask(stages, "get", url="http://a.org/other") is None


def test_seeds_are_queued_and_what_is_no_url_is_named(stages: Stages) -> None:
    assert ask(stages, "seed", urls=["http://b.org/", "ftp://b.org/"]) == {
        "queued": 1,
        "refused": ["ftp://b.org/"],
    }
    assert ask(stages, "seed", urls=["x:"]) == {"queued": 0, "refused": ["x:"]}
    assert stages.frontier_counts().todo == 1


def test_a_host_is_blocked_and_taken_up_again(stages: Stages) -> None:
    ask(stages, "seed", urls=["http://b.org/"])
    assert ask(stages, "block", host="http://B.org/some/page") == {"host": "b.org"}
    assert ask(stages, "why", url="http://b.org/")["waiting"]["state"] == "blocked"
    assert ask(stages, "unblock", host="b.org") == {"host": "b.org"}
    assert ask(stages, "why", url="http://b.org/")["waiting"]["state"] != "blocked"


def test_urls_are_retired_by_a_pattern(stages: Stages) -> None:
    ask(stages, "seed", urls=["http://b.org/1", "http://b.org/2", "http://c.org/1"])
    assert ask(stages, "retire", pattern=r"b\.org") == {"retired": 2}
    assert stages.frontier_counts().todo == 1


def test_commands_pause_on_long_queues(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    """`retire` and `why` read all entries of a queue in one turn of the loop: seconds, of a million."""
    monkeypatch.setattr(discovery_intake, "RETIRED_AT_ONCE", 10)
    monkeypatch.setattr(views, "EXPLAINED_AT_ONCE", 10)
    urls = [f"http://b.org/{n}" for n in range(95)]
    ask(stages, "seed", urls=urls)
    commands = Commands(stages, stages.commit_now)

    def pauses(**request: Any) -> tuple[int, Any]:
        steps, count = commands.steps(request), 0
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return count, end.value
            count += 1

    count, why = pauses(command="why", url=urls[-1])
    assert count == 9 and why["queue"] == "to do"
    count, retired = pauses(command="retire", pattern=r"b\.org/.*[05]$")
    assert count >= 10 and retired == {"retired": 19} and stages.frontier_counts().todo == 76
    assert pauses(command="retire", pattern=r"b\.org")[1] == {"retired": 76}
    assert stages.frontier_counts().todo == 0
