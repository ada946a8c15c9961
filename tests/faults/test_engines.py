"""Test both storage engines with small versions of `test_crash.py`, `test_damage.py` and `test_full_disk.py`.

`CRAWLER_STORE__ENGINE=rocksdict scripts/test tests/faults` runs all of these tests with RocksDB.
"""

import os
import random
import shutil
from pathlib import Path

import pytest

from crawler.storage.engines import chosen, engine_of
from tests.engines import ENGINES, TABLES
from tests.faults.harness import TreeWeb, crawl, judge, run_with_kills, run_with_power_cuts, settings
from tests.faults.test_damage import command, flip, leave_log, newest_log

SMALL = ("--set", "pages.segment_bytes=20000", "--set", "due.buffer_entries_max=16")
OTHERS = [each for each in ENGINES if each.values[0] != chosen()]
KILLS = ["batch written:3", "committed:3", "flush ran:1"]
CUTS = ["synced:3", "batch written:4", "closing:1 --max-pages 40", "flush committed:1"]


@pytest.fixture(params=OTHERS)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("CRAWLER_STORE__ENGINE", request.param)
    return str(request.param)


def test_kills_and_power_cuts_lose_nothing(tmp_path: Path, engine: str) -> None:
    with TreeWeb(tmp_path, 400, "--fanout", "2", hosts=40) as web:
        kills = run_with_kills(web, tmp_path / "killed", KILLS, *SMALL)
        assert judge(web, tmp_path / "killed", kills).flawless
    (tmp_path / "second").mkdir()
    with TreeWeb(tmp_path / "second", 400, "--fanout", "2", hosts=40) as web:
        cuts, changed = run_with_power_cuts(web, tmp_path / "cut", CUTS, random.Random(5), *SMALL)
        assert judge(web, tmp_path / "cut", cuts).flawless and changed
    assert engine_of(tmp_path / "cut" / "p0" / "store") == engine


def test_damage_is_refused_and_repaired(tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An incomplete end of a log is cut off.

    After the loss of a table, the manifest or the whole store, the store is rebuilt.
    """
    with TreeWeb(tmp_path, 60) as web:
        sound = tmp_path / "sound"
        assert crawl(sound, web.seed, *settings(*SMALL)).code == 0
        monkeypatch.delenv("CRAWLER_STORE__ENGINE")  # the engine is saved with the crawl
        assert f'engine = "{engine}"' in (sound / "crawl.toml").read_text()
        for harm in ("torn", "log", "table", "manifest", "store"):
            directory = Path(shutil.copytree(sound, tmp_path / harm))
            _damage(directory, engine, harm)
            ended = crawl(directory, web.seed, *settings(*SMALL))
            assert ended.code == (0 if harm == "torn" else 3) and ended.err.count("\n") == 1, (harm, ended)
            if harm == "log":
                continue  # the damage is followed by acknowledged writes, which only a person may decide to discard
            repaired = command("check", "--dir", directory, "--repair")
            assert repaired.returncode == 0, (harm, repaired)
            assert crawl(directory, web.seed, *settings(*SMALL)).code == 0
            found = judge(web, directory)
            assert found.lost == found.unstored == 0, (harm, found)
            assert engine_of(directory / "p0" / "store") == engine


def _damage(directory: Path, engine: str, harm: str) -> None:
    store = directory / "p0" / "store"
    if harm in ("torn", "log"):
        leave_log(directory)
        log = newest_log(directory)
        log.write_bytes(log.read_bytes() + bytes(range(256)))
        if harm == "log":
            flip(log, log.stat().st_size // 3)
    elif harm == "table":
        command("check", "--dir", directory)
        table = max(store.glob(TABLES[engine]), key=lambda path: path.stat().st_size)
        os.truncate(table, table.stat().st_size // 2)
    elif harm == "manifest":
        max(store.glob("MANIFEST-*")).unlink()
        (store / "CURRENT").unlink()
    else:
        shutil.rmtree(store)


def test_only_a_reshard_can_change_the_engine(tmp_path: Path, engine: str) -> None:
    with TreeWeb(tmp_path, 30) as web:
        directory = tmp_path / "crawl"
        assert crawl(directory, web.seed, *settings(*SMALL)).code == 0
        change = ("--set", f"store.engine={chosen()}")
        refused = crawl(directory, web.seed, *settings(*SMALL, *change))
        assert refused.code == 3 and f"crawler reshard --to N {' '.join(change)}" in refused.err, refused
        moved = command("reshard", "--dir", directory, "--to", "1", *change)
        assert moved.returncode == 0, moved
        assert engine_of(directory / "p0" / "store") == chosen()
        ended = crawl(directory, web.seed, *settings(*SMALL, *change))
        assert ended.code == 0 and judge(web, directory).lost == 0, ended
        assert command("check", "--dir", directory).returncode == 0
