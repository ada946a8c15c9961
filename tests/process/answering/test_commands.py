"""Test the commands that a process answers. Each invalid request gets an error of one line."""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.admin.status import Status
from crawler.change_signals import Signalled
from crawler.clock import iso_time
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import UsageError
from crawler.frontier import views
from crawler.frontier.discovery import intake as discovery_intake
from crawler.pages.withdrawals import Withdrawal, url_digest
from crawler.process.answering import explainer, withdrawing
from crawler.process.answering.commands import HOSTS_AT_ONCE, Commands
from crawler.process.committing.portions import PORTION_LINKS
from crawler.process.opening.stages import Stages
from crawler.records import Blame, Capture, Extracted, LinkFlag, Outcome, PageRecord, PageState, PeerStatus
from crawler.storage import keys
from crawler.storage.commit import Change
from tests.process.opening.test_stages import URL, fetched, opened
from tests.process.support import Joint, fetch, made

Open = Callable[..., Joint]
HOME, NEW, AWAY = "http://a.org/", "http://a.org/new", "http://elsewhere.example/"


@pytest.fixture
def stages(tmp_path: Path) -> Iterator[Stages]:
    stages = opened(tmp_path)
    yield stages
    assert stages.views.problems() == []
    stages.close()


def ask(stages: Stages, command: Any, **arguments: Any) -> Any:
    """Run a command; return its answer as the control socket would send it."""
    answer = Commands(stages, stages.commits.commit_now).run({"command": command, **arguments})
    return msgspec.json.decode(msgspec.json.encode(answer))


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({}, "unknown command ''"),
        ({"command": "fly"}, "unknown command 'fly'"),
        ({"command": "run"}, "unknown command 'run'"),
        ({"command": "hosts", "order": "best"}, "order: .best. is not one of busy, failing, wait, size"),
        ({"command": "hosts", "limit": -1}, "limit: expected a whole number >= 0, got -1"),
        ({"command": ["why"]}, "unknown command"),
        ({"command": {"why": 1}}, "unknown command"),
        ({"command": "why"}, "why: .*url"),
        ({"command": "why", "url": 5}, "why: url: expected text, got a whole number"),
        ({"command": "why", "url": URL, "more": 1}, "why: .*more"),
        ({"command": "status", "hosts": "all"}, "status: hosts: expected a whole number, got text"),
        ({"command": "seed", "urls": URL}, "seed: urls: expected a list, got text"),
        ({"command": "seed", "urls": [URL, None]}, "seed: urls.1.: expected text, got null"),
        ({"command": "get", "url": "no url"}, "not an http"),
        ({"command": "block", "host": "a b"}, "not a host name"),
        ({"command": "unblock", "host": ""}, "not a host name"),
        ({"command": "block", "host": "a.org/b"}, "'a.org/b' is not a host name; .* such as a.org"),
        ({"command": "block", "host": "http://a.org/?b"}, "all URLs of a host, such as a.org"),
        ({"command": "unblock", "host": "a.org:8080"}, "all URLs of a host, such as a.org"),
        ({"command": "retire", "pattern": "("}, "not a regular expression"),
        ({"command": "retire", "pattern": ""}, "the pattern is empty"),
    ],
)
def test_an_invalid_request_is_refused_in_one_line(
    stages: Stages, request_: dict[str, Any], words: str
) -> None:
    """A `retire` with an unclosed bracket, or with a list as a name, once ended the connection without an answer."""
    with pytest.raises(UsageError, match=words) as refusal:
        Commands(stages, stages.commits.commit_now).run(request_)
    assert "\n" not in str(refusal.value)


def test_status_is_one_tree_and_can_be_read_back(stages: Stages) -> None:
    fetched(stages, URL)
    plain = ask(stages, "status")
    assert set(plain) >= {
        *["name", "now", "pages", "urls", "bytes", "frontier", "due", "splitter", "peers", "waiting"]
    }
    assert plain["pages"] == {"fetched": 1} and plain["due"]["new"] == 1 and plain["splitter"] == {}
    assert [host["host"] for host in plain["waiting"]] == ["a.org"]
    assert Status.of(plain).plain() == plain
    assert ask(stages, "status", hosts=0)["waiting"] == []


