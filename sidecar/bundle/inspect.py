"""Describe a Puffin file with a sidecar: its blobs, and its segments, bundles and groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sidecar.bundle.contents import ListedFileInfo, SidecarColumnInfo, describe_columns, describe_files
from sidecar.bundle.filters.filter_toc import FilterToc, StoredGroup
from sidecar.bundle.indexes.index_toc import IndexToc
from sidecar.bundle.indexes.page_indexes import PageIndexKind
from sidecar.bundle.indexes.row_indexes import RowIndexKind
from sidecar.bundle.sidecar_file import Segment, SidecarFile
from sidecar.bundle.sketches.sketch_blob import SketchGroupsBlob
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import SidecarError
from sidecar.puffin.inspect import PuffinInfo, inspect_puffin
from sidecar.results.base import Result
from sidecar.source import Source


@dataclass(frozen=True, repr=False, slots=True)
class CoverageInfo(Result):
    """How many units of a segment have one kind of index of one field."""

    field: int
    """The field id."""
    kind: str
    """The kind of index, such as ``bloom``."""
    units: dict[str, int]
    """The number of units by state: ``indexed``, or why there is no index."""


@dataclass(frozen=True, repr=False, slots=True, kw_only=True)
class FilterGroupInfo(Result):
    """A group of filters that were sliced together. Lengths are in bytes."""

    omitted_if_none = ("blocks", "tail", "widened", "k", "bits")

    group: int
    """The number of the group in its bundle."""
    encoding: str
    """How a value becomes the bytes that are hashed."""
    resolution: str
    """How the column was found in the files, such as by field id."""
    layout: str
    """``sliced`` or ``transposed``."""
    units: int
    """The number of filters."""
    blocks: int | None = None
    """The blocks of a split-block filter."""
    tail: int | None = None
    """The bytes of a split-block filter after its last whole block."""
    widened: bool | None = None
    """Whether split-block filters were repeated to the length of the largest."""
    k: int | None = None
    """The hash functions of an ORC filter."""
    bits: int | None = None
    """The bits of an ORC filter."""
    filter_bytes: int
    """The length of one filter."""
    offset: int
    """The offset of the group in its blob."""
    length: int
    """The length of the group."""
    lookup_bytes: int
    """The most bytes that the lookup of one hash reads."""


@dataclass(frozen=True, repr=False, slots=True)
class BundleInfo(Result):
    """The filters of one field of a segment."""

    field: int
    """The field id."""
    kind: str
    """The type of the filters."""
    encrypted: bool
    """Whether the filters are encrypted."""
    fpp: float | None
    """The false-positive rate that was asked for, if it is known."""
    expected_false_units: float | None
    """Units that the lookup of an absent value keeps on average, if it is known."""
    groups: list[FilterGroupInfo]
    """The groups of filters of the same form."""
    doubts: list[str]
    """Why parts of the bundle are not used."""


@dataclass(frozen=True, repr=False, slots=True)
class IndexGroupInfo(Result):
    """A group of page indexes or row indexes of files that were written alike."""

    group: int
    """The number of the group in its blob."""
    kind: PageIndexKind | RowIndexKind
    """The facts that the files share. The plain data has them next to the other keys."""
    units: int
    """The number of page indexes or row indexes."""
    offset: int
    """The offset of the group in its blob, in bytes."""
    length: int
    """The length of the group in bytes."""

    def to_dict(self) -> dict[str, Any]:
        """Return the group with the facts of its kind."""
        place = {"units": self.units, "offset": self.offset, "length": self.length}
        return {"group": self.group, **self.kind._asdict(), **place}


@dataclass(frozen=True, repr=False, slots=True)
class IndexBlobInfo(Result):
    """The page indexes or row indexes of one field of a segment."""

    field: int
    """The field id."""
    encrypted: bool
    """Whether they are encrypted."""
    groups: list[IndexGroupInfo]
    """The groups of indexes of files that were written alike."""
    doubts: list[str]
    """Why parts of the blob are not used."""


@dataclass(frozen=True, repr=False, slots=True)
class SketchGroupInfo(Result):
    """A group of files whose distinct values one sketch counts."""

    group: int
    """The number of the group in its blob."""
    files: int
    """The files of the segment whose values are counted."""
    counted: int
    """All files whose values are counted, including files that no segment lists any more."""
    rows: int
    """The rows of all these files."""
    size: int
    """The bytes of all these files."""
    type: str
    """The Iceberg type in which values were hashed."""
    length: int
    """The length of the sketch in bytes."""


@dataclass(frozen=True, repr=False, slots=True)
class SketchBlobInfo(Result):
    """The sketches of groups of files of one field of a segment."""

    field: int
    """The field id."""
    groups: list[SketchGroupInfo]
    """The groups of files."""
    doubts: list[str]
    """Why the blob is not used."""


@dataclass(frozen=True, repr=False, slots=True)
class SegmentInfo(Result):
    """What one build added to a sidecar."""

    id: str
    """The id of the segment as hexadecimal digits."""
    table_uuid: str
    """The table that was indexed."""
    snapshot_id: int
    """The snapshot that was indexed."""
    sequence_number: int
    """The sequence number of this snapshot."""
    created_at: str
    """When the segment was built, ISO 8601 in UTC."""
    files: int
    """The number of data files that it lists."""
    units: int
    """The number of their row groups."""
    manifests: int
    """The number of manifests that it lists."""
    coverage: list[CoverageInfo]
    """How many units have which index."""
    bundles: list[BundleInfo]
    """The filters by field."""
    page_indexes: list[IndexBlobInfo]
    """The page indexes of Parquet files by field."""
    row_indexes: list[IndexBlobInfo]
    """The row indexes of ORC files by field."""
    sketches: list[SketchBlobInfo]
    """The sketches of groups of files by field."""


@dataclass(frozen=True, repr=False)
class PuffinFileInfo(PuffinInfo):
    """A Puffin file, and its segments if it is a sidecar."""

    segments: list[SegmentInfo]
    """What each build added; empty if the file is not a sidecar."""
    tables: list[str]
    """The UUIDs of the tables that the segments belong to."""
    snapshots: list[int]
    """The ids of the snapshots that the footer names."""
    files: list[ListedFileInfo]
    """The data files that the segments list."""
    columns: list[SidecarColumnInfo]
    """The indexes and sketches of each field."""
    warnings: list[str]
    """What is wrong with the sidecar, in words."""


def inspect_sidecar(
    source: Source,
    given: Mapping[int, str] | None = None,
    *,
    fill: bool = False,
    footer_length: int | None = None,
    encryption_keys: EncryptionKeys | None = None,
) -> PuffinFileInfo:
    """Describe a Puffin file. Reads the footer, tables of contents, coverage and the lists of files and groups.

    ``given`` names columns by field id, as ``{3: "user_id"}`` or ``{3: "user_id:long"}``. With ``fill`` all filters are
    read, and sealed ones need ``encryption_keys`` for that. Raises the errors of
    :class:`~sidecar.puffin.reader.PuffinReader` if the footer cannot be read, and
    :class:`~sidecar.errors.UsageError` for a malformed name in ``given``.
    """
    container = inspect_puffin(source, footer_length=footer_length)
    sidecar = SidecarFile.open(source, footer_length=footer_length, encryption_keys=encryption_keys)
    return PuffinFileInfo(
        **vars(container),
        segments=[describe_segment(segment) for segment in sidecar.segments],
        tables=list(dict.fromkeys(segment.header.table_uuid for segment in sidecar.segments)),
        snapshots=list(dict.fromkeys(blob.snapshot_id for blob in container.blobs)),
        files=describe_files(sidecar),
        columns=describe_columns(sidecar, given, fill),
        warnings=list(sidecar.warnings),
    )


def describe_segment(segment: Segment) -> SegmentInfo:
    """Describe one segment: identity, sizes, coverage and groups."""
    header = segment.header
    return SegmentInfo(
        id=segment.id,
        table_uuid=header.table_uuid,
        snapshot_id=header.snapshot_id,
        sequence_number=header.sequence_number,
        created_at=header.created_at,
        files=segment.num_files,
        units=segment.num_units,
        manifests=len(segment.listed_manifests),
        coverage=[CoverageInfo(c.field_id, c.kind, c.counts()) for c in segment.coverage_runs],
        bundles=[
            describe_bundle(bundle.toc)
            for field_id in sorted(segment.fields)
            for bundle in segment.bundles_of(field_id)
        ],
        page_indexes=[describe_indexes(b.toc) for _, b in sorted(segment.page_index_blobs.items())],
        row_indexes=[describe_indexes(b.toc) for _, b in sorted(segment.row_index_blobs.items())],
        sketches=[_describe_sketches(b) for _, b in sorted(segment.sketch_blobs.items())],
    )


def describe_bundle(toc: FilterToc) -> BundleInfo:
    """Describe one bundle and its groups."""
    return BundleInfo(
        field=toc.field_id,
        kind=toc.rule_type.name,
        encrypted=toc.lock is not None,
        fpp=toc.fpp,
        expected_false_units=toc.expected_false_units,
        groups=[_describe_group(group) for group in toc.groups],
        doubts=list(toc.doubts),
    )


def describe_indexes(toc: IndexToc[PageIndexKind] | IndexToc[RowIndexKind]) -> IndexBlobInfo:
    """Describe the page indexes or row indexes of one field and their groups."""
    return IndexBlobInfo(
        field=toc.field_id,
        encrypted=toc.lock is not None,
        groups=[
            IndexGroupInfo(group.ordinal, group.kind, group.members, group.offset, group.length) for group in toc.groups
        ],
        doubts=list(toc.doubts),
    )


def _describe_sketches(blob: SketchGroupsBlob) -> SketchBlobInfo:
    try:
        groups = blob.groups()
    except SidecarError as error:
        return SketchBlobInfo(blob.toc.field_id, [], [str(error)])
    described = [
        SketchGroupInfo(number, len(g.files), g.counted, g.rows, g.size, g.type, g.length)
        for number, g in enumerate(groups)
    ]
    return SketchBlobInfo(blob.toc.field_id, described, [])


def _describe_group(group: StoredGroup) -> FilterGroupInfo:
    layout = group.layout
    return FilterGroupInfo(
        group=group.ordinal,
        encoding=group.encoding,
        resolution=group.resolution,
        layout=layout.name,
        units=layout.members,
        **group.rule.describe(layout),
        filter_bytes=group.rule.num_bytes(layout),
        offset=group.offset,
        length=layout.length,
        lookup_bytes=group.lookup_bytes,
    )
