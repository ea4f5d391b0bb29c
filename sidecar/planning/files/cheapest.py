"""Chooses the order of the stages for the files of one source, by the measured costs of reading.

A stage sees the files that the stages before it left. Entries come from records that are walked at once, from records
that are decoded one by one, or from the manifest.

*   A manifest that was opened: its entries were read, so bounds come first, then filters.
*   More than :data:`FEW` files that segments list: filters (about a byte a file), then columns of bounds if these are
    fewer bytes than the records, then entries.
*   Up to :data:`FEW` such files: columns of bounds, then filters, then entries. If records are fewer bytes, or the
    columns cannot answer all of the predicate: entries, then filters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import ManifestFile

from sidecar.bundle.numbered_files import NumberedFiles
from sidecar.planning import bound_columns
from sidecar.planning.evaluators import Evaluators
from sidecar.planning.tasks import count_files

FEW = 64
"""Up to this many files, bounds are asked before filters, so that the funnel of a small table is the usual one. If
filters leave no more of many files, their records are fewer bytes than columns of bounds."""
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


def columns_are_cheaper(
    files: NumberedFiles, fields: set[int], partitions: bool, numbers: npt.NDArray[np.int64]
) -> bool:
    """Return whether bounds (and partitions) of all files are fewer bytes than the records of ``numbers``."""
    return bool(fields or partitions) and files.columns_are_smaller(fields, partitions, numbers)


def open_instead(spans: npt.NDArray[np.int64], owners: npt.NDArray[np.int64]) -> list[int]:
    """Return the manifests, by ordinal, that are read faster than the records of their files are decoded.

    ``spans`` has the range of all files of each manifest, and ``owners`` the manifest of each file that is left.
    """
    if len(owners) * DECODING <= OPENING:
        return []
    left, live = np.bincount(owners, minlength=len(spans)), spans[:, 1] - spans[:, 0]
    chosen: list[int] = np.flatnonzero(left * DECODING > OPENING + live * READING).tolist()
    return chosen
