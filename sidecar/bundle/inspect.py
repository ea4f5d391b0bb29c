"""Describes a Puffin file with a sidecar: its blobs, and its segments, bundles and groups."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from sidecar.bundle.contents import ListedFileInfo, SidecarColumnInfo, describe_columns, describe_files
from sidecar.bundle.field_blob import OpenedBlob
from sidecar.bundle.kinds.blob_forms import BLOB_FORMS
from sidecar.bundle.sidecar_file import Segment, SidecarFile
from sidecar.crypto.keys import EncryptionKeys
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
    encryption_keys: EncryptionKeys | None = None,
) -> PuffinFileInfo:
    """Describe a Puffin file. Reads the footer, tables of contents, coverage and the lists of files and groups.

    With ``fill`` all filters are read, and encrypted ones need ``encryption_keys`` for that. Raises the errors of
    :class:`~sidecar.puffin.reader.PuffinReader` if the footer cannot be read.
    """
    container = inspect_puffin(source)
    sidecar = SidecarFile.open(source, encryption_keys=encryption_keys)
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
        **_described_blobs(segment),
    }


def _described_blobs(segment: Segment) -> dict[str, list[dict[str, Any]]]:
    """Return what each blob says by the list that its form names, sorted by field."""
    found: dict[str, list[tuple[int, OpenedBlob]]] = {form.listed_in: [] for form in BLOB_FORMS.values()}
    for blob_type, blobs in segment.opened.items():
        found[BLOB_FORMS[blob_type].listed_in] += blobs.items()
    return {name: [blob.describe() for _, blob in sorted(blobs, key=itemgetter(0))] for name, blobs in found.items()}
