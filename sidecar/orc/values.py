"""Values of a column as flat Arrow arrays, row group by row group.

pyarrow decodes whole stripes; they are cut by the row index stride. What stands in lists, maps and structs is
flattened to the values of the leaf, and a parent that is null hides what lies below it. A local file is opened by
pyarrow itself, any other source through its ranged reads.

pyarrow has timestamps as 64-bit nanoseconds, which others wrap around, so those are for :mod:`sidecar.orc.decode`.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import IOBase
from typing import Any, cast

import pyarrow as pa
from pyarrow import orc

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, first_line
from sidecar.filters.leaves import flatten
from sidecar.orc.decode import read_row_groups
from sidecar.orc.schema import OrcColumn
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import OrcTail, Stripe
from sidecar.source import BytesSource, Source, SourceFile, local_path

_TIMESTAMPS = ("TIMESTAMP", "TIMESTAMP_INSTANT")


class OrcValueReader:
    """Leaf values of one ORC file. Not to be shared between threads: each opens its own."""

    def __init__(self, source: Source, tail: OrcTail) -> None:
        self._source = source
        self._tail = tail
        local = None if isinstance(source, BytesSource) else local_path(source.name)
        handle = local if local is not None else pa.PythonFile(cast(IOBase, SourceFile(source)), mode="r")
        try:
            self._file: Any = orc.ORCFile(handle)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DamagedFileError(
                f"pyarrow cannot open the file: {first_line(error)}", file=tail.name
            ) from error

    def row_groups(self, stripe: Stripe, column: OrcColumn) -> Iterator[pa.Array[Any]]:
        """The values of a leaf column for each row group of a stripe, in order; nulls may remain.

        A TIMESTAMP is the wall clock of its writer's zone. Raises :class:`UnsupportedFeatureError` for what is no
        leaf or inside a union, for columns that share their path with another one, and for timestamps without a
        time zone; :class:`DamagedFileError` for what cannot be decoded.
        """
        if column.kind in _TIMESTAMPS:
            footer = read_stripe_footer(self._source, self._tail, stripe)
            yield from read_row_groups(self._source, self._tail, stripe, footer, column)
            return
        top, leaf = self._place(column)
        try:
            batch = self._file.read_stripe(stripe.ordinal, [top.path])
            if batch.num_columns != 1 or batch.num_rows != stripe.num_rows:
                raise pa.ArrowInvalid(
                    f"{batch.num_rows} rows of {batch.num_columns} columns instead of {stripe.num_rows} of 1"
                )
            values = batch.column(0)
            for group in stripe.row_groups:
                yield flatten(values.slice(group.first_row - stripe.first_row, group.rows))[leaf]
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DamagedFileError(
                f"pyarrow cannot decode: {first_line(error)}", file=self._tail.name, column=column.path
            ) from error

    def _place(self, column: OrcColumn) -> tuple[OrcColumn, int]:
        """What pyarrow is to be asked for, and which of its leaves is the column.

        Within structs that is the column alone; what is in a list or map comes with all of the topmost one.
        """
        columns = self._tail.columns
        if column.is_compound:
            raise UnsupportedFeatureError(
                f"{column.kind} has no values of its own", file=self._tail.name, column=column.path
            )
        top = above = column
        while above.parent is not None:
            above = columns[above.parent]
            if above.kind in ("LIST", "MAP"):
                top = above
            elif above.kind == "UNION":
                raise UnsupportedFeatureError(
                    "members of a union are not read", file=self._tail.name, column=column.path
                )
        if self._tail.column(top.path) is None:
            raise UnsupportedFeatureError(
                "two columns have the same path", file=self._tail.name, column=top.path
            )
        leaves = [id for id in self._tail.subtree(top.id) if not columns[id].is_compound]
        return top, leaves.index(column.id)

    def close(self) -> None:
        """Let go of pyarrow's handle; the source stays open."""
        self._file = None

    def __enter__(self) -> OrcValueReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
