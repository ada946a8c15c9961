"""Accesses object storage in S3, Google Cloud Storage, Azure or a folder, through the library obstore.

    s3://bucket/prefix    gs://bucket/prefix    az://container/prefix    file:///folder

Credentials, region and endpoint come from the environment variables of each service (`AWS_ACCESS_KEY_ID`,
`AWS_ENDPOINT_URL`, ...). These values are not part of the configuration, so no file of a crawl contains them.

An object appears under its name only when it is complete, and only if no other object has that name. A small
file is uploaded with one conditional request. A larger file is uploaded in parts to the object `NAME~`. The
object `NAME~` is then copied to its final name, on the condition that no object has this name yet, and
deleted. A kill leaves at most the object `NAME~`, which the next attempt replaces. So every operation of this
module may be repeated.
"""

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from crawler.errors import ObjectPlaceError, ObjectStoreError, UsageError
from crawler.storage.faults import reach
from crawler.storage.files import UNFINISHED, new_file
from crawler.wording import to_install

SCHEMES = ("s3", "gs", "az", "file")
# Files above this size are uploaded in parts, so that no large file is held in memory as a whole.
WHOLE_BYTES_MAX = 8 << 20
_PART_BYTES = 8 << 20  # size of a part in bytes; S3 allows 10,000 parts, so a file may have up to 80 GB
_PARTS_AT_ONCE = 2
_READ_BYTES = 1 << 20
# The codes of S3, of Google Cloud Storage and of Azure for a bucket that does not exist.
_NO_BUCKET = ("NoSuchBucket", "bucket does not exist", "ContainerNotFound")
_RETRIES: Any = {"max_retries": 4}
# The message of obstore about a request that failed.
_REQUEST_FAILED = re.compile(
    r"Error performing \w+ \S+ in \S+?(?:, after (?P<retries>\d+) retries,.*?)? - "
    r"(?:Server returned non-2xx status code: )?(?P<reason>.*?):?$"
)


def is_url(text: str) -> bool:
    """Return whether `text` is a URL rather than a path."""
    return "://" in text


def local_folder(name: str | Path) -> Path:
    """Return the path of a crawl directory.

    Raises:
        UsageError: `name` is a URL.
    """
    if is_url(str(name)):
        raise UsageError(
            f"{name}: a crawl directory must be a local folder; "
            "the setting pages.ship copies its WARC files to object storage"
        )
    return Path(name)


class _Counted:
    """A file that reports how many bytes are read from it."""

    def __init__(self, file: BinaryIO, moved: Callable[[int], None]) -> None:
        self._file, self._moved = file, moved
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._moved(len(data))
        return data


