"""Reads the metadata of data files and opens them for stage 1, by their format."""

from __future__ import annotations

from pyiceberg.manifest import FileFormat

from sidecar.errors import UnsupportedFeatureError
from sidecar.indexing.columns import Options
from sidecar.indexing.sketches import TaskSketches
from sidecar.indexing.stage_one.data_file import DataFile
from sidecar.indexing.stage_one.orc_file import OrcDataFile
from sidecar.indexing.stage_one.parquet_file import ParquetDataFile
from sidecar.orc.tail import OrcTail, read_tail
from sidecar.parquet.footer import Footer, read_footer
from sidecar.storage.source import Source

Metadata = Footer | OrcTail
"""The metadata at the end of a data file."""


def read_metadata(source: Source, kind: FileFormat) -> Metadata:
    """Read a file's metadata. Raises :class:`UnsupportedFeatureError` for other formats, and the errors of reading."""
    if kind == FileFormat.PARQUET:
        return read_footer(source)
    if kind == FileFormat.ORC:
        return read_tail(source)
    raise UnsupportedFeatureError(f"files in {kind.value} are not indexed", file=source.name)


def open_data_file(source: Source, metadata: Metadata, options: Options, sketches: TaskSketches) -> DataFile:
    """Return the file of ``source``, ready to be indexed."""
    if isinstance(metadata, OrcTail):
        return OrcDataFile(source, metadata, options, sketches)
    return ParquetDataFile(source, metadata, options, sketches)
