"""Chooses the order of the stages for the files of one source, by the measured costs of reading.

A stage sees the files that the stages before it left. An opened manifest has its entries already, so bounds come
first. For files that a segment lists, the order is filters (about a byte for each file), then columns of bounds if they
are fewer bytes than the records, then entries; with at most :data:`FEW` files, bounds come before filters.

Entries come from records that are walked at once, from records that are decoded one by one, or from the manifest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import ManifestFile

from sidecar.bundle.segment import Segment
from sidecar.planning import bound_columns
from sidecar.planning.tasks import Evaluators, count_files

FEW = 64
"""Up to this many files, bounds are asked before filters, so that the funnel of a small table is the usual one. If
filters leave no more, their records are fewer bytes than columns of bounds."""
WALKED = 64
"""With more than this many files left, their records are walked at once; for fewer, decoding takes no longer."""
DECODING = 0.1
"""Milliseconds to decode one record of a units table."""
BROAD = 2000
"""With at least this many files, the sidecar's bounds are used even if the predicate asks nothing of filters."""
MANY_MANIFESTS = 8
"""With at least this many manifests, the sidecar answers for them even if the predicate asks nothing of filters."""
OPENING, READING = 20.0, 0.045
"""Milliseconds to open a manifest, and to read one entry of it."""


def is_worth_opening(lines: Sequence[ManifestFile], bound: BooleanExpression, evaluators: Evaluators) -> bool:
    """Return whether bounds or partitions in a sidecar may rule out so many files that it should be opened."""
    if count_files(lines) < BROAD and len(lines) < MANY_MANIFESTS:
        return False
    specs = {line.partition_spec_id for line in lines}
    return bool(bound_columns.helpful_fields(bound)) or any(map(evaluators.partition_field_ids, specs))


def columns_are_cheaper(segment: Segment, fields: set[int], partitions: bool, ordinals: npt.NDArray[np.int64]) -> bool:
    """Return whether bounds (and partitions) of all files are fewer bytes than the records of ``ordinals``."""
    if not fields and not partitions:
        return False
    return segment.units.bytes_of_columns(fields, partitions) < segment.units.bytes_of_files(ordinals)


def open_instead(live: npt.NDArray[np.int64], left: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return bool[manifests]: those that are read faster than the records of their files ``left`` are decoded."""
    costly: npt.NDArray[np.bool_] = left * DECODING > OPENING + live * READING
    return costly
