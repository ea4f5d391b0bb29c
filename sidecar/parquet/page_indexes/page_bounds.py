"""Checks a page index and turns it into bounds that pruning may use, or into the reason why it proves nothing.

A wrong index loses rows, so its parts are compared with each other first: the page counts of both structures,
null_pages with null_counts and level histograms, bounds with each other and with boundary_order. After one
contradiction nothing of the index is used. If a part is only missing, that property of the page is *unknown*:

- A null page of a repeated column is believed only if the definition level histogram confirms it. The parquet
  crate (60.1) marks every page that has as many nulls as rows, even if it has values too.
- Bounds need a known order (:func:`sidecar.parquet.bounds.find_ordering`). Null counts do not.
- A page of floats may have NaN unless its nan_count is 0. A bound that is NaN is ignored.

``boundary_order`` is checked but not used, because a reader that looks at each page needs no order.

The index is also compared with the :class:`ChunkFacts`: what the file's footer says about the chunk, or what the
caller knows about it without opening the file. If the two contradict each other, neither is believed, unless the index
says that sidecar built it from the pages. :mod:`sidecar.parquet.trust` lists writers that are not believed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from sidecar.errors import DamagedFileError
from sidecar.filters.leaf import Leaf
from sidecar.parquet.bounds import Ordering, find_ordering
from sidecar.parquet.chunk_statistics import (
    IS_MAX_EXACT,
    IS_MIN_EXACT,
    beyond_text,
    chunk_bounds,
    is_sortable,
    statistics_of,
    wrong_bound,
)
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.page_indexes.page_index import (
    ASCENDING,
    DESCENDING,
    ColumnIndex,
    ColumnIndexAnswer,
    OffsetIndex,
)
from sidecar.parquet.trust import (
    beyond_annotation,
    is_float,
    why_not_believed,
)
from sidecar.questions.bounds import Bounds, Comparable, Unknown, contradicts


@dataclass(frozen=True)
class ChunkFacts:
    """Known facts about a chunk, to check its page index; ``None`` means unknown.

    ``ordering`` is the order of the bounds, or the reason why they have none. ``num_values`` includes nulls.
    """

    leaf: Leaf
    ordering: Ordering | Unknown
    num_rows: int
    num_values: int | None = None
    null_count: int | None = None
    whole: Bounds | None = None
    """The bounds that the statistics of the chunk prove, as those of one set."""
    min_is_exact: bool | None = None
    max_is_exact: bool | None = None
    doubt: str = ""
    """Why column indexes by the file's writer are not believed; empty if they are."""


def page_bounds(
    footer: Footer, chunk: ColumnChunk, column_index: ColumnIndexAnswer, offset_index: OffsetIndex
) -> Bounds | Unknown:
    """Return the bounds that a chunk's page index proves, or the reason why it proves nothing.

    The caller first checks the offset index with :func:`offset_index_problems`.
    """
    return proven_bounds(_facts(footer, chunk), column_index, offset_index)


def proven_bounds(facts: ChunkFacts, column_index: ColumnIndexAnswer, offset_index: OffsetIndex) -> Bounds | Unknown:
    """Return the bounds that a page index proves about a chunk with these facts, or why it proves nothing.

    The caller first checks the offset index with :func:`first_row_problems`.
    """
    if column_index is None:
        return Unknown("the column has no column index")
    if not isinstance(column_index, ColumnIndex):
        return Unknown(f"the column index cannot be read: {column_index.what}")
    problem = next(_column_problems(facts, column_index, offset_index), None)
    return _proven(facts.ordering, facts.leaf, column_index) if problem is None else Unknown(problem)


def claimed_bounds(ordering: Ordering | Unknown, leaf: Leaf, index: ColumnIndex) -> Bounds | Unknown:
    """Return the bounds that a column index has, or why they are none. They prove nothing.

    They say whether it pays to read and check the rest of the page index: if they rule nothing out, the rest cannot.
    """
    for name, counts in (("null_counts", index.null_counts), ("nan_counts", index.nan_counts)):
        if counts is not None and (problem := next(_count_problems(name, counts, index.num_pages), "")):
            return Unknown(problem)
    try:
        return _proven(ordering, leaf, index)
    except DamagedFileError as error:
        return Unknown(wrong_bound(error))