class ObjectStore:
    """The objects under a URL. `moved` is called with the number of bytes of each piece that is sent or received.

    A folder (file://) is created, unless `create` is False.

    Raises:
        UsageError: the URL names no object storage, or obstore is not installed.
        ObjectStoreError: the storage cannot be reached, or refuses the request.
    """

    def __init__(
        self, url: str, moved: Callable[[int], None] = lambda count: None, *, create: bool = True
    ) -> None:
        self.url = url.rstrip("/")
        self._moved = moved
        scheme = url.partition("://")[0]
        if not is_url(url) or scheme not in SCHEMES:
            known = ", ".join(f"{each}://" for each in SCHEMES)
            raise UsageError(f"{url!r}: not a URL of object storage ({known})")
        self._library = load_obstore()
        if scheme == "file":
            _require_folder(self.url, create)
        settings: Any = {"copy_if_not_exists": "multipart"} if scheme == "s3" else None
        try:
            self._store = self._library.store.from_url(self.url, config=settings, retry_config=_RETRIES)
        except Exception as error:
            raise UsageError(f"{url}: {_first_line(error)}") from None

    def place(self, name: str) -> str:
        return f"{self.url}/{name}"

    def create(self, name: str, path: Path) -> bool:
        """Create an object with the content of a file. Return False if an object with this name and content exists.

        Raises:
            ObjectStoreError: an object of this name with other content exists.
        """
        try:
            self._put_new(name, path)
        except self._library.exceptions.AlreadyExistsError:
            if self.size(name) == path.stat().st_size and self.digest(name) == file_digest(path):
                return False
            raise ObjectStoreError(
                f"{self.place(name)}: exists with other content, and is not replaced"
            ) from None
        return True

    def replace(self, name: str, path: Path) -> None:
        """Write an object with the content of a file. An existing object of this name is replaced."""
        with _named(self.place(name), in_bucket=True), path.open("rb") as file:
            self._put_parts(name, file)

    def size(self, name: str) -> int | None:
        """Return the size in bytes of an object; None if it does not exist."""
        with _named(self.place(name)):
            try:
                return int(self._library.head(self._store, name)["size"])
            except FileNotFoundError:
                return None

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of each object whose name contains no slash."""
        with _named(self.url):
            found = self._library.list_with_delimiter(self._store)["objects"]
            return {each["path"].rpartition("/")[2]: int(each["size"]) for each in found}

    def digest(self, name: str) -> str:
        """Read an object and return its SHA-256 in hexadecimal."""
        digest = hashlib.sha256()
        for piece in self._pieces(name):
            digest.update(piece)
        return digest.hexdigest()

    def fetch(self, name: str, path: Path, sha256: str) -> None:
        """Download an object to a file. The file gets its name only when it is complete and has this SHA-256."""
        digest = hashlib.sha256()
        with new_file(path, reached=lambda step: reach(f"segment fetched, {step}")) as file:
            for piece in self._pieces(name):
                digest.update(piece)
                file.write(piece)
            if digest.hexdigest() != sha256:
                raise ObjectStoreError(
                    f"{self.place(name)}: its content in object storage is not what was shipped"
                )

    def _put_new(self, name: str, path: Path) -> None:
        with _named(self.place(name), in_bucket=True), path.open("rb") as file:
            if path.stat().st_size <= WHOLE_BYTES_MAX:
                self._library.put(self._store, name, file.read(), mode="create")
                return
            if self.size(name) is not None:  # skip the upload
                raise self._library.exceptions.AlreadyExistsError(name)
            draft = name + UNFINISHED
            self._put_parts(draft, file)
            try:
                self._library.copy(self._store, draft, name, overwrite=False)
            finally:
                self._library.delete(self._store, draft)

    def _put_parts(self, name: str, file: BinaryIO) -> None:
        counted: Any = _Counted(file, self._moved)
        self._library.put(self._store, name, counted, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)

    def _pieces(self, name: str) -> Iterator[bytes]:
        with _named(self.place(name)):
            for piece in self._library.get(self._store, name).stream(min_chunk_size=_READ_BYTES):
                self._moved(len(piece))
                yield bytes(piece)

    def __repr__(self) -> str:
        return f"ObjectStore({self.url})"


def _require_folder(url: str, create: bool) -> None:
    folder = Path(url.removeprefix("file://"))
    with _named(url):
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        elif not folder.is_dir():
            raise ObjectPlaceError(f"{url}: the folder does not exist")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_obstore() -> Any:
    """Return the library obstore; raise UsageError if it is not installed."""
    try:
        import obstore
        import obstore.store
    except ImportError:
        raise UsageError(f"object storage needs obstore: {to_install('objects')}") from None
    return obstore


@contextlib.contextmanager
def _named(place: str, *, in_bucket: bool = False) -> Iterator[None]:
    """Convert errors of the library and of the file system to one-line errors that name the object.

    With `in_bucket`, the answer "not found" means that the bucket does not exist, because the object need not exist.
    """
    exceptions = load_obstore().exceptions
    try:
        yield
    except (exceptions.AlreadyExistsError, ObjectStoreError):
        raise
    except FileNotFoundError as error:
        if error.errno is not None:  # the missing file is on this machine
            raise ObjectStoreError(f"{place}: {_first_line(error)}") from error
        if in_bucket or _lacks_bucket(error):
            raise ObjectPlaceError(f"{place}: the bucket does not exist") from error
        raise ObjectStoreError(f"{place}: there is no such object") from error
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise ObjectPlaceError(
            f"{place}: the storage rejects the credentials in the environment ({_reason(error)})"
        ) from error
    except (exceptions.BaseError, OSError) as error:
        if _lacks_bucket(error):
            raise ObjectPlaceError(f"{place}: the bucket does not exist") from error
        raise ObjectStoreError(
            f"{place}: the storage cannot be reached or fails ({_reason(error)}); try again later"
        ) from error


def _lacks_bucket(error: Exception) -> bool:
    return any(code in str(error) for code in _NO_BUCKET)


def _reason(error: Exception) -> str:
    """Return why a request failed, without its URL and the settings of the retries, which obstore's message contains."""
    text = _first_line(error)
    found = _REQUEST_FAILED.search(text)
    if found is None:
        return text
    return found["reason"] + (f", after {found['retries']} retries" if found["retries"] else "")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].strip() or type(error).__name__
