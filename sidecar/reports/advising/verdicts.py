"""Says of each column which indexes it deserves, and why."""

from __future__ import annotations

from contextlib import suppress

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StructType

from sidecar.bundle.kinds.declared import BLOOM, PAGE_INDEX, THETA
from sidecar.filters.column_types import ColumnType
from sidecar.filters.encoding import Encoding
from sidecar.iceberg.resolve import TableColumn
from sidecar.reports.advising.report import AdvisedColumn, ColumnEvidence, Verdict

WORTH_IT = 0.6
"""Filters are worth their size if a lookup of an existing value keeps at most this share of the files."""
FEW_FILES = 2.0
"""Where bounds alone leave fewer files than this, filters have nothing to do."""
IN_ORDER = 0.5
"""A page index is worth its size if a lookup reads at most this share of the pages of a row group."""


def refusal(column: TableColumn, schema: Schema, spec: PartitionSpec) -> AdvisedColumn | None:
    """Return the advice for a column that nobody needs to sample; ``None`` for the others."""
    if _is_repeated(schema, column.path):
        return not_judged(column, "it is inside a list or map, and no predicate of a plan can ask for it")
    encoding = ColumnType.parse(column.type).encoding
    if encoding is None:
        return _not_worth_it(column, f"columns of type {column.type} get no filter")
    if doubt := Encoding.parse(encoding).not_indexable:
        return _not_worth_it(column, f"columns of type {column.type} get no filter: {doubt}")
    if any(f.source_id == column.field_id and isinstance(f.transform, IdentityTransform) for f in spec.fields):
        return _not_worth_it(column, "the table is partitioned by it: manifests have its values")
    return None


def not_judged(column: TableColumn, reason: str) -> AdvisedColumn:
    """Return the advice for a column of which too little is known."""
    return AdvisedColumn(column.path, column.field_id, column.type, "not judged", [], reason, None)


def judged(column: TableColumn, found: ColumnEvidence, files: int, sampled: int) -> AdvisedColumn:
    """Return the advice for a column by its evidence.

    ``files`` is the number of data files of the table, ``sampled`` that of those in which the column was read.
    """
    verdict, reason = _filters(column, found, files, sampled)
    kinds = [BLOOM, THETA] if verdict == "yes" else []
    if found.pages_left is not None and found.pages_left <= IN_ORDER and not found.has_page_index:
        kinds.append(PAGE_INDEX)
        reason += f". In a row group a value is in {found.pages_left:.0%} of the pages: a page index finds them"
    return AdvisedColumn(column.path, column.field_id, column.type, verdict, kinds, reason, found)


def _filters(column: TableColumn, found: ColumnEvidence, files: int, sampled: int) -> tuple[Verdict, str]:
    """Return whether filters are worth their size, and why."""
    bounds, filtered = found.existing.by_bounds, found.existing.with_filters
    if not found.distinct_in_table:
        return "no", "the sampled row groups have no value of it"
    if found.distinct_in_table == 1:
        return "no", "it is constant: the sampled row groups have one value"
    if files == 1:
        return "no", "the table has one file, which a lookup of an existing value always opens"
    left = f"bounds alone leave {amount(bounds)} of {amount(files)} files"
    if bounds < FEW_FILES:
        return "no", f"it is clustered: {left}"
    if ColumnType.parse(column.type).family == "float":
        return "no", "binary floating-point numbers are seldom looked up one by one; name it to build its filters"
    if sampled == 1:
        return "not judged", "it was read in one data file, and nothing shows whether others have the same values"
    if filtered > WORTH_IT * bounds:
        if bounds > files / 2:
            return "no", f"its values are in most files: filters would leave {amount(filtered)} of {amount(files)}"
        return "no", f"it is clustered: {left}, and filters {amount(filtered)}"
    absent = "" if found.absent is None else f"; of an absent value {amount(found.absent.with_filters)}"
    return (
        "yes",
        f"a lookup opens {amount(filtered)} of {amount(files)} files, with bounds alone {amount(bounds)}{absent}",
    )


def amount(number: float) -> str:
    """A number of files for people: two digits below ten, whole numbers above."""
    if 0 < number < 0.01:
        return "less than 0.01"
    return f"{number:.2g}" if number < 10 else f"{number:,.0f}"


def _not_worth_it(column: TableColumn, reason: str) -> AdvisedColumn:
    return AdvisedColumn(column.path, column.field_id, column.type, "no", [], reason, None)


def _is_repeated(schema: Schema, path: str) -> bool:
    """Whether a column is inside a list or a map."""
    parts = path.split(".")
    for end in range(1, len(parts)):
        with suppress(ValueError):  # a name may have dots of its own
            if not isinstance(schema.find_type(".".join(parts[:end])), StructType):
                return True
    return False
