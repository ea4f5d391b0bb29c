"""Gathers what an ORC file tells about the values of one row group: the evidence for rebuilding a filter.

A row group has no dictionary of its own, because a stripe's dictionary has the values of all its row groups. Bounds
come from the row index; they are believed if :mod:`sidecar.orc.statistics` believes them and they are values that
occur. The old filter is believed if it is trusted (:mod:`sidecar.orc.trust`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sidecar.conversion.rebuild import Build, Domain, Numbers
from sidecar.filters.orc_array_hash import hash_orc
from sidecar.filters.orc_bloom import OrcBloomFilter, size_for
from sidecar.filters.orc_encoding import OrcEncoding
from sidecar.orc.index_streams import FoundOrcFilter
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics import ColumnStatistics

_INTEGERS: dict[str, pa.DataType] = {
    "BYTE": pa.int8(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "LONG": pa.int64(),
    "DATE": pa.int32(),
}
_LONG = OrcEncoding.parse("orc/long")
_BY_NUMBER = frozenset({"orc/long", "orc/date"})
"""Encodings whose keys are the integers of the column."""

if TYPE_CHECKING:
    Array = pa.Array[Any]


class OrcEvidence:
    """The evidence about the values of a column in one row group.

    ``old`` is the row group's filter, ``statistics`` comes from its row index; both may be missing. ``decode`` reads
    the values in the file's type, and ``convert`` gives them the type of the new filter's encoding.
    """

    def __init__(
        self,
        column: OrcColumn,
        old: FoundOrcFilter | None,
        statistics: ColumnStatistics | None,
        decode: Callable[[], Array],
        convert: Callable[[Array], Array],
    ) -> None:
        self._column = column
        self._old = old
        self._statistics = statistics
        self._decode = decode
        self._convert = convert

    def dictionary(self) -> list[Array] | str:
        """See :meth:`sidecar.conversion.rebuild.Evidence.dictionary`."""
        return "an ORC dictionary belongs to a stripe, not to one row group"

    def domain(self) -> Domain | str:
        """See :meth:`sidecar.conversion.rebuild.Evidence.domain`."""
        old, statistics = self._old, self._statistics
        if old is None or old.filter is None:
            return "there is no old filter of this column"
        if not old.trusted or old.encoding is None:
            return f"the old filter is not trusted: {old.reason}"
        if self._column.kind not in _INTEGERS or old.encoding.name not in _BY_NUMBER:
            return f"values of {self._column.kind} are not bounded integers"
        if statistics is None or statistics.num_values is None:
            return "the row group has no statistics"
        low, high = statistics.min, statistics.max
        if not statistics.exact or type(low) is not int or type(high) is not int:
            return statistics.reason or "the row group has no exact bounds"
        bits = old.filter
        return Domain(
            low,
            high,
            lambda numbers: admits(bits, numbers),
            self._to_arrow,
            bits.estimated_fpp(),
            statistics.num_values,
        )

    def values(self) -> tuple[Iterator[Array], int]:
        """See :meth:`sidecar.conversion.rebuild.Evidence.values`."""
        array = self._convert(self._decode())
        return iter([array]), len(array) - array.null_count

    def _to_arrow(self, numbers: Numbers) -> Array:
        typed: Any = pa.array(numbers).cast(_INTEGERS[self._column.kind])
        return self._convert(typed.cast(pa.date32()) if self._column.kind == "DATE" else typed)


def admits(old: OrcBloomFilter, numbers: Numbers) -> npt.NDArray[np.bool_]:
    """Return for each number whether the old filter may hold it: bool[n]."""
    return old.check(hash_orc(pa.array(numbers), _LONG))


def orc_filter_of(encoding: OrcEncoding, entries: int, fpp: float) -> Build[OrcBloomFilter]:
    """Return a builder of ORC filters, sized as writers do for ``entries`` values (or more, if more are distinct)."""

    def build(arrays: Any, distinct: int) -> OrcBloomFilter:
        made = OrcBloomFilter.empty(*size_for(max(entries, distinct), fpp))
        for array in arrays:
            made.insert_arrow(array, encoding)
        return made

    return build
