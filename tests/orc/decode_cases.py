"""ORC files by pyarrow, opened for the decoding of single row groups."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.orc

from sidecar.orc.decode import read_row_group, read_row_groups
from sidecar.orc.index_streams import read_indexes
from sidecar.orc.row_index import RowIndex
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import OrcTail, Stripe, read_tail
from sidecar.storage.source import BytesSource, Source


class OrcFile:
    """Everything that decoding asks for, of one file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tail: OrcTail = read_tail(source)
        self._indexes: dict[int, dict[int, RowIndex]] = {}
        self.footers = [read_stripe_footer(source, self.tail, stripe) for stripe in self.tail.stripes]

    def indexes(self, stripe: Stripe) -> dict[int, RowIndex]:
        if stripe.ordinal not in self._indexes:
            ids = [column.id for column in self.tail.columns]
            footer = self.footers[stripe.ordinal]
            found = read_indexes(
                self.source, self.tail, footer, ids, FileStatistics(self.source, self.tail), bloom=False
            )
            known = {column: index.row_index for column, index in found.items() if index.row_index is not None}
            self._indexes[stripe.ordinal] = known
        return dict(self._indexes[stripe.ordinal])

    def group(self, stripe: Stripe, row_group: int, column: OrcColumn) -> Any:
        footer, indexes = self.footers[stripe.ordinal], self.indexes(stripe)
        return read_row_group(self.source, self.tail, stripe, footer, indexes, row_group, column)

    def groups(self, stripe: Stripe, column: OrcColumn) -> list[Any]:
        return list(read_row_groups(self.source, self.tail, stripe, self.footers[stripe.ordinal], column))

    def leaves(self) -> list[OrcColumn]:
        return [column for column in self.tail.columns if not column.is_compound]


def orc_file(data: bytes) -> OrcFile:
    return OrcFile(BytesSource(data, "a.orc"))


def patterns(rng: random.Random, count: int, low: int, high: int) -> list[int]:
    """Runs, steps, small and large numbers and outliers: each encoding of integers occurs."""
    out: list[int] = []
    while len(out) < count:
        length, kind = rng.randint(1, 700), rng.randrange(7)
        start = rng.randint(low, high)
        if kind == 0:
            out += [start] * length
        elif kind == 1:
            step = rng.choice([-3, -1, 1, 2, 100])
            out += [min(max(start + i * step, low), high) for i in range(length)]
        elif kind == 2:
            out += sorted(rng.randint(low, high) for _ in range(length))
        elif kind == 3:
            out += [rng.randint(max(low, -20), min(high, 20)) for _ in range(length)]
            out[rng.randrange(len(out) - length, len(out))] = start
        elif kind == 4:
            spread = 1 << rng.randrange(1, 63)
            out += [min(max(rng.randint(-spread, spread), low), high) for _ in range(length)]
        elif kind == 5:
            base = rng.randint(low // 2, high // 2)
            out += [min(max(base + rng.randrange(50), low), high) for _ in range(length)]
            for _ in range(length // 15):
                out[rng.randrange(len(out) - length, len(out))] = min(base + rng.randrange(1 << 20), high)
        else:
            out += [rng.choice([low, high, 0]) for _ in range(length)]
    return out[:count]


def random_table(rng: random.Random, count: int) -> Any:
    def some(values: list[Any]) -> list[Any]:
        return [None if rng.random() < share else v for v in values]

    share = rng.choice([0.0, 0.05, 0.9])
    words = [f"w{i}" * rng.randrange(4) for i in range(20)]
    ints = {
        f"i{w}": pa.array(some(patterns(rng, count, -(1 << w - 1), (1 << w - 1) - 1)), f"int{w}")
        for w in (8, 16, 32, 64)
    }
    second = patterns(rng, count, -4_000_000_000, 8_000_000_000)
    nanos = [rng.choice([0, 1, 999_999, 1_000_000, 5 * 10**8, 999_999_999, rng.randrange(10**9)]) for _ in range(count)]
    times = some([s * 10**9 + n for s, n in zip(second, nanos, strict=True)])
    return pa.table(
        {
            **ints,
            "b": pa.array(some([rng.random() < 0.3 for _ in range(count)]), pa.bool_()),
            "f": pa.array(some([rng.gauss(0, 1e10) for _ in range(count)]), pa.float32()),
            "d": pa.array(some([rng.choice([0.0, -0.0, rng.gauss(0, 1e300)]) for _ in range(count)]), pa.float64()),
            "s": pa.array(some([rng.choice(words) for _ in range(count)]), pa.string()),
            "u": pa.array(some([rng.randbytes(rng.randrange(30)).hex() for _ in range(count)]), pa.string()),
            "x": pa.array(some([rng.randbytes(rng.randrange(30)) for _ in range(count)]), pa.binary()),
            "day": pa.array(some(patterns(rng, count, -(2**31), 2**31 - 1)), pa.int32()).cast(pa.date32()),
            "ts": pa.array(times, pa.int64()).cast(pa.timestamp("ns")),
            "tz": pa.array(times, pa.int64()).cast(pa.timestamp("ns", "UTC")),
            "d9": pa.array(
                some([Decimal(v).scaleb(-2) for v in patterns(rng, count, -(10**8), 10**8)]),
                pa.decimal128(9, 2),
            ),
            "d38": pa.array(
                some(
                    [
                        Decimal(rng.choice([1, -1]) * rng.randrange(10 ** rng.randint(1, 38))).scaleb(-20)
                        for _ in range(count)
                    ]
                ),
                pa.decimal128(38, 20),
            ),
            "n": pa.nulls(count, pa.int32()),
        }
    )
