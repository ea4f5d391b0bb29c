"""Finds what is false in an ORC file without reading values: by what the file says elsewhere.

Statistics of a whole (a file, a stripe) are held against those of its parts, and a row index against its stripe.
:mod:`sidecar.orc.statistics.column_statistics` finds counts that cannot be true in the rows, and
:mod:`sidecar.orc.statistics.file_statistics` looks at the statistics of file and stripes.

What is found is not used by a scan, not carried into a sidecar, and named by ``verify`` and ``inspect``. If two
statements contradict each other, one of them may be true, but nothing says which: then neither is believed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sidecar.errors import SidecarError, reason_at
from sidecar.orc.protobuf import Message
from sidecar.orc.row_index import MOST_KEPT, RowIndex, RowIndexEntry, positions_in
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.column_statistics import ColumnStatistics, Extent, decode_statistics, unknown_statistics
from sidecar.orc.stripe import StripeFooter
from sidecar.orc.tail import OrcTail

_WITH_VALUES = frozenset({"DATA", "SECONDARY", "LENGTH", "DICTIONARY_DATA"})
"""Streams that are empty if the column has no values in the stripe."""

_MOST_NAMED = 1000
"""With more false row groups than this, the rest of a row index is not looked at, and none of it is believed."""


_Positions = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Contradictions:
    """The contradictions between statistics of a whole and of its parts: of all parts, and of single parts by their
    numbers."""

    of_all: str = ""
    of_part: dict[int, str] = field(default_factory=dict)
    is_counted: bool = False
    """Whether the whole is believed to have as many values as all of its parts."""

    def of(self, part: int) -> str:
        """Return why nothing is believed of a part; empty if something is."""
        return self.of_all or self.of_part.get(part, "")


class PartStatistics:
    """The statistics of a column in the parts of a whole, added one by one, and held against those of the whole.

    ``name`` and ``parts_name`` are what the whole and its parts are called in reasons.
    """

    def __init__(self, whole: ColumnStatistics | None, name: str, parts_name: str) -> None:
        self._whole = whole
        self._name, self._parts_name = name, parts_name
        self._low: Any = None
        self._high: Any = None
        self._all_bounded = True
        self.values: int | None = 0
        """The number of values in all parts; ``None`` if some part does not say it."""

    def add(self, part: ColumnStatistics | None) -> str:
        """Add a part, ``None`` if it has no statistics. Return why it contradicts the whole; empty if it does not."""
        count = None if part is None else part.num_values
        self.values = None if self.values is None or count is None else self.values + count
        if part is None or part.min is None or part.max is None:
            self._all_bounded &= part is not None and part.all_null
            return ""
        low, high = part.min, part.max
        self._low = low if self._low is None else min(self._low, low)
        self._high = high if self._high is None else max(self._high, high)
        whole = self._whole
        if whole is None or whole.min is None or whole.max is None:
            return ""
        is_outside = low < whole.min or high > whole.max  # type: ignore[operator]
        return f"minimum or maximum is outside those of the {self._name}" if is_outside else ""

    @property
    def is_counted(self) -> bool:
        """Whether the whole has as many values as all parts."""
        return self._whole is not None and self.values is not None and self._whole.num_values == self.values

    def problem(self) -> str:
        """Return why all parts together contradict the whole; empty if they do not."""
        whole = self._whole
        if whole is None:
            return ""
        if self.values is not None and whole.num_values not in (None, self.values):
            return (
                f"statistics of the {self._name}: {whole.num_values} values, "
                f"but its {self._parts_name} have {self.values}"
            )
        is_known = whole.exact and self._all_bounded and self._low is not None
        if is_known and (self._low > whole.min or self._high < whole.max):
            return f"statistics of the {self._name}: minimum or maximum is in none of its {self._parts_name}"
        return ""


class RowIndexClaims:
    """The statements of a column's row index about the row groups of a stripe."""

    def __init__(
        self,
        tail: OrcTail,
        footer: StripeFooter,
        column: OrcColumn,
        index: RowIndex,
        whole: Callable[[], ColumnStatistics | None],
    ) -> None:
        """``whole`` returns the statistics of the column in the stripe."""
        self._whole = whole
        self._tail = tail
        self._footer = footer
        self._column = column
        self._index = index
        self._lengths = {stream.kind: stream.length for stream in footer.streams_of(column.id)}
        self._known: dict[int, ColumnStatistics | None] = {}

    def statistics(self, row_group: int) -> ColumnStatistics | None:
        """Return the statistics of a row group; if they are false in themselves, nothing of them is believed.

        ``None`` if it has none. Raises :class:`sidecar.errors.DamagedFileError`.
        """
        if row_group in self._known:
            return self._known[row_group]
        return self._keep(row_group, self._index.entry(row_group))

    def believed(self, row_group: int) -> ColumnStatistics | None:
        """Return what is believed of a row group by its stripe too. ``None`` and raises as :meth:`statistics`.

        A column in a struct may have no values and no nulls, if all structs are null. The row group does not show that;
        but if the stripe counts as many values as all row groups, those of this one were counted too.
        """
        found = self.statistics(row_group)
        if found is None:
            return None
        if what := self.contradictions.of(row_group):
            return unknown_statistics(found.raw, self._column, what)
        if found.counts_none and not found.all_null and self.contradictions.is_counted:
            return replace(found, all_null=True)
        return found

    @cached_property
    def contradictions(self) -> Contradictions:
        """The contradictions between the row index and its stripe."""
        whole = self._whole()
        together = PartStatistics(None if whole is None or whole.contradiction else whole, "stripe", "row groups")
        of_group: dict[int, str] = {}
        before: _Positions = {}
        for group in range(len(self._index)):
            try:
                entry = self._index.entry(group)
                what, before = self._position_problem(group, entry, before)
            except SidecarError as error:
                together.add(None)
                of_group[group] = f"ROW_INDEX: {reason_at(error)}"
            else:
                doubt = self._statistics_problem(group, entry, together)
                if what or doubt:
                    of_group[group] = what or f"statistics: {doubt}"
            if len(of_group) > _MOST_NAMED:
                return Contradictions("more of its entries are false", of_group)
        of_all = together.problem() or self._missing_values(together.values)
        return Contradictions(of_all, of_group, together.is_counted)

    def misplaced(self, row_group: int) -> str:
        """Return why the row group cannot be read by its positions; empty if the entries beside it agree with them."""
        before: _Positions = {}
        try:
            for group in range(max(row_group - 1, 0), min(row_group + 2, len(self._index))):
                what, before = self._position_problem(group, self._index.entry(group), before)
                if what:
                    return what
        except SidecarError as error:
            return reason_at(error)
        return ""

    def _statistics_problem(self, group: int, entry: RowIndexEntry, together: PartStatistics) -> str:
        """Add the statistics of a row group to ``together``. Return why they are false; empty if they are not."""
        try:
            found = self._known[group] if group in self._known else self._keep(group, entry)
        except SidecarError as error:
            together.add(None)
            return reason_at(error)
        outside = together.add(found)
        return outside if found is None else found.contradiction or outside

    def _keep(self, row_group: int, entry: RowIndexEntry) -> ColumnStatistics | None:
        found = self._decoded(entry.statistics, self._footer.stripe.rows_of(row_group))
        if len(self._index) <= MOST_KEPT:
            self._known[row_group] = found
        return found

    def _decoded(self, message: Message | None, rows: int) -> ColumnStatistics | None:
        if message is None:
            return None
        column, extent = self._column, Extent.of(self._column, rows)
        found = decode_statistics(message, column, self._tail, self._footer.writer_timezone, extent)
        values = found.num_values
        if values is None or column.encrypted or values >= extent.least or "PRESENT" in self._lengths:
            return found
        return unknown_statistics(message, column, f"{values} values in {rows} rows, but the stripe has no nulls")

    def _missing_values(self, values: int | None) -> str:
        has_values = any(self._lengths.get(kind) for kind in _WITH_VALUES)
        is_false = values == 0 and has_values and not self._column.is_compound and not self._column.encrypted
        return "statistics: no values in any row group, but the stripe has some" if is_false else ""

    def _position_problem(self, group: int, entry: RowIndexEntry, before: _Positions) -> tuple[str, _Positions]:
        """Return why positions of a row group are wrong, and the positions; ``before`` has those of the one before."""
        positions = positions_in(entry, self._column, self._tail, self._footer)
        for kind, numbers in positions.items():
            if kind not in self._lengths:
                continue  # the column has no values
            if numbers[0] > self._lengths[kind]:
                return f"ROW_INDEX: the position in {kind} is beyond its end", positions
            if group == 0 and any(numbers):
                return f"ROW_INDEX: the first row group does not begin where {kind} does", positions
            if kind in before and numbers < before[kind]:
                return f"ROW_INDEX: the position in {kind} is before that of the previous row group", positions
        return "", positions
