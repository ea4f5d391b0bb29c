"""Describe a Puffin file with a sidecar: its blobs, and its segments, bundles and groups."""

from __future__ import annotations

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
from sidecar.storage.source import Source


@dataclass(frozen=True, repr=False)
class PuffinFileInfo(PuffinInfo):
    """A Puffin file, and its segments if it is a sidecar."""

    segments: list[dict[str, Any]]
    """The segments, one a build, as plain data of their tables of contents; empty if the file is not a sidecar."""
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
    *,
    fill: bool = False,
    footer_length: int | None = None,
    encryption_keys: EncryptionKeys | None = None,
) -> PuffinFileInfo:
    """Describe a Puffin file. Reads the footer, tables of contents, coverage and the lists of files and groups.

    With ``fill`` all filters are read, and sealed ones need ``encryption_keys`` for that. Raises the errors of
    :class:`~sidecar.puffin.reader.PuffinReader` if the footer cannot be read.
    """
    container = inspect_puffin(source, footer_length=footer_length)
    sidecar = SidecarFile.open(source, footer_length=footer_length, encryption_keys=encryption_keys)
    return PuffinFileInfo(
        **vars(container),
        segments=[describe_segment(segment) for segment in sidecar.segments],
        tables=list(dict.fromkeys(segment.header.table_uuid for segment in sidecar.segments)),
        snapshots=list(dict.fromkeys(blob.snapshot_id for blob in container.blobs)),
        files=describe_files(sidecar),
        columns=describe_columns(sidecar, fill),
        warnings=list(sidecar.warnings),
    )


def describe_segment(segment: Segment) -> dict[str, Any]:
    """Return what the header and the tables of contents of a segment say, without keys. Lengths are in bytes."""
    header = segment.header
    return {
        "id": segment.id,
        "table_uuid": header.table_uuid,
        "snapshot_id": header.snapshot_id,
        "sequence_number": header.sequence_number,
        "created_at": header.created_at,
        "files": segment.num_files,
        "units": segment.num_units,
        "manifests": len(segment.listed_manifests),
        "coverage": [{"field": c.field_id, "kind": c.kind, "units": c.counts()} for c in segment.coverage_runs],
        "bundles": [_bundle(one.toc) for field in sorted(segment.fields) for one in segment.bundles_of(field)],
        "page_indexes": [_indexes(blob.toc) for _, blob in sorted(segment.page_index_blobs.items())],
        "row_indexes": [_indexes(blob.toc) for _, blob in sorted(segment.row_index_blobs.items())],
        "sketches": [_sketches(blob) for _, blob in sorted(segment.sketch_blobs.items())],
    }


def _bundle(toc: FilterToc) -> dict[str, Any]:
    return {
        "field": toc.field_id,
        "kind": toc.rule_type.name,
        "encrypted": toc.lock is not None,
        "fpp": toc.fpp,
        "expected_false_units": toc.expected_false_units,
        "groups": [_filters(group) for group in toc.groups],
        "doubts": list(toc.doubts),
    }


def _filters(group: StoredGroup) -> dict[str, Any]:
    layout = group.layout
    return {
        "group": group.ordinal,
        "encoding": group.encoding,
        "resolution": group.resolution,
        "layout": layout.name,
        "units": layout.members,
        **group.rule.describe(layout),
        "filter_bytes": group.rule.num_bytes(layout),
        "offset": group.offset,
        "length": layout.length,
        "lookup_bytes": group.lookup_bytes,
    }


def _indexes(toc: IndexToc[PageIndexKind] | IndexToc[RowIndexKind]) -> dict[str, Any]:
    groups = [
        {
            "group": group.ordinal,
            **group.kind._asdict(),
            "units": group.members,
            "offset": group.offset,
            "length": group.length,
        }
        for group in toc.groups
    ]
    return {
        "field": toc.field_id,
        "encrypted": toc.lock is not None,
        "groups": groups,
        "doubts": list(toc.doubts),
    }


def _sketches(blob: SketchGroupsBlob) -> dict[str, Any]:
    try:
        groups = blob.groups()
    except SidecarError as error:
        return {"field": blob.toc.field_id, "groups": [], "doubts": [str(error)]}
    described = [
        {
            "group": number,
            "files": len(group.files),
            "counted": group.counted,
            "rows": group.rows,
            "size": group.size,
            "type": group.type,
            "length": group.length,
        }
        for number, group in enumerate(groups)
    ]
    return {"field": blob.toc.field_id, "groups": described, "doubts": []}
