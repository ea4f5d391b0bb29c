"""A sidecar file as planning sees it: one read of the tail, then a few small ranges a lookup.

    tail      footer, the directory of all tables of contents, and what lies before it (manifests, fingerprints)
    lookup    one region, or a few rows, of each group of the field
    survivors one batch of units

Whatever is in doubt is unknown, and unknown means *keep*: a damaged or foreign table of contents, a footer that says
something else than the table of contents, a bundle that is compressed or belongs to another units table, a wrong
checksum. Each cause becomes one line in ``warnings``; no lookup raises for it. With ``strict`` it is raised, which
is how ``inspect`` and ``verify`` find out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from sidecar.bundle.encryption import KeyRing
from sidecar.bundle.envelope import (
    HEADER_BYTES,
    UNITS_MAGIC,
    decode_header,
    decode_toc,
    segment_bytes,
    toc_digest,
)
from sidecar.bundle.filter_bundle import FilterBundle
from sidecar.bundle.filter_toc import FilterToc, decode_filter_toc
from sidecar.bundle.index_blob import IndexBlob, read_together
from sidecar.bundle.index_toc import IndexToc, decode_index_toc
from sidecar.bundle.page_index_blob import PageIndexBlob, StoredPageIndex
from sidecar.bundle.page_index_toc import PAGE_INDEXES
from sidecar.bundle.row_index_blob import RowIndexBlob
from sidecar.bundle.row_index_toc import ROW_INDEXES
from sidecar.bundle.rules import RULES, IndexRule, OrcRule, SplitBlockRule
from sidecar.bundle.segment import ColumnNames, Doubts, Segment
from sidecar.bundle.toc import TOC_PROPERTY, DirectoryPlace, TocEntry, parse_place, read_toc
from sidecar.bundle.units import UnitsReader, decode_units_toc
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError
from sidecar.puffin.metadata import BlobMetadata
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import TOC, UNITS
from sidecar.source import CountingSource, Source

__all__ = ["Segment", "SidecarFile"]

B = TypeVar("B", bound=IndexBlob[Any, Any])
T = TypeVar("T")

MAGICS = {
    UNITS: UNITS_MAGIC,
    **{rule.blob_type: rule.magic for rule in RULES},
    PAGE_INDEXES.blob_type: PAGE_INDEXES.magic,
    ROW_INDEXES.blob_type: ROW_INDEXES.magic,
}
"""Magic of each type of blob that a segment consists of."""


class SidecarFile:
    """An open sidecar; make one with :meth:`open`."""

    def __init__(self, source: CountingSource, puffin: PuffinReader, doubts: Doubts) -> None:
        self.source = source
        self.puffin = puffin
        self.segments: list[Segment] = []
        self.doubts = doubts
        self._keys = KeyRing()

    @classmethod
    def open(
        cls,
        source: Source,
        *,
        file_size: int | None = None,
        footer_length: int | None = None,
        table_uuid: str | None = None,
        strict: bool = False,
        encryption_keys: EncryptionKeys | None = None,
        columns: ColumnNames | None = None,
    ) -> SidecarFile:
        """Read the tail of a Puffin file and all tables of contents.

        ``file_size`` and ``footer_length`` are those registered with the table, if known; with ``table_uuid``
        segments of other tables are unknown. Encrypted blobs are answered from with ``encryption_keys``; without
        their key each is unknown once it is asked. ``columns`` names the columns of fields in warnings. Raises a
        :class:`~sidecar.errors.SidecarError` only if the Puffin footer itself cannot be read (the file says nothing
        then), or, if ``strict``, for the first doubt.
        """
        counting = CountingSource(source)
        if file_size is not None and counting.size != file_size:
            raise DamagedFileError(
                "the file is not as long as registered",
                file=source.name,
                expected=file_size,
                found=counting.size,
            )
        puffin = PuffinReader(counting, footer_length=footer_length)
        sidecar = cls(counting, puffin, Doubts(source.name, strict, columns))
        sidecar.use_keys(encryption_keys)
        sidecar._load(table_uuid)
        return sidecar

    @property
    def warnings(self) -> list[str]:
        """Everything that was doubted so far, each once."""
        return self.doubts.warnings

    @property
    def index_reads(self) -> int:
        """Reads made so far, the tail included."""
        return self.source.reads

    @property
    def index_bytes(self) -> int:
        """Bytes read so far, the tail included."""
        return self.source.bytes_read

    def page_indexes(
        self, segment: Segment, wanted: Mapping[int, Iterable[int]]
    ) -> dict[int, dict[int, StoredPageIndex]]:
        """:meth:`Segment.page_indexes` of several fields, those of all fields in few reads."""
        places = {
            entry.fields[0]: entry.offset
            for entry in segment.entries
            if entry.blob_type == PAGE_INDEXES.blob_type
        }
        fields = [field_id for field_id in wanted if field_id in segment.page_index_blobs]
        read = read_together(
            [(places[i], segment.page_index_blobs[i], wanted[i]) for i in fields], self.puffin.read_places
        )
        return dict(zip(fields, read, strict=True))

    def reopen(self, source: Source) -> None:
        """Read on, after :meth:`close`, through another source of the same file."""
        self.source.inner = source

    def use_keys(
        self, encryption_keys: EncryptionKeys | None, fields: Mapping[int, bytes] | None = None
    ) -> None:
        """Open encrypted blobs with these keys from now on; nothing is asked of them before a blob is read.

        ``fields``: by id those whose blobs must be encrypted, with the key metadata of their key. Plaintext of these,
        and of fields for which the keys have the key of some blob, is not believed.
        """
        self._keys.use_keys(encryption_keys, fields)

    def name_fields(self, fields: Mapping[int, bytes]) -> None:
        """Require encrypted blobs of these fields too; ``fields`` is as in :meth:`use_keys`."""
        self._keys.require_encrypted(fields)

    def vouched_segments(self, field_ids: Iterable[int]) -> list[Segment]:
        """The segments that a query on these fields may believe.

        These are all segments, unless the key of one of the fields is at hand. Then they are the segments with a blob
        that a key opens, because that key authenticates their units too. Anybody could have written the others; a
        segment that has something for the fields and is left out is a doubt.
        """
        protected = set(filter(self._keys.protects, field_ids))
        if not protected:
            return self.segments
        return [segment for segment in self.segments if self._is_vouched(segment, protected)]

    def _is_vouched(self, segment: Segment, protected: set[int]) -> bool:
        why: SidecarError | None = None
        for blob in segment.blobs:
            if blob.toc.lock is None and blob.toc.field_id not in protected:
                continue
            try:
                blob.check_key()
            except SidecarError as error:
                why = error
            else:
                return True
        if why is not None:
            self.doubts.add(why)
        return False

    @property
    def is_locked(self) -> bool:
        """Whether an encrypted blob was asked whose key was not at hand."""
        return self._keys.refused

    def close(self) -> None:
        """Close the source."""
        self.source.close()

    def _load(self, table_uuid: str | None) -> None:
        blobs = [blob for blob in self.puffin.metadata.blobs if blob.type in MAGICS]
        directory = self._directory() if blobs else []
        entries = [(blob, self._entry(blob, directory)) for blob in blobs]
        self._name_missing(directory, blobs)
        by_id: dict[bytes, Segment] = {}
        for blob, entry in entries:
            if entry is not None and blob.type == UNITS:
                self._try(partial(self._add_segment, blob, entry, by_id, table_uuid))
        for blob, entry in entries:
            if entry is not None and blob.type != UNITS:
                self._try(partial(self._add, blob, entry, by_id), blob.fields)

    def _try(self, action: Callable[[], None], fields: Sequence[int] = ()) -> None:
        try:
            action()
        except SidecarError as error:
            self.doubts.add(error, *fields[:1])

    def _directory(self) -> list[TocEntry]:
        """Copies of all tables of contents: where the file's property says, or the footer, or none."""
        for place in self._directory_places():
            try:
                return read_toc(self.puffin.read_at, place)
            except SidecarError as error:
                self.doubts.add(error)
        return []

    def _directory_places(self) -> Iterable[DirectoryPlace]:
        blobs = [DirectoryPlace(b.offset, b.length) for b in self.puffin.metadata.blobs if b.type == TOC]
        text = self.puffin.metadata.properties.get(TOC_PROPERTY)
        if text is None:
            self.doubts.add(f"the footer lacks the property {TOC_PROPERTY}")
            return blobs
        try:
            return [parse_place(text), *blobs]
        except SidecarError as error:
            self.doubts.add(error)
            return blobs

    def _entry(self, blob: BlobMetadata, directory: Sequence[TocEntry]) -> TocEntry | None:
        """The blob's table of contents: the copy if the footer agrees with it, else the blob's own."""
        if blob.compression_codec is not None:
            self.doubts.add(
                UnsupportedFeatureError(
                    f"a {blob.type} blob is compressed and cannot be used",
                    offset=blob.offset,
                    found=blob.fields,
                )
            )
            return None
        for entry in directory:
            if entry.is_blob(blob):
                return entry
        try:
            return self._own_entry(blob)
        except SidecarError as error:
            self.doubts.add(error)
            return None

    def _own_entry(self, blob: BlobMetadata) -> TocEntry:
        header_bytes = self.puffin.read_range(blob, 0, min(HEADER_BYTES, blob.length))
        header = decode_header(header_bytes, MAGICS[blob.type], blob.length)
        toc = self.puffin.read_range(blob, header.toc_offset, header.toc_length)
        if toc_digest(toc) != header.toc_digest:
            raise DamagedFileError("a table of contents has a wrong checksum", offset=blob.offset)
        segment = segment_bytes(decode_toc(toc))
        return TocEntry(blob.type, blob.fields, segment, blob.offset, blob.length, toc)

    def _name_missing(self, directory: Sequence[TocEntry], blobs: Sequence[BlobMetadata]) -> None:
        for entry in directory:
            if not any(entry.is_blob(blob) for blob in blobs):
                self.doubts.add(
                    DamagedFileError(
                        f"the footer does not have a {entry.blob_type} blob of fields {list(entry.fields)} as the "
                        "directory has it",
                        offset=entry.offset,
                        expected=f"{entry.length} bytes",
                    )
                )

    def _add_segment(
        self, blob: BlobMetadata, entry: TocEntry, by_id: dict[bytes, Segment], table_uuid: str | None
    ) -> None:
        toc = decode_units_toc(entry.toc)
        _check_place(blob, toc.toc_offset, entry.toc)
        if toc.header.segment_id != entry.segment_id or blob.fields:
            raise DamagedFileError("the footer or the directory mistakes a units blob", offset=blob.offset)
        if table_uuid is not None and toc.header.table_uuid != table_uuid:
            raise DamagedFileError(
                "a segment of another table", expected=table_uuid, found=toc.header.table_uuid
            )
        if toc.header.segment_id in by_id:
            raise DamagedFileError("a segment stands twice in the file", offset=blob.offset)
        reader = UnitsReader(toc, partial(self.puffin.read_ranges, blob))
        segment = Segment(reader, entry, self.doubts)
        by_id[toc.header.segment_id] = segment
        self.segments.append(segment)

    def _add(self, blob: BlobMetadata, entry: TocEntry, by_id: dict[bytes, Segment]) -> None:
        """A blob of a field to its segment."""
        if blob.type == SplitBlockRule.blob_type:
            self._add_filters(SplitBlockRule, lambda own: own.bundles, blob, entry, by_id)
        elif blob.type == OrcRule.blob_type:
            self._add_filters(OrcRule, lambda own: own.orc_bundles, blob, entry, by_id)
        elif blob.type == PAGE_INDEXES.blob_type:
            self._add_indexes(PageIndexBlob, lambda own: own.page_index_blobs, blob, entry, by_id)
        else:
            self._add_indexes(RowIndexBlob, lambda own: own.row_index_blobs, blob, entry, by_id)

    def _add_filters(
        self,
        rule: type[IndexRule],
        place: Callable[[Segment], dict[int, FilterBundle]],
        blob: BlobMetadata,
        entry: TocEntry,
        by_id: dict[bytes, Segment],
    ) -> None:
        toc = decode_filter_toc(rule, entry.toc)
        segment = _segment_of(toc, blob, entry, by_id)
        doubt = partial(self.doubts.add, field_id=toc.field_id)
        read_ranges = partial(self.puffin.read_ranges, blob)
        bundle = FilterBundle(toc, read_ranges, doubt, self._keys, segment.units_digest)
        self._keys.note_blob(toc.field_id, toc.lock, (group.resolution for group in toc.groups))
        _put(place(segment), toc.field_id, bundle, blob)
        segment.entries.append(entry)

    def _add_indexes(
        self,
        reader: type[B],
        place: Callable[[Segment], dict[int, B]],
        blob: BlobMetadata,
        entry: TocEntry,
        by_id: dict[bytes, Segment],
    ) -> None:
        toc = decode_index_toc(reader.form, entry.toc)
        segment = _segment_of(toc, blob, entry, by_id)
        doubt = partial(self.doubts.add, field_id=toc.field_id)
        read_ranges = partial(self.puffin.read_ranges, blob)
        indexes = reader(toc, read_ranges, doubt, self._keys, segment.units_digest)
        self._keys.note_blob(toc.field_id, toc.lock, (group.kind.resolution for group in toc.groups))
        _put(place(segment), toc.field_id, indexes, blob)
        segment.entries.append(entry)


