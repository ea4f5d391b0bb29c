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
from sidecar.filters.arrays import Ordinals
from sidecar.iceberg.manifests import entry_decoder
from sidecar.planning import bound_columns, partition_columns
from sidecar.planning.files import cheapest
from sidecar.planning.files.file_set import DroppedBy, FileSet, Mask
from sidecar.planning.files.sources import Kind, ListedManifests
from sidecar.planning.tasks import Evaluators


def by_bounds(
    files: FileSet[ListedManifests], bound: BooleanExpression, evaluators: Evaluators
) -> FileSet[ListedManifests]:
    """Rule files out by columns of bounds and partitions, unless these are more bytes than the files' records.

    Then no step is added to the set.
    """
    segment, ordinals = files.source.segment, files.rows
    kinds, kind_of = files.source.kinds_of(ordinals)
    fields = [_partition_fields(segment, kind, evaluators) for kind in kinds]
    helpful = bound_columns.helpful_fields(bound)
    if not cheapest.columns_are_cheaper(segment, helpful, any(fields), ordinals):
        return files
    # Records of few files come in the same read: most of these need it anyway, and a read takes longer than its bytes.
    segment.hold(helpful, any(fields), ordinals if len(ordinals) <= cheapest.FEW else None)
    columns = {field_id: _of_files(segment.bounds(field_id), ordinals) for field_id in sorted(helpful)}
    keep = bound_columns.may_match(bound, columns.get, len(ordinals))
    for at, (parts, (spec_id, _)) in enumerate(zip(fields, kinds, strict=True)):
        if parts:
            chosen = keep & (kind_of == at)
            keep[chosen] = _within_partitions(segment, ordinals[chosen], parts, evaluators.partition(spec_id))
    return files.narrow(keep, DroppedBy.METADATA)


def _of_files(table: pa.Table | None, ordinals: Ordinals) -> pa.Table | None:
    return None if table is None else table.take(pa.array(ordinals, pa.int64()))


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
    chosen = _of_files(segment.partitions(), ordinals)
    if chosen is None:
        return np.ones(len(ordinals), np.bool_)
    return partition_columns.may_match(chosen, fields, lambda record: evaluate(DataFile.from_args(partition=record)))