def _facts(footer: Footer, chunk: ColumnChunk) -> ChunkFacts:
    statistics = statistics_of(footer, chunk)
    return ChunkFacts(
        chunk.leaf,
        find_ordering(footer, chunk.leaf),
        footer.row_groups[chunk.row_group].num_rows,
        chunk.num_values,
        chunk.null_count,
        chunk_bounds(footer, chunk),
        statistics.boolean(IS_MIN_EXACT),
        statistics.boolean(IS_MAX_EXACT),
        why_not_believed(footer.created_by, "column index", chunk.leaf, chunk.encodings),
    )


def _proven(ordering: Ordering | Unknown, leaf: Leaf, index: ColumnIndex) -> Bounds:
    all_null = list(index.null_pages)
    reason = ordering.reason if isinstance(ordering, Unknown) else ""
    doubtful = leaf.max_rep > 0 and not index.definition_level_histograms
    if doubtful and any(all_null):
        reason = reason or "a null page of a repeated column without a definition level histogram"
        all_null = [False] * len(all_null)
    lower: list[Comparable | None] = [None] * index.num_pages
    upper = list(lower)
    if isinstance(ordering, Ordering):
        for i in range(index.num_pages):
            if not index.null_pages[i]:
                lower[i] = _number(ordering.decode(index.min_values[i]))
                upper[i] = _number(ordering.decode(index.max_values[i]))
        if not reason and any(_is_nan(ordering, b) for b in (*index.min_values, *index.max_values)):
            reason = "a bound is NaN"
    counts: list[int | None] = [None] * index.num_pages if index.null_counts is None else [*index.null_counts]
    return Bounds(lower, upper, all_null, counts, _may_have_nan(leaf, index, all_null), reason)


def _number(value: Comparable) -> Comparable | None:
    return None if isinstance(value, float) and math.isnan(value) else value


def _may_have_nan(leaf: Leaf, index: ColumnIndex, all_null: list[bool]) -> list[bool]:
    if not is_float(leaf):
        return [False] * index.num_pages
    if index.nan_counts is None:
        return [not null for null in all_null]
    return [count > 0 for count in index.nan_counts]


def offset_index_problems(footer: Footer, chunk: ColumnChunk, index: OffsetIndex) -> Iterator[str]:
    """Yield why an offset index cannot be right; nothing if its pages fill the chunk and their rows increase.

    Some writers leave the page headers out of the sizes. Readers then read pages that are cut off.
    """
    end = chunk.start + chunk.total_compressed_size
    offsets, sizes = index.offsets, index.compressed_page_sizes
    doubt = why_not_believed(footer.created_by, "offset index", chunk.leaf, chunk.encodings)
    if doubt and not index.is_ours:
        yield doubt
    yield from first_row_problems(footer.row_groups[chunk.row_group].num_rows, index)
    if not index.num_pages:
        return
    stated = chunk.stated_data_pages
    if stated is not None and index.num_pages < stated and not index.is_ours:
        yield f"{index.num_pages} pages, encoding_stats has {stated} data pages"
    if not 0 <= chunk.start <= end <= footer.size:
        yield "the column chunk is outside the file"
    elif (sizes <= 0).any():
        yield "a page has no bytes"
    elif (sizes > end - offsets).any() or (offsets < chunk.start).any():
        yield "a page is outside the column chunk"
    elif (offsets[1:] < offsets[:-1] + sizes[:-1]).any():
        yield "pages overlap or are out of order"
    elif not index.is_ours and (gaps := np.flatnonzero(np.append(offsets[1:], end) != offsets + sizes)).size:
        page, last = int(gaps[0]), int(gaps[0]) == index.num_pages - 1
        following = "the column chunk" if last else f"page {page + 1}"
        yield f"page {page} ends before {'the end of ' if last else ''}{following}: its size may lack the page header"


