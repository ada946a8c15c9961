"""Test the byte account: only the owner of the oldest share may exceed the limit, and no body waits forever."""

import random

from crawler.byte_account import ByteAccount


def test_all_owners_finish_in_any_order() -> None:
    """Forty bodies share a limit of 100 bytes, and a waiting body does not grow.

    All bodies are completed, even if the account is full.
    """
    for seed in range(100):
        generator = random.Random(seed)
        account: ByteAccount[int] = ByteAccount(100, small=seed % 20)
        left = {owner: generator.randint(1, 90) for owner in range(40)}
        waiting: set[int] = set()
        steps = 0
        while left:
            steps += 1
            owner = generator.choice(sorted(set(left) - waiting))
            nbytes = min(left[owner], generator.randint(1, 30))
            left[owner] -= nbytes
            if not account.reserve(owner, nbytes):
                waiting.add(owner)
            elif not left[owner]:
                del left[owner]
                account.release(owner)
                while (free := account.next_free()) is not None:
                    waiting.remove(free)
                    if not left[free]:
                        del left[free]
                        account.release(free)
            account._check()
            assert steps < 10_000
        assert account.held == 0 and not waiting


def test_complete_bodies_that_wait_are_bounded() -> None:
    """Complete bodies that wait for the parser exceed the limit by at most an eighth. Then other bodies must wait."""
    account: ByteAccount[int] = ByteAccount(100, small=0)
    left = dict.fromkeys(range(40), 10)
    whole: list[str] = []
    grown = list(left)  # owners whose bodies may grow
    most = 0
    while left:
        while grown:
            owner = grown.pop(0)
            left[owner] -= 1
            if not left[owner]:
                del left[owner]
                account.release(owner)
                account.charge(f"parsing {owner}", 10)
                whole.append(f"parsing {owner}")
            elif account.reserve(owner, 1):
                grown.append(owner)
            most = max(most, account.held)
            account._check()
            while (free := account.next_free()) is not None:
                grown.append(free)
        assert whole, "no owner may grow, and no complete body is left to release"
        account.release(whole.pop(0))
        while (free := account.next_free()) is not None:
            grown.append(free)
    assert most <= 100 + 100 // 8 + 10


def test_first_come_first_served_and_the_oldest_always() -> None:
    account: ByteAccount[str] = ByteAccount(12, small=0)
    assert account.reserve("a", 6) and account.reserve("b", 2)
    assert not account.reserve("c", 2) and not account.reserve("b", 10), (
        "all shares but the oldest hold at most a quarter of the limit"
    )
    assert account.reserve("a", 20), "the oldest share may exceed the limit"
    assert account.next_free() is None
    account.release("a")
    assert account.next_free() == "b", "now b has the oldest share"
    assert account.next_free() is None, "no bytes of the limit are left"
    account.release("b")
    assert account.next_free() == "c" and account.next_free() is None
    account.release("nobody")
    assert account.held == 2


def test_charged_bytes_stop_others_until_they_are_released() -> None:
    """While the bodies in the parser exceed the limit, no owner may receive bytes.

    After these bodies are released, the waiting owner may receive bytes.
    """
    account: ByteAccount[str] = ByteAccount(100, small=0)
    for number in range(20):
        account.charge(number, 50)
    assert account.held == 1000 and not account.reserve("connection", 1)
    for number in range(19):
        assert account.next_free() is None
        account.release(number)
        account._check()
    assert account.next_free() == "connection"
    account.release(19)
    account.release("connection")
    assert account.held == 0
    account._check()


def test_small_shares_never_wait() -> None:
    account: ByteAccount[str] = ByteAccount(100, small=10)
    assert account.reserve("large", 90) and account.reserve("other", 10)
    assert not account.reserve("other", 1)
    assert account.reserve("little", 6) and account.reserve("little", 4)
    assert not account.reserve("little", 1)
    account._check()
    account.release("large")
    assert [account.next_free() for _ in range(3)] == ["other", "little", None]
