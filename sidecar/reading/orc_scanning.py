"""Scans plain ORC files: finds the stripes and row groups that may match, and reads their columns.

For each stripe the scan asks its statistics in the file's metadata. Then it reads, for each column of the predicate,
row index and filters with one read, and asks minimum and maximum before filters. A stripe without row groups left is
not read further. In the other stripes top-level columns are decoded (:mod:`sidecar.orc.decode`,
:mod:`sidecar.orc.compound`). A leaf is read by positions if at most half of the stripe's row groups are left. All
other columns are read from the stripe's first row on, in steps. Columns of the predicate come first, the other
columns only for row groups with a matching row.

A TIMESTAMP is the wall clock time of its writer, as in pyarrow. One case differs: for timestamps before 1970 with a
fraction of a second pyarrow subtracts one second too many (see :mod:`sidecar.orc.decode`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import extract_field_ids

from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.orc.values import probe_orc
from sidecar.iceberg.predicates.conditions import condition_of
from sidecar.iceberg.predicates.predicate import as_expression
from sidecar.iceberg.struct_nulls import bound_to
from sidecar.orc.index_streams import StripeIndex, read_indexes
from sidecar.orc.inspect import find_column
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.bounds import row_group_bounds, statistics_bounds
from sidecar.orc.stripe import StripeFooter, read_stripe_footer
from sidecar.orc.tail import OrcRowGroup, OrcTail, Stripe, read_tail
from sidecar.parquet.scan.page_scan import FoundRows, Residual, ScanReport
from sidecar.questions.bounds import Bounds, Unknown
from sidecar.questions.conditions import Condition, HoldsAny, LeafCondition, leaf_conditions
from sidecar.questions.filter_questions import looked_up
from sidecar.questions.narrowing import holds
from sidecar.reading.file_columns import FileColumns
from sidecar.reading.orc_columns import column_name, compared_orc_column, orc_columns, selected_schema
from sidecar.reading.orc_stripe_reader import OrcHandle, StripeReader
from sidecar.reading.residual import residual_of
from sidecar.storage.source import CountingSource, Source

DROPPED = ("statistics", "row_index", "filter")


def plan_orc_scan(
    source: Source,
    predicate: str | BooleanExpression,
    columns: Sequence[str] | None,
    limit: int | None,
    case_sensitive: bool,
) -> OrcScan:
    """Plan the scan of an ORC file, see :func:`sidecar.reading.file_scanning.open_scan`; reads only the tail."""
    counted = CountingSource(source)
    tail = read_tail(counted)
    known = orc_columns(tail)
    asked = bound_to(known.schema, as_expression(predicate, known.schema, case_sensitive))
    chosen = None if columns is None else {_choosable(tail, name).id for name in columns}
    question = _Question.of(asked, tail, known)
    return OrcScan(source, tail, question, chosen, limit, ScanReport(footer_bytes=counted.bytes_read))


def _choosable(tail: OrcTail, name: str) -> OrcColumn:
    column = find_column(tail, name)
    if column.nested_in_repeated:
        raise UnsupportedFeatureError(
            "a column inside a list or map cannot be read alone", file=tail.name, column=column.path
        )
    return column


@dataclass(frozen=True, eq=False)
class _Question:
    """A predicate in the forms for indexes (``condition``) and for rows (``residual`` over the columns ``ids``)."""

    condition: Condition | None
    ids: list[int]
    """Ids of the columns in the predicate; ``residual`` needs them."""
    residual: Residual | None

    @classmethod
    def of(cls, asked: BooleanExpression, tail: OrcTail, known: FileColumns) -> _Question:
        ids = sorted(extract_field_ids(asked))
        known.check(ids)
        # Without rewrite_not: NOT (x > 1) is true for NaN, but rewrite_not makes it x <= 1, which is false.
        residual = None if isinstance(asked, AlwaysTrue) else residual_of(asked, known, ids)
        condition = condition_of(asked, lambda number: compared_orc_column(tail, known, number))
        return cls(condition, ids, residual)


@dataclass(eq=False)
class OrcScan:
    """The scan of one file. Iterate :meth:`found` once; ``report`` is filled in meanwhile."""

    source: Source
    tail: OrcTail
    question: _Question
    chosen: set[int] | None
    limit: int | None
    report: ScanReport

    def __post_init__(self) -> None:
        self.handle = OrcHandle(self.source, self.tail)
        self._hashes: dict[tuple[HoldsAny, OrcEncoding], list[int] | None] = {}
        self.report.dropped = dict.fromkeys(DROPPED, 0)
        self.report.file, self.report.file_bytes = self.tail.name, self.tail.size
        self.report.rows = self.tail.num_rows
        self.report.row_groups = sum(stripe.num_row_groups for stripe in self.tail.stripes)

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return selected_schema(self.tail, self.handle.schema, self.chosen)

    @property
    def _top(self) -> list[OrcColumn]:
        """The top-level columns that are in the result, at least in part, in the order of the result."""
        tops = [self.tail.columns[number] for number in self.tail.columns[0].children]
        if self.chosen is None:
            return tops
        return [top for top in tops if self.chosen.intersection(self.tail.subtree(top.id))]

    def found(self) -> Iterator[FoundRows]:
        """Yield the matching rows with their positions, by stripes or parts of large stripes."""
        left = sum(stripe.num_rows for stripe in self.tail.stripes) if self.limit is None else self.limit
        for stripe in self.tail.stripes:
            if left <= 0:
                return
            if not stripe.num_rows:
                continue
            survivors = self._survivors(stripe)
            self._count()
            if survivors is None:
                continue
            reader, groups = survivors
            for together in reader.steps(groups, self._columns()):
                rows = self._read(reader, together, left)
                self._count()
                if rows is not None:
                    left -= len(rows.positions)
                    yield rows
                if left <= 0:
                    return

    def _survivors(self, stripe: Stripe) -> tuple[StripeReader, list[OrcRowGroup]] | None:
        """Return a reader and the row groups of a stripe that may match; ``None`` if none may."""
        groups = stripe.row_groups
        condition, dropped = self.question.condition, self.report.dropped
        if condition is not None and not self._may_match(condition, stripe):
            dropped["statistics"] += len(groups)
            return None
        footer = read_stripe_footer(self.handle.index, self.tail, stripe)
        reader = StripeReader(self.handle, stripe, footer)
        if condition is not None:
            indexes = self._indexes(stripe, footer, condition)
            kept = [g for g in groups if self._by_row_index(condition, indexes, g)]
            dropped["row_index"] += len(groups) - len(kept)
            groups = [g for g in kept if self._by_filters(condition, indexes, g.ordinal)]
            dropped["filter"] += len(kept) - len(groups)
            reader.indexes = indexes
        if not groups:
            return None
        self.report.row_groups_read += len(groups)
        self.report.rows_may_match += sum(g.rows for g in groups)
        return reader, groups

    def _may_match(self, condition: Condition, stripe: Stripe) -> bool:
        """Return whether a stripe may match by its statistics."""
        return holds(condition, lambda leaf: _may_match(leaf, self._stripe_bounds(stripe, leaf.column.index)))

    def _stripe_bounds(self, stripe: Stripe, number: int) -> Bounds | Unknown:
        statistics, column = self.handle.statistics, self.tail.columns[number]
        if statistics.problem is not None:
            self._doubt(statistics.problem)
        try:
            found = statistics.of_stripe(stripe, column)
        except DamagedFileError as error:
            self._doubt(error)
            return Unknown(error.what)
        if found is not None:
            self._contradicted(column, found.contradiction)
        return statistics_bounds(found, column, stripe.num_rows)

    def _indexes(self, stripe: Stripe, footer: StripeFooter, condition: Condition) -> dict[int, StripeIndex]:
        """Read row indexes of the columns in the condition, and filters of those that filters can be asked about."""
        asked = {leaf.column.index for leaf in leaf_conditions(condition)}
        equal = {leaf.column.index for leaf in looked_up(condition) if leaf.is_for_filters}
        read = partial(read_indexes, self.handle.index, self.tail, footer, statistics=self.handle.statistics)
        found = read(column_ids=sorted(equal)) | read(column_ids=sorted(asked - equal), bloom=False)
        for index in found.values():
            for problem in (index.row_index_problem, index.filters_problem):
                if problem is not None:
                    self._doubt(problem)
            contradictions = index.contradictions
            self._contradicted(index.column, contradictions.of_all or next(iter(contradictions.of_part.values()), ""))
        return found

    def _by_row_index(
        self,
        condition: Condition,
        indexes: Mapping[int, StripeIndex],
        group: OrcRowGroup,
    ) -> bool:
        """Return whether a row group may match by the row indexes."""

        def may_match(leaf: LeafCondition) -> bool:
            return _may_match(leaf, row_group_bounds(indexes[leaf.column.index], group))

        return holds(condition, may_match)

    def _by_filters(self, condition: Condition, indexes: Mapping[int, StripeIndex], group: int) -> bool:
        """Return whether a row group may match by its filters; parts that they cannot answer count as true."""

        def may_match(leaf: LeafCondition) -> bool:
            return not isinstance(leaf, HoldsAny) or self._may_hold(leaf, indexes[leaf.column.index], group)

        return holds(condition, may_match)

    def _may_hold(self, leaf: HoldsAny, index: StripeIndex, group: int) -> bool:
        if not leaf.is_for_filters or index.filters is None or index.column.nested_in_repeated:
            return True
        found = index.filters[group]
        if not found.trusted or found.filter is None or found.encoding is None:
            self._note(f"a filter of column {index.column.path} is not used: {found.reason}")
            return True
        hashes = self._hashes_of(leaf, found.encoding)
        return hashes is None or any(map(found.filter.might_contain_hash, hashes))

    def _hashes_of(self, leaf: HoldsAny, encoding: OrcEncoding) -> list[int] | None:
        """Return the hashes that filters of an encoding are asked for; ``None`` if those of a value are not known."""
        if (leaf, encoding) not in self._hashes:
            probes = [probe_orc(value, leaf.column.iceberg_type, encoding) for value in leaf.values]
            is_known = all(probe.verdict != "unknown" for probe in probes)
            hashes = [h for probe in probes if probe.verdict == "probe" for h in probe.hashes]
            self._hashes[leaf, encoding] = hashes if is_known else None
        return self._hashes[leaf, encoding]

    def _read(self, reader: StripeReader, groups: list[OrcRowGroup], most: int) -> FoundRows | None:
        """Read the matching rows of some row groups of a stripe, at most ``most``; ``None`` if no row matches."""
        positions = np.concatenate([np.arange(g.first_row, g.first_row + g.rows, dtype=np.int64) for g in groups])
        columns = self.tail.columns
        asked = [top for top in map(columns.__getitem__, columns[0].children) if self._is_asked(top)]
        if self.question.residual is not None:
            parts = {column_name(self.tail, top): reader.read(top, set(self.question.ids), groups) for top in asked}
            table = pa.table(parts or {"": pa.nulls(len(positions))})
            kept = self.question.residual(table)
        else:
            kept = np.arange(len(positions), dtype=np.int64)
        kept = kept[:most]
        if not len(kept):
            return None
        if len(kept) == len(positions):
            self.report.rows_found += len(kept)
            whole = [reader.read(top, self.chosen, groups) for top in self._top]
            return FoundRows(positions, pa.table(whole, schema=self.schema))
        found = positions[kept]
        starts = np.array([g.first_row for g in groups], np.int64)
        hit = np.unique(np.searchsorted(starts, found, side="right") - 1)
        matching = [groups[i] for i in hit.tolist()]
        edges = np.concatenate([[0], np.cumsum([g.rows for g in matching])])
        own = np.searchsorted(starts[hit], found, side="right") - 1
        places = pa.array(found - starts[hit][own] + edges[own])
        rows = [reader.read(top, self.chosen, matching).take(places) for top in self._top]
        self.report.rows_found += len(found)
        return FoundRows(found, pa.table(rows, schema=self.schema))

    def _columns(self) -> Iterator[tuple[OrcColumn, set[int] | None]]:
        """Yield the top-level columns that are read, with the chosen ids."""
        columns = self.tail.columns
        if self.question.residual is not None:
            for top in map(columns.__getitem__, columns[0].children):
                if self._is_asked(top):
                    yield top, set(self.question.ids)
        yield from ((top, self.chosen) for top in self._top)

    def _is_asked(self, top: OrcColumn) -> bool:
        below = self.tail.subtree(top.id)
        return any(number in below for number in self.question.ids)

    def _contradicted(self, column: OrcColumn, what: str) -> None:
        if what:
            self._note(f"statistics of column {column.path} are not used: {what}")

    def _doubt(self, error: SidecarError) -> None:
        self._note(f"an index of the file is not used: {error}")

    def _note(self, text: str) -> None:
        if text not in self.report.warnings:
            self.report.warnings.append(text)

    def _count(self) -> None:
        self.report.index_bytes, self.report.index_reads = (
            self.handle.index.bytes_read,
            self.handle.index.reads,
        )
        self.report.data_bytes, self.report.data_reads = self.handle.data.bytes_read, self.handle.data.reads


def _may_match(leaf: LeafCondition, bounds: Bounds | Unknown) -> bool:
    """Where nothing is proven, rows may match."""
    return isinstance(bounds, Unknown) or leaf.may_match(bounds, 0)
