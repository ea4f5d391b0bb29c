"""Chooses what indexes a data file in stage 1."""

from __future__ import annotations

from sidecar.data_files.open_orc import OpenOrc
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.indexing.columns import Options
from sidecar.indexing.sketches import TaskSketches
from sidecar.indexing.stage_one.data_file import DataFile
from sidecar.indexing.stage_one.orc_file import OrcDataFile
from sidecar.indexing.stage_one.parquet_file import ParquetDataFile


def data_file_of(file: OpenParquet | OpenOrc, options: Options, sketches: TaskSketches) -> DataFile:
    """Return ``file``, ready to be indexed."""
    return (
        OrcDataFile(file, options, sketches) if isinstance(file, OpenOrc) else ParquetDataFile(file, options, sketches)
    )
