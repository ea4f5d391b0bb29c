"""The formats of data files that stage 1 can index: how their metadata is read, and what opens them."""

from __future__ import annotations

from pyiceberg.manifest import FileFormat

from sidecar.errors import UnsupportedFeatureError
from sidecar.indexing.columns import Options
from sidecar.indexing.data_file import DataFile
from sidecar.indexing.orc_file import OrcDataFile
from sidecar.indexing.parquet_file import ParquetDataFile
from sidecar.indexing.sketches import TaskSketches
from sidecar.orc.tail import OrcTail, read_tail
from sidecar.parquet.footer import Footer, read_footer
from sidecar.source import Source

Metadata = Footer | OrcTail
"""What a file says of itself at its end."""


def read_metadata(source: Source, kind: FileFormat) -> Metadata:
    """The metadata of a file. Raises :class:`UnsupportedFeatureError` for another format, and what reading raises."""
    if kind == FileFormat.PARQUET:
        return read_footer(source)
    if kind == FileFormat.ORC:
        return read_tail(source)
    raise UnsupportedFeatureError(f"files in {kind.value} are not indexed", file=source.name)


def open_data_file(source: Source, metadata: Metadata, options: Options, sketches: TaskSketches) -> DataFile:
    """The file of ``source``, ready to be indexed."""
    if isinstance(metadata, OrcTail):
        return OrcDataFile(source, metadata, options, sketches)
    return ParquetDataFile(source, metadata, options, sketches)
