"""Tells whether Arrow may be misled by a Parquet file that it reads: by statistics, or by pages that it decodes wrong.

Arrow skips row groups by statistics, and believes them. The rules are those of :mod:`sidecar.parquet.trust`, asked
with the metadata that Arrow has decoded already.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from sidecar.errors import SidecarError
from sidecar.parquet.chunk_statistics import statistics_problems
from sidecar.parquet.footer import read_footer
from sidecar.parquet.trust import counts_problem, null_count_problem, wrong_writers
from sidecar.storage.source import BytesSource

_SMALL = {"INT_8": (-128, 127), "INT_16": (-(1 << 15), (1 << 15) - 1), "UINT_8": (0, 255), "UINT_16": (0, 65535)}
_ABOUT_STATISTICS = {"null_count", "bounds"}


def may_mislead(metadata: Any, paths: Iterable[Sequence[str]]) -> bool:
    """Return whether statistics of the columns at ``paths`` are not to be believed, by Arrow's ``metadata``."""
    if any(_ABOUT_STATISTICS & writer.parts for writer in wrong_writers(metadata.created_by)):
        return True
    wanted = {".".join(path) for path in paths}
    leaves = [i for i in range(metadata.num_columns) if metadata.schema.column(i).path in wanted]
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    chunks = [(metadata.schema.column(i), group, group.column(i)) for group in groups for i in leaves]
    if any(_is_false(*chunk) for chunk in chunks):
        return True
    return any(_is_all_null(chunk) for _, _, chunk in chunks) and _footer_is_false(metadata, leaves)


def _is_all_null(chunk: Any) -> bool:
    statistics = chunk.statistics
    return statistics is not None and 0 < chunk.num_values == (
        statistics.null_count if statistics.has_null_count else 0
    )


def _footer_is_false(metadata: Any, leaves: Sequence[int]) -> bool:
    """Return whether statistics of some leaves are false by the whole footer. Arrow does not show a single bound."""
    sink = io.BytesIO()
    try:
        metadata.write_metadata_file(sink)
        footer = read_footer(BytesSource(sink.getvalue()))
    except (pa.ArrowException, OSError, SidecarError):
        return True
    chunks = (chunk for group in footer.row_groups for chunk in group.columns if chunk.leaf.index in leaves)
    return any(any(statistics_problems(footer, chunk)) for chunk in chunks)


def _is_false(column: Any, group: Any, chunk: Any) -> bool:
    """Return whether the statistics of a chunk contradict each other, its number of values or its annotation."""
    statistics = chunk.statistics
    if statistics is None:
        return False
    bounded = statistics.has_min_max
    nulls = statistics.null_count if statistics.has_null_count else 0
    if counts_problem(column.max_repetition_level, chunk.num_values, group.num_rows) or null_count_problem(
        column.max_definition_level, nulls, chunk.num_values, bounded=bounded
    ):
        return True
    if not bounded:
        return False
    least, greatest = statistics.min_raw, statistics.max_raw
    low, high = _SMALL.get(column.converted_type, (least, greatest))
    try:
        return bool(low > least or greatest > high or statistics.min > statistics.max)
    except (TypeError, ValueError, OverflowError):  # bounds that Python cannot compare
        return True


def has_bit_packed_levels(metadata: Any, names: Iterable[str]) -> bool:
    """Return whether columns, by top-level name, may have BIT_PACKED levels, which Arrow decodes to wrong levels.

    parquet-mr names this encoding for levels of 0 bits, and has no other such levels.
    """
    if (metadata.created_by or "").startswith("parquet-mr"):
        return False
    wanted = set(names)
    columns = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    leaves = [
        i for i, column in enumerate(columns) if column.max_definition_level and column.path.split(".")[0] in wanted
    ]
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    return any("BIT_PACKED" in group.column(i).encodings for group in groups for i in leaves)
