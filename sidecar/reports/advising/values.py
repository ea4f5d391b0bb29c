"""Samples the values of one column in one row group: how many are distinct, and which to look up as examples.

The examples are the values with the smallest hashes. So they are a random choice of the distinct values, and the same
value is chosen in every row group that has it. A theta sketch keeps thousands of the smallest hashes of its row group.
It tells for nearly all examples of other row groups whether its own row group has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sidecar.filters import layouts
from sidecar.filters.array_hash import theta_hashes
from sidecar.filters.column_cast import to_column_type
from sidecar.filters.column_types import ColumnType
from sidecar.filters.theta import ThetaSketch
from sidecar.questions.bounds import Comparable

EXAMPLES = 128
"""Values of a row group that are looked up as examples."""

_DIGITS = Context(prec=80)
"""Enough digits for every decimal; the default context would round 38 of them."""


@dataclass(frozen=True)
class Example:
    """A value of a column: its hash in theta sketches, and the value as bounds have it."""

    hash: int
    value: Comparable


@dataclass(frozen=True)
class UnitCount:
    """The values of a column in one row group (ORC: in one stride), without nulls, and how many are distinct."""

    values: int
    distinct: int


@dataclass(frozen=True)
class SampledValues:
    """The sampled values of a column in one row group (ORC: in one stripe)."""

    units: tuple[UnitCount, ...]
    """The parts that get a filter each: a Parquet row group is one, an ORC stripe has one for each stride."""
    distinct: int
    sketch: ThetaSketch
    examples: tuple[Example, ...]
    slices: tuple[tuple[Comparable, Comparable], ...]
    """The lowest and the highest value of each run of rows that was decoded together, in order."""

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """The hashes of the examples: uint64 [examples]."""
        return np.array([example.hash for example in self.examples], np.uint64)

    def holds(self, hashes: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return which hashes of values the row group has, and for which of them the sketch tells: bool [hashes]."""
        kept = self.sketch.retained
        if not len(kept):
            found = np.zeros(len(hashes), np.bool_)
        else:
            found = kept[np.minimum(np.searchsorted(kept, hashes), len(kept) - 1)] == hashes
        return found, hashes < np.uint64(self.sketch.theta)


class ValueSampler:
    """Collects :class:`SampledValues` of a column of an Iceberg type, array by array."""

    def __init__(self, iceberg_type: str) -> None:
        self._type = iceberg_type
        self._kind = ColumnType.parse(iceberg_type)
        self._hashes: dict[int, list[npt.NDArray[np.uint64]]] = {}
        self._counts: dict[int, int] = {}
        self._examples: dict[int, Comparable] = {}
        self._slices: list[tuple[Comparable, Comparable]] = []
        self._has_empty = False

    def add(self, unit: int, values: layouts.ArrayLike, *, is_run_of_rows: bool) -> None:
        """Add values of a unit, in the file's Arrow type. Equal values in different arrays count once.

        ``is_run_of_rows`` says that they are those of consecutive rows, so that their range is that of a page.
        Raises :class:`sidecar.errors.UsageError` for values that do not fit the column's type.
        """
        self._counts[unit] = self._counts.get(unit, 0) + len(values) - values.null_count
        for chunk in layouts.chunks(values):
            typed: Any = to_column_type(chunk, self._type)
            distinct = pc.unique(typed).drop_null()
            if self._kind.family in ("string", "binary") and self._kind.width is None:
                is_empty: Any = pc.equal(pc.binary_length(distinct), pa.scalar(0))
                filled = distinct.filter(pc.invert(is_empty))  # sketches skip empty values
                self._has_empty |= len(filled) < len(distinct)
                distinct = filled
            hashes = theta_hashes(distinct, self._type) if len(distinct) else np.empty(0, np.uint64)
            self._hashes.setdefault(unit, []).append(hashes)
            self._choose(distinct, hashes)
            if is_run_of_rows and len(distinct):
                sortable = _sortable(distinct)
                low, high = comparable(pa.array([pc.min(sortable), pc.max(sortable)], sortable.type), self._kind)
                self._slices.append((low, high))

    def _choose(self, distinct: Any, hashes: npt.NDArray[np.uint64]) -> None:
        smallest = np.argsort(hashes)[:EXAMPLES]
        if len(self._examples) == EXAMPLES:
            smallest = smallest[hashes[smallest] < np.uint64(max(self._examples))]
        chosen = comparable(distinct.take(pa.array(smallest)), self._kind)
        self._examples.update(zip(hashes[smallest].tolist(), chosen, strict=True))
        self._examples = dict(sorted(self._examples.items())[:EXAMPLES])

    def finish(self) -> SampledValues:
        """Return the sample of all values that were added."""
        units, every = [], []
        for unit, count in sorted(self._counts.items()):
            hashes = np.unique(np.concatenate([*self._hashes.get(unit, ()), np.empty(0, np.uint64)]))
            units.append(UnitCount(count, len(hashes)))
            every.append(hashes)
        together = np.unique(np.concatenate([*every, np.empty(0, np.uint64)]))
        sketch = ThetaSketch()
        sketch.update(together)
        examples = tuple(Example(hash, value) for hash, value in self._examples.items())
        distinct = len(together) + self._has_empty
        return SampledValues(tuple(units), distinct, sketch, examples, tuple(self._slices))


def comparable(values: Any, kind: ColumnType) -> list[Comparable]:
    """Return the values of an array without nulls, in the column's type, as bounds have them."""
    if kind.scale is not None:
        return [int(value.scaleb(kind.scale, _DIGITS)) for value in values.to_pylist()]
    if kind.family in ("date", "time", "timestamp"):
        return values.cast(pa.int32() if kind.width == 4 else pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if kind.family == "string":
        return values.cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]
    return [int(value) if isinstance(value, bool) else value for value in values.to_pylist()]


def literal(value: Comparable, kind: ColumnType) -> Any:
    """Return a value of bounds as pyiceberg's transforms take it."""
    if kind.scale is not None and isinstance(value, int):
        return Decimal(value).scaleb(-kind.scale, _DIGITS)
    if kind.family == "string" and isinstance(value, bytes):
        return value.decode()
    return value


def _sortable(values: Any) -> Any:
    return values.cast(pa.binary()) if pa.types.is_fixed_size_binary(values.type) else values
