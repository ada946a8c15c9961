"""Test how the CPU time of the browser's processes is charged to pages."""

import pytest

from crawler.render.work_account import ProcessTime, WorkAccount


def browser(seconds: float) -> ProcessTime:
    return ProcessTime(1, "browser", seconds)


def renderer(pid: int, seconds: float) -> ProcessTime:
    return ProcessTime(pid, "renderer", seconds)


def test_a_page_is_charged_for_its_renderer() -> None:
    account = WorkAccount()
    account.look([browser(1.0)])
    account.opened("a", [browser(1.0), renderer(10, 0.1)])
    account.opened("b", [browser(1.0), renderer(10, 0.2), renderer(11, 0.5)])
    account.look([browser(1.0), renderer(10, 4.0), renderer(11, 0.75)])
    assert account.seconds("a") == pytest.approx(4.0)
    assert account.seconds("b") == pytest.approx(0.75)


def test_a_later_renderer_is_charged_to_all_open_pages() -> None:
    account = WorkAccount()
    account.opened("a", [renderer(10, 0.0)])
    account.opened("b", [renderer(10, 0.0), renderer(11, 0.0)])
    account.look([renderer(10, 0.0), renderer(11, 0.0), renderer(12, 3.0)])
    account.closed("b")
    account.opened("c", [renderer(10, 0.0), renderer(12, 3.0), renderer(13, 0.0)])
    account.look([renderer(10, 0.0), renderer(12, 5.0), renderer(13, 0.0)])
    assert (account.seconds("a"), account.seconds("c")) == (5.0, 0.0)


def test_other_processes_are_charged_to_open_pages_in_equal_parts() -> None:
    account = WorkAccount()
    account.look([browser(2.0)])
    account.opened("a", [browser(2.0), renderer(10, 0.0)])
    account.opened("b", [browser(2.0), renderer(10, 0.0), renderer(11, 0.0)])
    account.look([browser(8.0), renderer(10, 0.0), renderer(11, 0.0)])
    assert (account.seconds("a"), account.seconds("b")) == (3.0, 3.0)


def test_a_reused_process_id_is_a_new_process() -> None:
    account = WorkAccount()
    account.opened("a", [renderer(10, 5.0)])
    account.closed("a")
    account.look([])
    account.opened("b", [renderer(10, 1.0)])
    assert (account.seconds("a"), account.seconds("b")) == (0.0, 1.0)
