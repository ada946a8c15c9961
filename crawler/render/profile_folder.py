"""The folder of a browser's profile, and the removal of folders that killed crawlers have left behind.

    TMPDIR/crawler-browser-XXXX/    belongs to the user of the crawler
        lock                        locked by the crawler as long as it lives
        profile/                    belongs to the user of the browser

A crawler that is killed cannot remove its folders. So each crawler removes the folders of dead crawlers when it
starts a browser and when it ends. A folder may be removed if three things hold: its name begins with `PREFIX`,
it belongs to the user of this crawler, and its file `lock` is not locked. The kernel releases a lock when the
process that holds it ends, so the rule also holds between containers that share a temporary folder. A folder
without a file `lock` is being created, or belongs to another program, and is not touched.

The file `lock` is removed after the profile. If a process of a dying browser still writes to its profile, the
profile may not be removed at once, and a later call tries again.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from crawler.storage.files import Lock, closed_on_error, opened

PREFIX = "crawler-browser-"
_LOCK, _PROFILE = "lock", "profile"


class ProfileFolder:
    """A new folder for the profile of one browser. `profile` is the path of the profile.

    The profile belongs to the user with the id `uid`, or to this process's user if `uid` is None.

    Raises:
        OSError: the temporary folder cannot be written to.
        CrawlerError: the folder cannot be locked.
    """

    def __init__(self, uid: int | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.profile = self._folder / _PROFILE
        try:
            self._lock = Lock(self._folder / _LOCK, "browser")
            with closed_on_error(self._lock.release):
                self._make_profile(uid)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _make_profile(self, uid: int | None) -> None:
        self.profile.mkdir(0o700)
        if uid is not None:
            os.chown(self.profile, uid, -1)
            self._folder.chmod(0o711)  # the browser's user may enter its profile

    def remove(self) -> None:
        """Remove the folder. Calling this again is harmless."""
        _remove(self._folder)
        self._lock.release()


def remove_abandoned() -> None:
    """Remove the folders of crawlers that have ended. Folders that cannot be removed are left."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with suppress(OSError):
                    _remove_if_abandoned(Path(entry.path))


def _remove_if_abandoned(folder: Path) -> None:
    """Remove a folder of this user if no crawler has locked it.

    Raises:
        OSError: the folder has no lock, or a running crawler holds it.
    """
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        return
    with opened(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder; if its profile cannot be removed, keep the file `lock`, which marks the folder for later calls."""
    shutil.rmtree(folder / _PROFILE, ignore_errors=True)
    if not os.path.lexists(folder / _PROFILE):
        shutil.rmtree(folder, ignore_errors=True)
