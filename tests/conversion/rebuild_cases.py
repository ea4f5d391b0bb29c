"""Columns to rebuild filters of: small Parquet files, their evidence, filters of either form as they would be found."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sidecar.conversion.parquet_evidence import ParquetEvidence
from sidecar.filters.block_filter import BlockFilter
from sidecar.filters.encoding import Encoding
from sidecar.filters.historical import HistoricalBloomFilter
from sidecar.parquet.bloom import FoundFilter
from sidecar.parquet.footer import Footer, read_footer
from sidecar.parquet.thrift import Struct, decode_struct, encode_struct
from sidecar.source import BytesSource


def parquet_of(values: pa.Array, **options: Any) -> bytes:
    """A Parquet file with the one column ``x``."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": values}), sink, **{"compression": "none", "use_dictionary": False, **options})
    data: bytes = sink.getvalue().to_pybytes()
    return data


def with_footer(file: bytes, change: Any) -> bytes:
    """The file with ``change`` made to the tree of its footer."""
    length = int.from_bytes(file[-8:-4], "little")
    tree = decode_struct(file[-8 - length : -8])[0]
    change(tree)
    footer = encode_struct(tree)
    return file[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def statistics_of(tree: Struct, group: int = 0) -> Struct:
    """The statistics of the first column of a row group."""
    found = tree.structs(4)[group].structs(1)[0].struct(3).struct(12)  # type: ignore[index, union-attr]
    assert found is not None
    return found


def found_filter(
    values: pa.Array, encoding: Encoding, form: type[BlockFilter] = HistoricalBloomFilter, z: int = 64
) -> FoundFilter:
    """A filter of ``z`` blocks of the values, as if read from somewhere."""
    made = form.empty(z)
    made.insert_arrow(values, encoding)
    return FoundFilter(made, 0, 12 + made.num_bytes, 12, "")


def evidence_of(file: bytes, old: FoundFilter | None = None) -> tuple[ParquetEvidence, Footer]:
    """The evidence of the only column of a file, over all of its row groups."""
    source = BytesSource(file)
    footer = read_footer(source)
    return ParquetEvidence(source, footer, [group.columns[0] for group in footer.row_groups], old), footer
