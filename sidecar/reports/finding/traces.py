"""Finds values in bounds: of manifest entries, partition summaries, row groups and pages.

A bound is a value that some row has, or had. The rows of a deleted person are gone once their data file is replaced;
the entry of the removed file still has its bounds, and the page index in a sidecar lives as long as the sidecar.
Writers cut bounds of long strings, so a bound may have the beginning of a value only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import FloatType, NestedField, PrimitiveType

from sidecar.access import Access
from sidecar.bundle.indexes.page_indexes import StoredPageIndex, decode_page_index
from sidecar.bundle.indexes.row_indexes import StoredRowIndex, row_index_bounds
from sidecar.data_files.formats import open_file
from sidecar.data_files.open_file import OpenFile
from sidecar.errors import SidecarError
from sidecar.filters.float32 import nearest_float32
from sidecar.filters.leaf import ComparedColumn
from sidecar.iceberg.resolve import ColumnsInFile, FoundColumn
from sidecar.iceberg.table_properties import name_mapping_of
from sidecar.questions.bounds import Bounds, Comparable, Unknown
from sidecar.questions.literal_spans import span_of
from sidecar.reports.finding.results import ValueTrace
from sidecar.reports.finding.values import ValueQuestion

SHORTEST_CUT = 8
"""A bound of fewer bytes is not taken for the beginning of a longer value: it says too little."""
MOST_CUT = 100
"""With more values than this, bounds are compared with whole values only."""


class NamedValues:
    """The values of one question as the bounds of ``column`` have them."""

    def __init__(self, question: ValueQuestion, column: ComparedColumn | None) -> None:
        self._exact: dict[Comparable, list[str]] = {}
        self._long: list[tuple[bytes, str]] = []
        for text, one in question.literals.items() if column is not None else ():
            span = None if column is None else span_of(one.value, column)
            if span is None:
                continue
            if span[0] == span[1]:
                self._exact.setdefault(span[0], []).append(text)
            elif isinstance(question.column.type, FloatType):
                self._exact.setdefault(nearest_float32(one.value), []).append(text)
            if isinstance(span[0], bytes) and len(span[0]) > SHORTEST_CUT:
                self._long.append((span[0], text))
        if len(self._long) > MOST_CUT:
            self._long = []

    def __bool__(self) -> bool:
        return bool(self._exact)

    def exact(self, bound: Comparable | None) -> list[str]:
        """Return the texts of the value that a bound is; empty if it is none."""
        return [] if bound is None else self._exact.get(bound, [])

    def cut(self, bound: Comparable | None, is_upper: bool) -> list[str]:
        """Return the texts of longer values that a bound may be the beginning of.

        The last character of an upper bound that was cut is raised; some writers do not raise it.
        """
        if not isinstance(bound, bytes) or len(bound) < SHORTEST_CUT or bound in self._exact:
            return []
        return [
            text
            for value, text in self._long
            if value.startswith(bound)
            or (is_upper and bound > value and len(bound) < len(value) and _common(bound, value) >= len(bound) - 4)
        ]

    def of(self, bounds: Bounds) -> Iterator[tuple[str, str, bool]]:
        """Yield text, ``lower``, ``upper`` or ``both``, and whether it is cut, once for each value in some bounds."""
        seen: dict[tuple[str, bool], set[str]] = {}
        for side, values in (("lower", bounds.lower), ("upper", bounds.upper)):
            for bound in values:
                for text in self.exact(bound):
                    seen.setdefault((text, False), set()).add(side)
                for text in self.cut(bound, side == "upper"):
                    seen.setdefault((text, True), set()).add(side)
        for (text, cut), sides in seen.items():
            yield text, "both" if len(sides) == 2 else sides.pop(), cut


def _common(first: bytes, second: bytes) -> int:
    """Return the length of the common beginning."""
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


class ManifestTraces:
    """Finds the values of one question in manifests and manifest lists."""

    def __init__(self, question: ValueQuestion, specs: dict[int, PartitionSpec]) -> None:
        self._question = question
        self._bounds = question.question.bounds
        self._values = NamedValues(question, self._bounds.column(question.field_id))
        self._specs = specs

    def bounds_of(self, file: DataFile) -> list[tuple[str, str, bool]]:
        """Return what :meth:`NamedValues.of` yields for the bounds of a data file or delete file."""
        if not self._values or file.content == DataFileContent.POSITION_DELETES:
            return []
        return list(self._values.of(self._bounds.of(file, self._question.field_id)))

    def of_entry(self, line: ManifestFile, fields: Sequence[NestedField], entry: ManifestEntry) -> Iterator[ValueTrace]:
        """Yield the traces in a manifest entry, also in one of a removed file."""
        file = entry.data_file
        removed = entry.status == ManifestEntryStatus.DELETED
        kind = "removed entry of a manifest" if removed else "manifest"
        for text, bound, cut in self.bounds_of(file):
            yield trace(self._question, line.manifest_path, file.file_path, kind, text, bound, cut)
        for raw in self._partition_values(line.partition_spec_id, fields, file):
            for text in self._values.exact(self._bounds.value(self._question.field_id, raw)):
                yield trace(self._question, line.manifest_path, file.file_path, "partition", text, "both", False)

    def of_summary(self, manifest_list: str, line: ManifestFile) -> Iterator[ValueTrace]:
        """Yield the traces in the partition summaries of a manifest."""
        spec, summaries = self._specs.get(line.partition_spec_id), line.partitions or []
        if spec is None or len(summaries) != len(spec.fields):
            return
        for part, summary in zip(spec.fields, summaries, strict=True):
            if part.source_id != self._question.field_id or not isinstance(part.transform, IdentityTransform):
                continue
            sides = {
                side: raw if raw is None else self._bounds.value(part.source_id, raw)
                for side, raw in (("lower", summary.lower_bound), ("upper", summary.upper_bound))
            }
            bounds = Bounds.of_one(sides["lower"], sides["upper"])
            for text, bound, cut in self._values.of(bounds):
                path = line.manifest_path
                yield trace(self._question, manifest_list, path, "partition summary", text, bound, cut)

    def _partition_values(self, spec_id: int, fields: Sequence[NestedField], file: DataFile) -> Iterator[bytes]:
        """Yield the partition values of a file that are values of the asked column."""
        spec = self._specs.get(spec_id)
        sources = {
            part.field_id
            for part in (spec.fields if spec is not None else ())
            if part.source_id == self._question.field_id and isinstance(part.transform, IdentityTransform)
        }
        for position, nested in enumerate(fields):
            kind, value = nested.field_type, file.partition[position]
            if nested.field_id in sources and value is not None and isinstance(kind, PrimitiveType):
                yield to_bytes(kind, value)


def trace(question: ValueQuestion, file: str, of: str, kind: str, text: str, bound: str, cut: bool) -> ValueTrace:
    """Make a trace of one value of a question."""
    return ValueTrace(
        file=file,
        of=of,
        kind=kind,
        column=question.name,
        field_id=question.field_id,
        value=text,
        bound=bound,
        cut=cut,
    )


def traces_in_file(table: Table, question: ValueQuestion, file: DataFile, access: Access) -> Iterator[ValueTrace]:
    """Yield the traces in the statistics and page indexes of a data file; a file that is damaged has none."""
    with suppress(SidecarError), closing(access.open(file.file_path, file.file_size_in_bytes)) as source:
        opened, mapping = open_file(source, access.keys), name_mapping_of(table)
        found = ColumnsInFile[Any](opened.leaves, question.schema, mapping, {}).find(question.field_id)
        if isinstance(found, FoundColumn):
            yield from traces_of_leaf(question, file.file_path, opened, found.leaf)


def traces_of_leaf(question: ValueQuestion, path: str, file: OpenFile, leaf: Any) -> Iterator[ValueTrace]:
    """Yield the traces in the statistics and indexes of a leaf column. Raises :class:`SidecarError` for damage."""
    kind = str(question.column.type)
    compared = file.compared(leaf, kind)
    if not compared.compares_with(kind):
        return
    named = NamedValues(question, compared)
    for place, bounds in file.stated_bounds(leaf):
        for text, bound, cut in named.of(bounds) if isinstance(bounds, Bounds) else ():
            yield trace(question, path, path, place, text, bound, cut)


def values_in_stored_index(
    question: ValueQuestion, stored: StoredPageIndex | StoredRowIndex, rows: int
) -> Iterator[tuple[str, str, bool]]:
    """Yield what :meth:`NamedValues.of` yields for a page index or a row index of ``rows`` rows in a sidecar.

    Bounds of an index that proves nothing to a plan are compared all the same. Raises :class:`SidecarError` for an
    index that cannot be decoded.
    """
    column = stored.kind.compared(question.field_id, str(question.column.type))
    if isinstance(stored, StoredRowIndex):
        bounds: Bounds | Unknown = row_index_bounds(stored, rows)
    else:
        decoded = decode_page_index(stored)
        bounds = Unknown("there are none")
        if decoded.column_index is not None and not isinstance(decoded.ordering, Unknown):
            index, decode = decoded.column_index, decoded.ordering.decode
            pages = [n for n in range(index.num_pages) if not index.null_pages[n]]
            lower: list[Any] = [decode(index.min_values[n]) for n in pages]
            upper: list[Any] = [decode(index.max_values[n]) for n in pages]
            count = len(pages)
            bounds = Bounds(lower, upper, [False] * count, [None] * count, [True] * count)
    if isinstance(bounds, Bounds):
        yield from NamedValues(question, column).of(bounds)
