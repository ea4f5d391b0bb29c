"""Reads columns of one stripe of an ORC file, by row groups, in the Arrow types that pyarrow gives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from io import IOBase
from itertools import chain
from typing import Any, cast

import pyarrow as pa
from pyarrow import orc

from sidecar.errors import UnsupportedFeatureError, first_line
from sidecar.orc.compound import ColumnCursor
from sidecar.orc.decode import STEP, read_row_group
from sidecar.orc.index_streams import StripeIndex, read_indexes
from sidecar.orc.schema import OrcColumn, check_known_types
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.stripe import StripeFooter
from sidecar.orc.tail import OrcRowGroup, OrcTail, Stripe
from sidecar.reading.orc_columns import selected_schema
from sidecar.storage.source import CountingSource, Source, SourceFile


class OrcHandle:
    """An open ORC file that counts reads of indexes and reads of data separately."""

    def __init__(self, source: Source, tail: OrcTail) -> None:
        self.tail = tail
        self.index = CountingSource(source)
        self.data = CountingSource(source)
        self.statistics = FileStatistics(self.index, tail)

    @cached_property
    def schema(self) -> Any:
        """The Arrow schema that pyarrow gives the file.

        pyarrow aborts the process on ORC types that Arrow does not have, so types are checked first. Raises
        :class:`UnsupportedFeatureError` for such a type, and if pyarrow cannot open the file: its tail is sound.
        """
        check_known_types(self.tail.columns, self.tail.name)
        try:
            return orc.ORCFile(pa.PythonFile(cast(IOBase, SourceFile(self.data)), mode="r")).schema
        except (pa.ArrowException, OSError, ValueError, TypeError) as error:
            raise UnsupportedFeatureError(
                f"pyarrow cannot open the file: {first_line(error)}", file=self.tail.name
            ) from error


class StripeReader:
    """Reads columns of one stripe forward, from its first row on.

    Callers name rows by row groups or parts of them: :meth:`steps` cuts row groups that are too large to decode at
    once.
    """

    def __init__(self, file: OrcHandle, stripe: Stripe, footer: StripeFooter) -> None:
        self.indexes: dict[int, StripeIndex] = {}
        self._file = file
        self._stripe = stripe
        self._footer = footer
        self._arrays: dict[tuple[tuple[int, ...], OrcRowGroup], Any] = {}
        """Decoded arrays of the current step, by column ids and rows."""
        self._cursors: dict[tuple[int, ...], ColumnCursor] = {}
        self._few: set[OrcRowGroup] = set()
        """Row groups that are read by the positions in the row index: few row groups, none larger than a step."""

    def steps(
        self, groups: list[OrcRowGroup], asked: Iterable[tuple[OrcColumn, set[int] | None]]
    ) -> Iterator[list[OrcRowGroup]]:
        """Yield ``groups`` in runs that fit into little memory when read together; large groups are cut into parts.

        ``asked`` are the columns that will be read, with the chosen ids, as for :meth:`read`. Arrays are dropped
        after each run.
        """
        if 2 * len(groups) <= self._stripe.num_row_groups and all(g.rows <= STEP for g in groups):
            self._few = set(groups)
        most = STEP
        if sum(g.rows for g in groups) * len(self._file.tail.columns) > STEP:
            most = min((self._cursor(top, chosen).step for top, chosen in asked), default=STEP)
        together: list[OrcRowGroup] = []
        rows = 0
        for part in chain.from_iterable(_parts(group, most) for group in groups):
            if together and rows + part.rows > most:
                yield together
                self._arrays.clear()
                together, rows = [], 0
            together.append(part)
            rows += part.rows
        if together:
            yield together
            self._arrays.clear()

    def read(self, top: OrcColumn, chosen: set[int] | None, groups: list[OrcRowGroup]) -> Any:
        """Read a top-level column in these row groups, as pyarrow reads it; of a struct only the ids in ``chosen``.

        The file is read in one direction: row groups come in file order and never before one that was read already.
        """
        numbers = self._numbers(top, chosen)
        missing = [group for group in groups if (numbers, group) not in self._arrays]
        index = self._index(top) if missing and not top.is_compound and self._few else None
        for group in missing:
            by_position = index is not None and group in self._few and not index.is_misplaced(group.ordinal)
            array = self._at(top, index, group) if index and by_position else self._next(top, chosen, group)
            self._arrays[numbers, group] = array
        return pa.chunked_array([self._arrays[numbers, group] for group in groups])

    def _numbers(self, top: OrcColumn, chosen: set[int] | None) -> tuple[int, ...]:
        """Return the id of a top-level column, or the ids of the columns below it that are chosen."""
        if chosen is None or top.id in chosen:
            return (top.id,)
        return tuple(number for number in self._file.tail.subtree(top.id) if number in chosen)

    def _cursor(self, top: OrcColumn, chosen: set[int] | None) -> ColumnCursor:
        numbers = self._numbers(top, chosen)
        if numbers not in self._cursors:
            tail = self._file.tail
            ids = {below for number in numbers for below in tail.subtree(number)}
            for number in numbers:
                above = tail.columns[number]
                while above.parent:
                    above = tail.columns[above.parent]
                    ids.add(above.id)
            field = selected_schema(tail, self._file.schema, set(numbers))
            self._cursors[numbers] = ColumnCursor(self._file.data, tail, self._footer, top, field.field(0).type, ids)
        return self._cursors[numbers]

    def _next(self, top: OrcColumn, chosen: set[int] | None, group: OrcRowGroup) -> Any:
        """Read rows after the last row that was read of the column; skip the rows between."""
        cursor = self._cursor(top, chosen)
        cursor.skip_to(group.first_row - self._stripe.first_row)
        return cursor.take(group.rows)

    def _at(self, column: OrcColumn, index: StripeIndex, group: OrcRowGroup) -> Any:
        """Read a leaf in a whole row group, by the positions in the row index."""
        file, indexes = self._file, {} if index.row_index is None else {column.id: index.row_index}
        array = read_row_group(file.data, file.tail, self._stripe, self._footer, indexes, group.ordinal, column)
        kind = file.schema.field(file.tail.columns[0].children.index(column.id)).type
        try:
            return array.cast(kind)
        except pa.ArrowException as error:
            raise UnsupportedFeatureError(
                f"values do not fit the type that pyarrow reads the column as: {first_line(error)}",
                file=file.tail.name,
                column=column.path,
            ) from error

    def _index(self, column: OrcColumn) -> StripeIndex:
        if column.id not in self.indexes:
            file = self._file
            self.indexes |= read_indexes(file.index, file.tail, self._footer, [column.id], file.statistics, bloom=False)
        return self.indexes[column.id]


def _parts(group: OrcRowGroup, most: int) -> Iterator[OrcRowGroup]:
    """Yield a row group in parts of at most ``most`` rows."""
    for start in range(0, group.rows, most):
        yield OrcRowGroup(group.ordinal, group.first_row + start, min(most, group.rows - start))
