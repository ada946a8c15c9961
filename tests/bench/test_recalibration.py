"""Test the script that fits the correction of P(fresh): its records are true, and its replay is the correction."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from crawler.frontier.refresh import Settings
from crawler.lab.league import histories
from crawler.lab.league import world as worlds
from crawler.lab.league.shipped import Shipped
from crawler.lab.living.calibration import Calibration
from tests.lab.league.made import history

PAGES = 40


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "scripts" / "bench" / "recalibration.py"
    spec = importlib.util.spec_from_file_location("recalibration_script", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A site whose pages change every 50 days on average. Every third page is deleted in the second year."""
    rng = np.random.default_rng(6)
    changes = sorted(
        (page, day, 3, 3) for page in range(PAGES) for day in np.cumsum(rng.exponential(50.0, 20)).tolist()
    )
    died = {page: 500.0 + page for page in range(0, PAGES, 3)}
    made = history([each for each in changes if each[1] < 1000.0], pages=PAGES, died=died, days=1000.0)
    histories.write(tmp_path / "made.npz", made)
    return tmp_path


def test_the_recorded_samples_are_those_of_the_calibration(script: ModuleType, data: Path) -> None:
    """Deleted pages stay in the schedule until a fetch finds them gone, but their copies are not sampled."""
    run = script.Run("none", 1.0, 3)
    script.played(run, data, PAGES, data)
    rows = np.load(data / "none 1x-3.npy")
    samples = rows[rows[:, 0] > 0.0]
    world = worlds.build([script.drawn(histories.read_folder(data)[0], 3)], "none", pages=PAGES)
    policy = Shipped(world, world.change_rate, Settings(), judged=True, born=world.born)
    seen = Calibration(
        policy.fresh, world.changes, world.site, worlds.WARMUP * world.horizon, world.horizon, world.died
    )
    worlds.play(world, policy, world.change_rate, seen)
    copies, stated, current = seen.sums[:, 0].sum(axis=(0, 1))
    assert len(samples) == copies > 500.0
    assert samples[:, 1].sum() == pytest.approx(stated)
    assert len(samples) - samples[:, 4].sum() == current


def test_the_compiled_replay_states_what_the_correction_states(script: ModuleType, data: Path) -> None:
    run = script.Run("honest", 1.0, 3)
    script.played(run, data, PAGES, data)
    script.checked(run, data)
