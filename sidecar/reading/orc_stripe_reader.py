"""Columns of one stripe of an ORC file, row groups of them, as pyarrow has them."""

from __future__ import annotations

from functools import cached_property
from io import IOBase
from typing import Any, cast

import pyarrow as pa
from pyarrow import orc

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, first_line
from sidecar.orc.decode import read_row_group, read_row_groups
from sidecar.orc.index_streams import StripeIndex, read_indexes
from sidecar.orc.schema import OrcColumn
from sidecar.orc.stripe import StripeFooter
from sidecar.orc.tail import OrcTail, RowGroup, Stripe
from sidecar.source import CountingSource, Source, SourceFile


class OrcHandle:
    """An open file whose reads of indexes and of data are counted apart."""

    def __init__(self, source: Source, tail: OrcTail) -> None:
        self.tail = tail
        self.index = CountingSource(source)
        self.data = CountingSource(source)

    @cached_property
    def pyarrow(self) -> Any:
        """pyarrow's reader of the file, whose reads are counted."""
        try:
            return orc.ORCFile(pa.PythonFile(cast(IOBase, SourceFile(self.data)), mode="r"))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DamagedFileError(
                f"pyarrow cannot open the file: {first_line(error)}", file=self.tail.name
            ) from error


class StripeReader:
    """Columns of one stripe, row groups of them.

    ``timestamps_by_pyarrow``: with pyarrow's mistake before 1970, for rows that must be pyarrow's own.
    """

    def __init__(
        self, file: OrcHandle, stripe: Stripe, footer: StripeFooter, timestamps_by_pyarrow: bool = False
    ) -> None:
        self._by_pyarrow = ("TIMESTAMP", "TIMESTAMP_INSTANT") if timestamps_by_pyarrow else ()
        self.indexes: dict[int, StripeIndex] = {}
        self._file = file
        self._stripe = stripe
        self._footer = footer
        self._arrays: dict[tuple[tuple[int, ...], int], Any] = {}
        """By the columns that were read and the row group."""

    def read(self, top: OrcColumn, chosen: set[int] | None, groups: list[RowGroup]) -> Any:
        """A column at the top of the file in these row groups, as pyarrow has it; of a struct what is ``chosen``."""
        below = self._file.tail.subtree(top.id)
        numbers = (top.id,) if chosen is None or top.id in chosen else tuple(n for n in below if n in chosen)
        missing = [group for group in groups if (numbers, group.ordinal) not in self._arrays]
        if missing:
            whole = top.is_compound or top.kind in self._by_pyarrow
            arrays = self._compound(top, numbers, missing) if whole else self._leaf(top, missing)
            for group, array in zip(missing, arrays, strict=True):
                self._arrays[numbers, group.ordinal] = array
        found = [self._arrays[numbers, group.ordinal] for group in groups]
        return pa.chunked_array(found)

    def _leaf(self, column: OrcColumn, groups: list[RowGroup]) -> list[Any]:
        file, stripe, footer = self._file, self._stripe, self._footer
        arguments = (file.data, file.tail, stripe, footer)
        row_index = None
        if 2 * len(groups) <= stripe.num_row_groups:
            row_index = self._row_index(column)
        if row_index is not None:
            arrays = [read_row_group(*arguments, {column.id: row_index}, g.ordinal, column) for g in groups]
        else:
            whole = read_row_groups(*arguments, column)
            arrays = [whole[g.ordinal] for g in groups]
        kind = file.pyarrow.schema.field(file.tail.columns[0].children.index(column.id)).type
        try:
            return [array.cast(kind) for array in arrays]
        except pa.ArrowException as error:
            raise UnsupportedFeatureError(
                f"values do not fit the type that pyarrow reads the column as: {first_line(error)}",
                file=file.tail.name,
                column=column.path,
            ) from error

    def _row_index(self, column: OrcColumn) -> Any:
        if column.id not in self.indexes:
            file = self._file
            self.indexes |= read_indexes(
                file.index, file.tail, self._stripe, self._footer, [column.id], bloom=False
            )
        return self.indexes[column.id].row_index

    def _compound(self, column: OrcColumn, numbers: tuple[int, ...], groups: list[RowGroup]) -> list[Any]:
        file, stripe = self._file, self._stripe
        try:
            batch = file.pyarrow.read_stripe(stripe.ordinal, [file.tail.columns[n].path for n in numbers])
            values = batch.column(0)
            return [values.slice(g.first_row - stripe.first_row, g.rows) for g in groups]
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DamagedFileError(
                f"pyarrow cannot decode: {first_line(error)}", file=file.tail.name, column=column.path
            ) from error
