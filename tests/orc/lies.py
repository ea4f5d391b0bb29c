"""ORC files whose statistics, row indexes and filters say something false, as writers' faults and damage do."""

from __future__ import annotations

import random
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.orc

from scripts.fuzzing.orc_layout import OrcLayout
from sidecar.orc.protobuf import Message, decode, encode
from sidecar.orc.tail import read_tail
from sidecar.storage.source import BytesSource

ROWS, STRIDE = 6_000, 500
TYPED = (2, 3, 4, 5, 6, 7, 8, 9)
"""Fields of ColumnStatistics with the message of the column's kind."""

Edit = Callable[[Message], None]


def noise() -> list[bytes]:
    """Bytes that no codec makes small, so that files have several stripes."""
    rng = random.Random(1)
    return [rng.randbytes(40) for _ in range(ROWS)]


def table() -> pa.Table:
    """Columns whose values rise with the rows: each stripe and each row group has a range of its own."""
    numbers = list(range(ROWS))
    return pa.table(
        {
            "a": pa.array(numbers, pa.int64()),
            "s": pa.array([f"k{n:05}" for n in numbers]),
            "n": pa.array([None if n % 7 == 0 else n for n in numbers], pa.int32()),
            "d": pa.array([n / 4 for n in numbers], pa.float64()),
            "none": pa.nulls(ROWS, pa.int32()),
            "st": pa.array([None if n < 3_000 else {"x": n} for n in numbers], pa.struct([("x", pa.int64())])),
            "noise": noise(),
        }
    )


def plain(compression: str = "uncompressed") -> bytes:
    """The table in several stripes of several row groups, with filters of ``a`` and ``s``."""
    sink = BytesIO()
    options: Any = {
        "compression": compression,
        "stripe_size": 32 << 10,
        "batch_size": 2_000,
        "row_index_stride": STRIDE,
        "bloom_filter_columns": [1, 2],
        "bloom_filter_fpp": 0.01,
    }
    pyarrow.orc.write_table(table(), sink, **options)
    tail = read_tail(BytesSource(sink.getvalue()))
    assert len(tail.stripes) >= 3
    assert all(stripe.num_row_groups >= 2 for stripe in tail.stripes)
    return sink.getvalue()


class Statements(OrcLayout):
    """What a file states, to be edited: each edit is given one message, which it changes."""

    def of_file(self, column: int, edit: Edit) -> None:
        messages = self.tail.footer.messages(7)
        edit(messages[column])
        self.tail.footer.set_all(7, messages)

    def of_stripe(self, stripe: int, column: int, edit: Edit) -> None:
        metadata = decode(self.unpacked(self.metadata))
        stripes = metadata.messages(1)
        messages = stripes[stripe].messages(1)
        edit(messages[column])
        stripes[stripe].set_all(1, messages)
        metadata.set_all(1, stripes)
        self.metadata = self.packed(encode(metadata))

    def of_all(self, edit: Edit) -> None:
        """Edit the statistics of all columns in the file and in its stripes."""
        for column in range(len(self.tail.columns)):
            self.of_file(column, edit)
            for stripe in range(len(self.stripes)):
                self.of_stripe(stripe, column, edit)

    def each_entry(self, stripe: int, edit: Edit) -> None:
        """Edit all entries of all row indexes of a stripe."""
        for stream in self.stripes[stripe].streams:
            if stream.kind == "ROW_INDEX":
                message = decode(self.content(stream))
                parts = message.messages(1)
                for part in parts:
                    edit(part)
                message.set_all(1, parts)
                stream.data = self.packed(encode(message))

    def each_statistics(self, stripe: int, edit: Edit) -> None:
        """Edit the statistics of all row groups of a stripe."""

        def edit_entry(entry: Message) -> None:
            statistics = entry.message(2)
            if statistics is not None:
                edit(statistics)
                entry.set(2, statistics)

        self.each_entry(stripe, edit_entry)

    def entry(self, stripe: int, column: int, group: int, edit: Edit) -> None:
        """Edit an entry of a row index."""
        self._index(stripe, column, "ROW_INDEX", group, edit)

    def of_group(self, stripe: int, column: int, group: int, edit: Edit) -> None:
        """Edit the statistics of a row group."""

        def edit_entry(entry: Message) -> None:
            statistics = entry.message(2)
            assert statistics is not None
            edit(statistics)
            entry.set(2, statistics)

        self.entry(stripe, column, group, edit_entry)

    def filter(self, stripe: int, column: int, group: int, edit: Edit) -> None:
        """Edit the filter of a row group."""
        self._index(stripe, column, "BLOOM_FILTER_UTF8", group, edit)

    def _index(self, stripe: int, column: int, kind: str, group: int, edit: Edit) -> None:
        (stream,) = [s for s in self.stripes[stripe].streams if (s.kind, s.described.varint(2)) == (kind, column)]
        message = decode(self.content(stream))
        parts = message.messages(1)
        edit(parts[group])
        message.set_all(1, parts)
        stream.data = self.packed(encode(message))


def edited(change: Callable[[Statements], None], data: bytes | None = None) -> bytes:
    """The table's file, or another one, with other statements."""
    statements = Statements(plain() if data is None else data)
    change(statements)
    return statements.file()


def no_values(message: Message) -> None:
    """As ORC Java leaves statistics without a row index: nothing was counted."""
    for field in TYPED:
        if message.has(field):
            message.set(field, Message())
    message.set(1, 0)
    message.set(10, 0)


def nothing_but_zero(message: Message) -> None:
    """As some compactions leave them."""
    message.fields[:] = []
    message.set(1, 0)


def only_nulls(message: Message) -> None:
    no_values(message)
    message.set(10, 1)


def bound(field: int, value: int) -> Edit:
    """Set the minimum (1) or maximum (2) of integers."""

    def edit(message: Message) -> None:
        own = message.message(2)
        assert own is not None
        own.set(field, value << 1)
        message.set(2, own)

    return edit
