"""The bounds that the statistics of column chunks prove, and what of a footer is not believed.

Statistics are compared with what else the footer says of the chunk. What contradicts it, and what the file's writer is
known to write wrong (:mod:`sidecar.parquet.trust`), proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from sidecar.errors import DamagedFileError, Problem, problem_in
from sidecar.filters.leaf import Leaf
from sidecar.parquet.bounds import find_ordering
from sidecar.parquet.footer import ColumnChunk, Footer, size_statistics
from sidecar.parquet.thrift import Struct
from sidecar.parquet.trust import (
    Part,
    beyond_annotation,
    counts_problem,
    histogram_problem,
    is_bounded,
    is_float,
    null_count_problem,
    older_bounds_problem,
    why_not_believed,
)
from sidecar.questions.bounds import Bounds, Comparable, Unknown

IS_MAX_EXACT, IS_MIN_EXACT = 7, 8
"""Members of the statistics of a column chunk."""


def statistics_of(footer: Footer, chunk: ColumnChunk) -> Struct:
    """Return the statistics of a chunk; empty if it has none."""
    return footer.chunk_metadata(chunk).struct(12) or Struct()


def chunk_bounds(footer: Footer, chunk: ColumnChunk) -> Bounds:
    """Return the bounds that the statistics of a whole chunk prove, as if the chunk were one page.

    Only ``min_value`` and ``max_value`` are used, and only in a known order: some writers compared the older ``min``
    and ``max`` as signed bytes. What contradicts something else, and what the file's writer is known to write wrong,
    is not used (:mod:`sidecar.parquet.trust`).
    """
    statistics = statistics_of(footer, chunk)
    problem = next(_bounds_problems(footer, chunk, statistics), "")
    return _bounds_of(footer, chunk, chunk.null_count, problem)


def stated_bounds(footer: Footer, chunk: ColumnChunk) -> Bounds:
    """Return the bounds that the statistics of a chunk state, also those that are not believed. They prove nothing."""
    nulls = statistics_of(footer, chunk).integer(3)
    return _bounds_of(footer, chunk, nulls if nulls is not None and 0 <= nulls <= chunk.num_values else None, "")


def statistics_problems(footer: Footer, chunk: ColumnChunk) -> Iterator[str]:
    """Yield which statistics of a chunk contradict what else the footer says of it, and so are not believed."""
    statistics = statistics_of(footer, chunk)
    if not statistics.fields:
        return
    num_rows = footer.row_groups[chunk.row_group].num_rows
    problem = counts_problem(chunk.leaf.max_rep, chunk.num_values, num_rows)
    nulls = statistics.integer(3)
    if problem:
        yield problem
    elif nulls is not None:
        bounded, sizes = is_bounded(statistics), size_statistics(footer.chunk_metadata(chunk))
        contradiction = null_count_problem(chunk.leaf.max_def, nulls, chunk.num_values, bounded=bounded)
        yield from filter(None, [contradiction or histogram_problem(chunk.leaf, nulls, sizes)])
    if differing := older_bounds_problem(chunk.leaf, statistics):
        yield differing
    found = _statistics_bounds(footer, chunk.leaf, statistics)
    if isinstance(found, _FalseBounds):
        yield found.reason


def writers_problems(footer: Footer, chunk: ColumnChunk) -> Iterator[str]:
    """Yield which statistics of a chunk are not believed because the file's writer is known to write them wrong."""
    statistics = statistics_of(footer, chunk)
    parts: tuple[tuple[Part, bool], ...] = (("null_count", 3 in statistics.fields), ("bounds", is_bounded(statistics)))
    for part, is_stated in parts:
        why = why_not_believed(footer.created_by, part, chunk.leaf, chunk.encodings) if is_stated else ""
        if why:
            yield f"{part}: not believed: {why}"


