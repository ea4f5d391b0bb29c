"""Verifies page indexes: compares them with themselves, with the footer, and with every page.

:mod:`sidecar.parquet.page_indexes.build` reads the pages. The index must agree with them about where each page is, at
which row it begins, its nulls, NaN and levels, and every value must be within the bounds. Bounds may be wider than the
values, but not narrower.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from sidecar.errors import DamagedFileError, Problem, SidecarError, problem_in, reason_at, reason_of
from sidecar.parquet.bounds import Ordering, find_ordering
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.page_indexes.build import ScannedChunk, ScannedPage, lost_nan, nan_counts, scan_chunk
from sidecar.parquet.page_indexes.page_bounds import column_index_problems, offset_index_problems
from sidecar.parquet.page_indexes.page_index import (
    ColumnIndex,
    ColumnIndexAnswer,
    OffsetIndex,
    OffsetIndexAnswer,
    read_page_indexes,
)
from sidecar.parquet.value_bounds import DELTA_BYTE_ARRAY
from sidecar.storage.source import Source

ARROW_SIZES = (
    "Arrow does not count a value that is a prefix of the value before it; readers use this only as a size, "
    "and lose no rows"
)


def verify_page_index(source: Source, footer: Footer, compared: Collection[int] = ()) -> list[Problem]:
    """Return every defect of the file's page indexes; ``unit`` is the row group.

    ``compared`` are the row groups whose statistics are compared with the values. In others a contradiction of the
    page index with the statistics is a defect. Reads every chunk that has an index, whole. Defects of the file never
    raise. Defects of pages are reported in the words of :func:`sidecar.parquet.verify.file.verify_file`.
    """
    problems: list[Problem] = []
    for group in footer.row_groups:
        columns, offsets = read_page_indexes(source, footer, group.columns, group.columns)
        for chunk, column, offset in zip(group.columns, columns, offsets, strict=True):
            is_compared = group.ordinal in compared
            texts = chunk_index_problems(source, footer, chunk, column, offset, with_statistics=not is_compared)
            problems += [problem_in(footer.name, text, chunk.leaf.path, group.ordinal) for text in texts]
    return problems


def chunk_index_problems(
    source: Source,
    footer: Footer,
    chunk: ColumnChunk,
    column: ColumnIndexAnswer,
    offset: OffsetIndexAnswer,
    *,
    forms: bool = True,
    with_statistics: bool = True,
) -> Iterator[str]:
    """Yield the problems of the page index of one chunk, wherever it is stored. Reads the chunk if it has an index.

    ``forms`` is false for an index that only sidecar uses, which expects NaN unless a nan_count rules it out.
    ``with_statistics`` is as for :func:`column_index_problems`.
    """
    for name, answer in (("column index", column), ("offset index", offset)):
        if isinstance(answer, SidecarError):
            yield f"{name}: {reason_of(answer)}"
    if isinstance(offset, OffsetIndex):
        yield from (f"offset index: {text}" for text in _offset_problems(footer, chunk, offset))
    if isinstance(column, ColumnIndex):
        beside = offset if isinstance(offset, OffsetIndex) else None
        found = column_index_problems(footer, chunk, column, beside, with_statistics=with_statistics)
        yield from (f"column index: {text}" for text in found)
    if isinstance(column, ColumnIndex) or isinstance(offset, OffsetIndex):
        yield from _against_pages(source, footer, chunk, column, offset, forms)


def _offset_problems(footer: Footer, chunk: ColumnChunk, index: OffsetIndex) -> Iterator[str]:
    yield from offset_index_problems(footer, chunk, index)
    sizes = index.unencoded_byte_array_data_bytes
    if sizes is not None and len(sizes) != index.num_pages:
        yield f"{len(sizes)} unencoded_byte_array_data_bytes for {index.num_pages} pages"


def _against_pages(
    source: Source,
    footer: Footer,
    chunk: ColumnChunk,
    column: ColumnIndexAnswer,
    offset: OffsetIndexAnswer,
    forms: bool,
) -> Iterator[str]:
    try:
        scanned = scan_chunk(source, footer, chunk)
    except SidecarError as error:
        yield reason_at(error)
        return
    if isinstance(offset, OffsetIndex):
        is_arrow = (footer.created_by or "").startswith("parquet-cpp")
        yield from (f"offset index: {text}" for text in _location_problems(offset, scanned, is_arrow))
    if isinstance(column, ColumnIndex) and column.num_pages == len(scanned.pages) and not scanned.reason:
        ordering = find_ordering(footer, chunk.leaf)
        known = ordering if isinstance(ordering, Ordering) else None
        texts = _value_problems(known, column, scanned.pages, forms)
        yield from (f"column index: {text}" for text in texts)


def misplaced_pages(index: OffsetIndex, scanned: ScannedChunk, *, whole: bool) -> Iterator[str]:
    """Yield the scanned pages that are not where the index says.

    ``whole`` says whether all pages of the chunk were scanned, or only some.
    """
    if problem := _page_count_problem(index.num_pages, scanned, whole):
        yield problem
        return
    yield from _located_elsewhere(index, scanned)


def contradictions(
    footer: Footer, chunk: ColumnChunk, index: ColumnIndex, scanned: ScannedChunk, *, whole: bool
) -> Iterator[str]:
    """Yield contradictions between a ColumnIndex and scanned pages.

    ``whole`` says whether all pages of the chunk were scanned, or only some. An index without nan_counts does
    not contradict NaN, because writers leave NaN out of bounds.
    """
    pages = scanned.pages
    if problem := _page_count_problem(index.num_pages, scanned, whole):
        yield problem
        return
    if scanned.reason:
        return
    yield from _counted_problems(index, pages, scanned.first)
    ordering = find_ordering(footer, chunk.leaf)
    if isinstance(ordering, Ordering):
        yield from _bounds_problems(ordering, index, pages, scanned.first)
        if whole:
            yield from _nan_problems(index, nan_counts(pages))


def _page_count_problem(num_pages: int, scanned: ScannedChunk, whole: bool) -> str:
    """Return how the pages of an index differ in number from those that were scanned; ``""`` if they need not."""
    seen = scanned.first + len(scanned.pages)
    fits = not scanned.pages or (num_pages == seen if whole else num_pages >= seen)
    return "" if fits else f"{num_pages} pages, the column chunk has {seen}"


def _location_problems(index: OffsetIndex, scanned: ScannedChunk, is_arrow: bool) -> Iterator[str]:
    yield from misplaced_pages(index, scanned, whole=True)
    sizes = index.unencoded_byte_array_data_bytes
    if sizes is not None and len(sizes) == len(scanned.pages) and not scanned.reason:
        for i, page in enumerate(scanned.pages):
            if page.values is not None and page.values.data_bytes != sizes[i]:
                known = is_arrow and page.header.encoding == DELTA_BYTE_ARRAY
                known = known and sizes[i] < page.values.data_bytes
                cause = f" ({ARROW_SIZES})" if known else ""
                yield f"page {i} has {page.values.data_bytes} bytes of values, not {sizes[i]}{cause}"


def _located_elsewhere(index: OffsetIndex, scanned: ScannedChunk) -> Iterator[str]:
    """Yield the pages that are not where the index says. The index has at least as many pages."""
    first_row = scanned.first_row
    for i, page in enumerate(scanned.pages, scanned.first):
        if not page.starts_row:
            yield f"page {i} does not begin with a row"
        for name, found, want in (
            ("offset", index.offsets[i], page.header.offset),
            ("compressed_page_size", index.compressed_page_sizes[i], page.header.end - page.header.offset),
            ("first_row_index", index.first_row_indexes[i], first_row),
        ):
            if found != want:
                yield f"{name} of page {i} is {found}, should be {want}"
        first_row += page.rows


def _value_problems(
    ordering: Ordering | None, index: ColumnIndex, pages: Sequence[ScannedPage], forms: bool
) -> Iterator[str]:
    yield from _counted_problems(index, pages)
    if ordering is None:
        return
    nans = nan_counts(pages)
    if forms and (lost := lost_nan(index, nans)):
        yield lost
    yield from _nan_problems(index, nans)
    yield from _bounds_problems(ordering, index, pages)


def _nan_problems(index: ColumnIndex, nans: Sequence[int]) -> Iterator[str]:
    if index.nan_counts is None or len(index.nan_counts) != len(nans):
        return
    for i, count in enumerate(nans):
        if index.nan_counts[i] != count:
            yield f"page {i} has {count} NaN, not {index.nan_counts[i]}"


def _bounds_problems(
    ordering: Ordering, index: ColumnIndex, pages: Sequence[ScannedPage], first: int = 0
) -> Iterator[str]:
    """Yield the pages that have values outside their bounds. Bounds that are wider than the values are right."""
    for i, page in enumerate(pages, first):
        values = page.values
        if values is None or values.lower is None or values.upper is None:
            continue
        if index.null_pages[i]:
            yield f"page {i} is marked as a null page, but has values"
            continue
        if values.nan_count == (page.levels.num_present if page.levels else 0):
            continue  # only NaN, which has no place between the bounds
        yield from _outside(i, ordering, index, values.lower, values.upper)


def _outside(page: int, ordering: Ordering, index: ColumnIndex, lower: bytes, upper: bytes) -> Iterator[str]:
    try:
        low, high = ordering.decode(index.min_values[page]), ordering.decode(index.max_values[page])
    except DamagedFileError:
        return  # column_index_problems reports it
    if not low <= ordering.decode(lower):  # type: ignore[operator]
        yield f"page {page} has a value below its min_value"
    if not high >= ordering.decode(upper):  # type: ignore[operator]
        yield f"page {page} has a value above its max_value"


def _counted_problems(index: ColumnIndex, pages: Sequence[ScannedPage], first: int = 0) -> Iterator[str]:
    """Yield the pages whose nulls or levels differ from the index."""
    for i, page in enumerate(pages, first):
        levels = page.levels
        if levels is None:
            continue
        nulls = levels.num_nulls
        if index.null_counts is not None and i < len(index.null_counts) and index.null_counts[i] != nulls:
            yield f"page {i} has {nulls} nulls, not {index.null_counts[i]}"
        if levels.num_present == 0 and not index.null_pages[i]:
            yield f"page {i} has no values, but is not marked as a null page"
        for name, histogram, counted in (
            ("repetition", index.repetition_level_histograms, levels.repetition),
            ("definition", index.definition_level_histograms, levels.definition),
        ):
            width = len(counted)
            if histogram and len(histogram) == width * len(pages):
                found = histogram[i * width : (i + 1) * width]
                if found != counted.tolist():
                    yield f"page {i} has {name} levels {counted.tolist()}, not {found}"
