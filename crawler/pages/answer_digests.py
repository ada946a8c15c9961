"""The digests of an answer: of the payload that is stored, and of the content, by which changes are detected."""

import hashlib
from collections.abc import Callable

from crawler.errors import DamageError
from crawler.pages import change_detection
from crawler.pages.captures import StoredPage
from crawler.pages.change_detection import Comparison
from crawler.records import Fetch, FetchTask, LinkFlag, Outcome, PageRecord
from crawler.urls.media_type import is_page

_KNOWN = LinkFlag.REFRESH | LinkFlag.AGAIN


class AnswerDigests:
    """Computes digests of answers.

    `comparison` returns the rule for what counts as a change of a URL. `copy_at` returns the stored copy of a URL
    (fingerprint) at a time. If `decoded` is true, payloads are stored without their content coding.
    """

    def __init__(
        self,
        comparison: Callable[[str], Comparison],
        copy_at: Callable[[int, float], StoredPage | None],
        *,
        decoded: bool,
    ) -> None:
        self._comparison = comparison
        self._copy_at = copy_at
        self._decoded = decoded
        self._compared = (0, b"", False)  # the last comparison of texts, as (fingerprint, digest, result)

    def payload(self, fetch: Fetch) -> bytes:
        """Return the payload that is stored."""
        return (fetch.content or fetch.body) if self._decoded else fetch.body

    def of_payload(self, fetch: Fetch) -> bytes:
        """Return the SHA-1 of the stored payload."""
        if fetch.part is not None:
            return fetch.part.payload_digest
        return fetch.payload_digest or hashlib.sha1(self.payload(fetch)).digest()

    def compute_ahead(self, fetch: Fetch) -> None:
        """Compute the payload digest of a large answer in advance, for a later `of_payload`. Any thread may call this."""
        fetch.payload_digest = self.of_payload(fetch)

    def payload_repeats(self, fetch: Fetch, previous: PageRecord) -> bool:
        """Return whether an unchanged answer has the same bytes as the known answer, and so the same meta tags.

        If the comparison ignores some bytes, these bytes may contain meta tags, so the payload digests are
        compared.
        """
        comparison = self._comparison(fetch.url)
        if comparison.kind == "raw" and not comparison.ignored:
            return True
        return self.of_payload(fetch) == previous.digest

    def of_content(self, fetch: Fetch, fetch_task: FetchTask, previous: PageRecord | None) -> bytes:
        """Return the digest by which changes are detected, or b"" if the answer has no content of its own."""
        if fetch.outcome not in change_detection.SUCCESSES or fetch.outcome is Outcome.UNCHANGED:
            return b""
        comparison = self._comparison(fetch.url)
        if (shown := fetch.shown) is not None:
            # the text that a browser shows may change although the server's answer stays the same
            return change_detection.content_digest(
                change_detection.visible_text(shown.dom), comparison.ignored
            )
        if fetch.part is not None:
            return fetch.part.content_digest
        digest = change_detection.content_digest(fetch.content or fetch.body, comparison.ignored)
        if previous is None or digest == previous.content_digest or not fetch_task.flags & _KNOWN:
            return digest
        if self._compared[:2] != (fetch_task.fingerprint, digest):
            same = self._reads_the_same(fetch_task.fingerprint, fetch, previous, comparison)
            self._compared = fetch_task.fingerprint, digest, same
        return previous.content_digest if self._compared[2] else digest

    def _reads_the_same(
        self, fingerprint: int, fetch: Fetch, previous: PageRecord, comparison: Comparison
    ) -> bool:
        """Return whether an answer equals the copy stored at the last change, apart from differences that are ignored."""
        if comparison.kind == "raw" or not previous.content_digest:
            return False
        if not is_page(fetch.content_type, fetch.content):
            return False
        if fetch.undecoded or len(fetch.content) > change_detection.TEXT_BYTES_MAX:
            return False
        try:
            copy = self._copy_at(fingerprint, previous.changed_at)
            return copy is not None and comparison.same(copy.content, fetch.content)
        except DamageError:  # treat a copy that cannot be read as missing
            return False
