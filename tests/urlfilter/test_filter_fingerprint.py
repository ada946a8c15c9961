"""Test when two URL filters count as the same filter."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from crawler.api.hooks import guarded_filter
from crawler.urlfilter import filter_fingerprint as module
from crawler.urlfilter.filter_fingerprint import filter_fingerprint


class Blocked:
    """A filter that is an object. `log` is not plain data."""

    def __init__(self, *hosts: str) -> None:
        self.hosts, self.log = {*hosts}, open

    def __call__(self, url: str) -> bool:
        return url not in self.hosts

    def method(self, url: str) -> bool:
        return url in self.hosts


def without(word: str) -> Callable[[str], bool]:
    return lambda url: word not in url


def by_default(url: str, words: tuple[str, ...] = ("a",)) -> bool:
    return url not in words


def test_equal_filters_have_equal_fingerprints() -> None:
    pairs = [
        (without("a"), without("a")),
        (Blocked("a", "b"), Blocked("b", "a")),
        (Blocked("a").method, Blocked("a").method),
        (partial(by_default, words=("b",)), partial(by_default, words=("b",))),
        (guarded_filter(without("a"), None), guarded_filter(without("a"), None)),  # type: ignore[arg-type]
    ]
    for one, other in pairs:
        assert filter_fingerprint(one) == filter_fingerprint(other)  # type: ignore[arg-type]


def test_different_filters_have_different_fingerprints() -> None:
    filters = [
        without("a"), without("b"), by_default, partial(by_default, words=("b",)), partial(by_default, words=("c",)),
        Blocked("a"), Blocked("b"), Blocked("a").method, Blocked("b").method, lambda url: True, lambda url: False,
        guarded_filter(without("a"), None), guarded_filter(without("b"), None),  # type: ignore[arg-type]
    ]  # fmt: skip
    assert len({filter_fingerprint(each) for each in filters}) == len(filters)  # type: ignore[arg-type]


def test_an_object_that_contains_itself_has_a_fingerprint() -> None:
    blocked = Blocked("a")
    blocked.log = [blocked]  # type: ignore[assignment]
    assert len(filter_fingerprint(blocked)) == module.FINGERPRINT_BYTES


def test_a_change_of_the_module_is_noticed_and_another_start_of_the_program_is_not(tmp_path: Path) -> None:
    """Sets of strings have another order in each start. The function itself stays the same."""

    def started() -> str:
        program = (
            f"import own; from {module.__name__} import filter_fingerprint as of; print(of(own.f).hex())"
        )
        path = f"{tmp_path}:{Path(module.__file__).parents[2]}"
        done = subprocess.run(
            [sys.executable, "-B", "-c", program],
            env={"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    text = (
        "def f(url, known={'a', 'b', 'c', 'd'}):\n"
        "    return url not in known and url not in {'e', 'f', 'g', 'h'} and url not in MORE\n"
    )
    (tmp_path / "own.py").write_text(text + "MORE = ('x',)\n")
    first = started()
    assert started() == first
    (tmp_path / "own.py").write_text(text + "MORE = ('y',)\n")
    assert started() != first
