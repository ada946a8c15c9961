"""The keys by which pages are grouped: the host key and the directory key of a URL, which begin with its bucket."""

from collections.abc import Callable

from crawler.urls.canonical import authority, target

_LOW_48 = (1 << 48) - 1


class PageKeys:
    """Computes the keys of pages.

    Args:
        hash: keyed hash of bytes, 64 bits.
        host_key: (host name, fingerprint of one of its URLs) -> key of the host.
    """

    def __init__(self, hash: Callable[[bytes], int], host_key: Callable[[str, int], int]) -> None:
        self._hash = hash
        self._host_key = host_key

    def of(self, fingerprint: int, url: str) -> tuple[int, int]:
        """Return (host key, directory key) of a URL."""
        site = authority(url)
        folder = f"{site}{target(url).partition('?')[0].rpartition('/')[0]}/"
        name = site.partition("://")[2]
        host, colon, port = name.rpartition(":")
        name = host if colon and port.isdigit() else name
        bucket = fingerprint & ~_LOW_48
        return self._host_key(name, fingerprint), bucket | self._hash(folder.encode()) & _LOW_48
