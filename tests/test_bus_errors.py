"""Test that a mapped file that cannot be read ends the process with one line and the code of a failing disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crawler.errors import StoreError

# Each program maps a file, truncates it, and reads behind its end. The kernel then sends SIGBUS, as for a bad sector.
_RUN = """
import sys, os, numpy as np
from pathlib import Path
from crawler.due.runs import DiskRuns
run = DiskRuns(Path(sys.argv[1]), []).write([np.arange(10**5, dtype=np.uint64) * 10**6], 10**5, step="flush")
os.truncate(run.path, 4096)
print(run.path, flush=True)
run.problems()
"""
_THREAD = _RUN.replace(
    "run.problems()",
    "import threading; reader = threading.Thread(target=run.problems); reader.start(); reader.join()",
)
_TABLE = """
import sys, os
from pathlib import Path
from crawler.storage.level_store import LevelStore
folder = Path(sys.argv[1], "snapshot-1-x", "store")
store = LevelStore(folder, write_buffer_bytes=1 << 16)
for number in range(200):
    batch = store.batch()
    batch.put(b"%03d" % number, os.urandom(5000))
    store.write(batch)
store.close()
store = LevelStore(folder)
store.get(b"000")
for table in folder.glob("*.ldb"):
    os.truncate(table, 4096)
print(sys.argv[1] + "/store/", flush=True)
for number in range(200):
    store.get(b"%03d" % number)
"""


_GAPS = """
import sys, os
from pathlib import Path
from crawler.storage.files import mapped_file
path = Path(sys.argv[1], "gaps")
memory = mapped_file(path, 1 << 16)
os.truncate(path, 4096)
print(path, flush=True)
memory[50_000] = 1
"""


@pytest.mark.parametrize("program", [_RUN, _THREAD, _GAPS, pytest.param(_TABLE, id="table")])
def test_a_mapping_that_cannot_be_read_ends_in_one_line(tmp_path: Path, program: str) -> None:
    """Before, SIGBUS ended every command silently. The line names the crawl's file, even if a copy of it was read."""
    if program is _TABLE:
        pytest.importorskip("plyvel")
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONFAULTHANDLER": ""},
    )
    name = ran.stdout.strip()
    assert ran.returncode == StoreError.exit_code, ran
    assert ran.stderr.startswith(f"crawler: {name}") and len(ran.stderr.splitlines()) == 1, ran