def test_why_distinguishes_a_page_a_waiting_url_and_an_unknown_one(stages: Stages) -> None:
    fetched(stages, URL)
    ask(stages, "seed", urls=["http://a.org/todo"])
    page = ask(stages, "why", url=URL)
    assert page["verdict"].startswith("Stored: 200 at ")
    assert page["known"] and page["record"]["state"] == "stored" and len(page["captures"]) == 1
    todo = ask(stages, "why", url="HTTP://A.org:80/todo#part")
    assert todo["url"] == "http://a.org/todo" and todo["known"] and todo["queue"] == "to do"
    assert todo["waiting"]["host"] == "a.org" and "record" not in todo
    assert not ask(stages, "why", url="http://b.org/")["known"]
    for text in ("mailto:x", "mailto:me@a.org", "me@a.org", "/todo", "todo", ""):
        with pytest.raises(UsageError, match="is not an http"):
            ask(stages, "why", url=text)


def test_seeds_are_queued_and_invalid_urls_are_named(stages: Stages) -> None:
    assert ask(stages, "seed", urls=["http://b.org/", "ftp://b.org/"]) == {
        "queued": 1,
        "refused": [{"url": "ftp://b.org/", "why": "its scheme is neither http nor https"}],
        "waits_for": [],
    }
    for url, why in (("http://b.org:25/", "its port"), ("http://b.org/" + "a/" * 40, "path_segments_max")):
        said = ask(stages, "seed", urls=[url])
        assert said["queued"] == 0 and why in said["refused"][0]["why"], said
        assert said["refused"][0]["why"] in ask(stages, "why", url=url)["verdict"], (
            "`seed` and `why` give the same reason"
        )
    long = URL + "x" * 8192
    assert "length_max" in ask(stages, "seed", urls=[long])["refused"][0]["why"]
    with pytest.raises(UsageError, match="a URL has at most 8,192 bytes") as raised:
        ask(stages, "why", url=long)
    assert len(str(raised.value)) < 300
    for command in ("seed", "signal"):
        with pytest.raises(UsageError, match="'http://' is not an http"):
            ask(stages, command, urls=["http://", "x"])
    assert stages.views.frontier_counts().todo == 1


def test_a_block_and_its_lifting_outlast_a_kill(tmp_path: Path) -> None:
    """The block of a host and its end were once stored only with a later change of this host, or at a clean stop."""
    for command, blocked in (("block", True), ("unblock", False)):
        stages = opened(tmp_path)
        ask(stages, command, host="b.org")
        stages.close(clean=False)
        stages = opened(tmp_path)
        status = stages.frontier.views.host("b.org", stages.clock.now())
        assert status is not None and (status.state == "blocked") is blocked
        stages.close(clean=False)


