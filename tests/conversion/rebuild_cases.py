"""Columns to rebuild filters of: small Parquet files, and their evidence."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sidecar.conversion.rebuild import ParquetEvidence
from sidecar.parquet.footer import read_footer
from sidecar.storage.source import BytesSource


def parquet_of(values: pa.Array, **options: Any) -> bytes:
    """A Parquet file with the one column ``x``."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": values}), sink, **{"compression": "none", "use_dictionary": False, **options})
    data: bytes = sink.getvalue().to_pybytes()
    return data


def evidence_of(file: bytes) -> ParquetEvidence:
    """The evidence of the only column of a file, over all of its row groups."""
    source = BytesSource(file)
    footer = read_footer(source)
    return ParquetEvidence(source, footer, [group.columns[0] for group in footer.row_groups])
