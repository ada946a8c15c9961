"""Test the pool of idle connections, with small limits, by comparing it with a dict."""

import math
import random

from crawler.fetcher.idle_pool import IdlePool


class Fake:
    def __init__(self, key: tuple[str, str, int, str], address: str) -> None:
        self.key = key
        self.address = address
        self.idle_until = 0.0
        self.lost = False

    def close(self) -> None:
        self.lost = True


def test_random_operations_against_a_model() -> None:
    """Every connection is idle, taken or closed. At most one connection per host is idle, and at most three in all."""
    for seed in range(60):
        generator = random.Random(seed)
        pool: IdlePool[Fake] = IdlePool(3)
        idle: dict[str, Fake] = {}
        now = 0.0
        for _ in range(80):
            now += generator.random()
            host = generator.choice("abcde")
            key = (generator.choice(("http", "https")), host, 80, "verify")
            address = generator.choice(("1.1.1.1", "2.2.2.2"))
            action = generator.randrange(5)
            if action <= 1:
                fake = Fake(key, address)
                replaced = idle.pop(host, None)
                pool.add(fake, now, 2.0)
                idle[host] = fake
                if len(idle) > 3:
                    evicted = idle.pop(next(iter(idle)))
                    assert evicted.lost
                assert replaced is None or replaced.lost
            elif action == 2:
                wanted = generator.choice(((), (address,)))
                held = idle.pop(host, None)
                got = pool.take(key, wanted, now)
                fits = held is not None and held.key == key and now < held.idle_until
                fits = fits and (not wanted or held.address in wanted)
                assert got is (held if fits else None)
                assert held is None or held.lost is not fits
            elif action == 3:
                pool.expire(now, 2)
                for name in [name for name, fake in idle.items() if now >= fake.idle_until][:2]:
                    assert idle.pop(name).lost
            elif idle:
                fake = idle.pop(generator.choice(sorted(idle)))
                fake.lost = True
                pool.forget(fake)
            pool._check()
            assert len(pool) == len(idle) and not any(fake.lost for fake in idle.values())
        pool.expire(math.inf, 3)
        assert all(fake.lost for fake in idle.values()) and len(pool) == 0
