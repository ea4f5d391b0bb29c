"""Chooses the distinct counts that the table's metadata names, so that engines use them.

Iceberg hands a registered count to Spark without the column's bounds. With ``spark.sql.cbo.enabled`` Spark takes a
column without bounds for one that is all NULL, and expects 0 rows of ``=`` and ``IN``, unless the column has text or
bytes. So of columns that nobody has named a sketch for, those of text and bytes alone are registered. The sketches of
the others are in the sidecar as well, and nobody but sidecar reads them there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyiceberg.table.statistics import StatisticsFile

from sidecar.bundle.kinds.declared import KIND_OF_BLOB, is_united
from sidecar.bundle.sketches.count_marks import AlsoCounted, CountMarks
from sidecar.filters.column_types import ColumnType
from sidecar.iceberg.statistics_files.merge import sketched_fields, stored_counts
from sidecar.puffin.metadata import FileMetadata

READ_RIGHT = ("string", "uuid", "binary")
"""The families of types that Spark reads as text and bytes."""
SPARK_SETTINGS = "spark.sql.cbo.enabled", "spark.sql.iceberg.report-column-stats"


def reads_right(iceberg_type: str) -> bool:
    """Return whether Spark estimates rightly by the count of a column of this type."""
    return ColumnType.parse(iceberg_type).family in READ_RIGHT


def registers_as_declared(entry: StatisticsFile, footer: FileMetadata, chosen: Mapping[int, bool]) -> bool:
    """Return whether an entry names the counts of its file as ``chosen``: by field id, whether it is to be named."""
    registered = sketched_fields(entry.blob_metadata)
    return all((i in registered) == chosen[i] for i in sketched_fields(footer.blobs) & chosen.keys())


def may_be_stale(entry: StatisticsFile, footer: FileMetadata, written_for: int, fields: Collection[int]) -> bool:
    """Return whether a refresh might count one of ``fields`` again: a build of others has left its count out or
    carried it over with a mark.

    The count of a build names the snapshot that its file was ``written_for``, one that is carried over an earlier one.
    """
    counts = stored_counts(entry, footer)
    united = {kind for kind, declared in KIND_OF_BLOB.items() if is_united(declared.name)}
    counted = {i for blob in footer.blobs if blob.type in united for i in blob.fields}.intersection(fields)
    carried = [counts[i] for i in counted & counts.keys() if counts[i].snapshot_id != written_for]
    marks = [CountMarks.of(known.properties) for known in carried]
    return not counted <= counts.keys() or any(one.lower or AlsoCounted.REMOVED_FILES in one.upper for one in marks)


def misread_warning(columns: Sequence[str]) -> str:
    """Return what Spark makes of the registered counts of these columns, and which settings avoid it."""
    optimiser, report = SPARK_SETTINGS
    return (
        f"registered distinct counts of {', '.join(columns)}: where {optimiser} is true, Spark expects 0 rows of = and "
        f"IN on such columns, and may broadcast what is large; set {report} to false there"
    )
