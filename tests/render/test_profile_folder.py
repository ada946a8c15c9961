"""Test the profile folders of browsers: which are removed, and which are left alone."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from crawler.errors import DirectoryError
from crawler.render import profile_folder
from crawler.render.profile_folder import PREFIX, ProfileFolder, remove_abandoned

NOBODY = 65534
# makes a profile folder, prints its path, and waits until its standard input is closed
HOLDER = """
import sys
from crawler.render.profile_folder import ProfileFolder
folder = ProfileFolder()
(folder.profile / "file").touch()
print(folder.profile.parent, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make `tmp_path` the temporary folder of this process and its children."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def holder() -> tuple["subprocess.Popen[str]", Path]:
    """Return another process that holds a profile folder, and this folder."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_only_the_folders_of_dead_crawlers_are_removed(temporary: Path) -> None:
    process, folder = holder()
    own = ProfileFolder()
    remove_abandoned()
    assert (folder / "profile" / "file").exists() and own.profile.is_dir()
    process.kill()
    process.communicate()
    assert folder.exists(), "a killed process leaves its folder"
    remove_abandoned()
    assert list(temporary.iterdir()) == [own.profile.parent]
    own.remove()
    own.remove()
    assert not list(temporary.iterdir())


def test_folders_of_others_are_not_touched(temporary: Path) -> None:
    """A folder without a lock, a link, a file, another name and, as root, a folder of another user."""
    outside = temporary / "outside"
    for folder in (outside, temporary / "crawler-other-1", temporary / f"{PREFIX}foreign"):
        (folder / "profile").mkdir(parents=True)
        (folder / "lock").touch()
    (temporary / f"{PREFIX}new" / "profile").mkdir(parents=True)
    (temporary / f"{PREFIX}link").symlink_to(outside)
    (temporary / f"{PREFIX}file").touch()
    linked = temporary / f"{PREFIX}linked-lock"
    (linked / "profile").mkdir(parents=True)
    (linked / "lock").symlink_to(outside / "lock")
    foreign = temporary / f"{PREFIX}foreign"
    if os.geteuid() == 0:
        os.chown(foreign, NOBODY, NOBODY)
    else:
        shutil.rmtree(foreign)
    before = sorted(temporary.rglob("*"))
    remove_abandoned()
    assert sorted(temporary.rglob("*")) == before


def test_a_profile_that_could_not_be_removed_is_removed_later(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of the dying browser may still write to the profile while it is removed."""
    folder = ProfileFolder()
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda path, ignore_errors: None)
        folder.remove()
    assert folder.profile.exists()
    remove_abandoned()
    assert not list(temporary.iterdir())


def test_a_folder_that_cannot_be_completed_is_removed(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock cannot be made, or the profile cannot be given to its user. No descriptor stays open."""
    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patched:
        patched.setattr(profile_folder, "_LOCK", "x" * 300)
        with pytest.raises(DirectoryError):
            ProfileFolder()
    with monkeypatch.context() as patched:
        patched.setattr(profile_folder, "_PROFILE", "x" * 300)
        with pytest.raises(OSError, match="name too long"):
            ProfileFolder()
    assert not list(temporary.iterdir())
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_only_the_user_of_the_browser_may_read_its_profile() -> None:
    folder = ProfileFolder(NOBODY)
    about, above = folder.profile.stat(), folder.profile.parent.stat()
    assert (about.st_uid, about.st_mode & 0o777) == (NOBODY, 0o700)
    assert (above.st_uid, above.st_mode & 0o777) == (0, 0o711)
    folder.remove()