def footer_findings(footer: Footer, *, compared: bool = False) -> Iterator[Problem]:
    """Yield what the footer states and is not believed, without a look at values; ``unit`` is the row group.

    What a writer is known to write wrong is named once a column. With ``compared``, the statistics of all row groups
    are also compared with their values, so only their contradictions are named.
    """
    rows = footer.num_rows
    if rows != footer.stated_num_rows:
        yield problem_in(footer.name, f"num_rows is {footer.stated_num_rows}, the row groups have {rows} rows")
    known: set[tuple[str, str]] = set()
    for group in footer.row_groups:
        for chunk in group.columns:
            path = chunk.leaf.path
            for text in statistics_problems(footer, chunk):
                yield problem_in(footer.name, f"statistics: {text}", path, group.ordinal)
            found = set() if compared else {(path, text) for text in writers_problems(footer, chunk)}
            if chunk.may_end_early:
                why = why_not_believed(footer.created_by, "total_compressed_size", chunk.leaf, chunk.encodings)
                found.add((path, f"total_compressed_size: not believed: {why}"))
            yield from (problem_in(footer.name, text, path) for path, text in sorted(found - known))
            known |= found


def _bounds_problems(footer: Footer, chunk: ColumnChunk, statistics: Struct) -> Iterator[str]:
    """Yield why the bounds of a chunk are not believed."""
    if not is_bounded(statistics):
        return
    yield from filter(None, [why_not_believed(footer.created_by, "bounds", chunk.leaf, chunk.encodings)])
    num_rows = footer.row_groups[chunk.row_group].num_rows
    yield from filter(None, [counts_problem(chunk.leaf.max_rep, chunk.num_values, num_rows)])
    if 0 < chunk.num_values == statistics.integer(3):
        yield "null_count says that all values are null, but the chunk has bounds"
    yield from filter(None, [older_bounds_problem(chunk.leaf, statistics)])


def _bounds_of(footer: Footer, chunk: ColumnChunk, nulls: int | None, problem: str) -> Bounds:
    statistics = statistics_of(footer, chunk)
    nans = statistics.integer(9)
    all_null = nulls is not None and nulls == chunk.num_values and chunk.leaf.max_def > 0 and not is_bounded(statistics)
    may_have_nan = is_float(chunk.leaf) and nans != 0 and not all_null
    problem = "the chunk has only nulls" if all_null else problem
    match Unknown(problem) if problem else _statistics_bounds(footer, chunk.leaf, statistics):
        case Unknown(reason):
            low = high = None
        case low, high:
            reason = ""
    return Bounds.of_one(low, high, all_null=all_null, null_count=nulls, may_have_nan=may_have_nan, reason=reason)


@dataclass(frozen=True)
class _FalseBounds(Unknown):
    """Bounds that are there and cannot be right."""


def _statistics_bounds(footer: Footer, leaf: Leaf, statistics: Struct) -> tuple[Comparable, Comparable] | Unknown:
    """Return the least and greatest value that statistics state, why they are false, or why there are none."""
    ordering = find_ordering(footer, leaf)
    if isinstance(ordering, Unknown):
        return ordering
    lower, upper = statistics.binary(6), statistics.binary(5)
    if lower is None or upper is None:
        return Unknown("the chunk has no bounds")
    try:
        low, high = ordering.decode(lower), ordering.decode(upper)
        if ordering.key(lower) > ordering.key(upper):  # type: ignore[operator]
            return _FalseBounds("the chunk's min_value is greater than its max_value")
    except DamagedFileError as error:
        return _FalseBounds(wrong_bound(error))
    if not (is_sortable(low) and is_sortable(high)):
        return Unknown("a bound is NaN")
    is_beyond = beyond_annotation(leaf, low) or beyond_annotation(leaf, high)
    return _FalseBounds(beyond_text(leaf)) if is_beyond else (low, high)


def beyond_text(leaf: Leaf) -> str:
    """Return what is wrong with a bound that the column's annotation excludes."""
    return f"a bound does not fit the {leaf.annotation.bits} bits of the column's annotation"


def wrong_bound(error: DamagedFileError) -> str:
    """Return what is wrong with a bound that cannot be decoded."""
    return f"{error.what}: expected {error.expected}, found {error.found}" if error.expected else error.what


def is_sortable(key: Comparable) -> bool:
    """Return whether a bound has a place in an order, as NaN has not."""
    return not (isinstance(key, float) and math.isnan(key))
