"""Stage: rules out files that a segment lists by recorded bounds and partitions, as columns over all of them.

What these columns cannot decide is left to pyiceberg's evaluators, which see the entries of the files that are left.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.types import NestedField

from sidecar.bundle.segment import Segment
from sidecar.errors import SidecarError
from sidecar.iceberg.manifests import entry_decoder
from sidecar.planning import bound_columns, partition_columns
from sidecar.planning.files.cheapest import columns_are_cheaper
from sidecar.planning.files.file_set import DroppedBy, FileSet, Mask, Ordinals
from sidecar.planning.files.sources import ListedManifests
from sidecar.planning.tasks import Evaluators

Kind = tuple[int, int]
"""A spec id, and the ordinal of the Avro schema of records. Partition tuples compare only within one of each."""


def by_bounds(files: FileSet, bound: BooleanExpression, evaluators: Evaluators) -> FileSet:
    """Rule files out by columns of bounds and partitions, unless these are more bytes than the files' records."""
    source = files.source
    assert isinstance(source, ListedManifests)
    segment, ordinals = source.segment, files.rows
    kinds = [
        (line.file.partition_spec_id, entry.schema) for line, entry in zip(source.lines, source.listed, strict=True)
    ]
    manifests = source.manifest_of(files.rows)
    left = {kinds[at] for at in np.unique(manifests).tolist()}
    fields = {kind: _partition_fields(segment, kind, evaluators) for kind in left}
    helpful = bound_columns.helpful_fields(bound)
    if not columns_are_cheaper(segment, helpful, any(fields.values()), ordinals):
        return files

    def column(field_id: int) -> pa.Table | None:
        bounds = segment.bounds(field_id)
        return None if bounds is None else bounds.take(pa.array(ordinals, pa.int64()))

    keep = bound_columns.may_match(bound, column, len(ordinals))
    for kind, parts in fields.items():
        if parts:
            chosen = keep & np.array([own == kind for own in kinds])[manifests]
            keep[chosen] = _within_partitions(segment, ordinals[chosen], parts, evaluators.partition(kind[0]))
    return files.narrow(keep, DroppedBy.METADATA)


def _partition_fields(segment: Segment, kind: Kind, evaluators: Evaluators) -> tuple[NestedField, ...]:
    """Return the fields of recorded partition tuples if they can rule something out, else none.

    If the records' schema has the fields in another order than the spec, the tuples are not used.
    """
    spec_id, schema = kind
    ids = evaluators.partition_field_ids(spec_id)
    if not ids or not 0 <= schema < len(segment.schemas):
        return ()
    try:
        fields = entry_decoder(segment.schemas[schema]).partition_fields
    except SidecarError:
        return ()  # its records cannot be decoded either; decoding them warns
    return fields if [field.field_id for field in fields] == ids else ()


def _within_partitions(
    segment: Segment, ordinals: Ordinals, fields: tuple[NestedField, ...], evaluate: Callable[[DataFile], bool]
) -> Mask:
    partitions = segment.partitions()
    if partitions is None:
        return np.ones(len(ordinals), np.bool_)
    chosen = partitions.take(pa.array(ordinals, pa.int64()))
    return partition_columns.may_match(chosen, fields, lambda record: evaluate(DataFile.from_args(partition=record)))
