"""Adds up what ``inspect`` finds in many files: a line for each file, and a line for each column over all files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.results.base import Result


@dataclass(frozen=True, repr=False)
class Spread(Result):
    """The sum of some numbers, with the smallest and the largest."""

    sum: float
    """The sum of the numbers."""
    min: float
    """The smallest number."""
    max: float
    """The largest number."""


@dataclass(frozen=True, repr=False)
class FileSummary(Result):
    """The indexes of one file in one line."""

    file: str
    """The path of the file."""
    format: str
    """Its format, such as ``parquet``."""
    size: int
    """Bytes of the file."""
    rows: int | None
    """``None`` if the file has none (Puffin, a single filter) or does not say without keys."""
    row_groups: int
    """The number of its row groups."""
    columns_with_filter: int
    """Columns with a filter in at least one row group."""
    columns_with_page_index: int
    """Columns with a column index or an offset index; in ORC files, with a row index."""
    filters: int
    """The number of filters."""
    filter_bytes: int
    """Bytes of the bits of all filters."""


@dataclass(frozen=True, repr=False)
class ColumnSummary(Result):
    """The indexes of one column in all data files."""

    column: str
    """The name of the column."""
    files: int
    """Data files that have the column."""
    rows: int
    """Rows of these files."""
    row_groups: int
    """Row groups of these files."""
    files_with_filter: int
    """Files in which at least one row group has a filter."""
    filters: int
    """The number of filters."""
    filters_not_trusted: int
    """Filters that readers must not believe."""
    filter_bytes: Spread | None
    """Bytes of the bits of a filter; ``None`` if there is no filter."""
    false_positives: Spread | None
    """Rates that the bits of the filters show. The sum is the number of row groups that a lookup of an absent value
    reads for nothing, on average; ``None`` if no filter shows a rate."""
    files_with_page_index: int
    """Files in which at least one row group has a page index, in ORC files a row index."""
    page_index_bytes: Spread | None
    """Bytes of the page indexes of a row group, in ORC files of the row index of a stripe; ``None`` without any."""


def summarize_file(data: Mapping[str, Any]) -> FileSummary:
    """Return the line of one file, from the result of :func:`sidecar.inspect`."""
    columns = [column for unit in data.get("units", ()) for column in unit["columns"].items()]
    filters = [(path, found) for path, column in columns if (found := _filter(column)) is not None]
    bare = data.get("bloom_filter")
    sizes = [found["bytes"] or 0 for _, found in filters] + ([bare["bytes"]] if bare else [])
    return FileSummary(
        file=data["file"],
        format=data["format"],
        size=data["size"],
        rows=data.get("rows"),
        row_groups=len(data.get("units", ())),
        columns_with_filter=len({path for path, _ in filters}),
        columns_with_page_index=len({path for path, column in columns if _page_indexes(column)}),
        filters=len(sizes),
        filter_bytes=sum(sizes),
    )


def summarize_columns(files: Iterable[Mapping[str, Any]]) -> tuple[ColumnSummary, ...]:
    """Return a line for each column, from the results of :func:`sidecar.inspect`; Puffin files add nothing."""
    found: dict[str, _ColumnSums] = {}
    for data in files:
        for path, units in _by_column(data).items():
            found.setdefault(path, _ColumnSums(path)).add(data, units)
    return tuple(column.summary() for column in found.values())


def _by_column(data: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    columns: dict[str, list[Mapping[str, Any]]] = {}
    for unit in data.get("units", ()):
        for path, column in unit["columns"].items():
            columns.setdefault(path, []).append(column)
    return columns


class _ColumnSums:
    """Adds up one column."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.files = self.rows = self.row_groups = self.with_filter = self.with_pages = 0
        self.filters: list[Mapping[str, Any]] = []
        self.page_bytes: list[int] = []

    def add(self, data: Mapping[str, Any], units: Sequence[Mapping[str, Any]]) -> None:
        filters = [found for unit in units if (found := _filter(unit)) is not None]
        pages = list(_distinct(units))
        self.files += 1
        self.rows += data["rows"] or 0
        self.row_groups += len(units)
        self.with_filter += bool(filters)
        self.with_pages += bool(pages)
        self.filters += filters
        self.page_bytes += pages

    def summary(self) -> ColumnSummary:
        return ColumnSummary(
            column=self.path,
            files=self.files,
            rows=self.rows,
            row_groups=self.row_groups,
            files_with_filter=self.with_filter,
            filters=len(self.filters),
            filters_not_trusted=sum(not found["trusted"] for found in self.filters),
            filter_bytes=_spread(found["bytes"] for found in self.filters),
            false_positives=_spread(found["estimated_fpp"] for found in self.filters),
            files_with_page_index=self.with_pages,
            page_index_bytes=_spread(self.page_bytes),
        )


def _filter(column: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the filter of a row group: that for all readers, else that for Java's ORC readers."""
    found: Mapping[str, Any] | None = column["bloom_filter"] or column.get("legacy_bloom_filter")
    return found


def _page_indexes(column: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    kinds = ("column_index", "offset_index", "row_index")
    return [column[kind] for kind in kinds if column.get(kind) is not None]


def _distinct(units: Iterable[Mapping[str, Any]]) -> Iterator[int]:
    """Yield the bytes of page indexes. All row groups of a stripe share one row index, which counts once."""
    seen: set[tuple[tuple[int, int], ...]] = set()
    for unit in units:
        places = tuple((found["offset"], found["length"]) for found in _page_indexes(unit))
        if places and places not in seen:
            seen.add(places)
            yield sum(length for _, length in places)


def _spread(numbers: Iterable[float | None]) -> Spread | None:
    known = [number for number in numbers if number is not None]
    return Spread(sum(known), min(known), max(known)) if known else None
