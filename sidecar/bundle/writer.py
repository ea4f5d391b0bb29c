"""Writes segments into a Puffin file. The build driver calls this.

    groups = plan_groups(members)                        positions.plan_groups, one call for each field
    entries = copy_segments(old, puffin, ...)            segments of an earlier sidecar, copied as bytes
    entries += write_segment(puffin, header, units, [FieldBundle(field_id, groups, pages), ...])
    write_toc(puffin, entries, ...)                      last; only puffin.finish() may follow

Memory is bounded by the units table and one piece of pages. A page is written as soon as it arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sidecar.bundle.field_parts import FieldPart, SegmentUnits, write_part
from sidecar.bundle.model import SegmentHeader, UnitsTable
from sidecar.bundle.sidecar_file import Segment, SidecarFile
from sidecar.bundle.toc import TocEntry, write_toc
from sidecar.bundle.units.writer import encode_units_blob
from sidecar.puffin.metadata import BlobMetadata
from sidecar.puffin.types import UNITS
from sidecar.puffin.writer import PuffinWriter

__all__ = ["copy_segments", "write_segment", "write_toc"]


def write_segment(
    puffin: PuffinWriter,
    header: SegmentHeader,
    units: UnitsTable,
    parts: Iterable[FieldPart],
    *,
    snapshot_id: int,
    sequence_number: int,
) -> list[TocEntry]:
    """Write the blobs of ``parts`` in their order, and the units blob.

    ``snapshot_id`` and ``sequence_number`` are those of the snapshot that the file is registered for; ``header`` has
    the segment's own. Returns entries for :func:`write_toc`. Raises :class:`UsageError` if pages or units contradict
    the groups.
    """
    blob = encode_units_blob(header, units)
    known = SegmentUnits(len(units.files), blob.num_units, blob.toc)
    place = {"snapshot_id": snapshot_id, "sequence_number": sequence_number}
    entries = [entry for part in parts for entry in write_part(puffin, header, part, known, **place)]
    written = puffin.add_blob(UNITS, [], snapshot_id, sequence_number, blob.pieces())
    return [*entries, _entry(written, header.segment_id, blob.toc)]


def copy_segments(
    sidecar: SidecarFile,
    puffin: PuffinWriter,
    *,
    snapshot_id: int,
    sequence_number: int,
    segments: Iterable[Segment] | None = None,
    keep: Callable[[TocEntry], bool] = lambda entry: True,
) -> list[TocEntry]:
    """Copy segments (default: all) of another sidecar as bytes. Returns entries for :func:`write_toc`.

    Offsets inside a blob count from its start, so nothing in it changes, and its properties stay. Encrypted blobs
    stay readable with their key, because no snapshot is bound into it. ``keep`` filters the blobs of fields; the units
    blob is always copied.
    """
    copied = []
    properties = {blob.offset: blob.properties for blob in sidecar.puffin.metadata.blobs}
    for entry in kept_entries(sidecar.segments if segments is None else segments, keep):
        kept = properties.get(entry.offset, {})
        blob = BlobMetadata(
            entry.blob_type, entry.fields, snapshot_id, sequence_number, entry.offset, entry.length, None, kept
        )
        copied.append(_entry(puffin.copy_blob(blob, sidecar.puffin), entry.segment_id, entry.toc))
    return copied


def kept_entries(segments: Iterable[Segment], keep: Callable[[TocEntry], bool]) -> Iterator[TocEntry]:
    """Yield the entries of the blobs that :func:`copy_segments` copies, in its order."""
    for segment in segments:
        # The units blob goes last, because readers need its end together with the file's tail.
        yield from (*filter(keep, segment.entries[1:]), segment.entry)


def _entry(blob: BlobMetadata, segment_id: bytes, toc: bytes) -> TocEntry:
    return TocEntry(blob.type, blob.fields, segment_id, blob.offset, blob.length, toc)