def first_row_problems(num_rows: int, index: OffsetIndex) -> Iterator[str]:
    """Yield why the first rows in an offset index cannot be right for a row group of ``num_rows`` rows."""
    rows = index.first_row_indexes
    if not index.num_pages:
        if num_rows:
            yield f"no page for {num_rows} rows"
        return
    if rows[0] != 0:
        yield f"the first page begins at row {rows[0]}"
    if (rows[1:] <= rows[:-1]).any():
        yield "first_row_index does not increase from page to page"
    if rows.max() >= max(num_rows, 1):
        yield f"a page begins at row {rows.max()} of {num_rows}"


def column_index_problems(
    footer: Footer,
    chunk: ColumnChunk,
    index: ColumnIndex,
    offset_index: OffsetIndex | None,
    *,
    with_statistics: bool = True,
) -> Iterator[str]:
    """Yield every contradiction of a column index with itself, with the chunk and with its offset index.

    ``with_statistics`` is false if the chunk's statistics are compared with the values, which tell which one is wrong.
    """
    facts = _facts(footer, chunk)
    facts = facts if with_statistics else replace(facts, null_count=None, whole=None)
    return _column_problems(facts, index, offset_index)


def contradicts_statistics(footer: Footer, chunk: ColumnChunk, index: ColumnIndex, offset: OffsetIndex) -> str:
    """Return why a column index and the statistics of its chunk cannot both be right; empty if they can."""
    facts = _facts(footer, chunk)
    return next(_statistics_problems(facts, index, _rows_of_pages(facts, index, offset)), "")


def _rows_of_pages(facts: ChunkFacts, index: ColumnIndex, offset: OffsetIndex | None) -> list[int] | None:
    """Return the number of rows of each page; ``None`` if the offset index does not have the same pages."""
    if offset is None or offset.num_pages != index.num_pages:
        return None
    rows: list[int] = offset.rows(facts.num_rows).tolist()
    return rows


def _column_problems(facts: ChunkFacts, index: ColumnIndex, offset_index: OffsetIndex | None) -> Iterator[str]:
    if facts.doubt and not index.is_ours:
        yield facts.doubt
    if offset_index is None:
        yield "a column index without an offset index"
    elif index.num_pages != offset_index.num_pages:
        yield f"{index.num_pages} pages in the column index, {offset_index.num_pages} in the offset index"
    rows = _rows_of_pages(facts, index, offset_index)
    yield from _null_problems(facts, index, rows)
    yield from _bound_problems(facts, index)
    if index.nan_counts is not None:
        yield from _count_problems("nan_counts", index.nan_counts, index.num_pages)
        if not is_float(facts.leaf):
            yield "nan_counts on a column that is not a float"
    if not index.is_ours:
        yield from _statistics_problems(facts, index, rows)


def _statistics_problems(facts: ChunkFacts, index: ColumnIndex, rows: list[int] | None) -> Iterator[str]:
    """Yield contradictions of a column index with the statistics of its chunk; ``rows`` are those of each page."""
    nulls, whole = index.null_counts, facts.whole
    if facts.null_count is not None:
        if nulls is not None and sum(nulls) != facts.null_count:
            yield f"null_counts add up to {sum(nulls)}, the chunk's statistics say {facts.null_count}"
        elif nulls is None and (least := _nulls_at_least(facts.leaf, index, rows)) > facts.null_count:
            yield f"the pages have at least {least} nulls, the chunk's statistics say {facts.null_count}"
    pages = claimed_bounds(facts.ordering, facts.leaf, index)
    if whole is None or isinstance(pages, Unknown):
        return
    if whole.all_null[0] and not all(index.null_pages):
        yield "a page has values, the chunk's statistics say that all are null"
    if not whole.may_have_nan[0] and index.nan_counts is not None and any(index.nan_counts):
        yield f"nan_counts add up to {sum(index.nan_counts)}, the chunk's statistics say 0"
    problem = contradicts(pages, whole)
    if problem:
        yield problem
        return
    yield from _narrower(facts, index, pages, whole)


