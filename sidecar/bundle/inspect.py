"""Describe a sidecar's segments, bundles and groups as JSON values."""

from __future__ import annotations

from typing import Any

from sidecar.bundle.filters.filter_toc import FilterToc, StoredGroup
from sidecar.bundle.index_toc import IndexToc
from sidecar.bundle.sidecar_file import Segment, SidecarFile
from sidecar.source import Source


def inspect_sidecar(source: Source, *, footer_length: int | None = None) -> dict[str, Any]:
    """Return ``segments`` with their bundles' groups, and ``warnings``. Reads only tables of contents and coverage.

    Raises the errors of :class:`~sidecar.puffin.reader.PuffinReader` if the footer cannot be read.
    """
    sidecar = SidecarFile.open(source, footer_length=footer_length)
    segments = [describe_segment(segment) for segment in sidecar.segments]
    return {"segments": segments, "warnings": list(sidecar.warnings)}


def describe_segment(segment: Segment) -> dict[str, Any]:
    """Describe one segment: identity, sizes, coverage and groups."""
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
        "coverage": [
            {"field": coverage.field_id, "kind": coverage.kind, "units": coverage.counts()}
            for coverage in segment.coverages
        ],
        "bundles": [
            describe_bundle(bundle.toc)
            for field_id in sorted(segment.fields)
            for bundle in segment.bundles_of(field_id)
        ],
        "page_indexes": [describe_indexes(b.toc) for _, b in sorted(segment.page_index_blobs.items())],
        "row_indexes": [describe_indexes(b.toc) for _, b in sorted(segment.row_index_blobs.items())],
    }


def describe_bundle(toc: FilterToc) -> dict[str, Any]:
    """Describe one bundle and its groups."""
    return {
        "field": toc.field_id,
        "kind": toc.rule_type.name,
        "encrypted": toc.lock is not None,
        "fpp": toc.fpp,
        "expected_false_units": toc.expected_false_units,
        "groups": [_describe_group(group) for group in toc.groups],
        "doubts": list(toc.doubts),
    }


def describe_indexes(toc: IndexToc[Any]) -> dict[str, Any]:
    """Describe the page indexes or row indexes of one field and their groups."""
    return {
        "field": toc.field_id,
        "encrypted": toc.lock is not None,
        "groups": [
            {
                "group": group.ordinal,
                **group.kind._asdict(),
                "units": group.members,
                "offset": group.offset,
                "length": group.length,
            }
            for group in toc.groups
        ],
        "doubts": list(toc.doubts),
    }


def _describe_group(group: StoredGroup) -> dict[str, Any]:
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
        "lookup_bytes": lookup_bytes(group),
    }


def lookup_bytes(group: StoredGroup) -> int:
    """Return the most bytes that the lookup of one hash reads."""
    layout, (rows, regions) = group.layout, group.rule.spread(group.layout)
    if layout.sliced:
        return rows * layout.row_stride if layout.rows_sealed else regions * layout.region_stride
    return min(regions, layout.pages) * layout.page_length(0)
