"""Opens a sidecar file for planning: one read of the tail, then a few small ranges for each lookup.

    tail      footer, the directory of all tables of contents, and the bytes before it (manifests, fingerprints)
    lookup    one region, or a few rows, of each group of the field
    survivors one batch of files

Damage makes units unknown, and unknown units are *kept*. Damage is a damaged table of contents or one of
another table, a footer that contradicts the table of contents, a compressed bundle, a bundle for another units table, a
wrong checksum. Each cause becomes one line in ``warnings``; lookups never raise for it. With ``strict`` the first
cause is raised, which ``inspect`` and ``verify`` use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from sidecar.bundle.columns import NamedColumns
from sidecar.bundle.envelopes.encryption import KeyRing
from sidecar.bundle.envelopes.envelope import (
    HEADER_BYTES,
    UNITS_MAGIC,
    decode_header,
    decode_toc,
    segment_bytes,
    toc_digest,
)
from sidecar.bundle.field_toc import FieldToc
from sidecar.bundle.indexes.index_blob import read_together
from sidecar.bundle.indexes.page_indexes import PAGE_INDEXES, StoredPageIndex
from sidecar.bundle.kinds.blob_forms import BLOB_FORMS, Opening
from sidecar.bundle.numbered_files import NumberedFiles
from sidecar.bundle.segment import ColumnNames, Damage, Segment
from sidecar.bundle.toc import (
    TOC_PROPERTY,
    BlobIdentity,
    DirectoryPlace,
    TocEntry,
    check_properties,
    identity_of,
    parse_place,
    read_toc,
)
from sidecar.bundle.units.reader import UnitsReader, decode_units_toc
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, located
from sidecar.puffin.metadata import BlobMetadata
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import TOC, UNITS
from sidecar.storage.source import CountingSource, Source

__all__ = ["Segment", "SidecarFile"]

MAGICS = {UNITS: UNITS_MAGIC} | {form.blob_type: form.magic for form in BLOB_FORMS.values()}
"""The magic of each blob type of a segment."""


class SidecarFile(NumberedFiles):
    """An open sidecar. Use :meth:`open` to make one."""

    def __init__(self, source: CountingSource, puffin: PuffinReader, damage: Damage) -> None:
        super().__init__([])
        self.source = source
        self.puffin = puffin
        self.damage = damage
        self.on_close: Callable[[SidecarFile], None] | None = None
        """Called with the file, without its source, when it is closed the next time; ``None``: the file is not kept."""
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

        ``file_size`` and ``footer_length`` are the registered ones, if known. With ``table_uuid``, segments of other
        tables are ignored with a warning. ``encryption_keys`` open encrypted blobs; a blob without its key is unknown
        once a lookup needs it. ``columns`` names the columns of fields in warnings, by default as the sidecar does.
        Raises a :class:`~sidecar.errors.SidecarError` only if the Puffin footer cannot be read, or, if ``strict``, for
        the first damage.
        """
        counting = CountingSource(source)
        if file_size is not None and counting.size != file_size:
            raise DamagedFileError(
                "the file does not have its registered length",
                file=source.name,
                expected=file_size,
                found=counting.size,
            )
        puffin = PuffinReader(counting, footer_length=footer_length)
        sidecar = cls(counting, puffin, Damage(source.name, strict, columns))
        sidecar.use_keys(encryption_keys)
        sidecar._load(table_uuid)
        if columns is None:
            sidecar.damage.columns = lambda field_id: NamedColumns.of(sidecar.segments).name(field_id)
        return sidecar

    @property
    def is_sidecar(self) -> bool:
        """Whether the file lists data files, those of the table that was named when it was opened."""
        return bool(self.segments)

    @property
    def warnings(self) -> list[str]:
        """The text of each damage so far."""
        return self.damage.warnings

    @property
    def index_reads(self) -> int:
        """The number of reads so far, including the tail."""
        return self.source.reads

    @property
    def index_bytes(self) -> int:
        """The number of bytes read so far, including the tail."""
        return self.source.bytes_read

    def page_indexes_of(self, wanted: Mapping[int, Iterable[int]]) -> dict[int, dict[int, StoredPageIndex]]:
        """Return the page indexes of some units of each field, by field id and unit, with a few reads for all."""
        asked = [
            (segment, field_id, units.tolist())
            for field_id, numbers in wanted.items()
            for segment, _, units in self.of_units(numbers)
            if field_id in segment.page_index_blobs
        ]
        read = read_together(
            [(segment.offset_of(PAGE_INDEXES.blob_type, i), segment.page_index_blobs[i], u) for segment, i, u in asked],
            self.puffin.read_places,
        )
        found: dict[int, dict[int, StoredPageIndex]] = {}
        for (segment, field_id, _), stored in zip(asked, read, strict=True):
            found.setdefault(field_id, {}).update({segment.first_unit + unit: one for unit, one in stored.items()})
        return found

    def reopen(self, source: Source) -> None:
        """Continue after :meth:`close` with another source of the same file. Its reads are counted from 0."""
        self.source.continue_with(source)

    def use_keys(self, encryption_keys: EncryptionKeys | None, fields: Mapping[int, bytes] | None = None) -> None:
        """Use these keys for encrypted blobs from now on. A key is requested when a blob needs it.

        ``fields`` maps the ids of fields whose blobs must be encrypted to the metadata of their keys. Plaintext blobs
        of these fields are refused, and of fields for which the keys include the key of some blob.
        """
        self._keys.use_keys(encryption_keys, fields)

    def name_fields(self, fields: Mapping[int, bytes]) -> None:
        """Require encrypted blobs of these fields too. ``fields`` is as in :meth:`use_keys`."""
        self._keys.require_encrypted(fields)

    def vouched_segments(self, field_ids: Iterable[int]) -> list[Segment]:
        """Return the segments that a query on these fields may trust.

        Without a key for one of the fields, these are all segments. Otherwise only segments with a blob that a key
        opens are returned, because that key authenticates their units too; an attacker could have written the others.
        A segment with a blob for the fields that is left out is damage.
        """
        protected = set(filter(self._keys.protects, field_ids))
        if not protected:
            return self.segments
        return [segment for segment in self.segments if self._is_vouched(segment, protected)]

    def authentic_segments(self) -> list[Segment]:
        """Return the segments with an encrypted blob that a given key opens: it authenticates their units too."""
        return [one for one in self.segments if any(b.toc.lock is not None and b.has_key for b in one.blobs)]

    def _is_vouched(self, segment: Segment, protected: set[int]) -> bool:
        refusal: tuple[SidecarError, int] | None = None
        for blob in segment.blobs:
            if blob.toc.lock is None and blob.toc.field_id not in protected:
                continue
            try:
                blob.check_key()
            except SidecarError as error:
                refusal = error, blob.toc.field_id
            else:
                return True
        if refusal is not None:
            self.damage.add(*refusal)
        return False

    @property
    def has_keys(self) -> bool:
        """Whether the file was given keys."""
        return self._keys.has_keys

    @property
    def is_locked(self) -> bool:
        """Whether a lookup needed an encrypted blob whose key is missing."""
        return self._keys.refused

    def close(self) -> None:
        """Close the source, and give the file to :attr:`on_close`, which may keep it for the next plan."""
        self.source.close()
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close(self)

    def forget_files(self) -> None:
        """Forget the entries of data files that were read. Tables of contents and fingerprints stay in memory."""
        for segment in self.segments:
            segment.forget_files()

    @property
    def memory(self) -> int:
        """About how many bytes of memory the file takes while no entries of data files are remembered."""
        return len(self.puffin.tail) + sum(segment.memory for segment in self.segments)

    def _load(self, table_uuid: str | None) -> None:
        blobs = [blob for blob in self.puffin.metadata.blobs if blob.type in MAGICS]
        directory = {entry.identity: entry for entry in reversed(self._directory() if blobs else [])}
        entries = [(blob, self._toc_entry(blob, directory)) for blob in blobs]
        self._name_missing(directory, blobs)
        by_id: dict[bytes, Segment] = {}
        for blob, entry in entries:
            if entry is not None and blob.type == UNITS:
                with self._noting_damage(blob.offset):
                    self._add_segment(blob, entry, by_id, table_uuid)
        for blob, entry in entries:
            if entry is not None and blob.type != UNITS:
                with self._noting_damage(blob.offset, *blob.fields[:1]):
                    self._add_blob(blob, entry, by_id)

    @contextmanager
    def _noting_damage(self, offset: int, field_id: int | None = None) -> Iterator[None]:
        try:
            with located(self.source.name, None, offset):
                yield
        except SidecarError as error:
            self.damage.add(error, field_id)

    def _directory(self) -> list[TocEntry]:
        """Return the copies of all tables of contents, from the place in the file's property or in the footer."""
        for place in self._directory_places():
            with self._noting_damage(place.offset):
                return read_toc(self.puffin.read_at, place)
        return []

    def _directory_places(self) -> Iterable[DirectoryPlace]:
        blobs = [DirectoryPlace(b.offset, b.length) for b in self.puffin.metadata.blobs if b.type == TOC]
        text = self.puffin.metadata.properties.get(TOC_PROPERTY)
        if text is None:
            self.damage.add(f"the footer does not have the property {TOC_PROPERTY}")
            return blobs
        try:
            check_properties(self.puffin.metadata.properties)
        except SidecarError as error:
            self.damage.add(error)
        try:
            return [parse_place(text), *blobs]
        except SidecarError as error:
            self.damage.add(error)
            return blobs

    def _toc_entry(self, blob: BlobMetadata, directory: Mapping[BlobIdentity, TocEntry]) -> TocEntry | None:
        """Return the blob's entry: the directory's copy if the footer agrees with it, else from the blob itself."""
        entry: TocEntry | None = None
        with self._noting_damage(blob.offset):
            if blob.compression_codec is not None:
                what = f"a {blob.type} blob is compressed, so ranges of it cannot be read"
                raise UnsupportedFeatureError(what, found=blob.fields)
            entry = directory.get(identity_of(blob)) or self._own_entry(blob)
        return entry

    def _own_entry(self, blob: BlobMetadata) -> TocEntry:
        header_bytes = self.puffin.read_range(blob, 0, min(HEADER_BYTES, blob.length))
        header = decode_header(header_bytes, MAGICS[blob.type], blob.length)
        toc = self.puffin.read_range(blob, header.toc_offset, header.toc_length)
        if toc_digest(toc) != header.toc_digest:
            raise DamagedFileError("a table of contents has a wrong checksum")
        segment = segment_bytes(decode_toc(toc))
        return TocEntry(blob.type, blob.fields, segment, blob.offset, blob.length, toc)

    def _name_missing(self, directory: dict[BlobIdentity, TocEntry], blobs: Sequence[BlobMetadata]) -> None:
        in_footer = set(map(identity_of, blobs))
        for entry in reversed(directory.values()):
            if entry.identity not in in_footer:
                self.damage.add(
                    DamagedFileError(
                        f"the directory lists a {entry.blob_type} blob of fields {list(entry.fields)} that the "
                        "footer does not have",
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
            raise DamagedFileError("the footer or the directory contradicts a units blob")
        if table_uuid is not None and toc.header.table_uuid != table_uuid:
            raise DamagedFileError(
                "the segment belongs to another table", expected=table_uuid, found=toc.header.table_uuid
            )
        if toc.header.segment_id in by_id:
            raise DamagedFileError("a segment occurs twice in the file")
        reader = UnitsReader(toc, partial(self.puffin.read_ranges, blob))
        segment = Segment(reader, entry, self.damage, self.num_files, self.num_units)
        by_id[toc.header.segment_id] = segment
        self.segments.append(segment)

    def _add_blob(self, blob: BlobMetadata, entry: TocEntry, by_id: dict[bytes, Segment]) -> None:
        """Add the blob of a field to its segment."""
        form = BLOB_FORMS[blob.type]
        toc = form.decode(entry.toc)
        segment = _segment_of(toc, blob, entry, by_id)
        given = Opening(
            read_ranges=partial(self.puffin.read_ranges, blob),
            report=partial(self.damage.add, field_id=toc.field_id),
            keys=self._keys,
            units_digest=segment.units_digest,
            num_files=segment.num_files,
            units_bytes=segment.entry.length,
        )
        opened = segment.opened[blob.type]
        if toc.field_id in opened:
            raise DamagedFileError(f"a segment has two {blob.type} blobs of one field", found=toc.field_id)
        opened[toc.field_id] = form.open(toc, given)
        segment.entries.append(entry)


def _segment_of(toc: FieldToc, blob: BlobMetadata, entry: TocEntry, by_id: dict[bytes, Segment]) -> Segment:
    """Return the segment that a blob belongs to. Raises :class:`DamagedFileError` if footer, TOC and units disagree."""
    _check_place(blob, toc.toc_offset, entry.toc)
    if blob.fields != (toc.field_id,) or toc.segment_id != entry.segment_id:
        what = "the footer has the wrong field or segment for a blob"
        raise DamagedFileError(what, expected=toc.field_id, found=blob.fields)
    segment = by_id.get(toc.segment_id)
    if segment is None:
        raise DamagedFileError("the units blob of an index is missing", expected=toc.segment_id.hex())
    same_table = toc.table_uuid == segment.header.table_uuid
    same_units = toc.units_digest == toc_digest(segment.entry.toc) and toc.num_units == segment.num_units
    if not (same_units and same_table):
        raise DamagedFileError("a blob does not belong to the units of its segment")
    return segment


def _check_place(blob: BlobMetadata, toc_offset: int, toc: bytes) -> None:
    """Check that the table of contents ends where the blob ends."""
    if toc_offset + len(toc) != blob.length:
        what = "a table of contents does not end at the end of its blob"
        raise DamagedFileError(what, expected=toc_offset + len(toc), found=blob.length)