def _nulls_at_least(leaf: Leaf, index: ColumnIndex, rows: list[int] | None) -> int:
    """Return how many nulls the pages have at least, by the histograms or null pages of an index without null_counts.

    A row of a null page has at least one entry that is null; ``rows`` are those of each page, if they are known.
    """
    histogram = index.definition_level_histograms
    if histogram and len(histogram) == index.num_pages * (leaf.max_def + 1):
        return sum(histogram) - sum(histogram[leaf.max_def :: leaf.max_def + 1])
    entries = rows or [1] * index.num_pages
    return sum(count for count, null in zip(entries, index.null_pages, strict=True) if null)


def _narrower(facts: ChunkFacts, index: ColumnIndex, pages: Bounds, whole: Bounds) -> Iterator[str]:
    """Yield that no page reaches a bound of the chunk, so that a value of the chunk is outside of all its pages."""
    least, greatest = whole.lower[0], whole.upper[0]
    if least is None or greatest is None:
        return
    lower, upper = ([b for b in bounds if b is not None] for bounds in (pages.lower, pages.upper))
    if len(lower) != index.null_pages.count(False) or len(upper) != len(lower):
        return  # a page with NaN, whose other values are unknown
    if not lower:
        if index.num_pages:
            yield "all pages are null pages, but the chunk has bounds"
        return
    if _is_above(min(lower), least, facts.min_is_exact):
        yield "the min_value of every page is greater than the chunk's"
    if _is_below(max(upper), greatest, facts.max_is_exact):
        yield "the max_value of every page is less than the chunk's"


def _is_above(found: Comparable, least: Comparable, is_exact: bool | None) -> bool:
    """Return whether a lower bound of values is above the least one. ``least`` may be cut, if it is not exact."""
    if isinstance(found, bytes) and isinstance(least, bytes) and not is_exact:
        return found > least and not found.startswith(least)
    return is_exact is not False and found > least  # type: ignore[operator]


def _is_below(found: Comparable, greatest: Comparable, is_exact: bool | None) -> bool:
    """Return whether an upper bound of values is below the greatest one.

    ``greatest`` may be cut and raised, if it is not exact. Then it shares all but its last character with the greatest
    value. A bound that is a prefix of it was cut and not raised.
    """
    if isinstance(found, bytes) and isinstance(greatest, bytes) and not is_exact:
        return found < greatest and (greatest.startswith(found) or found < _without_last_character(greatest))
    return is_exact is not False and found < greatest  # type: ignore[operator]


_HIGHEST_CHARACTER = chr(0x10FFFF).encode()


def _without_last_character(bound: bytes) -> bytes:
    """Return the bytes before the last byte, or the last UTF-8 character, that a writer may have raised."""
    stem = bound.rstrip(b"\x00\xff")  # what cannot be raised stays, or becomes 0
    while stem.endswith(_HIGHEST_CHARACTER):
        stem = stem[: -len(_HIGHEST_CHARACTER)]
    while stem and stem[-1] & 0xC0 == 0x80:
        stem = stem[:-1]
    return stem[:-1]


def _count_problems(name: str, counts: Sequence[int], pages: int) -> Iterator[str]:
    if len(counts) != pages:
        yield f"{len(counts)} {name} for {pages} pages"
    elif any(count < 0 for count in counts):
        yield f"{name} has a negative number"


def _null_problems(facts: ChunkFacts, index: ColumnIndex, rows: list[int] | None) -> Iterator[str]:
    """Yield contradictions among null_pages, null_counts, level histograms and the rows of the pages."""
    leaf, pages, nulls = facts.leaf, index.num_pages, index.null_counts
    problems = list(_histogram_problems(facts, index))
    if nulls is not None:
        problems += _count_problems("null_counts", nulls, pages)
    yield from problems
    if problems:
        return
    definitions = _table(index.definition_level_histograms, pages, leaf.max_def)
    repetitions = _table(index.repetition_level_histograms, pages, leaf.max_rep)
    entries = rows if leaf.max_rep == 0 else None  # a flat column has one level entry a row
    if definitions is not None:
        sums = [sum(page) for page in definitions]
        if entries is not None and entries != sums:
            yield "definition_level_histograms and the offset index differ in the rows of a page"
        entries = sums
        if repetitions is not None and [sum(page) for page in repetitions] != sums:
            yield "the level histograms differ in their number of entries"
        if nulls is not None and nulls != [sum(page[:-1]) for page in definitions]:
            yield "null_counts contradict definition_level_histograms"
        if index.null_pages != [page[-1] == 0 for page in definitions]:
            yield "null_pages contradict definition_level_histograms"
    if repetitions is not None and rows is not None and [page[0] for page in repetitions] != rows:
        yield "repetition_level_histograms and the offset index differ in the rows of a page"
    yield from _null_page_problems(facts, index, nulls, entries)


