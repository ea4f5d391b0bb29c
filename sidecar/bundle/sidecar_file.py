"""A sidecar file as planning sees it: one read of the tail, then a few small ranges a lookup.

    tail      footer, the directory of all tables of contents, and what lies before it (manifests, fingerprints)
    lookup    one region, or eight rows, of each group of the field
    survivors one batch of units

Whatever is in doubt is unknown, and unknown means *keep*: a damaged or foreign table of contents, a footer that says
something else than the table of contents, a bundle that is compressed or belongs to another units table, a wrong
checksum. Each cause becomes one line in ``warnings``; no lookup raises for it. With ``strict`` it is raised, which
is how ``inspect`` and ``verify`` find out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sidecar.bundle.envelope import HEADER_BYTES, SBBF_MAGIC, UNITS_MAGIC, decode_header, toc_digest
from sidecar.bundle.fingerprints import fingerprint, ordinals
from sidecar.bundle.model import Coverage, FileEntry, ListedManifest, SegmentHeader
from sidecar.bundle.sbbf_bundle import SbbfBundle
from sidecar.bundle.sbbf_toc import StoredGroup, decode_sbbf_toc
from sidecar.bundle.toc import TOC_PROPERTY, TocEntry, parse_place, read_toc
from sidecar.bundle.units import UnitsReader, decode_units_toc
from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError
from sidecar.filters.encoding import Encoding
from sidecar.filters.values import Probe
from sidecar.puffin.metadata import BlobMetadata
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import SBBF, TOC, UNITS
from sidecar.source import CountingSource, Source

_T = TypeVar("_T")

Units = npt.NDArray[np.bool_]
"""bool[units of a segment]: which may match."""

_MAGICS = {UNITS: UNITS_MAGIC, SBBF: SBBF_MAGIC}


class Doubts:
    """Collects causes of doubt, each once; raises them instead if strict."""

    def __init__(self, file: str, strict: bool = False) -> None:
        self.warnings: list[str] = []
        self.strict = strict
        self._file = file

    def add(self, cause: SidecarError | str) -> None:
        """Take note of a cause."""
        error = cause if isinstance(cause, SidecarError) else DamagedFileError(cause)
        if error.file is None:
            error.file = self._file
        if self.strict:
            raise error
        if str(error) not in self.warnings:
            self.warnings.append(str(error))


class Segment:
    """What one build added: its files and units, and filters of some fields. Nothing here raises unless strict."""

    def __init__(self, units: UnitsReader, entry: TocEntry, doubts: Doubts) -> None:
        self.entry = entry
        self.units = units
        self.bundles: dict[int, SbbfBundle] = {}
        self.entries: list[TocEntry] = [entry]
        """All blobs of the segment, the units blob first."""
        self._doubts = doubts

    @property
    def header(self) -> SegmentHeader:
        """Identity of the segment: table, snapshot, sequence number, time."""
        return self.units.toc.header

    @property
    def id(self) -> str:
        """32 hexadecimal digits."""
        return self.header.segment_id.hex()

    @property
    def snapshot_id(self) -> int:
        """The snapshot that was indexed."""
        return self.header.snapshot_id

    @property
    def num_files(self) -> int:
        """Number of listed files."""
        return self.units.toc.num_files

    @property
    def num_units(self) -> int:
        """Number of units of these files."""
        return self.units.toc.num_units

    @property
    def fields(self) -> dict[int, tuple[StoredGroup, ...]]:
        """Groups of each field that has filters."""
        return {field_id: bundle.toc.groups for field_id, bundle in self.bundles.items()}

    def might_match(
        self,
        field_id: int,
        probe: Callable[[Encoding], Probe],
        resolution_holds: Callable[[str], bool] = lambda resolution: True,
    ) -> Units:
        """Which units might hold one of the probed values in this field; all, where nothing certain is known.

        ``probe`` says how the value is looked up in an encoding; ``resolution_holds`` whether a column that was
        found in this way (``id``, ``name:<path>``) would be found so today.
        """
        bundle = self.bundles.get(field_id)
        if bundle is None:
            return np.ones(self.num_units, np.bool_)
        return bundle.might_match(probe, resolution_holds)

    def file_ordinal(self, path: str, file_size: int, record_count: int) -> int | None:
        """Ordinal of the listed file with this path, size and record count; ``None`` if there is none."""
        try:
            return self._ordinals.get(fingerprint(path, file_size, record_count))
        except ValueError:
            return None

    @cached_property
    def _ordinals(self) -> dict[bytes, int]:
        if self._first_units is None:
            return {}  # without the way from files to units nothing can be said of a file
        found = self._certain(self.units.fingerprints)
        return {} if found is None else ordinals(found)

    @cached_property
    def _first_units(self) -> npt.NDArray[np.int64] | None:
        return self._certain(self.units.first_units)

    @property
    def unit_ranges(self) -> npt.NDArray[np.int64]:
        """int64[files + 1]: units of file i are ``[unit_ranges[i], unit_ranges[i + 1])``; zeros if unknown."""
        first = self._first_units
        return np.zeros(self.num_files + 1, np.int64) if first is None else first

    @cached_property
    def listed_manifests(self) -> list[ListedManifest]:
        """Manifests all of whose live files stand here; none if they cannot be read."""
        found = None if self._first_units is None else self._certain(self.units.manifests)
        return [manifest for manifest in found or [] if self._is_inside(manifest)]

    def _is_inside(self, manifest: ListedManifest) -> bool:
        return 0 <= manifest.first_file <= manifest.first_file + manifest.live_files <= self.num_files

    @cached_property
    def schemas(self) -> list[str]:
        """Avro schemas of manifest entries; none if they cannot be read."""
        return self._certain(self.units.schemas) or []

    @cached_property
    def coverages(self) -> list[Coverage]:
        """States of all units, one entry a field and kind; none if they cannot be read."""
        return self._certain(self.units.coverage) or []

    def coverage(self, field_id: int, kind: str) -> Coverage | None:
        """States of all units for a field and kind; ``None`` if nothing is known of them."""
        for coverage in self.coverages:
            if (coverage.field_id, coverage.kind) == (field_id, kind):
                return coverage
        return None

    def files(self, wanted: Sequence[int]) -> list[FileEntry | None]:
        """The files of these ordinals, without bounds and partitions; ``None`` where they cannot be read."""
        found: list[FileEntry] | None = self._certain(partial(self.units.files, wanted))
        if found is not None:
            return list(found)
        single: list[FileEntry | None] = []
        for ordinal in wanted:
            one = self._certain(partial(self.units.files, [ordinal]))
            single.append(one[0] if one else None)
        return single

    def bounds(self, field_id: int) -> pa.Table | None:
        """Bounds of a field, one row a file; ``None`` if there are none or they cannot be read."""
        return self._certain(partial(self.units.bounds, field_id))

    def partitions(self) -> pa.Table | None:
        """Partition tuples, one row a file; ``None`` if they cannot be read."""
        return self._certain(self.units.partitions)

    def _certain(self, read: Callable[[], _T]) -> _T | None:
        try:
            return read()
        except SidecarError as error:
            self._doubts.add(error)
            return None


class SidecarFile:
    """An open sidecar; make one with :meth:`open`."""

    def __init__(self, source: CountingSource, puffin: PuffinReader, doubts: Doubts) -> None:
        self.source = source
        self.puffin = puffin
        self.segments: list[Segment] = []
        self.doubts = doubts

    @classmethod
    def open(
        cls,
        source: Source,
        *,
        file_size: int | None = None,
        footer_length: int | None = None,
        table_uuid: str | None = None,
        strict: bool = False,
    ) -> SidecarFile:
        """Read the tail of a Puffin file and all tables of contents.

        ``file_size`` and ``footer_length`` are those registered with the table, if known; with ``table_uuid``
        segments of other tables are unknown. Raises a :class:`~sidecar.errors.SidecarError` only if the Puffin
        footer itself cannot be read (the file says nothing then), or, if ``strict``, for the first doubt.
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
        sidecar = cls(counting, puffin, Doubts(source.name, strict))
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

    def close(self) -> None:
        """Close the source."""
        self.source.close()

    def _load(self, table_uuid: str | None) -> None:
        blobs = [blob for blob in self.puffin.metadata.blobs if blob.type in _MAGICS]
        directory = self._directory() if blobs else []
        entries = [(blob, self._entry(blob, directory)) for blob in blobs]
        self._name_missing(directory, blobs)
        by_id: dict[bytes, Segment] = {}
        for blob, entry in entries:
            if entry is not None and blob.type == UNITS:
                self._try(partial(self._add_segment, blob, entry, by_id, table_uuid))
        for blob, entry in entries:
            if entry is not None and blob.type == SBBF:
                self._try(partial(self._add_bundle, blob, entry, by_id))

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except SidecarError as error:
            self.doubts.add(error)

    def _directory(self) -> list[TocEntry]:
        """Copies of all tables of contents: where the file's property says, or the footer, or none."""
        for place in self._directory_places():
            try:
                return read_toc(self.puffin.read_at, *place)
            except SidecarError as error:
                self.doubts.add(error)
        return []

    def _directory_places(self) -> Iterable[tuple[int, int]]:
        blobs = [(b.offset, b.length) for b in self.puffin.metadata.blobs if b.type == TOC]
        text = self.puffin.metadata.properties.get(TOC_PROPERTY)
        if text is None:
            self.doubts.add(f"the footer lacks the property {TOC_PROPERTY}")
            return blobs
        try:
            return dict.fromkeys([parse_place(text), *blobs])
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
        header = decode_header(header_bytes, _MAGICS[blob.type], blob.length)
        toc = self.puffin.read_range(blob, header.toc_offset, header.toc_length)
        if toc_digest(toc) != header.toc_digest:
            raise DamagedFileError("a table of contents has a wrong checksum", offset=blob.offset)
        segment = (
            decode_sbbf_toc(toc).segment_id if blob.type == SBBF else decode_units_toc(toc).header.segment_id
        )
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

    def _add_bundle(self, blob: BlobMetadata, entry: TocEntry, by_id: dict[bytes, Segment]) -> None:
        toc = decode_sbbf_toc(entry.toc)
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
        if (
            toc.units_digest != toc_digest(segment.entry.toc)
            or toc.num_units != segment.num_units
            or not same_table
        ):
            raise DamagedFileError("a bundle does not belong to the units of its segment", offset=blob.offset)
        if toc.field_id in segment.bundles:
            raise DamagedFileError(
                "two bundles of one field in a segment", offset=blob.offset, found=toc.field_id
            )
        segment.bundles[toc.field_id] = SbbfBundle(
            toc, partial(self.puffin.read_ranges, blob), self.doubts.add
        )
        segment.entries.append(entry)


def _check_place(blob: BlobMetadata, toc_offset: int, toc: bytes) -> None:
    """The table of contents repeats the blob's length: it ends where the blob ends."""
    if toc_offset + len(toc) != blob.length:
        raise DamagedFileError(
            "a table of contents is of a blob of another length",
            offset=blob.offset,
            expected=toc_offset + len(toc),
            found=blob.length,
        )
