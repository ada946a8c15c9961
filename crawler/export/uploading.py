"""Writes exports to object storage. An export is written to a temporary folder, and then copied file by file.

An object is created only if its name is free. An existing object with equal content is kept. So a killed
export can be completed by running the same export again, and no export overwrites another. A folder's list of
files, `NAME/manifest.json`, is written last: if it exists, the export is complete.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from crawler.errors import UsageError
from crawler.pages.formats.selection import Say, ignore
from crawler.storage.object_store import ObjectStore, file_digest, is_url

MANIFEST = "manifest.json"


class Uploaded(msgspec.Struct):
    """A file of an export in object storage: its size in bytes, and its SHA-256 in hexadecimal."""

    name: str
    bytes: int
    sha256: str


@contextlib.contextmanager
def uploaded(url: str, report: Say = ignore) -> Iterator[Path]:
    """Yield a local path for the output.

    When the block ends, copy the file or folder that was written there to `url`. The temporary directory
    ($TMPDIR) needs room for the export. `report` is called with a line for each object.

    Raises:
        UsageError: the URL names no object.
        ObjectStoreError: the storage cannot be reached, or has an object of the same name with other content.
    """
    prefix, _, name = url.rstrip("/").rpartition("/")
    if prefix.endswith(("/", ":")) or not name:
        raise UsageError(f"{url}: name an object, such as {url.rstrip('/')}/pages.parquet")
    store = ObjectStore(prefix)
    with tempfile.TemporaryDirectory(prefix="crawler-export-") as scratch:
        path = Path(scratch) / name
        yield path
        if path.is_dir():
            _upload_folder(store, path, report)
        elif path.exists():
            _upload(store, name, path, report)


def _upload_folder(store: ObjectStore, folder: Path, report: Say) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    found = [
        _upload(store, f"{folder.name}/{path.relative_to(folder).as_posix()}", path, report) for path in files
    ]
    manifest = folder / MANIFEST
    manifest.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    _upload(store, f"{folder.name}/{MANIFEST}", manifest, report)


def _upload(store: ObjectStore, name: str, path: Path, report: Say) -> Uploaded:
    new = store.create(name, path)
    report(f"{store.place(name)}: {'created' if new else 'is there already'}")
    return Uploaded(name, path.stat().st_size, file_digest(path))


def output_place(output: str | None, report: Say) -> contextlib.AbstractContextManager[Path | None]:
    """Return a context that gives the local path to write: `output` itself, or a temporary path if `output` is a URL."""
    if output is not None and is_url(output):
        return uploaded(output, report)
    return contextlib.nullcontext(Path(output).absolute() if output is not None else None)
