"""The way to open each type of blob of a field, and its name in ``inspect``.

The directory of a sidecar has the tables of contents of all blobs. A form decodes one of them and returns a reader of
the blob, without a read of the blob itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sidecar.bundle.envelopes.encryption import KeyRing
from sidecar.bundle.envelopes.envelope import THETA_GROUPS_MAGIC, kept
from sidecar.bundle.field_blob import FieldBlob, OpenedBlob
from sidecar.bundle.field_toc import FieldToc
from sidecar.bundle.filters.filter_bundle import FilterBundle
from sidecar.bundle.filters.filter_toc import FilterToc, decode_filter_toc
from sidecar.bundle.filters.rules import IndexRule, OrcRule, SplitBlockRule
from sidecar.bundle.indexes.index_blob import IndexBlob
from sidecar.bundle.indexes.index_toc import IndexToc, decode_index_toc
from sidecar.bundle.indexes.page_indexes import PageIndexBlob
from sidecar.bundle.indexes.row_indexes import RowIndexBlob
from sidecar.bundle.sections import ReadRanges
from sidecar.bundle.units.fingerprints import FINGERPRINT_BYTES
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.puffin.types import THETA_GROUPS

if TYPE_CHECKING:  # plans read no sketches, so what reads them is loaded when a file has some
    from sidecar.bundle.sketches.group_table import SketchToc
    from sidecar.bundle.sketches.sketch_blob import SketchGroupsBlob

B = TypeVar("B", bound=FieldBlob[Any])


@dataclass(frozen=True)
class Opening:
    """The arguments that the reader of a blob gets from its file and its segment."""

    read_ranges: ReadRanges
    report: Callable[[SidecarError | str], None]
    """Is called with every error that hides a part of the blob."""
    keys: KeyRing
    units_digest: bytes
    """SHA-256 of the table of contents of the segment's units blob."""
    num_files: int
    units_bytes: int
    """The length of the segment's units blob."""


class BlobForm(ABC):
    """One type of blob."""

    blob_type: str
    magic: bytes
    shown_as: str
    """The name among the kinds of a column that ``inspect`` shows."""
    listed_in: str
    """The list of a segment that ``inspect`` shows it in; several types may share one."""

    @abstractmethod
    def decode(self, toc: bytes) -> FieldToc:
        """Decode a verified table of contents. Raises :class:`DamagedFileError` and :class:`UnsupportedFeatureError`.

        Groups that are not understood go to its ``damage``.
        """

    @abstractmethod
    def open(self, toc: Any, given: Opening) -> OpenedBlob:
        """Return the reader of the blob with this table of contents, which belongs to the segment."""


def _noted(blob: B, given: Opening) -> B:
    """Tell the file's keys of a blob that they may have to open."""
    resolutions = (group.resolution for group in blob.toc.groups)
    given.keys.note_blob(blob.toc.field_id, blob.toc.lock, resolutions)
    return blob


class _FilterForm(BlobForm):
    listed_in = "bundles"

    def __init__(self, rule: type[IndexRule], shown_as: str) -> None:
        self.blob_type, self.magic, self.shown_as = rule.blob_type, rule.magic, shown_as
        self._decode = kept(partial(decode_filter_toc, rule))

    def decode(self, toc: bytes) -> FilterToc:
        return self._decode(toc)

    def open(self, toc: FilterToc, given: Opening) -> FilterBundle:
        return _noted(FilterBundle(toc, given.read_ranges, given.report, given.keys, given.units_digest), given)


class _IndexesForm(BlobForm):
    def __init__(self, reader: type[IndexBlob[Any, Any]], listed_in: str) -> None:
        self.blob_type, self.magic, self.shown_as = reader.form.blob_type, reader.form.magic, reader.form.name
        self.listed_in = listed_in
        self._reader = reader

    def decode(self, toc: bytes) -> IndexToc[Any]:
        return decode_index_toc(self._reader.form, toc)

    def open(self, toc: IndexToc[Any], given: Opening) -> IndexBlob[Any, Any]:
        return _noted(self._reader(toc, given.read_ranges, given.report, given.keys, given.units_digest), given)


class _SketchForm(BlobForm):
    blob_type = THETA_GROUPS
    magic = THETA_GROUPS_MAGIC
    shown_as = "theta-groups"
    listed_in = "sketches"

    def decode(self, toc: bytes) -> SketchToc:
        from sidecar.bundle.sketches.group_table import decode_sketch_toc

        return decode_sketch_toc(toc)

    def open(self, toc: SketchToc, given: Opening) -> SketchGroupsBlob:
        """Open a blob that no key opens, so none is noted. Its memory grows as the files of the segment do."""
        from sidecar.bundle.sketches.sketch_blob import SketchGroupsBlob

        if given.num_files * FINGERPRINT_BYTES > given.units_bytes:
            raise DamagedFileError("a segment has more files than its units blob can list", found=given.num_files)
        return SketchGroupsBlob(toc, given.num_files, given.read_ranges)


BLOB_FORMS: dict[str, BlobForm] = {
    form.blob_type: form
    for form in (
        _FilterForm(SplitBlockRule, "bloom"),
        _FilterForm(OrcRule, "orc-bloom"),
        _IndexesForm(PageIndexBlob, "page_indexes"),
        _IndexesForm(RowIndexBlob, "row_indexes"),
        _SketchForm(),
    )
}
"""The forms by blob type, in the order in which ``inspect`` and ``verify`` name them."""