def test_an_erasure_pauses_between_the_bytes_that_it_overwrites(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other requests are answered at each pause. The number of bytes in a change does not matter."""
    monkeypatch.setattr(withdrawing, "PAUSE_ENTRIES", 1)
    urls = [f"{URL}{number}" for number in range(20)]
    for url in urls:
        fetched(stages, url, url.encode())
    rule, begin, total = {"at": 1.0, "prefix": URL.partition("//")[2]}, keys.CAPTURE.hex(), 0
    while begin:
        request = {
            "command": "withdraw",
            "step": "erase",
            "rule": rule,
            "begin": {"p0": begin},
            "entries": 1000,
        }
        answer, pauses = made(Commands(stages, stages.point.add).steps(request))
        total += pauses if begin.startswith(keys.ERASING.hex()) else 0
        begin = answer["next"]
        stages.commits.commit_queued()
    assert total >= len(urls)


def test_another_process_keeps_a_copy_of_the_seeds_of_a_command(open_joint: Open) -> None:
    joint = open_joint(names=("p0", "p1"))
    owner, seeds = joint.stages.topology.partition.owner, [f"http://h{n}.org/" for n in range(9)]
    assert ask(joint.stages, "seed", urls=seeds)["queued"] == 9
    sent = [link for links in joint.stages.outbox.spools["p1"].waiting() for link in links]
    copies = {link.url for link in sent if link.flags & LinkFlag.KEPT}
    assert copies == {url for url in seeds if owner(joint.fingerprint(url)) == "p0"}
    assert {link.url for link in sent if not link.flags & LinkFlag.SCOPE} == set(seeds) - copies


def test_why_tells_of_retries_pauses_and_withdrawals(open_joint: Open) -> None:
    joint = open_joint(crawl={"scope": "any"})
    joint.follow(HOME, fetch(HOME, b"", outcome=Outcome.TEMPORARY, blame=Blame.URL, status=500))
    joint.follow(NEW, fetch(NEW))
    failed, stored = ask(joint.stages, "why", url=HOME), ask(joint.stages, "why", url=NEW)
    assert failed["record"]["state"] == "failed" and failed["queue"] == "to do" and "paused" not in failed
    assert "queued again: " in failed["verdict"]
    assert stored["record"]["state"] == "stored" and "queue" not in stored
    prospect = Commands(joint.stages, joint.stages.commits.commit_now).prospect
    assert (
        prospect(HOME + "unknown", None).queued
        and prospect(NEW, joint.stages.pages.record(joint.fingerprint(NEW))).queued
    )
    joint.frontier.pauses.pause()
    assert ask(joint.stages, "why", url=HOME)["paused"] == ["user"]
    joint.stages.pages.withdrawals._index((Withdrawal(1.0, digest=url_digest(NEW), reason="asked for"),))
    withdrawn = ask(joint.stages, "why", url=NEW)
    assert withdrawn["withdrawn"] == {"at": iso_time(1.0), "reason": "asked for", "copies": 1, "again": False}
    assert withdrawn["verdict"].startswith("Withdrawn by the operator")


def test_commands_pause_on_long_queues(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    """`retire` and `why` must not read all entries of a queue in one turn of the event loop.

    Reading a million entries takes seconds.
    """
    monkeypatch.setattr(discovery_intake, "RETIRED_AT_ONCE", 10)
    monkeypatch.setattr(views, "EXPLAINED_AT_ONCE", 10)
    urls = [f"http://b.org/{n}" for n in range(95)]
    ask(stages, "seed", urls=urls)
    commands = Commands(stages, stages.commits.commit_now)

    why, count = made(commands.steps(dict(command="why", url=urls[-1])))
    assert count == 9 and why["queue"] == "to do"
    retired, count = made(commands.steps(dict(command="retire", pattern=r"b\.org/.*[05]$")))
    assert (
        count >= 10
        and retired == {"retired": 19, "stored": False}
        and stages.views.frontier_counts().todo == 76
    )
    assert made(commands.steps({"command": "retire", "pattern": r"b\.org"}))[0] == {
        "retired": 76,
        "stored": False,
    }
    assert stages.views.frontier_counts().todo == 0


def test_status_lists_peers_and_as_many_hosts_as_requested(open_joint: Open) -> None:
    alone, two = open_joint(), open_joint(names=("p0", "p1"))
    alone.seeds(*(f"http://h{n}.org/" for n in range(22)))
    assert len(ask(alone.stages, "status")["waiting"]) == 20
    assert ask(alone.stages, "status")["peers"] == {}
    idle = {"p0": {"p1": {"outbox_links": 0, "outbox_bytes": 0}}}
    assert ask(two.stages, "status")["peers"] == idle
    running = Commands(two.stages, two.stages.commits.commit_now, lambda: {"p1": PeerStatus(3, 4, True)}).run(
        {"command": "status"}
    )
    assert running["peers"] == {"p0": {"p1": {"outbox_links": 3, "outbox_bytes": 4, "connected": True}}}


def test_status_of_many_hosts_pauses(open_joint: Open) -> None:
    """A host outside the front may need disk reads, so ten thousand hosts in one turn would block the event loop."""
    joint = open_joint()
    joint.seeds(*(f"http://h{n}.org/" for n in range(3 * HOSTS_AT_ONCE + 1)))
    commands = Commands(joint.stages, joint.stages.commits.commit_now)
    status, pauses = made(commands.steps({"command": "status", "hosts": 10_000}))
    assert (len(status["waiting"]), pauses) == (3 * HOSTS_AT_ONCE + 1, 3)
    assert commands.status(10_000).plain() == commands.run({"command": "status", "hosts": 10_000})


@pytest.mark.parametrize("command", ["seed", "signal"])
def test_a_request_of_many_urls_is_taken_in_portions(
    open_joint: Open, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A request may contain 40,000 URLs. In one turn of the event loop, they would block it for a second."""
    joint = open_joint(crawl={"scope": "any"}, refresh={"endless": True, "share": 0.5})
    known = [f"http://a.org/{n}" for n in range(5)]
    joint.store(*known)
    looked_at: list[int] = []
    signal = joint.stages.refresh.changes.note_changes  # type: ignore[union-attr]
    told: list[int] = []
    monkeypatch.setattr(
        joint.stages.refresh.changes, "note_changes", lambda *some: told.append(len(some[0])) or signal(*some)
    )
    links = joint.admission.links
    monkeypatch.setattr(
        joint.admission, "links", lambda *some: looked_at.append(len(some[2])) or links(*some)
    )
    new = [f"http://h{n}.org/" for n in range(2 * PORTION_LINKS + 1)]
    commands = Commands(
        joint.stages, joint.stages.commits.commit if command == "seed" else joint.stages.point.add
    )
    request = {"command": command, "urls": known * 60 + new}
    if command == "seed":
        request["settings"] = {"crawl.scope": "any"}
    _, pauses = made(commands.steps(request))
    assert pauses >= 4 and max(looked_at) <= PORTION_LINKS
    if command == "seed":
        assert sum(looked_at) == 300 + len(new)
    else:
        assert sum(looked_at) == len(new) and told == [len(known)], "a URL counts once"
    joint.stages.commits.commit_now(Change())
    assert joint.stages.views.problems() == []


def test_seeds_take_the_scope_before_the_first_of_them_is_a_link(
    joint: Joint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scope is extended by all seeds before any of them becomes a link.

    A page processed between two portions of seeds may link to the host of any seed.
    """
    urls = [f"http://h{n}.org/" for n in range(2 * PORTION_LINKS)]
    links, spanned = joint.admission.links, []

    def observed(*some: Any) -> int:
        spanned.append(joint.admission.in_scope(urls[-1] + "page"))
        return links(*some)

    monkeypatch.setattr(joint.admission, "links", observed)
    joint.seeds(*urls)
    assert spanned == [True, True]


def test_status_shows_the_refresh_of_known_pages(open_joint: Open) -> None:
    fresh = open_joint(refresh={"endless": True, "share": 0.5})
    fresh.store(HOME)
    assert [row["host"] for row in ask(fresh.stages, "status")["refreshing"]["hosts"]] == ["a.org"]
    assert ask(fresh.stages, "status", hosts=0)["refreshing"]["hosts"] == []


def test_why_names_the_owner_if_there_are_several_processes(open_joint: Open) -> None:
    two = open_joint(names=("p0", "p1"))
    owner = two.stages.topology.partition.owner
    for url in (HOME, "http://b.org/", "http://c.org/", "http://d.org/"):
        answer = ask(two.stages, "why", url=url)
        assert answer["verdict"] and (answer["process"], answer["owner"]) == (
            "p0",
            owner(two.fingerprint(url)),
        )
        assert answer["fingerprint"] == f"{two.fingerprint(url):016x}"
    assert "owner" not in ask(open_joint().stages, "why", url=HOME)


def test_why_shows_the_rules_of_robots_txt(joint: Joint) -> None:
    assert "robots" not in ask(joint.stages, "why", url=HOME), "never fetched"
    joint.seeds(HOME)
    rules = b"User-agent: *\nDisallow: /no\nAllow: /no/but\n"
    joint.robots(rules)
    at = iso_time(joint.clock.now())
    common = {"url": "http://a.org/robots.txt", "fetched_at": at, "withheld": False}
    for path, line, denied in (
        ("no/1", "Disallow: /no", True),
        ("no/but", "Allow: /no/but", False),
        ("yes", "no rule matches it", False),
    ):
        said = ask(joint.stages, "why", url=HOME + path)["robots"]
        assert said == common | {"line": line, "denied": denied}


def test_why_shows_where_a_url_was_found(joint: Joint) -> None:
    joint.store(HOME, extracted=Extracted(HOME, hrefs=["/new", "/todo"]))
    joint.stages.commits.commit_now(Change())
    fetch_task = joint.fetch_task()
    joint.page(fetch_task, fetch(fetch_task.url, b"x", began=joint.clock.now()))
    (waits,) = {"http://a.org/new", "http://a.org/todo"} - {fetch_task.url}
    for url in (fetch_task.url, waits):
        assert ask(joint.stages, "why", url=url)["found_on"] == HOME
    assert "found_on" not in ask(joint.stages, "why", url=HOME)
    known = ask(joint.stages, "why", url=waits)
    assert known["known"] and known["filter"] == "accepted" and known["reason"]
    assert ask(joint.stages, "why", url=AWAY)["filter"] == "scope"


def test_why_shows_how_a_page_is_refreshed(open_joint: Open) -> None:
    fresh = open_joint(refresh={"endless": True, "share": 0.5})
    fresh.store(HOME)
    assert ask(fresh.stages, "why", url=HOME)["refresh"]["crawled_at"][:4] == "1970"
    assert "refresh" not in ask(fresh.stages, "why", url=NEW)


def test_times_are_in_iso_format() -> None:
    """Times in answers are in ISO 8601 format; past and infinite times are omitted."""
    answer = {"retry_at": 7.0, "waiting": {"ready_at": 5.0, "next_retry_at": float("inf"), "host": "a.org"}}
    explainer._say_times(answer, 5.0)
    assert answer == {"retry_at": iso_time(7.0), "waiting": {"host": "a.org"}}
    answer = {"waiting": {"ready_at": 5.5, "next_retry_at": 6.0}}
    explainer._say_times(answer, 5.0)
    assert answer == {"waiting": {"ready_at": iso_time(5.5), "next_retry_at": iso_time(6.0)}}
    known = {"crawled_at": 3.0, "deadline": None, "rate": 0.5}
    assert explainer._in_words(known) == {"crawled_at": iso_time(3.0), "deadline": None, "rate": 0.5}


def test_records_and_captures_are_plain() -> None:
    record = PageRecord(
        HOME,
        PageState.STORED,
        Outcome.FETCHED,
        via=255,
        flags=LinkFlag.SEED,
        digest=b"\x01",
        receipt=b"\x04",
        fetched_at=3.0,
    )
    plain = explainer._plain_record(record)
    assert (plain["digest"], plain["content_digest"], plain["via"]) == ("01", "", f"{255:016x}")
    assert plain["receipt"] == "04"
    assert (plain["flags"], plain["fetched_at"], plain["changed_at"]) == (
        "SEED",
        iso_time(3.0),
        iso_time(0.0),
    )
    capture = Capture("s", 0, 5, "response", 3.0, 200, "text/html", b"\x02", HOME, refers_to=b"\x03")
    told = explainer._plain_capture(capture)
    assert (told["digest"], told["refers_to"], told["fetched_at"]) == ("02", "03", iso_time(3.0))
    assert (told["url"], told["length"]) == (HOME, 5)
    msgspec.json.encode([plain, told])


def test_get_and_why_state_the_same_probability_that_a_copy_is_current(
    open_joint: Callable[..., Joint],
) -> None:
    joint = open_joint(refresh={"endless": True, "share": 0.5})
    joint.store(HOME)
    joint.clock.advance(86_400.0)
    fresh = ask(joint.stages, "get", url=HOME)["fresh"]
    assert 0.0 < fresh < 1.0 and fresh == ask(joint.stages, "why", url=HOME)["refresh"]["fresh"]
    joint.page(joint.fetch_task(), fetch(HOME, status=404, outcome=Outcome.GONE))
    assert ask(joint.stages, "get", url=HOME)["fresh"] is None


def test_get_states_no_probability_if_no_page_is_refreshed(joint: Joint) -> None:
    joint.store(HOME)
    assert ask(joint.stages, "get", url=HOME)["fresh"] is None


def test_a_page_with_a_directive_against_display_is_returned_only_on_request(joint: Joint) -> None:
    joint.store(HOME, extracted=Extracted(HOME, noarchive=True))
    shown = ask(joint.stages, "get", url=HOME)
    assert shown.keys() == {"holding"} and shown["holding"]["withheld"].startswith("noarchive")
    assert ask(joint.stages, "get", url=HOME, with_noarchive=True)["status"] == 200


def test_seeds_on_a_new_site_need_relaxed_settings_confirmed(open_joint: Open) -> None:
    """For the first seed on a new site, the user must confirm relaxed settings.

    Later seeds on this site need no confirmation.
    """
    joint = open_joint(politeness={"delay": 0.0})
    directory = CrawlDirectory(joint.stages.directory.parent)
    directory.settings.save(joint.stages.config)
    with pytest.raises(UsageError, match="relaxed settings"):
        ask(joint.stages, "seed", urls=[HOME])
    with pytest.raises(UsageError, match=r"politeness\.delay is 0 in this crawl"):
        ask(joint.stages, "seed", urls=[HOME], settings={"politeness.delay": "3"})
    assert directory.settings.places() == [] and joint.stages.views.frontier_counts().todo == 0
    ask(joint.stages, "seed", urls=[HOME], settings={"politeness.delay": "0"})
    assert directory.settings.places() == ["a.org"]
    config = directory.settings.file.stat().st_mtime_ns
    assert ask(joint.stages, "seed", urls=[NEW])["queued"] == 1
    assert directory.settings.file.stat().st_mtime_ns == config, "the configuration is not written again"


def test_the_answer_to_a_signal_names_the_fates_of_the_intake(open_joint: Open) -> None:
    joint = open_joint(refresh={"endless": True, "share": 0.5})
    joint.store(HOME)
    said = ask(joint.stages, "signal", urls=[HOME, NEW, AWAY, "x:"], source="feed:of/site")
    assert {name: n for name, n in said.items() if isinstance(n, int)} == Signalled(
        noted=1, queued=1, out_of_scope=1, refused=1
    ).counts()
    told = {each["url"]: (each["fate"], each.get("why", "")) for each in said["urls"]}
    assert told == {
        HOME: ("noted", ""), NEW: ("queued", ""), AWAY: ("out_of_scope", "scope"), "x:": ("refused", "scheme"),
    }  # fmt: skip
    assert said["why"] == {"scope": 1, "scheme": 1}
    assert joint.fetch_task().url == NEW
    assert ask(joint.stages, "why", url=HOME)["refresh"]["signals_by_source"] == {"feed": 1}


def test_signals_are_reported_by_host_and_source(open_joint: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    joint = open_joint(refresh={"endless": True, "share": 0.5})
    joint.store(HOME)
    refresh = joint.stages.refresh
    assert refresh is not None
    key = next(iter(refresh.views.by_host(joint.clock.now())))
    monkeypatch.setattr(refresh.changes, "heard", lambda: [{"host_key": key, "source": "feed"}])
    assert ask(joint.stages, "signals") == [{"host": "a.org", "source": "feed"}]


@pytest.mark.parametrize(
    ("command", "arguments"),
    [("block", {"host": "a.org"}), ("unblock", {"host": "a.org"}), ("retire", {"pattern": "new"})],
)
def test_a_command_waits_for_the_change_being_made_and_commits(
    joint: Joint, monkeypatch: pytest.MonkeyPatch, command: str, arguments: dict[str, Any]
) -> None:
    """A command that runs while a change is half made would miss the decisions that the change has already made."""
    joint.seeds(HOME)
    done: list[Any] = []

    def making() -> Generator[None, None, None]:
        done.append("made")
        yield

    monkeypatch.setattr(joint.stages.point, "making", making)
    monkeypatch.setattr(joint.frontier.blocks, "block", lambda name: done.append(("block", name)))
    monkeypatch.setattr(
        joint.frontier.blocks, "unblock", lambda name, now: done.append(("unblock", name, now))
    )
    made(
        Commands(joint.stages, lambda change: done.append("committed")).steps(
            {"command": command} | arguments
        )
    )
    assert done[0] == "made"
    assert "committed" in done[1:] or command == "retire"
    if "block" in command:
        called = ("block", "a.org") if command == "block" else ("unblock", "a.org", joint.clock.now())
        assert done == ["made", called, "committed"]


def test_why_does_not_say_never_fetched_of_a_served_page(open_joint: Open) -> None:
    """If robots.txt forbids a stored page, `why` names the rule and reports that the copy is kept and served."""
    joint = open_joint(refresh={"endless": True, "share": 0.5, "min_age": 0.0})
    joint.store(HOME)
    joint.clock.advance(10 * 86_400.0)
    joint.robots(b"User-agent: *\nDisallow: /\n", began=joint.clock.now())
    joint.deny()
    said = ask(joint.stages, "why", url=HOME)
    assert said["record"]["state"] == "denied"
    copy = said["captures"][-1]["fetched_at"]
    assert said["verdict"] == (
        f"Not fetched again: `Disallow: /` in {HOME}robots.txt forbids it; the copy of {copy} is kept and served."
    )


def test_robots_txt_that_is_not_obeyed_forbids_nothing(open_joint: Open) -> None:
    joint = open_joint(override=[{"match": "a.org", "robots": "ignore"}], crawl={"scope": "any"})
    for host, denied in (("a.org", False), ("b.org", True)):
        joint.seeds(f"http://{host}/")
        rules = fetch(f"http://{host}/robots.txt", b"User-agent: *\nDisallow: /\n", began=joint.clock.now())
        authority = f"http://{host}"
        change = Change()
        recording = joint.stages.robots.recording(
            authority, status=200, outcome=rules.outcome, body=rules.content, complete=True,
            now=joint.clock.now(), batch=change,
        )  # fmt: skip
        for _ in recording:
            pass
        joint.stages.commits.commit(change)
        said = ask(joint.stages, "why", url=f"http://{host}/new")
        assert said["robots"]["denied"] == denied, said
        assert said["verdict"].startswith(
            "Not found yet, and it would not be fetched:" if denied else "Not found yet: no link"
        )
