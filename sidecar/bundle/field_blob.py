"""The base of readers of blobs of one field; for blobs that a key may open, also with key, reads and damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.envelopes.encryption import KeyRing
from sidecar.bundle.field_toc import FieldToc
from sidecar.bundle.sections import ReadRanges
from sidecar.errors import SidecarError

T = TypeVar("T", bound=FieldToc)


class OpenedBlob(Protocol):
    """A blob about one field of one segment, of any kind."""

    @property
    def toc(self) -> FieldToc:
        """The table of contents."""

    @property
    def members(self) -> int | None:
        """The units that have an index in it; ``None`` if its indexes are not of units."""

    @property
    def stored_bytes(self) -> int:
        """The bytes of its indexes, without header and table of contents."""

    def describe(self) -> dict[str, Any]:
        """Return what the table of contents says, as plain data."""

    def verify(self) -> Iterator[str]:
        """Read the whole blob and yield its problems."""


class FieldBlob(Generic[T]):
    """A blob about one field of one segment. ``report`` is called with every error that hides a part of it.

    The table of contents also has ``groups``. Each has ``resolution`` (how the column was found), ``length`` in bytes,
    and a method ``ordinals`` that returns the units of its members. Blobs of all kinds are opened and merged by these.
    """

    consequence: ClassVar[str] = ""
    """The sentence of warnings about what happens to the groups that they name."""

    def __init__(
        self,
        toc: T,
        read_ranges: ReadRanges,
        report: Callable[[SidecarError | str], None],
        keys: KeyRing | None = None,
        units_digest: bytes = b"",
    ) -> None:
        """``units_digest``: SHA-256 of the TOC of the segment's units blob, to which an encrypted blob is bound."""
        self.toc = toc
        self.read_ranges = read_ranges
        self.report = report
        self._owner = toc.owner(units_digest)
        self._units_digest = units_digest
        self._keys = keys or KeyRing()
        self._skipped_groups_reported = False

    @property
    def place(self) -> BlobContext:
        """The context that opens the pieces.

        Raises :class:`UsageError` if the key of an encrypted blob is missing, and for a plaintext blob of a field whose
        key was given. Errors of the key retriever are raised too.
        """
        return self._keys.place(self.toc.lock, self._owner)

    def check_key(self) -> None:
        """Raise the error that :attr:`place` raises, if any."""
        self._keys.place(self.toc.lock, self._owner)

    @property
    def has_key(self) -> bool:
        """Whether the blob can be opened with the given keys."""
        try:
            self.check_key()
        except SidecarError:
            return False
        return True

    def usable_place(self) -> BlobContext | None:
        """Return :attr:`place`, or report its error and return ``None``."""
        try:
            return self.place
        except SidecarError as error:
            self.report(error)
            return None

    def report_skipped_groups(self) -> None:
        """Report once which groups this reader does not understand."""
        if not self._skipped_groups_reported:
            self._skipped_groups_reported = True
            for text in self.toc.damage:
                self.report(text + self.consequence)
