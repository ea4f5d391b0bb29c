"""Chooses the distinct counts that the table's metadata names, so that engines use them.

Iceberg hands a registered count to Spark without the column's bounds. With ``spark.sql.cbo.enabled`` Spark takes a
column without bounds for one that is all NULL, and expects 0 rows of ``=`` and ``IN``, unless the column has text or
bytes. So of columns that nobody has named a sketch for, those of text and bytes alone are registered. The sketches of
the others are in the sidecar as well, and nobody but sidecar reads them there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.table.statistics import StatisticsFile

from sidecar.filters.column_types import ColumnType
from sidecar.iceberg.statistics_files.merge import sketched_fields
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


def misread_warning(columns: Sequence[str]) -> str:
    """Return what Spark makes of the registered counts of these columns, and which settings avoid it."""
    optimiser, report = SPARK_SETTINGS
    return (
        f"registered distinct counts of {', '.join(columns)}: where {optimiser} is true, Spark expects 0 rows of = and "
        f"IN on such columns, and may broadcast what is large; set {report} to false there"
    )
