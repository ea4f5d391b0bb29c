"""Verifies the statistics of column chunks, by which plans and scans drop row groups, against the values.

Statistics of writers that are not believed (:mod:`sidecar.parquet.trust`) are compared too. Bounds without a known
order are not compared. Bounds may be wider than the values, because long ones are cut, but not narrower.
"""

from __future__ import annotations

from collections.abc import Iterator

from sidecar.errors import SidecarError, reason_at
from sidecar.parquet.bounds import Ordering, find_ordering
from sidecar.parquet.chunk_statistics import stated_bounds
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.page_indexes.build import ScannedPage, scan_chunk
from sidecar.parquet.trust import is_float
from sidecar.questions.bounds import Bounds
from sidecar.storage.source import Source


def value_statistics_problems(source: Source, footer: Footer, chunk: ColumnChunk) -> Iterator[str]:
    """Yield the statistics of a chunk that its values contradict. Reads the whole chunk if it has statistics."""
    bounds = stated_bounds(footer, chunk)
    bounded = bounds.lower[0] is not None
    if not bounded and bounds.null_counts[0] is None:
        return
    try:
        scanned = scan_chunk(source, footer, chunk)
    except SidecarError as error:
        yield reason_at(error)
        return
    yield from _null_problems(chunk, bounds, scanned.pages)
    ordering = find_ordering(footer, chunk.leaf)
    if scanned.reason:
        if bounded:
            yield f"statistics: they could not be compared with the values: {scanned.reason}"
    elif isinstance(ordering, Ordering):
        yield from _bound_problems(chunk, ordering, bounds, scanned.pages)


def _null_problems(chunk: ColumnChunk, bounds: Bounds, pages: list[ScannedPage]) -> Iterator[str]:
    """Yield wrong null counts of flat columns; of lists only a claim of nothing but nulls.

    Writers differ in what they count as a null in a list.
    """
    levels = [page.levels for page in pages if page.levels is not None]
    if len(levels) < len(pages):
        return
    nulls, present = sum(page.num_nulls for page in levels), sum(page.num_present for page in levels)
    if not chunk.leaf.max_rep and bounds.null_counts[0] not in (None, nulls):
        yield f"statistics: null_count is {bounds.null_counts[0]}, the pages have {nulls} nulls"
    elif bounds.all_null[0] and present:
        yield f"statistics: null_count says that all values are null, the pages have {present} values"


def _bound_problems(chunk: ColumnChunk, ordering: Ordering, bounds: Bounds, pages: list[ScannedPage]) -> Iterator[str]:
    low, high = bounds.lower[0], bounds.upper[0]
    nans = sum(page.values.nan_count for page in pages if page.values is not None)
    if nans and is_float(chunk.leaf) and not bounds.may_have_nan[0]:
        yield f"statistics: nan_count is 0, the pages have {nans} NaN"
    if low is None or high is None:
        return
    below = above = False
    for page in pages:
        values, levels = page.values, page.levels
        if values is None or values.lower is None or values.upper is None:
            continue
        if levels is not None and values.nan_count == levels.num_present:
            continue  # NaN is not between the bounds
        below |= bool(ordering.decode(values.lower) < low)  # type: ignore[operator]
        above |= bool(ordering.decode(values.upper) > high)  # type: ignore[operator]
    if below:
        yield "statistics: the pages have a value below min_value"
    if above:
        yield "statistics: the pages have a value above max_value"
