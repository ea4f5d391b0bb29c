"""Checks an ORC file and names every defect with its place.

Filters that deny values, but that current readers probe, are defects too: those of the writers that
:mod:`sidecar.orc.trust` lists. A filter of a tinyint, char or float column is not a defect if the values show that it
denies none of them. A filter without values that no reader probes (of a struct, or of Java's booleans) is not a defect.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from sidecar.errors import Problem, SidecarError, problem_in, reason_at
from sidecar.orc.chunk_map import ChunkMap, map_chunks
from sidecar.orc.decode import has_own_values
from sidecar.orc.index_streams import StripeIndex, read_indexes
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.stripe import INDEX_STREAMS, StripeFooter, read_stripe_footer
from sidecar.orc.tail import MAGIC, OrcTail, Stripe, read_tail
from sidecar.orc.verify.index import index_problems
from sidecar.orc.verify.values import ObservedValues, deny_nothing, value_problems
from sidecar.questions.value_check import ValueCheck
from sidecar.storage.source import Source


def verify_file(source: Source, values: ValueCheck | None = None) -> list[Problem]:
    """Return every defect of tail, stripe footers, row indexes, filters and compression chunks.

    With ``values``, the statistics and filters of the row groups that it chooses are compared with their values. Reads
    the whole file, one stream at a time. Never raises for a defect of the file.
    """
    try:
        tail = read_tail(source)
    except SidecarError as error:
        return [problem_in(source.name, reason_at(error))]
    problems: list[Problem] = []
    statistics = FileStatistics(source, tail)
    if statistics.problem is not None:
        problems.append(problem_in(tail.name, f"metadata: {reason_at(statistics.problem)}"))
    problems += _tail_problems(source, tail, statistics)
    problems += statistics.problems()
    try:
        groups = tail.num_row_groups
    except SidecarError as error:
        return [*problems, problem_in(tail.name, reason_at(error))]
    chosen: list[int] = []
    if values is not None and groups > MAX_UNITS:
        what = f"the values are not checked: the file has {groups} row groups, more than {MAX_UNITS}"
        problems.append(problem_in(tail.name, what))
    elif values is not None:
        chosen = sorted(values.choose(groups))
    observed = {column.id: ObservedValues() for column in tail.columns}
    first_unit = 0
    for stripe in tail.stripes:
        end = first_unit + stripe.num_row_groups
        of_stripe = {unit - first_unit for unit in _within(chosen, first_unit, end)}
        check = _StripeCheck(source, tail, stripe, first_unit, statistics, observed)
        problems += check.problems(of_stripe, values)
        first_unit = end
    if values is not None and len(chosen) == groups and not problems:
        problems += _file_statistics_problems(tail, statistics, observed)
    return problems


MAX_UNITS = 1 << 20
"""Row groups of the largest file whose values are checked."""


def _within(chosen: list[int], start: int, end: int) -> list[int]:
    """Return the numbers of a sorted list from ``start`` to ``end``, without ``end``."""
    return chosen[bisect_left(chosen, start) : bisect_left(chosen, end)]


def _file_statistics_problems(
    tail: OrcTail, statistics: FileStatistics, observed: dict[int, ObservedValues]
) -> Iterator[Problem]:
    """Yield problems of statistics of the whole file that contradict the values of its columns."""
    for column in tail.columns:
        if not has_own_values(tail, column):
            continue
        for text in observed[column.id].problems(statistics.of_file(column), "file"):
            yield problem_in(tail.name, f"footer: {text}", column.path)


def _tail_problems(source: Source, tail: OrcTail, statistics: FileStatistics) -> Iterator[Problem]:
    """Yield problems outside of stripes."""

    def problem(what: str) -> Problem:
        return problem_in(tail.name, what)

    head = source.read(0, len(MAGIC))
    if head != MAGIC:
        yield problem(f"the file does not begin with the magic; expected {MAGIC!r}; found {head!r}")
    known = statistics.num_stripes
    if known not in (0, len(tail.stripes)):
        yield problem(f"the metadata has statistics of {known} stripes, but the file has {len(tail.stripes)} stripes")
    rows = sum(stripe.num_rows for stripe in tail.stripes)
    if rows != tail.num_rows:
        yield problem(f"the footer's numberOfRows is {tail.num_rows}, but the stripes have {rows} rows")
    counted = len(tail.footer.all_bytes(7))
    if counted not in (0, len(tail.columns)):
        yield problem(f"the footer has statistics of {counted} columns, but the file has {len(tail.columns)} columns")
    for before, after in pairwise(sorted(tail.stripes, key=lambda stripe: stripe.offset)):
        if after.offset < before.end:
            yield problem(f"stripe {after.ordinal} begins inside stripe {before.ordinal}")


class _StripeCheck:
    """The checks of one stripe; ``first_unit`` is the number of row groups before it in the file."""

    def __init__(
        self,
        source: Source,
        tail: OrcTail,
        stripe: Stripe,
        first_unit: int,
        statistics: FileStatistics,
        observed: dict[int, ObservedValues],
    ) -> None:
        self.source = source
        self.tail = tail
        self.stripe = stripe
        self.first_unit = first_unit
        self.statistics = statistics
        self.observed = observed

    def problems(self, groups: set[int], values: ValueCheck | None) -> Iterator[Problem]:
        """Yield the problems of the stripe; ``groups`` has the row groups whose values are checked."""
        try:
            footer = read_stripe_footer(self.source, self.tail, self.stripe)
        except SidecarError as error:
            yield self._problem(f"stripe footer: {reason_at(error)}")
            return
        yield from self._lengths(footer)
        yield from self._column_count()
        for column in self.tail.columns:
            try:
                index = self._index(footer, column)
                yield from self._column(footer, index)
                if values is not None:
                    yield from self._values(footer, index, groups, values)
            except SidecarError as error:
                yield self._problem(reason_at(error), column)

    def _values(
        self,
        footer: StripeFooter,
        index: StripeIndex,
        groups: set[int],
        values: ValueCheck,
    ) -> Iterator[Problem]:
        """Yield problems of statistics and filters that deny values."""
        column, observed, complete = index.column, ObservedValues(), True
        if not has_own_values(self.tail, column):
            return  # statistics of a struct count rows; only values are checked here
        arguments = (self.source, self.tail, footer, index, groups, values, observed)
        for group, what in value_problems(*arguments):
            complete &= group is not None
            yield self._problem(what, column, group)
        self.observed[column.id].add(observed)
        if complete and groups and len(groups) == self.stripe.num_row_groups:
            for text in observed.problems(index.whole, "stripe"):
                yield self._problem(text, column)

    def _column_count(self) -> Iterator[Problem]:
        """Yield a problem if the stripe has statistics of another number of columns than the file has."""
        found = self.statistics.num_columns(self.stripe)
        if found not in (0, len(self.tail.columns)):
            yield self._problem(
                f"there are statistics of {found} columns, but the file has {len(self.tail.columns)} columns"
            )

    def _problem(self, what: str, column: OrcColumn | None = None, row_group: int | None = None) -> Problem:
        return Problem(
            file=self.tail.name,
            unit=None if row_group is None else self.first_unit + row_group,
            column=None if column is None else column.path,
            problem=what if row_group is not None else f"stripe {self.stripe.ordinal}: {what}",
        )

    def _lengths(self, footer: StripeFooter) -> Iterator[Problem]:
        index = sum(stream.length for stream in footer.streams if stream.kind in INDEX_STREAMS)
        whole = sum(stream.length for stream in footer.streams)
        for name, stated, found in (
            ("index", self.stripe.index_length, index),
            ("data", self.stripe.data_length, whole - index),
        ):
            if stated != found:
                yield self._problem(f"the {name} is stated as {stated} bytes, but its streams have {found}")
        if footer.doubt:
            yield self._problem(footer.doubt)

    def _index(self, footer: StripeFooter, column: OrcColumn) -> StripeIndex:
        return read_indexes(self.source, self.tail, footer, [column.id], self.statistics, legacy=True)[column.id]

    def _column(self, footer: StripeFooter, index: StripeIndex) -> Iterator[Problem]:
        column = index.column
        maps: dict[str, ChunkMap] = {}
        for stream in footer.streams_of(column.id):
            if stream.kind in INDEX_STREAMS:
                continue
            try:
                maps[stream.kind] = map_chunks(self.source, self.tail, stream)
            except SidecarError as error:
                yield self._problem(f"{stream.kind}: {reason_at(error)}", column)
        filters = index.filters or []
        if any(f.reason for f in filters) and deny_nothing(self.source, self.tail, self.stripe, column, filters):
            index = replace(index, filters=None)
        for row_group, what in index_problems(self.tail, footer, index, maps):
            yield self._problem(what, column, row_group)