def _null_page_problems(
    facts: ChunkFacts, index: ColumnIndex, nulls: list[int] | None, entries: list[int] | None
) -> Iterator[str]:
    if facts.leaf.max_def == 0 and any(index.null_pages):
        yield "a null page in a column without nulls"  # parquet-java writes them if it has no statistics
    if nulls is None:
        return
    if any(null and not count for null, count in zip(index.null_pages, nulls, strict=True)):
        yield "null_pages contradict null_counts: a null page without a null"
    if entries is None:
        return
    if any(count > most for count, most in zip(nulls, entries, strict=True)):
        yield "a null_count is greater than the number of entries of its page"
    elif index.null_pages != [count == most for count, most in zip(nulls, entries, strict=True)]:
        yield "null_pages contradict null_counts"


def _histogram_problems(facts: ChunkFacts, index: ColumnIndex) -> Iterator[str]:
    leaf = facts.leaf
    for name, histogram, highest in (
        ("repetition_level_histograms", index.repetition_level_histograms, leaf.max_rep),
        ("definition_level_histograms", index.definition_level_histograms, leaf.max_def),
    ):
        if not histogram:
            continue
        if len(histogram) != index.num_pages * (highest + 1):
            yield f"{name} has {len(histogram)} entries, not {index.num_pages} pages x {highest + 1} levels"
        elif any(count < 0 for count in histogram):
            yield f"{name} has a negative number"
        elif facts.num_values is not None and sum(histogram) != facts.num_values:
            yield f"{name} has {sum(histogram)} entries in all, the column chunk {facts.num_values}"


def _table(histogram: list[int] | None, pages: int, highest: int) -> list[list[int]] | None:
    """Return the histogram of each page; ``None`` if there is none, which some writers write as an empty list."""
    if not histogram:
        return None
    table: list[list[int]] = np.array(histogram, object).reshape(pages, highest + 1).tolist()
    return table


def _bound_problems(facts: ChunkFacts, index: ColumnIndex) -> Iterator[str]:
    """Yield bounds that are not values of the type, a min above its max, and a boundary_order that is wrong."""
    if not 0 <= index.boundary_order <= 2:
        yield f"boundary_order is {index.boundary_order}"
    ordering = facts.ordering
    if isinstance(ordering, Unknown):
        return
    pages = [i for i, null in enumerate(index.null_pages) if not null]
    try:
        lower = [ordering.key(index.min_values[i]) for i in pages]
        upper = [ordering.key(index.max_values[i]) for i in pages]
    except DamagedFileError as error:
        yield wrong_bound(error)
        return
    if any(beyond_annotation(facts.leaf, bound) for bound in (*lower, *upper)):
        yield beyond_text(facts.leaf)
    if any(low > high for low, high in zip(lower, upper, strict=True)):  # type: ignore[operator]
        yield "a page's min_value is greater than its max_value"
    if not all(map(is_sortable, (*lower, *upper))):  # NaN has no place in an order
        return
    if index.boundary_order == ASCENDING and not (_ascends(lower) and _ascends(upper)):
        yield "boundary_order is ascending, the bounds are not"
    if index.boundary_order == DESCENDING and not (_ascends(lower[::-1]) and _ascends(upper[::-1])):
        yield "boundary_order is descending, the bounds are not"


def _ascends(keys: list[Comparable]) -> bool:
    return all(a <= b for a, b in pairwise(keys))  # type: ignore[operator]


def _is_nan(ordering: Ordering, bound: bytes) -> bool:
    if ordering.kind != "float" or not bound:
        return False
    value = ordering.decode(bound)
    return isinstance(value, float) and math.isnan(value)
