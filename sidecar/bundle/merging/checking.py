"""Checks a segment before it is merged: which of its filters and indexes are sound.

Every piece is read and verified once before the first byte is written, because the positions of the merged filters are
fixed before their bits are read again. A damaged piece of filters hits all filters of its group. A damaged entry of
page or row indexes hits one unit, a damaged piece of their table the units in it. What is damaged is left out of the
merged segment, which keeps these units.

A segment that cannot be read as a whole is not merged: one with a key that is missing, with a group or a blob that this
version does not understand, or with a damaged units table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sidecar.bundle.field_blob import FieldBlob
from sidecar.bundle.kinds.declared import BLOOM, KIND_OF_BLOB, PAGE_INDEX, THETA
from sidecar.bundle.merging.kind_merge import KindMerge
from sidecar.bundle.merging.merged_filters import FilterMerge
from sidecar.bundle.merging.merged_indexes import EntryMerge
from sidecar.bundle.merging.merged_sketches import SketchMerge
from sidecar.bundle.merging.source_segment import BlobOfField, CheckedSegment, SourceSegment
from sidecar.bundle.model import FieldBounds
from sidecar.bundle.sections import FILES_PER_BATCH
from sidecar.errors import DamagedFileError, StorageError, UnsupportedFeatureError, UsageError
from sidecar.puffin.types import THETA_GROUPS

MERGES: dict[str, KindMerge] = {PAGE_INDEX: EntryMerge(), BLOOM: FilterMerge(), THETA: SketchMerge()}
"""How each kind is merged, in the order in which a merged segment has their blobs."""


def check_segment(source: SourceSegment) -> CheckedSegment:
    """Read and verify everything of a segment. Memory: its units table.

    Raises :class:`DamagedFileError`, :class:`UnsupportedFeatureError` or :class:`UsageError` (a key is missing) if the
    segment cannot be merged, and :class:`sidecar.errors.StorageError` if it cannot be read now.
    """
    segment = source.segment
    # A merge would lose blobs of unknown types, so a segment that has some stays as it is.
    unknown = {entry.blob_type for entry in segment.entries[1:]}.difference(KIND_OF_BLOB)
    if unknown:
        raise UnsupportedFeatureError("the segment has blobs that cannot be merged", found=", ".join(sorted(unknown)))
    for blob in source.blobs.values():
        _check_blob(blob)
    reader = segment.units
    files = [
        file
        for batch in range(-(-segment.num_files // FILES_PER_BATCH))
        for file in reader.file_batches([batch])[batch]
    ]
    checked = CheckedSegment(
        source,
        units=[file.units for file in files],
        recorded=np.array([bool(file.entry) for file in files], np.bool_),
        first_units=reader.first_units(),
        coverage={(coverage.field_id, coverage.kind): coverage for coverage in reader.coverage()},
    )
    if np.diff(checked.first_units).tolist() != [len(units) for units in checked.units]:
        raise DamagedFileError("the files of a segment do not have their numbers of units")
    for field_id in reader.bounded_fields:
        table = reader.bounds(field_id)
        if table is not None:
            checked.bounds[field_id] = _bounds_of(table)
    for kind in MERGES.values():
        kind.check(checked)
    return checked


def damaged_units(source: SourceSegment) -> dict[BlobOfField, npt.NDArray[np.bool_]]:
    """Read all filters, indexes and sketches of a segment, and return bool[units]: which units have a damaged index,
    or are in a file whose values a damaged sketch counts.

    Blobs without damage are not in it, nor are those that cannot be opened or understood.
    """
    segment, found, skipped = source.segment, dict[BlobOfField, npt.NDArray[np.bool_]](), set[BlobOfField]()
    for key, blob in source.blobs.items():
        try:
            _check_blob(blob)
        except (UnsupportedFeatureError, UsageError):
            skipped.add(key)
        except DamagedFileError:
            found[key] = np.ones(segment.num_units, np.bool_)
    skipped |= found.keys()
    left = [entry for entry in source.entries[:-1] if (entry.blob_type, entry.fields[0]) not in skipped]
    sound = replace(source, keep=left.__contains__)
    checked = CheckedSegment(sound, [], np.empty(0, np.bool_), segment.unit_ranges, {})
    for kind in MERGES.values():
        kind.check(checked)
    units = np.diff(segment.unit_ranges)
    found |= {(THETA_GROUPS, i): np.repeat(files, units) for i, files in checked.uncountable.items()}
    return found | checked.damaged


def _bounds_of(table: pa.Table) -> list[FieldBounds]:
    columns = [table[name].to_pylist() for name in FieldBounds._fields]
    return [FieldBounds(*row) for row in zip(*columns, strict=True)]


def _check_blob(blob: FieldBlob[Any]) -> None:
    """Raise an error if a blob cannot be opened, or not be understood as a whole."""
    try:
        blob.check_key()
    except StorageError as error:  # the key server does not answer; the segment can stay as it is
        raise UsageError(f"a key cannot be fetched: {error.what}") from error
    if blob.toc.damage:
        raise UnsupportedFeatureError(blob.toc.damage[0])
    groups = blob.toc.groups
    units = np.concatenate([np.empty(0, np.int64), *(group.ordinals() for group in groups)])
    if len(np.unique(units)) < len(units):
        raise DamagedFileError("a unit is in two groups of a field")
    if sum(group.length for group in groups) > blob.toc.toc_offset:  # reading them would read more than the file has
        raise DamagedFileError("the groups of a field overlap")
