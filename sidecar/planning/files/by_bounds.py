"""The stage that rules out files that segments list by recorded bounds and partitions, as columns over all of them.

What these columns cannot decide is left to pyiceberg's evaluators, which see the entries of the files that are left.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.types import NestedField

from sidecar.errors import SidecarError
from sidecar.filters.arrays import Ordinals
from sidecar.iceberg.manifests import entry_decoder
from sidecar.iceberg.statistics_files.sidecar_files import SidecarFiles
from sidecar.planning import bound_columns, partition_columns
from sidecar.planning.evaluators import Evaluators
from sidecar.planning.files import cheapest
from sidecar.planning.files.file_set import DroppedBy, FileSet, Mask
from sidecar.planning.files.sources import Kind, ListedManifests


def by_bounds(
    files: FileSet[ListedManifests], bound: BooleanExpression, evaluators: Evaluators
) -> FileSet[ListedManifests]:
    """Rule files out by columns of bounds and partitions, unless these are more bytes than the files' records.

    Then no step is added to the set.
    """
    sidecar, numbers = files.source.files, files.rows
    kinds, kind_of = files.source.kinds_of(numbers)
    fields = [_partition_fields(sidecar, kind, evaluators) for kind in kinds]
    helpful = bound_columns.helpful_fields(bound)
    if not cheapest.columns_are_cheaper(sidecar, helpful, any(fields), numbers):
        return files
    # Records of few files come in the same read: most of these need it anyway, and a read takes longer than its bytes.
    sidecar.hold(helpful, any(fields), numbers, len(numbers) <= cheapest.FEW)
    columns = {field_id: sidecar.bounds(field_id, numbers) for field_id in sorted(helpful)}
    keep = bound_columns.may_match(bound, columns.get, len(numbers))
    for at, (parts, (spec_id, _)) in enumerate(zip(fields, kinds, strict=True)):
        if parts:
            chosen = keep & (kind_of == at)
            keep[chosen] = _within_partitions(sidecar, numbers[chosen], parts, evaluators.partition(spec_id))
    return files.narrow(keep, DroppedBy.METADATA)


def _partition_fields(sidecar: SidecarFiles, kind: Kind, evaluators: Evaluators) -> tuple[NestedField, ...]:
    """Return the fields of recorded partition tuples if they can rule something out, else none.

    If the records' schema has the fields in another order than the spec, the tuples are not used.
    """
    spec_id, schema = kind
    ids = evaluators.partition_field_ids(spec_id)
    text = sidecar.schema(schema) if ids else None
    if text is None:
        return ()
    try:
        fields = entry_decoder(text).partition_fields
    except SidecarError:
        return ()  # its records cannot be decoded either; decoding them warns
    return fields if [field.field_id for field in fields] == ids else ()


def _within_partitions(
    sidecar: SidecarFiles, numbers: Ordinals, fields: tuple[NestedField, ...], evaluate: Callable[[DataFile], bool]
) -> Mask:
    chosen = sidecar.partitions(numbers)
    if chosen is None:
        return np.ones(len(numbers), np.bool_)
    return partition_columns.may_match(chosen, fields, lambda record: evaluate(DataFile.from_args(partition=record)))
