"""Builds the kernels: a setuptools command (see `pyproject.toml`). The crawler itself never imports this module.

Compiling takes most of the time of an installation. So compiled kernels are kept in a cache of the user,
under the digest of everything that they depend on. A second installation, even of another checkout, compiles
a kernel only if its sources, the compiler or Python differ. The cache is the folder `$CRAWLER_KERNEL_CACHE`
or, if that is not set, `crawler/kernels` in the user's cache folder. It is safe to delete the cache.

With `CRAWLER_KERNELS=none` nothing is compiled, and the kernels run interpreted.
"""

import contextlib
import functools
import gc
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from setuptools.command.build_ext import build_ext

PACKAGE = Path(__file__).resolve().parent
SHARED = "crawler.memoryviews"
# maximum number of cached files; this is enough for about a dozen versions of all kernels (50 MB)
KEPT_MAX = 400
# Nothing pickles or copies an object of a kernel: code for this would be an eighth of the compiled code.
# Nobody reads the C code, so it repeats no source lines.
DIRECTIVES = {"auto_pickle": False, "emit_code_comments": False}
# A garbage collection after this many new objects, instead of 700, saves a seventh of Cython's CPU time.
YOUNG_OBJECTS = 100_000


class BuildKernels(build_ext):
    """Builds the kernels, or copies them from the cache.

    The module that all kernels share is built before any of them. Kernels are built in parallel. If Cython
    generated the shared module while it compiles another module, part of the shared module could be missing.
    Then no kernel could be imported.
    """

    # setuptools looks up the options of pyproject.toml by this name
    command_name = "build_ext"
    extensions: list[Any]
    parallel: Any
    cython_directives: Any
    force: Any

    def finalize_options(self) -> None:
        super().finalize_options()
        self.cython_directives = dict(DIRECTIVES)
        # a C file or an object file of an earlier build may be newer than its source, but built with other options
        self.force = True
        if self.parallel is True:
            # one more than there are cores, because only one of the threads can run Cython at a time
            self.parallel = (os.cpu_count() or 1) + 1

    def build_extensions(self) -> None:
        gc.set_threshold(YOUNG_OBJECTS)
        extensions, parallel = self.extensions, self.parallel
        chosen = [] if os.environ.get("CRAWLER_KERNELS") == "none" else extensions
        # `scripts/setup` reads it
        print("kernels to compile:", sum(not self._cached(each).exists() for each in chosen))
        for group, at_once in (
            ([each for each in chosen if each.name == SHARED], None),
            ([each for each in chosen if each.name != SHARED], parallel),
        ):
            self.extensions, self.parallel = group, at_once
            super().build_extensions()
        self.extensions, self.parallel = extensions, parallel

    def build_extension(self, ext: Any) -> None:
        target, cached = Path(self.get_ext_fullpath(ext.name)), self._cached(ext)
        target.parent.mkdir(parents=True, exist_ok=True)
        if take(cached, target):
            return
        super().build_extension(ext)
        if target.exists():
            keep(target, cached)

    def _cached(self, ext: Any) -> Path:
        """Return the path of `ext` in the cache. Its name is a digest of everything that the compiled form depends on."""
        digest = hashlib.sha256()
        for part in (
            ext.name,
            str(ext.extra_compile_args),
            str(self.shared_utility_qualified_name),
            str(self.cython_directives),
            *_tools(),
        ):
            digest.update(part.encode() + b"\0")
        for path in _sources(ext):
            digest.update(path.read_bytes() + b"\0")
        return cache_folder() / f"{digest.hexdigest()}.so"


def cache_folder() -> Path:
    """Return the folder of the compiled kernels."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.environ.get("CRAWLER_KERNEL_CACHE") or os.path.join(base, "crawler", "kernels"))


def take(cached: Path, target: Path) -> bool:
    """Copy `cached` to `target`; return whether `cached` existed."""
    try:
        shutil.copyfile(cached, target)
        os.utime(cached)
    except OSError:
        return False
    return True


def keep(target: Path, cached: Path) -> None:
    """Copy `target` to `cached`, and delete the least recently used kernels; ignore a cache that is not writable."""
    with contextlib.suppress(OSError):
        cached.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=cached.parent, suffix=".new", delete=False) as file:
            file.write(target.read_bytes())
        os.replace(file.name, cached)
        kept = sorted(cached.parent.iterdir(), key=lambda each: each.stat().st_mtime)
        for each in kept[:-KEPT_MAX]:
            each.unlink()


@functools.cache
def _tools() -> tuple[str, ...]:
    """Return text that identifies Cython, the compiler and the interpreter."""
    import Cython

    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    named = [Cython.__version__, sys.version, sysconfig.get_platform(), compiler]
    named += [os.environ.get(name, "") for name in ("CFLAGS", "CPPFLAGS", "LDFLAGS")]
    with contextlib.suppress(OSError):
        done = subprocess.run([*compiler.split(), "--version"], capture_output=True, check=False)
        named.append(done.stdout.decode(errors="replace"))
    return tuple(named)


def _sources(ext: Any) -> list[Path]:
    """Return the files on which `ext` may depend: its source, and each declaration file that it may import."""
    own = PACKAGE.joinpath(*ext.name.split(".")[1:]).with_suffix(".py")
    return [each for each in (own, *sorted(PACKAGE.rglob("*.pxd"))) if each.exists()]