def _put(blobs: dict[int, T], field_id: int, opened: T, blob: BlobMetadata) -> None:
    if field_id in blobs:
        raise DamagedFileError(
            f"two {blob.type} blobs of one field in a segment", offset=blob.offset, found=field_id
        )
    blobs[field_id] = opened


def _segment_of(
    toc: FilterToc | IndexToc[Any], blob: BlobMetadata, entry: TocEntry, by_id: dict[bytes, Segment]
) -> Segment:
    """The segment that a bundle belongs to; :class:`DamagedFileError` if anything speaks against it."""
    _check_place(blob, toc.toc_offset, entry.toc)
    if blob.fields != (toc.field_id,) or toc.segment_id != entry.segment_id:
        raise DamagedFileError(
            "the footer mistakes the field of a bundle",
            offset=blob.offset,
            expected=toc.field_id,
            found=blob.fields,
        )
    segment = by_id.get(toc.segment_id)
    if segment is None:
        raise DamagedFileError(
            "a bundle without its units", offset=blob.offset, expected=toc.segment_id.hex()
        )
    same_table = toc.table_uuid == segment.header.table_uuid
    same_units = toc.units_digest == toc_digest(segment.entry.toc) and toc.num_units == segment.num_units
    if not (same_units and same_table):
        raise DamagedFileError("a bundle does not belong to the units of its segment", offset=blob.offset)
    return segment


def _check_place(blob: BlobMetadata, toc_offset: int, toc: bytes) -> None:
    """The table of contents repeats the blob's length: it ends where the blob ends."""
    if toc_offset + len(toc) != blob.length:
        raise DamagedFileError(
            "a table of contents is of a blob of another length",
            offset=blob.offset,
            expected=toc_offset + len(toc),
            found=blob.length,
        )
